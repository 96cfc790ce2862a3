import numpy as np
import pytest

from penstock.compute.runner.batch import Wanted, assemble, wanted_rows
from penstock.core.types import PlannedSeq, StepPlan
from penstock.core.work import StepWork


def planned(start: int, tokens: tuple[int, ...], block_ids: tuple[int, ...] = (0,), samples: bool = True) -> PlannedSeq:
    return PlannedSeq(0, start, tokens, block_ids, samples, num_prompt=4, num_output=0)


def test_a_plan_becomes_flat_arrays() -> None:
    seqs = (planned(5, (50, 51, 52), (7, 2, 9)), planned(0, (10,), (4,)), planned(2, (20, 21), (3, 0, 1)))
    wanted, tables = [Wanted(2, True), Wanted(0, True), Wanted(1, False)], [np.array(seq.block_ids) for seq in seqs]
    batch, work = assemble(StepPlan(0, seqs, copies=((7, 2), (5, 0))), 4, wanted, tables, ("hidden",))
    assert work == StepWork(((3, 8), (1, 1), (2, 4)), num_logits=5)
    assert batch.tokens.tolist() == [50, 51, 52, 10, 20, 21]
    assert batch.positions.tolist() == [5, 6, 7, 0, 2, 3]
    assert batch.slots.tolist() == [2 * 4 + 1, 2 * 4 + 2, 2 * 4 + 3, 4 * 4, 3 * 4 + 2, 3 * 4 + 3]
    assert batch.row_starts.tolist() == [0, 3, 4, 6]
    assert batch.contexts.tolist() == [8, 1, 4]
    assert [table.tolist() for table in batch.block_tables] == [[7, 2, 9], [4], [3, 0, 1]]
    assert batch.logit_rows.tolist() == [0, 1, 2, 3, 4]
    assert batch.copies.tolist() == [[7, 2], [5, 0]]
    assert batch.wanted == ("hidden",)
    arrays = (batch.tokens, batch.positions, batch.slots, batch.row_starts, batch.contexts, batch.logit_rows, batch.copies)
    assert {array.dtype for array in (*arrays, *batch.block_tables)} == {np.dtype(np.int64)}


def test_a_step_without_logits_or_copies() -> None:
    batch, work = assemble(StepPlan(0, (planned(0, (1, 2)),)), 16, [Wanted(0, False)], [np.array([0])])
    assert work == StepWork(((2, 2),)) and batch.wanted == ()
    assert batch.logit_rows.shape == (0,) and batch.copies.shape == (0, 2)


# A prompt of 4 tokens has logits that tell of its tokens 1, 2 and 3: those of rows 0, 1 and 2.
@pytest.mark.parametrize(("start", "count", "num_prompt"), [
    (0, 4, 3), (0, 3, 3), (0, 2, 2), (2, 1, 1), (2, 2, 1), (3, 1, 0), (4, 1, 0), (0, 6, 3), (1, 5, 2), (7, 3, 0)])
def test_rows_that_tell_of_the_prompt(start: int, count: int, num_prompt: int) -> None:
    seq = planned(start, (1,) * count, samples=start + count >= 4)
    assert wanted_rows(seq, True, chooses=True) == Wanted(num_prompt, seq.samples)
    assert wanted_rows(seq, False, chooses=True) == Wanted(0, seq.samples)
    assert wanted_rows(seq, True, chooses=False) == Wanted(num_prompt, False)
