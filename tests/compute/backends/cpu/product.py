"""A program of one product, on the native backend."""
from typing import Any

import numpy as np

from penstock.compute.backends.contract import NO_COPIES, Batch, KVLayout
from penstock.compute.backends.cpu.backend import Cpu, Loaded
from penstock.compute.program import KVSpec, Op, Program, WeightSpec


class Product:
    """rows [T, in] times a matrix [out, in]; `given`: its numbers or codes."""

    def __init__(self, backend: Cpu, shape: tuple[int, int], given: Any, threads: int) -> None:
        outer, inner = shape
        program = Program(
            (Op("embed", ("tokens",), ("e",), ("table",), {"scale": 1.0}), Op("linear", ("x",), ("y",), ("w",)),
             Op("gather", ("y",), ("logits",))),
            {"tokens": ("T",), "positions": ("T",), "x": ("T", inner), "e": ("T", 1), "y": ("T", outer), "logits": ("L", outer)},
            {"table": WeightSpec("table", (1, 1)), "w": WeightSpec("w", shape, matrix=True)},
            KVSpec(0, 1, 1), outer, 1, {"logits": "logits"}, ("x",))
        self._backend = backend
        self.loaded: Loaded = backend.load(program, {"table": np.zeros((1, 1), np.float32), "w": given}, KVLayout(1, 1), threads)

    def of(self, rows: Any) -> Any:
        """[T, out]"""
        zeros, count = np.zeros(len(rows), np.int64), len(rows)
        batch = Batch(zeros, zeros, zeros, np.array([0, count]), np.array([1]), [np.zeros(1, np.int64)], np.arange(count), NO_COPIES, (),
                      inputs={"x": rows})
        return np.array(self._backend.step(self.loaded, batch).logits)
