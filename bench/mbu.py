#!/usr/bin/env python3
"""How close is a decode step to the memory bandwidth at that moment? Each step is followed by a read of as many bytes.

    python bench/mbu.py [--models DIR] [--model qwen3-0.6b,llama-3.2-1b] [--formats bf16,int8,int4,int8a8,int4a8]
                        [--depths 0,2048,8192,16384] [--steps 60] [--record]

A shared machine's bandwidth can change by half within seconds, so a rate measured before and after a run says little about it. Here a step
and a read take turns, tens of milliseconds apart, and the median of the pairs is reported: `MBU`, the bytes that the step's StepRecord
counts over its time, as a share of the read's rate; `native`, the same for the native call alone. The read leaves only its own data in the
caches.
The last line is JSON.
"""
import argparse
import json
import statistics
from dataclasses import asdict, dataclass
from typing import Any

from versus.arguments import RECORD, Parser, folder, listed, one_of, said, whole
from versus.engines import check_words
from versus.options import models_to_run
from versus.ours import FORMATS
from versus.points import SHORT
from versus.record import RESULTS, keep_rows, named, slug, today
from versus.shapes import Shape, open_shape

from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.core.events import StepRecord
from penstock.core.types import SamplingParams
from penstock.serve.engine.build import build
from penstock.serve.engine.machine import has_native, num_cpus, processor
from penstock.serve.engine.requests import Request
from penstock.serve.engine.utilization import Recorder

BLOCK = 16  # tokens
WARM = 4  # steps that are not counted
WAY = ("threads", "steps")  # options of measuring


@dataclass(frozen=True, slots=True)
class Row:
    model: str
    format: str
    depth: int  # tokens of context
    bytes: int  # weights, keys and values of a step
    mbu: float
    least: float  # of the middle half of the pairs
    most: float
    native: float  # MBU of the native call
    host_s: float  # a step's time beside it
    read_bytes_per_s: float


def row(model: str, format: str, depth: int, pairs: list[tuple[StepRecord, float]]) -> Row:
    """`pairs`: a step, and the bytes a second of the read after it."""
    shares = [moved(step) / step.seconds / rate for step, rate in pairs]
    native = [moved(step) / step.compute_seconds / rate for step, rate in pairs]
    least, middle, most = statistics.quantiles(shares, n=4)
    return Row(
        model, format, depth, moved(pairs[-1][0]), middle, least, most, statistics.median(native),
        statistics.median(step.seconds - step.compute_seconds for step, _ in pairs), statistics.median(rate for _, rate in pairs))


def moved(step: StepRecord) -> int:
    return step.weight_bytes + step.kv_bytes


def measure(path: str, format: str, depths: list[int], args: argparse.Namespace) -> list[list[tuple[StepRecord, float]]]:
    """The pairs of each depth, the depths in turn with one engine."""
    from penstock import _native

    recorder = Recorder()
    most = max(depths) + WARM + args.steps + 2
    built = build(EngineConfig(
        model=path, dtype="bfloat16", **FORMATS[format][1], threads=args.threads, block_size=BLOCK, max_model_len=most,
        kv_tokens=(-(-most // BLOCK) + 1) * BLOCK), recorder)
    engine, found = built.engine, []
    for depth in depths:
        params = SamplingParams(temperature=0.0, max_tokens=WARM + args.steps + 1, ignore_eos=True)
        engine.add(Request(str(depth), tuple(i % built.spec.vocab_size for i in range(1, depth + 1)), params))
        with recorder.recording() as records:
            while len([step for step in records if not step.num_prefill_tokens]) < WARM:
                engine.step()
            reader = _native.Reader(moved(records[-1]), args.threads)
            records.clear()
            rates: list[float] = []
            while len(rates) < args.steps:
                engine.step()
                rates.append(reader.bytes / reader.read())
            found.append(list(zip(records, rates, strict=True)))
        engine.abort(str(depth))
    return found


def make_parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--models", type=folder, help="folder of checkpoints")
    made.add_argument("--model", type=listed(said), help="models or paths, comma-separated; default: the usual ones that are found")
    made.add_argument("--formats", type=listed(one_of(FORMATS)), default=",".join(FORMATS), help="weight formats; default: %(default)s")
    made.add_argument("--depths", type=listed(whole(0)), default="0,2048,8192,16384",
                      help="tokens of context; 0: a short prompt; default: %(default)s")
    made.add_argument("--steps", type=whole(2), default=60, help="steps at each depth; default: %(default)s")
    made.add_argument("--threads", type=whole(), default=num_cpus(), help="threads of the engine and of the reads; default: all processors")
    made.add_argument("--record", action="store_true", help=RECORD)
    return made


def shapes(args: argparse.Namespace) -> list[tuple[Shape, list[int]]]:
    """The models, and the depths that each holds. Raises PenstockError."""
    found = []
    for model in models_to_run(args.model, args.models):
        shape = open_shape(model, args.models)
        for format in args.formats:
            check_words(EngineConfig(model=shape.path, dtype="bfloat16", **FORMATS[format][1]), shape.found)
        room = shape.spec.max_position - args.steps - WARM - 2
        depths = [depth for depth in (depth or SHORT for depth in args.depths) if depth <= room]
        if not depths:
            raise UsageError(f"{model} holds a context of {max(0, room):,} tokens beside --steps {args.steps:,}, and none of --depths fits")
        found.append((shape, depths))
    return found


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    if not has_native():
        parser.error("only the native module reads memory, and it was not built here")
    with parser.refusing():
        found = shapes(args)
    rows: list[Row] = []
    for shape, depths in found:
        for format in args.formats:
            for depth, pairs in zip(depths, measure(shape.path, format, depths, args), strict=True):
                rows.append(row(shape.model, format, depth, pairs))
                say(rows[-1])
    told: dict[str, Any] = {"bench": "mbu", "machine": processor().model, "threads": args.threads, "date": today(), "steps": args.steps,
                            "rows": [asdict(each) for each in rows]}
    if args.record:
        path = RESULTS / f"{today()[:10]}-{slug(processor().model)}-mbu{named(parser.others(args, WAY))}.json"
        keep_rows(told, path, WAY, lambda row: (row["model"], row["format"], row["depth"]))
    print(json.dumps(told))


def say(row: Row) -> None:
    print(f"{row.model} {row.format:6} at {row.depth:6}: MBU {row.mbu:.1%} ({row.least:.1%} to {row.most:.1%}), "
          f"native call {row.native:.1%}, host {row.host_s * 1e6:.0f} us; {row.bytes / 1e6:.0f} MB, "
          f"read at {row.read_bytes_per_s / 1e9:.1f} GB/s", flush=True)


if __name__ == "__main__":
    main()
