#!/usr/bin/env python3
"""How fast is one prompt computed, and how close to the rate of the matrix units? Tokens per second until the first token.

    python bench/cpu_prefill.py [--rivals DIR] [--model qwen3-0.6b,llama-3.2-1b,brook] [--formats bf16,int8,int4,int8a8,int4a8,Q8_0,...]
                                [--lengths 512,2048] [--rounds 5] [--engines penstock,llamacpp,...] [--record]

`of limit` is MFU: the operations of the model's program, relative to the rate (measured just before and after) of the type that is computed
in: bf16, int16, or int8 where rows are quantized too. The last line is JSON.
"""
from versus.arguments import Parser, listed, whole
from versus.bench import conclude, run, say
from versus.options import check, options, parser
from versus.points import Point


def make_parser() -> Parser:
    made = parser(__doc__)
    made.add_argument("--lengths", type=listed(whole()), default="512,2048", help="prompt tokens; default: %(default)s")
    return made


def main() -> None:
    arguments = make_parser()
    args = arguments.parse_args()
    with arguments.refusing():
        chosen = options(args)
        check(chosen)
    points = [Point("prefill", length) for length in args.lengths]
    conclude(run("cpu_prefill", points, chosen, say))


if __name__ == "__main__":
    main()
