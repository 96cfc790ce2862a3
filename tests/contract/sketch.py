"""Programs of a few ops, with their weights: the table of an embedding holds the data that an op under test is given."""
from typing import Any

import numpy as np

from penstock.compute.ops import OPS, check
from penstock.compute.program import KVSpec, Op, Program, Shape, WeightSpec

Array = Any


class Sketch:
    """Appends ops to a program; token t of a step stands for row t of each table."""

    def __init__(self, kv: KVSpec | None = None) -> None:
        self.kv = kv or KVSpec(0, 1, 1)
        self.weights: dict[str, Array] = {}
        self._ops: list[Op] = []
        self._buffers: dict[str, Shape] = {"tokens": ("T",), "positions": ("T",)}
        self._inputs: tuple[str, ...] = ()

    def input(self, name: str, width: int) -> str:
        self._buffers[name] = ("T", width)
        self._inputs += (name,)
        return name

    def weight(self, name: str, values: Array) -> str:
        self.weights[name] = np.asarray(values, dtype=np.float32)
        return name

    def table(self, name: str, values: Array) -> str:
        """A buffer [T, width] whose row is the token's row of `values` [vocab, width]."""
        return self.op("embed", ("tokens",), name, (self.weight(name + "_table", values),), scale=1.0)

    def op(self, kind: str, inputs: tuple[str, ...], out: tuple[str, ...] | str, weights: tuple[str, ...] = (), **attrs: Any) -> str:
        outputs = (out,) if isinstance(out, str) else out
        op = Op(kind, inputs, outputs, weights, attrs)
        shapes = OPS[kind].shapes(op, self._buffers, {name: array.shape for name, array in self.weights.items()})
        self._buffers.update(zip(outputs, shapes, strict=True))
        self._ops.append(op)
        return outputs[0] if outputs else ""

    def program(self, **outputs: str) -> Program:
        """`outputs` without logits get some: rows of the first buffer, as a program always ends in logits."""
        if "logits" not in outputs:
            outputs["logits"] = self.op("gather", (self._ops[0].outputs[0],), "rows")
        matrices = {name for op in self._ops if op.kind in ("linear", "moe_experts") for name in op.weights[:2]}
        biases = {name for op in self._ops if op.kind == "moe_experts" for name in op.weights[2:]}
        specs = {name: WeightSpec(name, array.shape, matrix=name in matrices and array.ndim > 1, bias=name in biases)
                 for name, array in self.weights.items()}
        program = Program(tuple(self._ops), self._buffers, specs, self.kv, vocab_size=0, max_position=4096, outputs=outputs,
                          inputs=self._inputs)
        check(program)
        return program
