import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.decoding.propose.block_tables import BlockTables, SeqRows, make_batch, shares


def test_blocks_are_taken_and_given_back():
    tables = BlockTables(KVLayout(4, 16))
    assert len(tables.grow(0, 17)) == 2 and len(tables.grow(1, 1)) == 1
    assert tables.grow(1, 49) is None and tables.num_free == 1 and len(tables.grow(1, 0)) == 1
    tables.forget(0)
    tables.forget(7)
    assert len(set(tables.grow(1, 64).tolist())) == 4 and tables.num_free == 0


def test_rows_stand_in_the_slots_of_their_places():
    made = make_batch([SeqRows([5, 6], 3, np.array([2, 0])), SeqRows([7], 0, np.array([1]))], 4, [1, 2])
    assert made.tokens.tolist() == [5, 6, 7] and made.positions.tolist() == [3, 4, 0] and made.slots.tolist() == [11, 0, 4]
    assert made.row_starts.tolist() == [0, 2, 3] and made.contexts.tolist() == [5, 1] and made.parents is None


def test_a_tree_has_the_positions_of_its_depths():
    made = make_batch([SeqRows([9], 2, np.array([0])), SeqRows([5, 6, 7, 8], 10, np.array([1]), (-1, 0, 0, 2))], 16, [])
    assert made.positions.tolist() == [2, 10, 11, 11, 12] and made.slots.tolist() == [2, 26, 27, 28, 29]
    assert made.parents.tolist() == [-1, -1, 0, 0, 2] and made.contexts.tolist() == [3, 14]


@pytest.mark.parametrize(("lacking", "counts"), [
    ([], []), ([300, 212], [300, 212]), ([513], [512]), ([5000, 2, 600, 30], [0, 2, 480, 30]), ([256, 257, 1], [256, 255, 1]),
    ([9] * 57, [9] * 56 + [8]), ([8] * 100, [8] * 100), ([2] * 600 + [9], [2] * 600 + [0])])
def test_a_step_reads_the_shortest_first_and_no_more_than_it_holds(lacking, counts):
    """But for what drafts leave behind."""
    assert shares(lacking, 512) == counts


def test_everything_is_read_in_the_end():
    lacking, steps = [700, 90, 4000, 60, 1], 0
    while any(lacking):
        counts = shares(lacking, 512)
        assert sum(counts) == min(512, sum(lacking))
        lacking, steps = [left - count for left, count in zip(lacking, counts, strict=True)], steps + 1
    assert steps == 10
