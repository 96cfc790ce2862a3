"""Corrects the confidence of trained heads, whose logits are scaled for greedy decoding: a sampled token is less certain."""
from collections.abc import Sequence

from penstock.compute.arrays import Array
from penstock.compute.decoding.propose.contract import Draftable

SAMPLED_SCALE = 0.5  # factor of the logits of sequences that sample


def temper(logits: Array, owners: Sequence[Draftable]) -> Array:
    """Scales logits [rows, vocab] in place where `owners[row]` samples its tokens, and returns them."""
    sampled = [i for i, row in enumerate(owners) if row.state is not None and row.state.params.temperature > 0]
    if sampled:
        logits[sampled] *= SAMPLED_SCALE
    return logits
