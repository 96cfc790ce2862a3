"""Draft trees: a row that follows a branch has the bits that it has when the branch is computed as a plain sequence."""
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import Batch, KVLayout
from penstock.core.modelspec import LayerSpec
from tests.contract.decoders import PLAIN, ROPE, SPECS, decoder
from tests.contract.participants import PARTICIPANTS, Participant
from tests.contract.stories import LEFT, Share, batch_of, fill_pool

SIZE = 16
PARENTS = (-1, 0, 0, 1, 1, 2, 3, 3, 6)  # two branches of the root, and branches of branches
LEAVES = sorted(set(range(len(PARENTS))) - set(PARENTS))
WINDOWED = replace(PLAIN, layers=(LayerSpec(window=7, rope=ROPE), LayerSpec(rope=ROPE)))
MODELS = {**SPECS, "a narrow window": WINDOWED}


def depth(row: int) -> int:
    return 0 if PARENTS[row] < 0 else 1 + depth(PARENTS[row])


def path(row: int) -> list[int]:
    return [*(path(PARENTS[row]) if PARENTS[row] >= 0 else []), row]


def tree_batch(drafts: Any, start: int, table: Any) -> Batch:
    """All rows of the tree in one step, each in a slot of its own."""
    plain = batch_of([Share(drafts, start, table, range(len(PARENTS)))], SIZE)
    positions = np.array([start + depth(row) for row in range(len(PARENTS))], dtype=np.int64)
    return replace(plain, positions=positions, parents=np.array(PARENTS, dtype=np.int32))


@pytest.mark.parametrize("participant", [each for each in PARTICIPANTS if each.text.startswith("cpu")], ids=str)
@pytest.mark.parametrize("start", [3, 31, 128, 201])
@pytest.mark.parametrize("name", MODELS)
def test_a_branch_is_the_sequence_it_stands_for(participant: Participant, name: str, start: int) -> None:
    backend = participant.make()
    program, weights = decoder(MODELS[name])
    rng = np.random.default_rng(start)
    prompt, drafts = rng.integers(0, MODELS[name].vocab_size, start), rng.integers(0, MODELS[name].vocab_size, len(PARENTS))
    size = -(-(start + len(PARENTS)) // SIZE)
    ids = rng.permutation(40)
    of_tree, of_branches = ids[:size], ids[size : 2 * size]
    loaded = backend.load(program, weights, KVLayout(40, SIZE))
    fill_pool(backend, loaded, program, LEFT)
    backend.step(loaded, batch_of([Share(prompt, 0, of_tree), Share(prompt, 0, of_branches)], SIZE))
    found = backend.step(loaded, tree_batch(drafts, start, of_tree)).logits.copy()
    for leaf in LEAVES:
        rows = path(leaf)
        alone = backend.step(loaded, batch_of([Share(drafts[rows], start, of_branches, range(len(rows)))], SIZE)).logits
        np.testing.assert_array_equal(found[rows], alone, err_msg=f"rows {rows}")
