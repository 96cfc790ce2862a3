"""How fast the native kernels multiply in each weight format: below the rate of their instructions, by what they unpack, round and store.

A matrix that stays in a core's second cache is multiplied with few rows and many, so that reading it binds nothing.
"""
import time
from collections.abc import Mapping

import numpy as np

from penstock.compute.backends.contract import NO_COPIES, Batch, KVLayout
from penstock.compute.backends.cpu.backend import Cpu
from penstock.compute.program import KVSpec, Op, Program, WeightSpec
from penstock.compute.quant.native import best_rounding
from penstock.compute.weight import Given
from penstock.core.hardware import Point

# Weight format, as Products have it -> (bits of codes or None, dtype of plain matrices, whether rows become int8).
FORMATS: Mapping[str, tuple[int | None, str, bool]] = {
    "fp32": (None, "float32", False), "bf16": (None, "bfloat16", False), "int8": (8, "bfloat16", False),
    "int8:activations=int8": (8, "bfloat16", True), "int4": (4, "bfloat16", False), "int4:activations=int8": (4, "bfloat16", True)}
INNER = (256, 1024)  # length of a row
ROWS = (1, 4, 16, 64, 256)
SIZE = 1 << 18  # values of a matrix, for each thread
GROUP = 32  # codes of 4 bits
REPEATS = 8  # of the product in a step, so that beginning one costs little
RUN_S, RUNS = 0.003, 2  # the least of them counts


def product_rates(threads: int) -> dict[Point, float]:
    """Operations a second with so many threads, in a second or so."""
    found = {}
    for form, (bits, dtype, rounds) in FORMATS.items():
        backend = Cpu(dtype=dtype, activations="int8" if rounds else "")
        for inner in INNER:
            rates = _rates(backend, _matrix(bits, SIZE // inner * threads, inner), threads)
            found |= {(form, inner, count): rate for count, rate in rates.items()}
    return found


def _matrix(bits: int | None, out: int, inner: int) -> tuple[Given, int, int]:
    plain = np.resize(np.random.default_rng(0).standard_normal(4093, dtype=np.float32), (out, inner))
    if bits is None:
        return plain, out, inner
    rounding = best_rounding(1)
    return (rounding.by_row(plain) if bits == 8 else rounding.by_group(plain, GROUP, False)), out, inner


def _rates(backend: Cpu, matrix: tuple[Given, int, int], threads: int) -> dict[int, float]:
    weight, out, inner = matrix
    loaded = backend.load(_program(out, inner), {"table": np.zeros((1, 1), np.float32), "w": weight}, KVLayout(1, 1), threads)
    found = {}
    for count in ROWS:
        batch = _batch(np.random.default_rng(1).standard_normal((count, inner), dtype=np.float32))
        backend.step(loaded, batch)
        began = time.perf_counter()
        backend.step(loaded, batch)
        steps = max(1, round(RUN_S / (time.perf_counter() - began)))
        least = float("inf")
        for _ in range(RUNS):
            began = time.perf_counter()
            for _ in range(steps):
                backend.step(loaded, batch)
            least = min(least, time.perf_counter() - began)
        found[count] = 2 * count * out * inner * REPEATS * steps / least
    return found


def _program(out: int, inner: int) -> Program:
    """The same product some times over."""
    ops = [Op("embed", ("tokens",), ("e",), ("table",), {"scale": 1.0}), Op("gather", ("e",), ("logits",))]
    ops += [Op("linear", ("x",), (f"y{i}",), ("w",)) for i in range(REPEATS)]
    buffers = {"tokens": ("T",), "positions": ("T",), "x": ("T", inner), "e": ("T", 1), "logits": ("L", 1)}
    buffers |= {f"y{i}": ("T", out) for i in range(REPEATS)}
    weights = {"table": WeightSpec("table", (1, 1)), "w": WeightSpec("w", (out, inner), matrix=True)}
    return Program(tuple(ops), buffers, weights, KVSpec(0, 1, 1), 1, 1, {"logits": "logits"}, ("x",))


def _batch(rows: np.ndarray) -> Batch:
    count = len(rows)
    zeros, none = np.zeros(count, np.int64), np.zeros(0, np.int64)
    return Batch(zeros, zeros, zeros, np.array([0, count]), np.array([1]), [np.zeros(1, np.int64)], none, NO_COPIES,
                 inputs={"x": rows})
