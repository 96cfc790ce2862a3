"""A StepPlan as the flat arrays that a backend takes."""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Batch
from penstock.core.types import PlannedSeq, StepPlan
from penstock.core.work import StepWork

Array = Any
NO_COPIES = np.empty((0, 2), dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Rows of one sequence whose logits are wanted, as offsets among its own: first those that tell of prompt tokens, then its end."""

    num_prompt: int  # offsets 0 .. num_prompt - 1 tell of the prompt tokens after them
    ends: bool  # the last row chooses a token


END, NOTHING = Wanted(0, True), Wanted(0, False)


def wanted_rows(planned: PlannedSeq, prompt_logprobs: bool, chooses: bool) -> Wanted:
    num_prompt = max(0, min(len(planned.tokens), planned.num_prompt - 1 - planned.start)) if prompt_logprobs else 0
    return Wanted(num_prompt, planned.samples and chooses)


def assemble(
    plan: StepPlan, block_size: int, wanted: Sequence[Wanted], tables: Sequence[Array], buffers: tuple[str, ...] = ()
) -> tuple[Batch, StepWork]:
    """`wanted` and `tables` (block ids as an array) hold one entry per planned sequence; the logits come in its order."""
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    logit_rows: list[int] = []
    row_starts, counts, contexts = [0], [], []
    num_rows = 0
    for planned, rows, table in zip(plan.seqs, wanted, tables, strict=True):
        start, count = planned.start, len(planned.tokens)
        if count == 1:
            slots.append(planned.block_ids[start // block_size] * block_size + start % block_size)
            positions.append(start)
        else:
            at = np.arange(start, start + count, dtype=np.int64)
            slots += (table[at // block_size] * block_size + at % block_size).tolist()
            positions += range(start, start + count)
        tokens += planned.tokens
        if rows.num_prompt:
            logit_rows += range(num_rows, num_rows + rows.num_prompt)
        num_rows += count
        if rows.ends:
            logit_rows.append(num_rows - 1)
        row_starts.append(num_rows)
        counts.append(count)
        contexts.append(start + count)
    batch = Batch(
        array(tokens), array(positions), array(slots), array(row_starts), array(contexts), tables, array(logit_rows),
        array(plan.copies) if plan.copies else NO_COPIES, buffers)
    return batch, StepWork(tuple(zip(counts, contexts, strict=True)), len(logit_rows))


def array(values: Sequence[Any]) -> Array:
    return np.array(values, dtype=np.int64)
