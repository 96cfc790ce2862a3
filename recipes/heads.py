"""Trains the heads that draft for brook: on the books and the repeats that brook was trained on, measured on books that are held out.

    python recipes/heads.py --corpus FOLDER --kind eagle --steps 800 --threads 1 --out penstock/bundled/brook
    python recipes/heads.py --corpus FOLDER --kind medusa --steps 330 --threads 1 --out penstock/bundled/brook

What follows --corpus are options of `penstock train-heads`, which this calls with the two parts of the books as its --text and --held-out.
How the committed ones were made, in runs that were interrupted, is in docs/LOG.md. About 2 seconds a step on one core.
"""
import argparse
import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from corpus import split
from repeats import Repeats

from penstock.cli import run

REPEATS = 0.3  # documents in which a text comes again, for each passage of the books


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="the folder of books")
    args, rest = parser.parse_known_args()
    with TemporaryDirectory() as folder:
        files = []
        train, held_out = split(args.corpus)
        repeats = Repeats(train, longest=600, seed=2)
        train += [repeats.document() for _ in range(round(len(train) * REPEATS))]
        for name, passages in (("train", train), ("held-out", held_out)):
            files.append(Path(folder) / f"{name}.jsonl")
            files[-1].write_text("".join(json.dumps({"text": passage}) + "\n" for passage in passages))
        return run(["train-heads", "brook", "--text", str(files[0]), "--held-out", str(files[1]), *rest])


if __name__ == "__main__":
    sys.exit(main())
