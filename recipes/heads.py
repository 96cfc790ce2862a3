"""Trains the heads that draft for brook, on the books that it was trained on; those that are held out measure them.

    python recipes/heads.py --corpus FOLDER --kind eagle|medusa [--minutes 60] [--out penstock/bundled/brook]

The same as `penstock train-heads brook`, whose --text and --held-out are these two parts of the books.
"""
import argparse
import json
from pathlib import Path

from corpus import split

from penstock.study.compress import heads
from penstock.study.compress.run import Job, run
from penstock.study.compress.train_heads import Length


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="the folder of books")
    parser.add_argument("--kind", required=True, help="eagle or medusa, as name:key=value,...")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--out", type=Path, default=Path("penstock/bundled/brook"))
    args = parser.parse_args()
    kind, options = heads.TABLE.parse(args.kind)
    train, held_out = split(args.corpus)
    job = Job("brook", args.kind.partition(":")[0], train, held_out, args.out, Length(args.minutes, args.steps), args.seed, args.threads)
    result = run(job, lambda target, seed: kind(options, target, seed), lambda line: print(line, flush=True))
    print(json.dumps(result.as_json()))


if __name__ == "__main__":
    main()
