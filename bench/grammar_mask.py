#!/usr/bin/env python3
"""Microseconds that a grammar adds per token, with brook's vocabulary and with a made-up one of about 150 thousand tokens.

    python bench/grammar_mask.py --schemas PATH [--most 300] [--tokens 96] [--rows 1 32] [--vocabulary 151936] [--form json] [--record]

PATH is a `.jsonl` file with a JSON schema in the field `schema` of each line, or a folder of such files and of `.json` files that are one
schema each. brook writes an answer to each schema (temperature 1); the answers are replayed token by token in both vocabularies, in
as many lanes as there are rows. For each step these are timed, and divided by its rows:

  mask    what may come next, a bit for each token: done by another thread while the model computes
  handed  the same, from handing the work to that thread until it reports back; a model's step hides it
  apply   masking what may not come in the rows' logits: after the model
  follow  advancing over the chosen tokens, and finding what must come next: after the model

With `--form grammar` each schema stands in a Lark grammar, where what must come next is found from masks: that is part of `mask`. With
`--form unforced` that search is left out.

The made vocabulary has, in the proportions of real ones of that size: all bytes; brook's own tokens; numbers of up to three digits; runs
of blanks and line breaks; pairs and triples of JSON's punctuation; words made of two to four of brook's pieces, most of them behind a
blank, some in capitals; a fifth pieces of Cyrillic, Chinese and Hangul. It is drawn with a fixed seed and downloads nothing. An answer is
spelled in the longest tokens from the left. The last line is JSON; `--record` keeps it in bench/results.
"""
import json
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import cycle, islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from drafts.vocabulary import Made, made
from versus.arguments import RECORD, Parser, Refused, whole
from versus.record import RESULTS, digest, named, place_of, slug, today, write

from penstock import LLM, SamplingParams, StructuredOutputsParams
from penstock.compute.decoding.grammar.compiler import Compiler
from penstock.compute.decoding.grammar.contract import Tokens
from penstock.compute.decoding.grammar.masks import Masks, fill
from penstock.compute.decoding.grammar.masks import Path as Rows
from penstock.compute.decoding.grammar.matcher import Matcher
from penstock.compute.decoding.masking import RowMasks
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.decoding.state import RowState
from penstock.compute.runner.runner import Runner
from penstock.core.errors import RequestError
from penstock.core.types import SeqInfo
from penstock.serve.engine.build import make_compiler
from penstock.serve.engine.machine import processor

LEAST_VOCABULARY = 16384  # tokens: brook's, bytes, numbers, blanks and punctuation alone are half of them
LEAST_STEPS = 2
GOAL_US = 60.0  # at the median, mask and apply together
MAX_LEN = 131_072  # tokens of a context
WAY = ("most", "tokens", "rows", "vocabulary", "form")  # options of measuring, beside the schemas
STAGES = ("mask", "handed", "apply", "follow")
FORMS: dict[str, Callable[[str], StructuredOutputsParams]] = {
    "json": lambda schema: StructuredOutputsParams(json=schema),
    "grammar": lambda schema: StructuredOutputsParams(grammar=f"start: %json {schema}"),
    "unforced": lambda schema: StructuredOutputsParams(grammar=f'%llguidance {{"no_forcing": true}}\nstart: %json {schema}'),
}


class Lane:
    """One row's sequence: it replays one answer after another, and begins again when there are no more."""

    def __init__(self, compiler: Compiler, answers: Iterable[tuple[StructuredOutputsParams, list[int]]]) -> None:
        self._compiler = compiler
        self._answers = iter(answers)
        self._tokens: list[int] = []
        self.matcher: Matcher
        self.state: RowState

    def next(self) -> int:
        """The token that comes next; a new answer is begun where the last one has ended."""
        while not self._tokens:
            wanted, tokens = next(self._answers)
            params = SamplingParams(temperature=0, structured_outputs=wanted)
            self.matcher, self._tokens = self._compiler.matcher(params), tokens[::-1]
            self.state = RowState(SeqInfo(params, (0,), 0))
        return self._tokens.pop()


def replay(compiler: Compiler, sampler: Sampler, lanes: Sequence[Lane], num_steps: int) -> dict[str, list[float]]:
    """Microseconds of each stage, a row, in each step."""
    masks = Masks(compiler.vocabulary.width)
    bits = np.empty((len(lanes), compiler.vocabulary.width // 32), dtype=np.uint32)
    size = compiler.vocabulary.size
    logits = np.random.default_rng(0).standard_normal((len(lanes), size), dtype=np.float32)
    every, index = list(range(len(lanes))), [0] * len(lanes)
    took: dict[str, list[float]] = {stage: [] for stage in STAGES}
    for _ in range(num_steps):
        tokens = [lane.next() for lane in lanes]
        times = [time.perf_counter()]
        fill([Rows(lane.matcher) for lane in lanes], bits)
        times.append(time.perf_counter())
        masks.begin([Rows(lane.matcher) for lane in lanes])
        found = masks.take()
        times.append(time.perf_counter())
        sampler._split(logits, [lane.state for lane in lanes], index, RowMasks(every, found))
        times.append(time.perf_counter())
        for lane, token in zip(lanes, tokens, strict=True):
            if lane.matcher.take([token]) != 1 or lane.matcher.ended == "abort":
                raise SystemExit(f"the grammar does not allow token {token}, which was written by it")
            lane.matcher.forced()
        times.append(time.perf_counter())
        for stage, (began, ended) in zip(STAGES, pairwise(times), strict=True):
            took[stage].append((ended - began) * 1e6 / len(lanes))
    return took


def schemas(path: Path) -> Iterator[Any]:
    if path.is_dir():
        for file in sorted(path.iterdir()):
            if file.suffix in (".json", ".jsonl"):
                yield from schemas(file)
    elif path.suffix == ".jsonl":
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)["schema"]
    else:
        yield json.loads(path.read_text(encoding="utf-8"))


def written(llm: LLM, found: Sequence[Any], num_tokens: int, form: str) -> list[tuple[StructuredOutputsParams, list[int]]]:
    """(structure, brook's tokens) of those schemas that can be obeyed, without ends of text."""
    asked = []
    for number, schema in enumerate(found):
        wanted = FORMS[form](json.dumps(schema))
        try:
            llm._built.grammars.compile(wanted)
        except RequestError:
            continue
        asked.append((wanted, SamplingParams(max_tokens=num_tokens, temperature=1.0, seed=number, structured_outputs=wanted)))
    outputs = llm.generate(["Here is the form:\n"] * len(asked), [params for _, params in asked])
    ends = llm.get_tokenizer().eos_token_ids
    return [(wanted, [token for token in output.outputs[0].token_ids if token not in ends])
            for (wanted, _), output in zip(asked, outputs, strict=True)]


def figures(took: dict[str, list[float]]) -> dict[str, dict[str, float]]:
    """Percentiles of each stage, and of what a token costs with the work handed over (`token`: mask and apply)."""
    sums = {**took, "token": [a + b for a, b in zip(took["mask"], took["apply"], strict=True)]}
    told = {}
    for stage, values in sums.items():
        cuts = statistics.quantiles(values, n=100, method="inclusive")
        told[stage] = {"p50": round(cuts[49], 1), "p90": round(cuts[89], 1), "p99": round(cuts[98], 1), "max": round(max(values), 1)}
    return told


def some(text: str) -> list[Any]:
    """The schemas of a path."""
    path = Path(text)
    if not path.exists():
        raise Refused(f"there is no {text}")
    try:
        found = list(schemas(path))
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise Refused(f"{text} is no JSON schema, and no lines with one in the field `schema`: {error!r}") from None
    if not found:
        raise Refused(f"{text} holds no .json and no .jsonl file")
    return found


def make_parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--schemas", type=some, required=True, metavar="PATH", help="a file or a folder of JSON schemas")
    made.add_argument("--most", type=whole(), default=300, help="most schemas to take; default: %(default)s")
    made.add_argument("--tokens", type=whole(), default=96, help="most tokens per answer; default: %(default)s")
    made.add_argument("--rows", type=whole(), nargs="+", default=[1, 32], help="rows per step; default: 1 32")
    made.add_argument("--vocabulary", type=whole(LEAST_VOCABULARY), default=151936, help="size of the made one; default: %(default)s")
    made.add_argument("--form", choices=FORMS, default="json", help="form in which schemas are given; default: %(default)s")
    made.add_argument("--record", action="store_true", help=RECORD)
    return made


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    llm = LLM("brook", max_num_seqs=32)
    own = llm.get_tokenizer()
    answers = written(llm, args.schemas[: args.most], args.tokens, args.form)
    if (steps := sum(len(tokens) for _, tokens in answers) // max(args.rows)) < LEAST_STEPS:
        parser.error(f"the answers to {len(answers)} schemas that can be obeyed make {steps} steps of {max(args.rows)} rows, but "
                         f"{LEAST_STEPS} are needed: give more --schemas, or fewer --rows")
    runner = llm._engine._runner
    assert isinstance(runner, Runner)
    size = llm._built.spec.vocab_size
    pieces = [text for token in range(size) if token not in own.special_ids and (text := own.token_bytes(token))]
    other: Made = made(args.vocabulary, pieces)
    spelled = [(wanted, other.spell(b"".join([own.token_bytes(token) for token in tokens]))) for wanted, tokens in answers]
    rows: list[dict[str, Any]] = []
    vocabularies: tuple[tuple[str, Tokens, int, Any], ...] = (
        ("brook", own, size, answers), ("made", other, other.size, spelled))
    for name, tokens, num_tokens, replayed in vocabularies:
        compiler = make_compiler(tokens, replace(llm._built.spec, vocab_size=num_tokens), MAX_LEN)
        for wanted, _ in replayed:
            compiler.compile(wanted)
        total = sum(len(tokens) for _, tokens in replayed)
        for num in args.rows:
            lanes = [Lane(compiler, islice(cycle(replayed), lane, None)) for lane in range(num)]
            found = figures(replay(compiler, runner._sampler, lanes, total // num))
            rows.append({"vocabulary": name, "tokens": num_tokens, "rows": num, "steps": total // num, **found})
            told = "; ".join(f"{stage} " + " ".join(f"{key} {value:g}" for key, value in each.items()) for stage, each in found.items())
            print(f"{name} ({num_tokens} tokens), {num} rows: {told}", flush=True)
    asked = digest(json.dumps(args.schemas[: args.most]).encode())
    result = {"bench": "grammar_mask", "machine": processor().model, "date": today(), "schemas": len(answers), "asked": asked,
              "form": args.form, "goal_us": GOAL_US, "reached": all(row["token"]["p50"] <= GOAL_US for row in rows), "rows": rows}
    if args.record:
        path = RESULTS / f"{today()[:10]}-{slug(processor().model)}-grammar_mask{named(parser.others(args, WAY))}.json"
        write(result, place_of(result, path, ("asked",)))
    print(json.dumps(result))


if __name__ == "__main__":
    main()
