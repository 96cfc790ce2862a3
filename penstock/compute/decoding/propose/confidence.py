"""Lowers the confidence of trained heads for sequences that sample. Training scales a head's logits so that its confidence matches its
accuracy on greedy text; sampled tokens are harder to predict."""
from collections.abc import Sequence

from penstock.compute.arrays import Array
from penstock.compute.decoding.propose.contract import Draftable

SAMPLED_SCALE = 0.5  # factor of their logits


def soften_sampled(logits: Array, owners: Sequence[Draftable]) -> Array:
    """Scales logits [rows, vocab] in place, in the rows whose sequence `owners[row]` has a temperature above 0. Returns them."""
    sampled = [i for i, row in enumerate(owners) if row.state is not None and row.state.params.temperature > 0]
    if sampled:
        logits[sampled] *= SAMPLED_SCALE
    return logits
