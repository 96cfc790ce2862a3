"""A folder whose experts are stored in MXFP4, as gpt-oss is published: two tensors of bytes for each that is so stored.

X_blocks [..., rows, groups, 16] has two codes a byte, the lower half first, X_scales [..., rows, groups] the exponents. Together they are
X_blocks [..., rows, groups * 32] here.
"""
import math
from collections.abc import Collection
from typing import Any, Protocol

import numpy as np

from penstock.compute.models.load.contract import Checkpoint
from penstock.compute.quant.codes import Codes, Coding
from penstock.compute.quant.microscaled import DOUBLED, GROUP, LARGEST, coding, halved_powers, scales_dtype
from penstock.core.errors import ModelError

Array = Any
BLOCKS, SCALES = "_blocks", "_scales"


class Stored(Checkpoint, Protocol):
    """The folder's own checkpoint."""

    def octets(self, name: str) -> Array:
        """The bytes of a tensor of type U8."""
        ...


class Mxfp4Checkpoint:
    def __init__(self, own: Stored) -> None:
        """Raises ModelError for blocks without scales, or of shapes that do not belong together."""
        self._own = own
        self.where, self.config = own.where, own.config
        self._scales = {name: name.removesuffix(BLOCKS) + SCALES for name in own.names() if name.endswith(BLOCKS)}
        self._codings: dict[str, Coding] = {}
        for blocks, scales in self._scales.items():
            if scales not in own.names():
                raise ModelError(f"{scales} is missing from {own.where}, which has {blocks}")
            packed, groups = own.shape(blocks), own.shape(scales)
            if len(groups) < 2 or packed != (*groups, GROUP // 2):
                raise ModelError(f"{blocks} in {own.where} has the shape {list(packed)}, but {scales} makes it {[*groups, GROUP // 2]}")

    def names(self) -> Collection[str]:
        return set(self._own.names()) - set(self._scales.values())

    def spelled(self, name: str) -> str:
        return self._own.spelled(name)

    def shape(self, name: str) -> tuple[int, ...]:
        if name not in self._scales:
            return self._own.shape(name)
        *outer, groups = self._own.shape(self._scales[name])
        return (*outer, groups * GROUP)

    def tensor(self, name: str) -> Array:
        if name not in self._scales:
            return self._own.tensor(name)
        *outer, _ = self.shape(name)
        rows: Any = self.rows(name, 0, math.prod(outer))
        return rows.dequantize().reshape(self.shape(name))

    def coding(self, name: str) -> Coding | None:
        """All exponents are looked at, for the narrowest type of scales: 1 byte of 17. Raises ModelError for one that is no number."""
        if name not in self._scales:
            return self._own.coding(name)
        if name not in self._codings:
            exponents = self._own.octets(self._scales[name])
            if exponents.size and exponents.max() > LARGEST:
                raise ModelError(f"{self._scales[name]} in {self.where} holds {exponents.max()}, but {LARGEST} is the largest exponent")
            self._codings[name] = coding(scales_dtype(exponents))
        return self._codings[name]

    def rows(self, name: str, start: int, stop: int) -> Array | Codes:
        kind = self.coding(name) if name in self._scales else None
        if kind is None:
            return self._own.rows(name, start, stop)
        groups = self._own.shape(self._scales[name])[-1]
        packed = self._own.octets(name).reshape(-1, groups * GROUP // 2)[start:stop]
        exponents = self._own.octets(self._scales[name]).reshape(-1, groups)[start:stop]
        codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), groups * GROUP)
        return Codes(codes, 4, GROUP, halved_powers(exponents, kind.scales), None, DOUBLED)

    def fingerprint(self) -> bytes:
        return self._own.fingerprint()

    def release(self) -> None:
        self._own.release()
