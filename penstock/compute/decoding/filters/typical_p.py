"""Typical-p (locally typical sampling): keeps the tokens whose surprisal, -log p, is nearest to the row's entropy, as few as have the given
total probability (Meister et al. 2022, arXiv:2202.00666). The likeliest token may be removed."""
from collections.abc import Sequence

from penstock.compute.arrays import Array, array_namespace, device
from penstock.compute.decoding.draw import below_max
from penstock.compute.decoding.rank import rank_keys, share_key
from penstock.compute.decoding.sums import SumTree
from penstock.core.types import SamplingParams


class TypicalP:
    def setting(self, params: SamplingParams) -> float | None:
        return params.typical_p if params.typical_p < 1 else None

    def apply(self, logits: Array, settings: Sequence[float]) -> Array:
        xp = array_namespace(logits)
        below = below_max(logits)
        weights = xp.exp(below)  # p = weight / total
        total = SumTree(weights).total
        depth = SumTree(xp.where(weights > 0, -below, xp.zeros_like(below)) * weights).total
        # p = weight / total, so entropy = log total + depth / total, and surprisal - entropy = -depth / total - below
        mean = -depth / xp.where(total > 0, total, xp.ones_like(total))
        nearness = -xp.abs(below - xp.astype(mean, below.dtype)[:, None])
        keys = rank_keys(nearness)
        shares = xp.asarray(list(settings), dtype=xp.float64, device=device(logits))
        last_kept = share_key(keys, weights, shares)
        return xp.where(keys < last_kept, -xp.inf, logits)
