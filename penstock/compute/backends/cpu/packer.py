"""Brings the weights of a lowered program into a native model: each matrix packed piece by piece as it comes, each vector as float32."""
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.compute.backends.cpu.layout import MatrixLayout, matrix_layout, raw, spread_bias, vector_bytes
from penstock.compute.backends.cpu.lower import Native, lower
from penstock.compute.backends.packed import PackedCache
from penstock.compute.ops import unserved
from penstock.compute.program import Program
from penstock.compute.quant.codes import Codes
from penstock.compute.weight import Form, Given, weight_of

Array = Any


class Packer:
    """Gives every weight of a program its place in the native model, once, however many operations use it."""

    def __init__(self, model: Any, program: Program, natives: Sequence[Native], weights: Mapping[str, Given], dtype: str) -> None:
        """Makes room for all matrices; `dtype`: of those that come as numbers. Raises KeyError when a weight is missing."""
        self._model = model
        self._program = program
        used = uses(natives)
        self._weights = {name: weight_of(weights[name], program.weights[name].shape) for name in dict.fromkeys(each.name for each in used)}
        self.layouts = {
            (each.name, each.gated): matrix_layout(program.weights[each.name], self._weights[each.name].form, dtype, each.gated)
            for each in used if each.is_matrix}
        self._num_bytes = sum(layout.reserved_bytes for layout in self.layouts.values())
        model.reserve(self._num_bytes)
        self._matrices: dict[tuple[str, bool], int] = {key: model.add_matrix(layout.fields()) for key, layout in self.layouts.items()}
        self._vectors: dict[tuple[str, bool, float], int] = {}
        self._rope_tables: dict[Any, int] = {}

    @property
    def forms(self) -> dict[str, Form]:
        return {name: weight.form for name, weight in self._weights.items()}

    def fill(self, cache: PackedCache | None) -> None:
        """Brings all matrices in: as an earlier process left them in the cache, else from the weights, and then leaves them there."""
        if cache is None or self._num_bytes < cache.min_bytes:
            return self._pack()
        made = {"layout": self._model.layout_version(), "order": sys.byteorder, "bytes": self._num_bytes,
                "matrices": [[name, gated, layout.fields()] for (name, gated), layout in self.layouts.items()]}
        stored = cache.find(made)
        if stored is None or not self._model.read_weights(str(stored.path), stored.offset, stored.sums):
            cache.drop(made)
            self._pack()
            cache.keep(made, self._model.weight_sums(), memoryview(self._model.weights()))
        self._model.trim()
        return None

    def _pack(self) -> None:
        """Takes the matrices from the weights, one after another."""
        for name in dict.fromkeys(name for name, _ in self.layouts):
            targets = [(self._matrices[key], layout) for key, layout in self.layouts.items() if key[0] == name]
            rows, at = self._program.weights[name].shape[-2], 0
            for piece in self._weights[name].pieces():
                for number, layout in targets:
                    for start, stop, place in cuts(layout, rows, at, piece.shape[0]):
                        self._take(number, place, piece, start, stop)
                at += piece.shape[0]
        self._model.trim()

    def fields(self, native: Native, buffers: Mapping[str, int]) -> dict[str, Any]:
        """The operation as csrc/bind.cpp reads it."""
        found: dict[str, Any] = {"kind": native.kind}
        for role, name in native.buffers.items():
            found[role] = buffers[name]
        out = native.buffers.get("out")
        shape = self._program.buffers.get(out, ("T",)) if out is not None else ("T",)
        found["by_logits"] = shape[0] == "L"
        for role in native.weights:
            use = use_of(native, role)
            scale = native.norm_scale if role.startswith("weight") else 1.0
            found[role] = self._matrices[use.name, use.gated] if use.is_matrix else self._vector(use.name, use.gated, scale)
        if native.inv_freq is not None:
            found["rope_table"] = self._rope_table(native.inv_freq)
        return found | native.fields

    def _rope_table(self, inv_freq: tuple[tuple[float, ...], float]) -> int:
        if inv_freq not in self._rope_tables:
            self._rope_tables[inv_freq] = self._model.add_rope_table(np.asarray(inv_freq[0], dtype=np.float32), inv_freq[1])
        return self._rope_tables[inv_freq]

    def _vector(self, name: str, gated: bool, scale: float) -> int:
        key = name, gated, scale
        if key not in self._vectors:
            values = self._weights[name].numbers(np.float32) * np.float32(scale)
            self._vectors[key] = self._model.add_vector(spread_bias(values, gated))
        return self._vectors[key]

    def _take(self, number: int, place: list[int], piece: Array | Codes, start: int, stop: int) -> None:
        if not isinstance(piece, Codes):
            self._model.pack(number, place, raw(piece[start:stop]))
            return
        part = piece.rows(start, stop)
        mins, *multiplied = (None if each is None else np.ascontiguousarray(each)
                             for each in (part.mins, part.units, part.factors, part.min_factors))
        codes, scales = np.ascontiguousarray(part.codes).view(np.int8), np.ascontiguousarray(part.scales)
        self._model.pack_codes(number, place, codes, scales, mins, tuple(multiplied))


@dataclass(frozen=True, slots=True)
class Use:
    """How an operation reads a weight. `gated`: its rows are gate and up."""

    name: str
    is_matrix: bool
    gated: bool


def use_of(native: Native, role: str) -> Use:
    return Use(native.weights[role], role.startswith("matrix"), native.gated and role in ("matrix", "bias"))


def uses(natives: Sequence[Native]) -> list[Use]:
    """Each once, in the order in which they first come."""
    return list(dict.fromkeys(use_of(native, role) for native in natives for role in native.weights))


def held_bytes(program: Program, forms: Mapping[str, Form], dtype: str) -> dict[str, int]:
    """What each weight takes as it is packed for all that read it; for a program that no backend computes, as if none were gated."""
    found = dict.fromkeys(program.weights, 0)
    plain = [Use(name, len(weight.shape) > 1 and not weight.bias, False) for name, weight in program.weights.items()]
    for use in plain if unserved(program) else uses(lower(program)):
        weight = program.weights[use.name]
        found[use.name] += (matrix_layout(weight, forms[use.name], dtype, use.gated).num_bytes if use.is_matrix
                            else vector_bytes(weight.shape, use.gated))
    return found


def cuts(layout: MatrixLayout, rows: int, at: int, count: int) -> Iterator[tuple[int, int, list[int]]]:
    """`count` rows, of which the first is row `at` of all stacked matrices of `rows` each -> (first, last + 1, their place), cut where
    they go to another matrix, or from gates to ups. A place is (matrix, first row, side), side -1 where rows are not halved."""
    step = rows // 2 if layout.halves else rows
    start = 0
    while start < count:
        row = at + start
        stop = min(count, start + step - row % step)
        yield start, stop, [row // rows, row % step, row % rows // step if layout.halves else -1]
        start = stop
