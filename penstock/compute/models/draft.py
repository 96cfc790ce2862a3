"""A program while it is being written."""
from types import MappingProxyType
from typing import Any

from penstock.compute.models.names import TensorNames
from penstock.compute.ops import KINDS, check
from penstock.compute.program import KVSpec, Op, Program, Shape, WeightSpec
from penstock.core.modelspec import ModelSpec


class Draft:
    """Appends ops, infers the shape of what they write, and numbers buffers that have no name of their own."""

    def __init__(self, spec: ModelSpec, names: TensorNames) -> None:
        self.spec = spec
        self.names = names
        self._ops: list[Op] = []
        self._buffers: dict[str, Shape] = {"tokens": ("T",), "positions": ("T",)}
        self._weights: dict[str, WeightSpec] = {}
        self._inputs: list[str] = []

    def input(self, name: str, shape: Shape) -> str:
        """A buffer that each step is given, beside its tokens."""
        self._buffers[name] = shape
        self._inputs.append(name)
        return name

    def weight(self, name: str, shape: tuple[int, ...], tensors: tuple[str, ...], matrix: bool = False, **more: Any) -> str:
        """`more`: of WeightSpec."""
        return self.declare(WeightSpec(name, shape, tensors=tensors, matrix=matrix, **more))

    def declare(self, weight: WeightSpec) -> str:
        """Takes the weight into the program and returns its name."""
        self._weights[weight.name] = weight
        return weight.name

    def op(self, kind: str, inputs: tuple[str, ...], out: tuple[str, ...] | str, weights: tuple[str, ...] = (), **attrs: Any) -> str:
        """Appends an op and returns the name of its first output ("" when it has none)."""
        outputs = (out,) if isinstance(out, str) else out
        op = Op(kind, inputs, outputs, weights, MappingProxyType(attrs))
        shapes = KINDS[kind].shapes(op, self._buffers, {name: self._weights[name].shape for name in weights})
        self._buffers.update(zip(outputs, shapes, strict=True))
        self._ops.append(op)
        return outputs[0] if outputs else ""

    def norm(self, x: str, out: str, weight: str, scale: float = 1.0) -> str:
        return self.op("rms_norm", (x,), out, (weight,), eps=self.spec.norm_eps, offset=self.spec.norm_offset, scale=scale)

    def finish(self, outputs: dict[str, str]) -> Program:
        spec = self.spec
        kept = (spec.num_kv_heads, spec.head_dim) if spec.latent is None else (1, spec.kv_values, 1)
        kv = KVSpec(spec.num_kv_layers, *kept)
        program = Program(
            tuple(self._ops), MappingProxyType(self._buffers), MappingProxyType(self._weights), kv,
            spec.vocab_size, spec.max_position, MappingProxyType(outputs), tuple(self._inputs), self.names.aliases,
        )
        check(program)
        return program
