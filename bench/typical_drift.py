#!/usr/bin/env python3
"""What does `--accept typical` do to sampled answers? How much likelier they are than exact ones, and what that gains.

    python bench/typical_drift.py --text FILE... [--model brook] [--propose eagle ...] [--typical typical ...]
                                   [--temperatures 0.7 1.0] [--prompts 128] [--new 96]

The same openings of paragraphs are continued by plain decoding with two sets of seeds, and with each proposer under the exact and the
typical rules. The model then scores all tokens of the answers, at temperature 1. For each combination it prints nats per token; the
divergence (Jensen-Shannon, nats) of its token counts from those of plain decoding with the first seeds, where the second seeds show how
much is chance; the share of distinct pairs of successive tokens (lower: more repetitive); and tokens per pass. Exact answers are compared
with plain ones: one token that differs is an error. The last line is JSON.
"""
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise

from drafts import prompts
from versus.arguments import Parser, amount, said, text_file, whole
from versus.engines import check_engine

from penstock import LLM, SamplingParams
from penstock.core.config import EngineConfig
from penstock.core.drafting import together
from penstock.serve.engine.machine import processor

Tokens = list[int]


@dataclass(frozen=True, slots=True)
class Row:
    temperature: float
    propose: str
    accept: str
    nats: float  # a token, under the model itself
    divergence: float  # of token counts, from plain decoding's
    different: float  # pairs of tokens, of all
    tokens_per_pass: float | None


def answers(llm: LLM, asked: Sequence[Tokens], temperature: float, num_new: int, seed: int) -> tuple[list[Tokens], float | None]:
    """(the answers, tokens a pass)."""
    params = [SamplingParams(max_tokens=num_new, temperature=temperature, seed=seed + at, ignore_eos=True) for at in range(len(asked))]
    outputs = llm.generate([{"prompt_token_ids": tokens} for tokens in asked], params)
    return [output.outputs[0].token_ids for output in outputs], together(output.drafting for output in outputs).tokens_per_draft_pass


def nats(judge: LLM, asked: Sequence[Tokens], found: Sequence[Tokens]) -> float:
    """What a token of the answers takes, mean."""
    whole = [{"prompt_token_ids": [*prompt, *answer]} for prompt, answer in zip(asked, found, strict=True)]
    outputs = judge.generate(whole, SamplingParams(max_tokens=1, prompt_logprobs=0))
    losses: list[float] = []
    for prompt, answer, output in zip(asked, found, outputs, strict=True):
        told = (output.prompt_logprobs or [])[len(prompt) :]
        losses += [-each[token].logprob for token, each in zip(answer, told, strict=True) if each]
    return sum(losses) / len(losses)


def divergence(a: Counter[int], b: Counter[int]) -> float:
    """Jensen-Shannon, of two counts."""
    total = 0.0
    for token in a | b:
        p, q = a[token] / a.total(), b[token] / b.total()
        total += sum(share * math.log(2 * share / (p + q)) / 2 for share in (p, q) if share)
    return total


def counts(found: Sequence[Tokens]) -> Counter[int]:
    return Counter(token for answer in found for token in answer)


def different(found: Sequence[Tokens]) -> float:
    pairs = [pair for answer in found for pair in pairwise(answer)]
    return len(set(pairs)) / len(pairs)


def make_parser() -> Parser:
    made = Parser(__doc__)
    made.add_argument("--text", type=text_file, nargs="+", required=True, metavar="FILE",
                      help="texts whose paragraphs are continued; UTF-8")
    made.add_argument("--model", type=said, default="brook", help="a folder, a GGUF file or a hub name; default: %(default)s")
    made.add_argument("--propose", type=said, nargs="+", default=["eagle", "draft_model:model=rill"], metavar="NAME[:KEY=VALUE,...]",
                      help="proposers; default: eagle draft_model:model=rill")
    made.add_argument("--typical", type=said, nargs="+", default=["typical"], help="rules to compare with exact; default: typical")
    made.add_argument("--temperatures", type=amount(above=0), nargs="+", default=[0.7, 1.0], help="sampling temperatures; default: 0.7 1.0")
    made.add_argument("--prompts", type=whole(), default=128, help="prompts to answer in each way; default: %(default)s")
    made.add_argument("--new", type=whole(2), default=96, help="tokens per answer; default: %(default)s")
    return made


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    with parser.refusing():
        prompts.check(args.text, prompts.TOLD, args.prompts)
        room = min(check_engine(EngineConfig(model=args.model, propose=propose)).spec.max_position for propose in args.propose)
        if args.new > (most := room - prompts.OPENING - 1):
            parser.error(f"--new {args.new:,} must be at most {most:,}: {args.model} holds {room:,} tokens, its prompt included")
        plain = LLM(args.model)
        engines = {(propose, accept): LLM(args.model, propose=propose, accept=accept, draft_control="always")
                   for propose in args.propose for accept in ("exact", *args.typical)}
    asked = prompts.story(plain.get_tokenizer().encode, args.text)(args.prompts)
    rows = []
    for temperature in args.temperatures:
        first, _ = answers(plain, asked, temperature, args.new, 0)
        again, _ = answers(plain, asked, temperature, args.new, len(asked))
        ways = {("", "plain"): (first, None), ("", "other seeds"): (again, None)}
        ways |= {way: answers(llm, asked, temperature, args.new, 0) for way, llm in engines.items()}
        for (propose, accept), (found, per_pass) in ways.items():
            if accept == "exact" and found != first:
                raise SystemExit(f"{propose} under the exact rule gave other tokens than plain decoding")
            shift = divergence(counts(first), counts(found))
            row = Row(temperature, propose, accept, nats(plain, asked, found), shift, different(found), per_pass)
            rows.append(row)
            passes = "" if per_pass is None else f", {per_pass:.2f} tokens per pass"
            print(f"temperature {temperature:g} {propose or 'plain':24} {accept:28} {row.nats:.3f} nats a token, "
                  f"divergence {row.divergence:.4f}, different pairs {row.different:.3f}{passes}", flush=True)
    print(json.dumps({"bench": "typical_drift", "model": args.model, "machine": processor().model, "prompts": args.prompts, "new": args.new,
                      "rows": [asdict(row) for row in rows]}))


if __name__ == "__main__":
    main()
