#!/usr/bin/env python3
"""How much of its catalogue entry does this machine's GPU reach, and how long do steps take relative to what `penstock plan` says?

    python bench/gpu_limits.py --part h100-sxm [--layers llama-3.1-8b,...] [--models llama-3.1-8b,...] [--record]

With torch's own products and attention, in CUDA graphs: copies within memory, the four products of a layer by format and rows, attention
over prompts and over caches, what a kernel and a token cost beside their work, copies from and to the host. Then steps of whole models
(random weights, bf16), each compared with the planner's prediction for that GPU without its host. Energy is read as in `penstock bench`,
next to the power that nvidia-smi reports. The last line is JSON.
"""
import json
from importlib.util import find_spec

from gpu.shapes import LAYERS, MODELS
from versus.arguments import RECORD, Parser, listed, one_of
from versus.record import RESULTS, slug, write

from penstock.core.catalogue.read import Catalogue


def make_parser() -> Parser:
    parser = Parser(__doc__)
    parser.add_argument("--part", type=one_of(Catalogue().names()), required=True, help="name of this GPU in the catalogue")
    parser.add_argument("--layers", type=listed(one_of(LAYERS), 0), default=",".join(LAYERS),
                        help="models whose products are timed; '': none; default: %(default)s")
    parser.add_argument("--models", type=listed(one_of(MODELS), 0), default=",".join(MODELS),
                        help="models whose steps are timed; '': none; default: %(default)s")
    parser.add_argument("--record", action="store_true", help=RECORD)
    return parser


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    for module in ("torch", "transformers"):
        if find_spec(module) is None:
            parser.error(f"needs {module}, which is not installed")
    import torch

    if not torch.cuda.is_available():
        parser.error(f"torch {torch.__version__} sees no CUDA device")
    from gpu.run import everything

    told = everything(Catalogue().part(args.part), args.layers, args.models)
    if args.record:
        file = RESULTS / f"{told['date'][:10]}-{slug(told['machine'])}-gpu_limits.json"
        before = json.loads(file.read_text(encoding="utf-8"))["runs"] if file.exists() else []
        write({"bench": "gpu_limits", "machine": told["machine"], "runs": [*before, told]}, file)
    print(json.dumps(told))


if __name__ == "__main__":
    main()
