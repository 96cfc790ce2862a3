"""How fast the native kernels multiply in each weight format: below the rate of their instructions, by what they unpack, round and store.

A matrix that stays in a core's second cache is multiplied with few rows and many, so that reading it binds nothing. Then so many matrices
are multiplied in turn that each has to be read again: both together tell how much of reading hides behind arithmetic.
"""
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from penstock.compute.backends.contract import NO_COPIES, Batch, KVLayout
from penstock.compute.backends.cpu.backend import Cpu
from penstock.compute.program import KVSpec, Op, Program, WeightSpec
from penstock.compute.quant.codes import MULTIPLES, UNSIGNED, Codes, Coding
from penstock.compute.quant.int8 import by_row
from penstock.compute.weight import Given
from penstock.core.hardware import Point

INNER = (256, 1024)  # length of a row
BY_ROW, BY_UNITS = by_row(max(INNER)), Coding(4, 32, MULTIPLES)
# Weight format, as Products have it -> (coding or None, dtype of plain matrices, whether rows become int8).
SCALED: Mapping[str, tuple[Coding | None, str, bool]] = {
    "fp32": (None, "float32", False), "bf16": (None, "bfloat16", False), "int8": (BY_ROW, "bfloat16", False),
    "int8:activations=int8": (BY_ROW, "bfloat16", True), "int4": (BY_UNITS, "bfloat16", False),
    "int4:activations=int8": (BY_UNITS, "bfloat16", True)}
# The same of codes that are scaled group by group: GGUF's Q8_0, Q5_K, Q4_K, Q6_K and Q2_K. Those without minima are up to a quarter faster.
GROUPED: Mapping[str, tuple[Coding | None, str, bool]] = {
    "int8 by 32": (Coding(8, 32, "float16"), "bfloat16", False),
    "int6 by 32": (Coding(6, 32, MULTIPLES, True, factor=256), "bfloat16", False),
    "int4 by 32": (Coding(4, 32, MULTIPLES, True, UNSIGNED, 256), "bfloat16", False),
    "int6 by 16": (Coding(6, 16, MULTIPLES, factor=256), "bfloat16", False),
    "int4 by 16": (Coding(4, 16, MULTIPLES, True, UNSIGNED, 256), "bfloat16", False)}
FORMATS = {**SCALED, **GROUPED}
ROWS = (1, 4, 16, 64, 256)
SIZE = 1 << 18  # values of a matrix, for each thread
REPEATS = 8  # of the product in a step, so that beginning one costs little
RUN_S, RUNS = 0.003, 2  # the least of them counts
STREAMED = tuple(form for form in SCALED if form != "fp32")  # of models that are served; codes by group do as others of their bits
STREAMED_RUNS = 4  # likewise
STREAMS = (8 << 20, 128 << 20)  # bytes of all matrices, where they are read: from a shared cache, and mostly from memory
STREAMED_ROWS = (1, 4, 16, 64)
LEAST_EXPOSED, MOST_EXPOSED = 0.01, 1.25


class Chain:
    """Products of matrices one after another, loaded."""

    def __init__(self, form: str, inner: int, threads: int, names: Sequence[str]) -> None:
        coding, dtype, rounds = FORMATS[form]
        self._backend = Cpu(dtype=dtype, activations="int8" if rounds else "")
        out = SIZE // inner * threads
        weights = {"table": np.zeros((1, 1), np.float32), **dict.fromkeys(names, _matrix(coding, out, inner))}
        self._loaded = self._backend.load(_program(out, inner, names), weights, KVLayout(1, 1), threads)
        self._inner = inner
        self.weight_bytes = self._loaded.weight_bytes
        self.count = len(names)

    def timer(self, rows: int) -> Callable[[], float]:
        """What times a step with so many rows, on average over RUN_S."""
        batch = _batch(np.random.default_rng(1).standard_normal((rows, self._inner), dtype=np.float32))
        self._seconds(batch, 1)
        steps = max(1, round(RUN_S / self._seconds(batch, 1)))
        return lambda: self._seconds(batch, steps)

    def _seconds(self, batch: Batch, steps: int) -> float:
        began = time.perf_counter()
        for _ in range(steps):
            self._backend.step(self._loaded, batch)
        return (time.perf_counter() - began) / steps


def product_rates(threads: int) -> dict[Point, float]:
    """Operations a second with so many threads, in a second or so. What groups cost does not depend on how long a row is: with these, one
    length, timed once, will do."""
    found = {}
    for form in FORMATS:
        lengths, runs = (INNER, RUNS) if form in SCALED else (INNER[-1:], 1)
        for inner in lengths:
            products = Chain(form, inner, threads, ["w"] * REPEATS)
            for rows in ROWS:
                timed = products.timer(rows)
                found[form, inner, rows] = 2 * rows * SIZE * threads * REPEATS / min(timed() for _ in range(runs))
    return found


def exposed_reading(
    threads: int, rates: Mapping[Point, float], bandwidth: Callable[[int, int], float], largest: float
) -> dict[Point, float]:
    """By weight format, bytes that are read again and again (`largest` at most), and rows: by how much longer products of matrices that
    are read take than at `rates` (those of `product_rates`), as a share of the time in which `bandwidth(bytes, threads)` reads them. The
    more rows, the more of it hides: what several take longer than a few is noise."""
    found = {}
    inner = max(INNER)
    for form in STREAMED:
        one = Chain(form, inner, threads, ["w"]).weight_bytes
        for size in sorted({max(size, 2 * one) for size in STREAMS}):
            if size > largest:
                continue
            rate = bandwidth(size, threads)  # each time: memory changes its pace
            read = Chain(form, inner, threads, [f"w{i}" for i in range(size // one)])
            most = MOST_EXPOSED
            for rows in STREAMED_ROWS:
                timed = read.timer(rows)
                took_s = min(timed() for _ in range(STREAMED_RUNS))
                added_s = took_s - 2 * rows * SIZE * threads * read.count / rates[form, inner, rows]
                found[form, size, rows] = share = min(max(added_s * rate / read.weight_bytes, LEAST_EXPOSED), most)
                most = share if rows > 1 else most
    return found


def _matrix(coding: Coding | None, out: int, inner: int) -> Given:
    rng = np.random.default_rng(0)
    if coding is None:
        return np.resize(rng.standard_normal(4093, dtype=np.float32), (out, inner))
    low, high = (0, 15) if coding.bits == 4 else (-(1 << coding.bits - 1), (1 << coding.bits - 1) - 1)
    codes = rng.integers(low, high, (out, inner), np.uint8 if coding.bits == 4 else np.int8, endpoint=True)
    scales = np.ones((out, inner // min(coding.group, inner)), coding.scales)
    factors = np.ones((out, inner // coding.factor), np.float16) if coding.factor else None
    return Codes(
        codes, coding.bits, inner // scales.shape[1], scales, scales if coding.mins else None, coding.values,
        np.ones(out, np.float32) if coding.has_units else None, factors, factors if coding.mins else None)


def _program(out: int, inner: int, names: Sequence[str]) -> Program:
    ops = [Op("embed", ("tokens",), ("e",), ("table",), {"scale": 1.0}), Op("gather", ("e",), ("logits",))]
    ops += [Op("linear", ("x",), ("y",), (name,)) for name in names]
    buffers = {"tokens": ("T",), "positions": ("T",), "x": ("T", inner), "e": ("T", 1), "logits": ("L", 1), "y": ("T", out)}
    weights = {"table": WeightSpec("table", (1, 1)), **{name: WeightSpec(name, (out, inner), matrix=True) for name in names}}
    return Program(tuple(ops), buffers, weights, KVSpec(0, 1, 1), 1, 1, {"logits": "logits"}, ("x",))


def _batch(rows: np.ndarray) -> Batch:
    count = len(rows)
    zeros, none = np.zeros(count, np.int64), np.zeros(0, np.int64)
    return Batch(zeros, zeros, zeros, np.array([0, count]), np.array([1]), [np.zeros(1, np.int64)], none, NO_COPIES,
                 inputs={"x": rows})
