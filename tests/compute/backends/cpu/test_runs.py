"""Threads take runs of tasks where products are short: no task is left out, whatever the blocks of rows and the threads."""
import numpy as np
import pytest

from penstock.compute.backends.contract import NO_COPIES, Batch, KVLayout
from penstock.compute.backends.cpu.backend import Cpu, Options
from penstock.compute.program import KVSpec, Op, Program, WeightSpec
from tests.contract.participants import native_kernels

ROWS, INNER, OUTER = 540, 16, 64 * 23  # several blocks of rows, whose operand each thread still converts for itself


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("kernels", native_kernels())
def test_narrow_rows_in_several_blocks(kernels: str, dtype: str, threads: int) -> None:
    random = np.random.default_rng(0)
    rows, weight = (random.integers(-4, 5, (count, INNER)).astype(np.float32) for count in (ROWS, OUTER))
    program = Program(
        (Op("embed", ("tokens",), ("e",), ("table",), {"scale": 1.0}), Op("linear", ("x",), ("y",), ("w",)),
         Op("gather", ("y",), ("logits",))),
        {"tokens": ("T",), "positions": ("T",), "x": ("T", INNER), "e": ("T", 1), "y": ("T", OUTER), "logits": ("L", OUTER)},
        {"table": WeightSpec("table", (1, 1)), "w": WeightSpec("w", (OUTER, INNER), matrix=True)},
        KVSpec(0, 1, 1), OUTER, 1, {"logits": "logits"}, ("x",))
    backend = Cpu(Options(kernels=kernels), dtype)
    loaded = backend.load(program, {"table": np.zeros((1, 1), np.float32), "w": weight}, KVLayout(1, 1), threads)
    zeros, every = np.zeros(ROWS, np.int64), np.arange(ROWS)
    batch = Batch(
        zeros, zeros, zeros, np.array([0, ROWS]), np.array([1]), [np.zeros(1, np.int64)], every, NO_COPIES, (), inputs={"x": rows})
    assert np.array_equal(np.asarray(backend.step(loaded, batch).logits), rows @ weight.T)  # small whole numbers are exact
