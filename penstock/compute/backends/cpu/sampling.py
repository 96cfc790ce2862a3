"""The native form of the sampler's arithmetic, which never sorts a vocabulary (csrc/sample.cpp)."""
from collections.abc import Sequence
from typing import Any

import numpy as np

from penstock.compute.decoding.sampling import Scores
from penstock.core.types import SamplingParams

Array = Any
_SEED_MASK = (1 << 64) - 1
_ALL = (1 << 31) - 1  # top_k beyond every vocabulary


class NativeSampling:
    filters = ("top_k", "top_p", "min_p", "typical_p")

    def __init__(self, native: Any, model: Any) -> None:
        """`native`: the module; `model`: whose threads and kernels are used."""
        self._drawing = native.Drawing
        self._sampler = native.Sampler(model)

    def drawing(self, params: SamplingParams, seed: int) -> Any:
        return self._drawing(params.temperature, min(params.top_k, _ALL), params.top_p, params.min_p, params.typical_p, seed & _SEED_MASK)

    def choose(self, logits: Array, rows: Sequence[int] | None, drawings: Sequence[Any], output_index: Sequence[int]) -> list[int]:
        chosen: list[int] = self._sampler.choose(logits, rows, drawings, output_index)
        return chosen

    def forbid(self, logits: Array, rows: Sequence[int], allowed: Array) -> None:
        self._sampler.forbid(logits, rows, allowed)

    def score(self, logits: Array, rows: Sequence[int] | None, token_ids: Sequence[int], num: int) -> Scores:
        count, num = len(token_ids), min(num, logits.shape[1])
        ranks, ids = np.empty(count, dtype=np.int64), np.empty((count, num), dtype=np.int64)
        values = np.empty((count, 1 + num), dtype=np.float64)
        self._sampler.score(logits, rows, np.array(token_ids, dtype=np.int64), ranks, values, ids)
        return Scores(ranks.tolist(), values.tolist(), ids.tolist())
