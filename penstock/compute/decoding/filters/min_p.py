"""Min-p: keeps the tokens that are at least p times as likely as the likeliest token (Nguyen et al. 2024, arXiv:2407.01082)."""
import math
from collections.abc import Sequence

from penstock.compute.arrays import Array, array_namespace, device
from penstock.compute.decoding.draw import below_max
from penstock.core.types import SamplingParams


class MinP:
    def setting(self, params: SamplingParams) -> float | None:
        return params.min_p if params.min_p > 0 else None

    def apply(self, logits: Array, settings: Sequence[float]) -> Array:
        xp = array_namespace(logits)
        least = xp.asarray([math.log(p) for p in settings], dtype=logits.dtype, device=device(logits))
        return xp.where(below_max(logits) < least[:, None], -xp.inf, logits)
