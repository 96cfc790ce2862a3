import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.decoding.propose.block_tables import BlockTables, SeqRows, make_batch, pieces


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


@pytest.mark.parametrize(("lacking", "steps"), [
    ([], []), ([3, 4], []), ([1] * 30, []), ([25], [[(0, 10)], [(0, 5)]]),
    ([12, 3, 40], [[(0, 10)], [(0, 1), (2, 9)], [(2, 10)], [(2, 10)], [(2, 5)]]),
    ([2] * 8, [[(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)]])])
def test_what_is_missed_is_read_until_one_step_holds_the_rest(lacking, steps):
    """The shortest first, and no more than that takes."""
    assert pieces(lacking, 10) == steps
    for seq, count in (each for step in steps for each in step):
        lacking[seq] -= count
    assert sum(lacking) <= max(10, len(lacking)) and min(lacking, default=1) >= 1
    assert all(sum(count for _, count in step) <= 10 and len({seq for seq, _ in step}) == len(step) for step in steps)
