from dataclasses import replace

import numpy as np
import pytest

from penstock.compute.runner.batch import ExtraOutputs, assemble, prompt_rows
from penstock.compute.runner.cached_seq import CachedSeq
from penstock.core.types import PlannedSeq, SamplingParams, SeqInfo, SeqResult, StepPlan
from penstock.core.work import StepWork


def planned(
    start: int, tokens: tuple[int, ...], block_ids: tuple[int, ...] = (0,), samples: bool = True, num_output: int = 0
) -> PlannedSeq:
    return PlannedSeq(0, start, tokens, block_ids, samples, num_prompt=4, num_output=num_output)


def cached(prompt_logprobs: int | None = None, **info: bool) -> CachedSeq:
    return CachedSeq(SeqInfo(SamplingParams(prompt_logprobs=prompt_logprobs), (1, 2, 3, 4), 0, **info))


def test_a_plan_becomes_flat_arrays() -> None:
    seqs = (planned(1, (50, 51, 52), (7, 2)), planned(0, (10,), (4,), num_output=3), planned(2, (20, 21), (3, 0, 1), samples=False))
    sequences = [cached(prompt_logprobs=1), cached(), cached(prompt_logprobs=0)]
    made = assemble(StepPlan(0, seqs, copies=((7, 2), (5, 0))), sequences, 4)
    batch = made.batch
    assert batch.tokens.tolist() == [50, 51, 52, 10, 20, 21]
    assert batch.positions.tolist() == [1, 2, 3, 0, 2, 3]
    assert batch.slots.tolist() == [7 * 4 + 1, 7 * 4 + 2, 7 * 4 + 3, 4 * 4, 3 * 4 + 2, 3 * 4 + 3]
    assert batch.row_starts.tolist() == [0, 3, 4, 6]
    assert batch.contexts.tolist() == [4, 1, 4]
    assert [table.tolist() for table in batch.block_tables] == [[7, 2], [4], [3, 0, 1]]
    assert batch.logit_rows.tolist() == [0, 1, 2, 3, 4]
    assert batch.copies.tolist() == [[7, 2], [5, 0]] and batch.wanted == ()
    assert made.work == StepWork(((3, 4), (1, 1), (2, 4)), num_logits=5)
    assert (made.sampled.places, made.sampled.rows, made.sampled.output_index) == ([0, 1], [2, 3], [0, 3])
    assert made.sampled.states == [sequences[0].state, sequences[1].state]
    assert made.extras == [ExtraOutputs(0, slice(0, 2), None), ExtraOutputs(2, slice(4, 5), None)]
    arrays = (batch.tokens, batch.positions, batch.slots, batch.row_starts, batch.contexts, batch.logit_rows, batch.copies)
    assert {array.dtype for array in (*arrays, *batch.block_tables)} == {np.dtype(np.int64)}


def test_a_step_without_logits_or_copies() -> None:
    made = assemble(StepPlan(0, (planned(0, (1, 2), samples=False),)), [cached()], 16)
    assert made.batch.logit_rows.shape == (0,) and made.batch.copies.shape == (0, 2)
    assert made.work == StepWork(((2, 2),)) and not made.extras and not made.sampled.rows


@pytest.mark.parametrize("samples", [False, True])
def test_the_hidden_state_is_wanted_of_the_last_row_of_an_embedding(samples: bool) -> None:
    made = assemble(StepPlan(0, (planned(0, (1, 2)), planned(1, (2, 3, 4), samples=samples))), [cached(), cached(wants_embedding=True)], 16)
    assert made.batch.wanted == (("hidden",) if samples else ()) and made.batch.logit_rows.tolist() == [1]
    assert made.extras == [ExtraOutputs(1, slice(1, 1), 4 if samples else None)]


# Of a prompt of 4 tokens, rows 0, 1 and 2 give the log-probabilities of tokens 1, 2 and 3.
@pytest.mark.parametrize(("start", "count", "num_prompt"), [
    (0, 4, 3), (0, 3, 3), (0, 2, 2), (2, 1, 1), (2, 2, 1), (3, 1, 0), (4, 1, 0), (0, 6, 3), (1, 5, 2), (7, 3, 0)])
def test_rows_that_are_followed_by_a_prompt_token(start: int, count: int, num_prompt: int) -> None:
    assert len(prompt_rows(planned(start, (1,) * count))) == num_prompt


@pytest.mark.parametrize("start", [0, 1, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9, 100])
def test_slots_of_few_and_of_many_tokens(start: int, count: int) -> None:
    blocks = tuple(range(40, 0, -1))
    made = assemble(StepPlan(0, (planned(start, (1,) * count, blocks),)), [cached()], 4)
    assert made.batch.slots.tolist() == [blocks[at // 4] * 4 + at % 4 for at in range(start, start + count)]


def test_a_result_with_drafts_is_otherwise_the_same() -> None:
    found = SeqResult(3, (4, 5), (), (), ((6, 0.5),), (), None, (0.1,), "stop")
    assert found.with_drafts((7, 8), (-1, 0)) == replace(found, drafts=(7, 8), draft_parents=(-1, 0))


def test_a_table_is_that_of_the_last_plan() -> None:
    one = cached()
    for ids in ([0, 1, 2], [0, 1, 2], [0, 1, 2, 9], list(range(40)), list(range(40, 60)), [7], [], [3, 4]):
        one.set_blocks(tuple(ids))
        assert one.table.tolist() == ids and one.block_ids == tuple(ids)
