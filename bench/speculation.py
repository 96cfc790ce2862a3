#!/usr/bin/env python3
"""What each proposer gives and costs: tokens a second beside plain decoding, at 1 to 64 requests at once.

    python bench/speculation.py --text FILE... [--model brook] [--propose ngram auto ...] [--concurrency 1 8 64] [--record]
    python bench/speculation.py --echo qwen3-0.6b --folder DIR --quant int4 --propose ngram auto --concurrency 1

An engine with a proposer and one without run the same requests one after the other, in every second round the one without first; ratios
are of such a pair's rates, and the median and the least of them are told. Every answer is compared with plain decoding's: one token that
differs is an error. Workloads: `story` (nothing to copy) and `copy` (edits, quotes, JSON echoes) of the text given; with --echo, on a
model of a large shape that is made in --folder and says what is known beforehand, `quote` (a page again) and `edit` (a page with every
tenth token changed is to be corrected). Greedy; no end of text.
The last line is JSON; `--record` keeps it in bench/results.
"""
import argparse
import json
import statistics
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from drafts import echo, prompts
from versus.record import RESULTS, slug, today, write

from penstock import LLM, SamplingParams
from penstock.core.config import EngineConfig
from penstock.core.drafting import together
from penstock.serve.engine.build import find
from penstock.serve.engine.machine import processor
from penstock.serve.text.tokenizer import Tokenizer

SECONDS = 1.0  # that a measurement takes at least, by its number of requests


@dataclass(frozen=True, slots=True)
class Row:
    workload: str
    propose: str
    concurrency: int
    ratio: float  # of plain tokens a second, prompts included, the median of the rounds
    least: float
    decode_ratio: float  # the same of the time after each answer's first token
    tokens_per_pass: float | None
    drafted: int
    accepted: int


@dataclass(frozen=True, slots=True)
class Ran:
    tokens_per_s: float
    decode_tokens_per_s: float  # from each answer's first token to its last
    answers: list[list[int]]
    outputs: list[Any]


def run(llm: LLM, requests: list[list[int]], num_new: int) -> Ran:
    params = SamplingParams(max_tokens=num_new, temperature=0, ignore_eos=True)
    began = time.perf_counter()
    outputs = llm.generate([{"prompt_token_ids": request} for request in requests], params)
    seconds = time.perf_counter() - began
    answers = [output.outputs[0].token_ids for output in outputs]
    decoding = sum(output.finished_s - output.first_token_s for output in outputs)
    return Ran(sum(map(len, answers)) / seconds, sum(len(answer) - 1 for answer in answers) / decoding, answers, outputs)


def sweep(engines: dict[str, LLM], workload: str, make: prompts.Prompts, concurrency: int, args: argparse.Namespace) -> list[Row]:
    """`engines`: by what they draft with; "" is plain."""
    count = concurrency
    requests = make(count)
    plain = run(engines[""], requests, args.new)
    while count / plain.tokens_per_s * args.new < SECONDS:
        count *= 2
        requests = make(count)
        plain = run(engines[""], requests, args.new)
    ratios: dict[str, list[float]] = {name: [] for name in engines if name}
    decoding: dict[str, list[float]] = {name: [] for name in ratios}
    told: dict[str, Any] = {}
    for number in range(args.rounds):
        for name in ratios:
            requests = make(count)
            pair = ("", name) if number % 2 else (name, "")
            ran = {each: run(engines[each], requests, args.new) for each in pair}
            if ran[name].answers != ran[""].answers:
                raise SystemExit(f"{name} answers otherwise than plain decoding at {concurrency} requests of {workload}")
            ratios[name].append(ran[name].tokens_per_s / ran[""].tokens_per_s)
            decoding[name].append(ran[name].decode_tokens_per_s / ran[""].decode_tokens_per_s)
            told[name] = together(output.drafting for output in ran[name].outputs)
    rows = []
    for name, found in ratios.items():
        each = told[name]
        rows.append(Row(workload, name, concurrency, statistics.median(found), min(found), statistics.median(decoding[name]),
                        each.tokens_per_pass, each.num_drafted, each.num_accepted))
        rate = f"{each.tokens_per_pass:.2f}" if each.tokens_per_pass else "-"
        row = rows[-1]
        print(f"{workload:6} {concurrency:3} at once  {name:34} {row.ratio:5.2f} x plain (least {row.least:4.2f}), "
              f"decode {row.decode_ratio:4.2f}  "
              f"tokens a pass {rate}, drafted {each.num_drafted}, accepted {each.num_accepted}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="brook")
    parser.add_argument("--echo", choices=sorted(echo.SHAPES))
    parser.add_argument("--folder", type=Path, help="where the model of --echo is made")
    parser.add_argument("--text", type=Path, nargs="+", default=[])
    parser.add_argument("--propose", nargs="+", default=["ngram", "suffix", "auto"])
    parser.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--workloads", nargs="+", choices=["story", "copy"], default=["story", "copy"])
    parser.add_argument("--quant", default="none")
    parser.add_argument("--new", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--record", action="store_true")
    args = parser.parse_args()
    if args.echo:
        made = echo.make(args.folder / args.echo, args.echo, Path(find(EngineConfig()).source.path))
        model = str(args.folder / args.echo)
        workloads = {"quote": prompts.echoing(made, changed=0.0), "edit": prompts.echoing(made, changed=0.1)}
    elif not args.text:
        parser.error("--text says what prompts are made of")
    else:
        encode = Tokenizer.load(find(EngineConfig(model=args.model)).source.path).encode
        makers = {"story": prompts.story, "copy": prompts.copying}
        model, workloads = args.model, {name: makers[name](encode, args.text) for name in args.workloads}
    rows: list[Row] = []
    for concurrency in args.concurrency:
        options = {"quant": args.quant, "max_num_seqs": concurrency, "max_model_len": 1024}
        engines = {name: LLM(model, propose=name or None, **options) for name in ("", *args.propose)}
        for name, make in workloads.items():
            rows += sweep(engines, name, make, concurrency, args)
    told = {"bench": "speculation", "model": args.echo or args.model, "quant": args.quant, "machine": processor().model, "date": today(),
            "threads": processor().num_cpus, "new": args.new, "rounds": args.rounds, "rows": [asdict(row) for row in rows]}
    if args.record:
        write(told, RESULTS / f"{today()[:10]}-{slug(processor().model)}-speculation-{told['model']}-{args.quant}.json")
    print(json.dumps(told))


if __name__ == "__main__":
    main()
