"""A StepPlan as the flat arrays that a backend takes, and what its results will be needed for."""
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Batch
from penstock.compute.decoding.state import RowState
from penstock.compute.runner.known import Known
from penstock.core.types import PlannedSeq, StepPlan
from penstock.core.work import StepWork

Array = Any
NO_COPIES = np.empty((0, 2), dtype=np.int64)


@dataclass(slots=True)
class Choosing:
    """The sequences whose last row chooses a token, in the plan's order."""

    places: list[int] = field(default_factory=list)  # in the plan
    rows: list[int] = field(default_factory=list)  # of the logits
    states: list[RowState] = field(default_factory=list)
    output_index: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Special:
    """A sequence of which more is wanted than a token."""

    place: int  # in the plan
    prompt_rows: slice  # of the logits: they tell of the prompt tokens after their own
    embedding_row: int | None  # of the step


@dataclass(frozen=True, slots=True)
class Assembled:
    batch: Batch
    work: StepWork
    choosing: Choosing
    special: list[Special]


def prompt_rows(planned: PlannedSeq) -> int:
    """How many of its first rows tell of a prompt token."""
    return max(0, min(len(planned.tokens), planned.num_prompt - 1 - planned.start))


def assemble(plan: StepPlan, known: Sequence[Known], block_size: int) -> Assembled:
    """`known` holds one entry per planned sequence. The logits come in the plan's order: of each sequence first the rows that tell of
    its prompt, where that is asked for, then its end, if it chooses a token."""
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    logit_rows: list[int] = []
    row_starts, counts, contexts, tables = [0], [], [], []
    choosing, special = Choosing(), []
    num_rows = 0
    for place, (planned, each) in enumerate(zip(plan.seqs, known, strict=True)):
        start, count, block_ids = planned.start, len(planned.tokens), planned.block_ids
        if block_ids is not each.block_ids:
            each.take_blocks(block_ids)
        if count == 1:
            slots.append(block_ids[start // block_size] * block_size + start % block_size)
            positions.append(start)
        else:
            at = np.arange(start, start + count, dtype=np.int64)
            slots += (each.table[at // block_size] * block_size + at % block_size).tolist()
            positions += range(start, start + count)
        tokens += planned.tokens
        if not each.plain:
            special.append(look_closer(place, planned, each, logit_rows, num_rows))
        num_rows += count
        if planned.samples and each.chooses:
            choosing.places.append(place)
            choosing.rows.append(len(logit_rows))
            choosing.states.append(each.state)
            choosing.output_index.append(planned.num_output)
            logit_rows.append(num_rows - 1)
        row_starts.append(num_rows)
        counts.append(count)
        contexts.append(start + count)
        tables.append(each.table)
    buffers = ("hidden",) if any(each.embedding_row is not None for each in special) else ()
    batch = Batch(
        array(tokens), array(positions), array(slots), array(row_starts), array(contexts), tables, array(logit_rows),
        array(plan.copies) if plan.copies else NO_COPIES, buffers)
    return Assembled(batch, StepWork(tuple(zip(counts, contexts, strict=True)), len(logit_rows)), choosing, special)


def look_closer(place: int, planned: PlannedSeq, known: Known, logit_rows: list[int], first_row: int) -> Special:
    """What more is wanted of a sequence whose rows begin at `first_row`; adds its rows that tell of the prompt to `logit_rows`."""
    known.count_appended(planned)
    begin = len(logit_rows)
    if known.scores_prompt:
        logit_rows += range(first_row, first_row + prompt_rows(planned))
    embeds = planned.samples and not known.chooses
    return Special(place, slice(begin, len(logit_rows)), first_row + len(planned.tokens) - 1 if embeds else None)


def array(values: Sequence[Any]) -> Array:
    return np.array(values, dtype=np.int64)
