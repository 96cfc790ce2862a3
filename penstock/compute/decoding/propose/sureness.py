"""How sure a trained head may be: its logits are scaled for greedy choices, and a drawn one is less certain."""
from collections.abc import Sequence

from penstock.compute.arrays import Array
from penstock.compute.decoding.propose.contract import Draftable

SOFTER = 0.5  # what the logits of sequences that draw are multiplied by


def softened(logits: Array, owners: Sequence[Draftable]) -> Array:
    """Logits [rows, vocab], changed in place where the sequence that a row belongs to draws its tokens."""
    drawn = [i for i, row in enumerate(owners) if row.state is not None and row.state.params.temperature > 0]
    if drawn:
        logits[drawn] *= SOFTER
    return logits
