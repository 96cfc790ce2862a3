"""`penstock train-heads MODEL`: trains heads that draft for a model, on given text and on what the model itself makes of it."""
import json as jsonlib
import sys
from dataclasses import dataclass
from math import inf
from pathlib import Path

from penstock.cli.options import option, takes
from penstock.core.errors import UsageError
from penstock.core.extras import how_to_install

MINUTES = 30.0  # of a run that is not told how long
HELD_OUT = 0.05  # of the text, where no other is given to measure on
HELP = "A folder in Hugging Face layout, a GGUF file, a hub name, or a bundled model: brook, rill"


@dataclass(frozen=True, slots=True)
class TrainHeadsOptions:
    model: str = option("brook", HELP)
    kind: str | None = option(None, "What to train, as name:key=value,...")
    text: tuple[str, ...] = option(
        (), "A file or folder of text (.txt, .md, .jsonl) like what the model will be given; may be given several times")
    held_out: tuple[str, ...] = option((), "Held-out text to measure on, likewise; default: the last 5 to 10 % of each document of --text")
    begin: str | None = option(None, "Folder with heads of this kind to continue training; default: start with new ones")
    out: str | None = option(None, "Folder to write the file <kind>.safetensors to")
    minutes: float | None = option(None, "Most minutes that the command may take; default: 30, or no limit with --steps")
    steps: int | None = option(
        None, "Train for this many batches of some 2,000 tokens, so that a run is reproducible; with --minutes, whichever ends first")
    seed: int = option(0, "Seed for the initial weights and the choice of text")
    threads: int | None = option(None, "CPU threads; default: all")
    json: bool = option(False, "Print one JSON object as the last line")


@takes(TrainHeadsOptions)
def train_heads(options: TrainHeadsOptions) -> None:
    """Train draft heads for a model."""
    if options.kind is None or options.out is None or not options.text:
        raise UsageError("train-heads needs --kind (what to train), --text (on which text) and --out (where to write it)")
    if options.minutes is not None and not 0 < options.minutes < inf:
        raise UsageError(f"--minutes must be a finite number above 0, not {options.minutes}")
    if options.steps is not None and options.steps < 1:
        raise UsageError(f"--steps must be at least 1, not {options.steps}")
    if not 0 <= options.seed < 1 << 63:
        raise UsageError(f"--seed must be from 0 to {(1 << 63) - 1}, not {options.seed}")
    try:
        from penstock.study.compress import heads, text
        from penstock.study.compress.run import Job, run
        from penstock.study.compress.train_heads import Length

        kind, settings = heads.TABLE.parse(options.kind)
    except ImportError as error:
        if error.name != "torch":
            raise
        raise UsageError(f"train-heads needs torch: {how_to_install('torch')}") from None
    minutes = MINUTES if options.minutes is None and options.steps is None else options.minutes
    length = Length(minutes, options.steps)
    documents = text.read(options.text)
    train, held_out = (documents, text.read(options.held_out)) if options.held_out else text.split(documents, HELD_OUT)
    name = options.kind.partition(":")[0]
    begin = None if options.begin is None else Path(options.begin)
    measured_on = "text to measure on" + ("" if options.held_out else " (the last 5 to 10 % of --text; --held-out names other)")
    job = Job(options.model, name, train, held_out, Path(options.out), length, options.seed, options.threads, begin=begin,
              measured_on=measured_on)
    result = run(job, lambda target, seed: kind(settings, target, seed), lambda line: print(line, file=sys.stderr, flush=True))
    if options.json:
        print(jsonlib.dumps(result.as_json()))
    else:
        given = f"{options.kind}{',' if ':' in options.kind else ':'}path={options.out}"
        print(f"{result.path}: {result.num_parameters:,} parameters; to draft with them: --propose {given}")
