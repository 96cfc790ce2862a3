#!/usr/bin/env python3
"""How fast is one sequence decoded, and how close to memory bandwidth? 128 tokens, after a short prompt and after long contexts.

    python bench/cpu_decode.py [--rivals DIR] [--model qwen3-0.6b,llama-3.2-1b,brook] [--formats bf16,int8,int4,int8a8,int4a8,Q8_0,...]
                               [--depths 0,2048,8192,16384] [--rounds 5] [--engines penstock,llamacpp,...] [--record]

A context is computed once and then taken from the prefix cache, or recomputed by engines without one; only the tokens after it are timed.
`of limit` is relative to reading the weights at their bit width, and keys and values of two bytes, once per token, at the bandwidth that
was measured just before and after. The last line is JSON.
"""
from versus.arguments import Parser, listed, whole
from versus.bench import conclude, run, say
from versus.options import check, options, parser
from versus.points import Point


def make_parser() -> Parser:
    made = parser(__doc__)
    made.add_argument("--depths", type=listed(whole(0)), default="0,2048,8192,16384",
                      help="tokens of context; 0: a short prompt; default: %(default)s")
    return made


def main() -> None:
    arguments = make_parser()
    args = arguments.parse_args()
    with arguments.refusing():
        chosen = options(args)
        check(chosen)
    points = [Point("decode", depth) for depth in args.depths]
    conclude(run("cpu_decode", points, chosen, say))


if __name__ == "__main__":
    main()
