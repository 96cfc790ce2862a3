"""Top-p (nucleus sampling): keeps the smallest set of likeliest tokens whose probabilities sum to at least p (Holtzman et al. 2019,
arXiv:1904.09751)."""
from collections.abc import Sequence

from penstock.compute.arrays import Array, array_namespace, device
from penstock.compute.decoding.draw import below_max
from penstock.compute.decoding.rank import rank_keys, share_key
from penstock.core.types import SamplingParams


class TopP:
    def setting(self, params: SamplingParams) -> float | None:
        return params.top_p if params.top_p < 1 else None

    def apply(self, logits: Array, settings: Sequence[float]) -> Array:
        xp = array_namespace(logits)
        keys = rank_keys(logits)
        shares = xp.asarray(list(settings), dtype=xp.float64, device=device(logits))
        last_kept = share_key(keys, xp.exp(below_max(logits)), shares)
        return xp.where(keys < last_kept, -xp.inf, logits)
