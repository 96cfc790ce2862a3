#!/usr/bin/env python3
"""How many output tokens per second, for many requests? Equal ones at once (128 tokens in, 64 out), and mixed lengths as they arrive.

    python bench/cpu_serving.py [--rivals DIR] [--model qwen3-0.6b,llama-3.2-1b,brook] [--formats bf16,int8,int4,int8a8,int4a8,Q8_0,...]
                                [--streams 8,32] [--mixed 32] [--gap-s 0.1] [--rounds 5] [--engines penstock,llamacpp,...] [--record]

Mixed: prompts of 16 to 1,024 tokens, answers of 32 to 96, exponential gaps between arrivals; drawn once, the same trace for all. Ours runs
in process and over HTTP; llama.cpp as a static batch for equal requests, and its server for mixed ones; vLLM and OpenVINO in process.
`of limit` is relative to all operations at the measured rate, or the weights of the longest answer at the measured bandwidth, whichever
takes longer.
The last line is JSON.
"""
from versus.arguments import Parser, amount, listed, whole
from versus.bench import conclude, run, say
from versus.options import check, options, parser
from versus.points import GAP_S, Point


def make_parser() -> Parser:
    made = parser(__doc__)
    made.add_argument("--streams", type=listed(whole(), least=0), default="8,32",
                      help="numbers of equal requests at once; empty: none; default: %(default)s")
    made.add_argument("--mixed", type=listed(whole(), least=0), default="32",
                      help="numbers of requests of mixed lengths; empty: none; default: %(default)s")
    made.add_argument("--gap-s", type=amount(), default=GAP_S,
                      help="seconds between arrivals of mixed requests, on average; default: %(default)s")
    return made


def main() -> None:
    arguments = make_parser()
    args = arguments.parse_args()
    points = [Point("streams", count) for count in args.streams] + [Point("mixed", count, args.gap_s) for count in args.mixed]
    if not points:
        arguments.error("--streams and --mixed are both empty, so there is nothing to measure")
    with arguments.refusing():
        chosen = options(args)
        check(chosen)
    conclude(run("cpu_serving", points, chosen, say))


if __name__ == "__main__":
    main()
