"""Top-k: keeps the k likeliest tokens, exactly k of them, the lower ids among equals (Fan et al. 2018, arXiv:1805.04833)."""
from collections.abc import Sequence

from penstock.compute.arrays import Array, array_namespace, device
from penstock.compute.decoding.rank import largest_keys, rank_keys
from penstock.core.types import SamplingParams


class TopK:
    def setting(self, params: SamplingParams) -> float | None:
        return params.top_k if params.top_k > 0 else None

    def apply(self, logits: Array, settings: Sequence[float]) -> Array:
        xp = array_namespace(logits)
        num_kept = [min(int(k), logits.shape[1]) for k in settings]
        keys = rank_keys(logits)
        top = largest_keys(keys, max(num_kept))
        rows = xp.arange(logits.shape[0], device=device(logits))
        last_kept = top[rows, xp.asarray(num_kept, device=device(logits)) - 1]
        return xp.where(keys < last_kept[:, None], -xp.inf, logits)
