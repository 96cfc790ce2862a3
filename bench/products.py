#!/usr/bin/env python3
"""Is any of our matrix products slower than torch's? Both run on the same matrices, restricted to the same instructions, alternately.

    python bench/products.py [--isa avx2|all] [--shapes qwen3-0.6b,llama-3.2-1b] [--rows 1,4,32,512] [--formats f32,bf16,...]
                             [--threads 2] [--rounds 7] [--check]

Every matrix of a layer, and the head, packed by ours and in torch's fastest form: bf16 and f32 by F.linear, int8 with bf16 rows by
_weight_int8pack_mm, int8 with int8 rows by the dynamic quantized linear, int4 in groups of 32 by _weight_int4pack_mm_for_cpu. Copies of a
matrix take turns, so that with few rows it comes from RAM, not from a cache. Torch is kept from wider instructions by ATEN_CPU_CAPABILITY,
ONEDNN_MAX_CPU_ISA and MKL_ENABLE_INSTRUCTIONS. `--check` compares results and times nothing. The last line is JSON: medians in
microseconds per product.
"""
import argparse
import json
import os
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
from versus.arguments import Parser, listed, one_of, whole

from penstock.compute.backends.contract import NO_COPIES, Batch, KVLayout
from penstock.compute.backends.cpu.backend import Cpu, CpuOptions
from penstock.compute.program import KVSpec, Op, Program, WeightSpec
from penstock.compute.quant.codes import Codes
from penstock.compute.quant.native import best_rounding

Array = Any
Product = Callable[[], Array]  # of all copies, one after another; returns the last
SHAPES = {  # (out, in)
    "qwen3-0.6b": {"qkv": (4096, 1024), "o": (1024, 2048), "gate_up": (6144, 1024), "down": (1024, 3072), "head": (151936, 1024)},
    "llama-3.2-1b": {"qkv": (3072, 2048), "o": (2048, 2048), "gate_up": (16384, 2048), "down": (2048, 8192), "head": (128256, 2048)},
}
FORMATS = {"f32": 32, "bf16": 16, "int8": 8, "int8a8": 8, "int4": 4}  # bits
LIMITS = {"avx2": {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2", "MKL_ENABLE_INSTRUCTIONS": "AVX2"}, "all": {}}
BEYOND_CACHES = 256 << 20  # bytes of all copies, where there is more than one
GROUP, TURN_S, PAUSE_S = 32, 0.1, 0.02


def matrix(shape: tuple[int, int]) -> Array:
    """Random float32 that bfloat16 holds exactly; rows repeat, as nobody's speed depends on them."""
    out, inner = shape
    some = np.random.default_rng(0).standard_normal((min(out, 997), inner), dtype=np.float32) * np.float32(inner**-0.5)
    return np.resize((some.view(np.uint32) & 0xFFFF0000).view(np.float32), shape)


def coded(weight: Array, form: str, threads: int) -> Codes | None:
    rounding = best_rounding(threads)
    return rounding.by_row(weight) if form.startswith("int8") else rounding.by_group(weight, GROUP, False) if form == "int4" else None


def ours(weight: Array, codes: Codes | None, rows: Array, copies: int, args: argparse.Namespace, form: str) -> Product:
    out, inner = weight.shape
    names = [f"w{i}" for i in range(copies)]
    ops = [Op("embed", ("tokens",), ("e",), ("table",), {"scale": 1.0}), Op("gather", ("e",), ("logits",))]
    ops += [Op("linear", ("x",), (f"y{i}",), (name,)) for i, name in enumerate(names)]
    last = f"y{copies - 1}"
    buffers = {"tokens": ("T",), "positions": ("T",), "x": ("T", inner), "e": ("T", 1), "logits": ("L", 1)}
    buffers |= {f"y{i}": ("T", out) for i in range(copies)}
    specs = {"table": WeightSpec("table", (1, 1))} | {name: WeightSpec(name, (out, inner), matrix=True) for name in names}
    outputs = {"logits": "logits"} | ({"last": last} if args.check else {})
    program = Program(tuple(ops), buffers, specs, KVSpec(0, 1, 1), 1, 1, outputs, ("x",))
    kernels, dtype = "avx2" if args.isa == "avx2" else "auto", "float32" if form == "f32" else "bfloat16"
    backend = Cpu(CpuOptions(kernels), dtype, "int8" if form == "int8a8" else "")
    given = weight if codes is None else codes
    loaded = backend.load(program, {"table": np.zeros((1, 1), np.float32)} | dict.fromkeys(names, given), KVLayout(1, 1), args.threads)
    count, nothing = len(rows), np.zeros(0, np.int64)
    zeros = np.zeros(count, np.int64)
    batch = Batch(zeros, zeros, zeros, np.array([0, count]), np.array([1]), [np.zeros(1, np.int64)], nothing, NO_COPIES,
                  tuple(outputs)[1:], inputs={"x": rows})
    return lambda: backend.step(loaded, batch).buffers.get("last")


def theirs(weight: Array, codes: Codes | None, rows: Array, copies: int, form: str) -> Product:
    import torch

    narrow = torch.bfloat16
    w, x = torch.from_numpy(weight), torch.from_numpy(rows).to(torch.float32 if form in ("f32", "int8a8") else narrow)
    make: Callable[[], Any]
    if codes is None:
        make, call = (lambda: w.to(x.dtype, copy=True)), torch.nn.functional.linear
    elif form == "int8":
        scales = torch.from_numpy(codes.scales[:, 0]).to(narrow)
        make, call = (lambda: torch.from_numpy(codes.codes).clone()), (lambda x, w: torch._weight_int8pack_mm(x, w, scales))
    elif form == "int8a8":
        zeros = torch.zeros(len(weight), dtype=torch.float64)
        quantized = torch._make_per_channel_quantized_tensor(
            torch.from_numpy(codes.codes), torch.from_numpy(codes.scales[:, 0]).double(), zeros.long(), 0)
        make, call = (lambda: torch.ops.quantized.linear_prepack(quantized, None)), torch.ops.quantized.linear_dynamic
    else:
        own = codes.wide_scales().T
        pairs = np.stack([own, np.zeros_like(own)], axis=-1)  # [groups, out, 2]; value 8 is 0
        scales = torch.from_numpy(np.ascontiguousarray(pairs)).to(narrow)
        plain = torch.from_numpy(codes.codes.astype(np.int32))
        make = lambda: torch._convert_weight_to_int4pack_for_cpu(plain, 1)  # noqa: E731
        call = lambda x, w: torch._weight_int4pack_mm_for_cpu(x, w, GROUP, scales)  # noqa: E731
    weights = [make() for _ in range(copies)]

    def run() -> Array:
        with torch.inference_mode():
            for each in weights:
                found = call(x, each)
        return found

    return run


def microseconds(product: Product, copies: int) -> float:
    began = time.perf_counter()
    product()
    calls = max(1, int(TURN_S / (time.perf_counter() - began)))
    began = time.perf_counter()
    for _ in range(calls):
        product()
    return (time.perf_counter() - began) / calls / copies * 1e6


def compare(shape: tuple[int, int], form: str, count: int, args: argparse.Namespace) -> dict[str, float]:
    """Medians of both in turn; with --check how far they are apart, as a part of the largest value."""
    weight = matrix(shape)
    codes = coded(weight, form, args.threads)
    rows = np.random.default_rng(1).standard_normal((count, shape[1]), dtype=np.float32)
    copies = 1 if args.check else min(64, -(-BEYOND_CACHES * 32 // (weight.nbytes * FORMATS[form])))
    both = [ours(weight, codes, rows, copies, args, form), theirs(weight, codes, rows, copies, form)]
    if args.check:
        one, other = both[0](), both[1]().float().numpy()
        return {"apart": float(abs(one - other).max() / abs(one).max())}
    times: list[list[float]] = [[], []]
    for turn in range(args.rounds + 1):
        for who in (0, 1) if turn % 2 else (1, 0):
            times[who].append(microseconds(both[who], copies))
            time.sleep(PAUSE_S)  # whoever spins has stopped
    one, other = (statistics.median(each[1:]) for each in times)
    return {"ours_us": round(one, 1), "torch_us": round(other, 1), "ratio": round(other / one, 3)}


def make_parser() -> Parser:
    made, matrices = Parser(__doc__), tuple(SHAPES["qwen3-0.6b"])
    made.add_argument("--isa", choices=list(LIMITS), default="avx2", help="the widest instructions of both; default: %(default)s")
    made.add_argument("--shapes", type=listed(one_of(SHAPES)), default=",".join(SHAPES), help="models; default: %(default)s")
    made.add_argument("--matrices", type=listed(one_of(matrices)), default=",".join(matrices), help="names; default: %(default)s")
    made.add_argument("--rows", type=listed(whole()), default="1,4,32,512", help="rows of the other factor; default: %(default)s")
    made.add_argument("--formats", type=listed(one_of(FORMATS)), default=",".join(FORMATS), help="matrix formats; default: %(default)s")
    made.add_argument("--threads", type=whole(), default=2, help="threads of both; default: %(default)s")
    made.add_argument("--rounds", type=whole(), default=7, help="rounds, in each of which both are timed once; default: %(default)s")
    made.add_argument("--check", action="store_true", help="compare results, time nothing")
    return made


def main() -> None:
    parser = make_parser()
    args = parser.parse_args()
    os.environ.update(LIMITS[args.isa])  # before torch is imported
    for module, why in (("torch", "the rival"), ("penstock._native", "ours")):
        if find_spec(module) is None:
            parser.error(f"{module}, {why}, is not installed")

    import torch

    torch.set_num_threads(args.threads)
    found = []
    for model in args.shapes:
        for name in args.matrices:
            for form in args.formats:
                for count in args.rows:
                    row = {"model": model, "matrix": name, "format": form, "rows": count,
                           **compare(SHAPES[model][name], form, count, args)}
                    found.append(row)
                    print("  ".join(f"{value:>12}" if isinstance(value, str) else f"{value:10,.6g}" for value in row.values()), flush=True)
    print(json.dumps({"bench": "products", "isa": args.isa, "torch": torch.__version__, "threads": args.threads,
                      "capability": torch.backends.cpu.get_cpu_capability(), "rows": found}))


if __name__ == "__main__":
    main()
