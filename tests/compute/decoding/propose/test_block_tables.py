import numpy as np

from penstock.compute.backends.contract import KVLayout
from penstock.compute.decoding.propose.block_tables import BlockTables, SeqRows, make_batch


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
