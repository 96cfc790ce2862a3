"""A StepPlan as the flat arrays that a backend takes, and what its results will be needed for."""
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Batch
from penstock.compute.decoding.masking import RowMasks
from penstock.compute.decoding.state import RowState
from penstock.compute.runner.known import Known
from penstock.core.drafting import depths
from penstock.core.types import PlannedSeq, StepPlan
from penstock.core.work import StepWork

Array = Any
NO_COPIES = np.empty((0, 2), dtype=np.int64)
FEW = 24  # tokens of a sequence, up to which their slots are told sooner one by one


@dataclass(slots=True)
class Choosing:
    """The rows that choose a token, in the plan's order: the last one of a sequence, and those of its drafts."""

    places: list[int] = field(default_factory=list)  # in the plan
    rows: list[int] = field(default_factory=list)  # of the logits
    states: list[RowState] = field(default_factory=list)
    output_index: list[int] = field(default_factory=list)
    drafted: dict[int, int] = field(default_factory=dict)  # place -> the first of its rows here, for those that have drafts
    masks: RowMasks | None = None  # of those that follow a grammar, once the step is computed

    def add(self, place: int, row: int, state: RowState, output_index: int) -> None:
        """`row`: of the logits."""
        self.places.append(place)
        self.rows.append(row)
        self.states.append(state)
        self.output_index.append(output_index)

    def add_drafted(self, place: int, planned: PlannedSeq, state: RowState, row: int) -> None:
        """`row`: of the logits, that of the sequence's last token; those of its drafts follow."""
        count, first = planned.num_drafts + 1, planned.num_output
        self.drafted[place] = len(self.places)
        self.places += [place] * count
        self.rows += range(row, row + count)
        self.states += [state] * count
        if planned.draft_parents is None:
            self.output_index += range(first, first + count)
        else:
            self.output_index += [first, *[first + depth for depth in draft_depths(planned)]]


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


def drafts_of(planned: PlannedSeq) -> tuple[int, ...]:
    return planned.tokens[len(planned.tokens) - planned.num_drafts :]


def draft_depths(planned: PlannedSeq) -> list[int]:
    """How far behind the last token each draft stands."""
    return list(range(1, planned.num_drafts + 1)) if planned.draft_parents is None else depths(planned.draft_parents)


def row_parents(planned: PlannedSeq) -> list[int]:
    """The row that each row of a sequence follows, -1: the cache."""
    fixed = len(planned.tokens) - planned.num_drafts
    chain = range(-1, len(planned.tokens) - 1)
    if planned.draft_parents is None:
        return list(chain)
    return [*chain[:fixed], *(fixed + parent for parent in planned.draft_parents)]


def prompt_rows(planned: PlannedSeq) -> int:
    """How many of its first rows tell of a prompt token."""
    return max(0, min(len(planned.tokens), planned.num_prompt - 1 - planned.start))


def moves_of(planned: PlannedSeq, rows: Sequence[int], table: Array, block_size: int) -> list[tuple[int, int]]:
    """(source, target) slots that bring the drafts of an accepted path behind the last token; `rows` as accept.walk gives them."""
    last = planned.start + len(planned.tokens) - planned.num_drafts - 1

    def slot(at: int) -> int:
        return int(table[at // block_size]) * block_size + at % block_size

    return [(slot(last + row), slot(last + i)) for i, row in enumerate(rows) if row != i]


def assemble(plan: StepPlan, known: Sequence[Known], block_size: int, moves: Sequence[tuple[int, int]] = (),
             buffers: tuple[str, ...] = ()) -> Assembled:
    """`known` holds one entry per planned sequence, `moves` what the last step's accepted drafts need; `buffers` are wanted of every step.

    The logits come in the plan's order: of each sequence first the rows that tell of its prompt, where that is asked for, then its end,
    if it chooses a token, then its drafts.
    """
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    logit_rows: list[int] = []
    row_starts, counts, contexts, tables = [0], [], [], []
    choosing, special = Choosing(), []
    num_rows, trees = 0, False
    for place, (planned, each) in enumerate(zip(plan.seqs, known, strict=True)):
        start, count, block_ids = planned.start, len(planned.tokens), planned.block_ids
        if block_ids is not each.block_ids:
            each.take_blocks(block_ids)
        if count == 1:
            slots.append(block_ids[start // block_size] * block_size + start % block_size)
            positions.append(start)
        else:
            if count <= FEW:
                slots += [block_ids[at // block_size] * block_size + at % block_size for at in range(start, start + count)]
            else:
                at = np.arange(start, start + count, dtype=np.int64)
                slots += (each.table[at // block_size] * block_size + at % block_size).tolist()
            if planned.draft_parents is None:
                positions += range(start, start + count)
            else:
                trees, last = True, start + count - planned.num_drafts - 1
                positions += [*range(start, last + 1), *(last + depth for depth in draft_depths(planned))]
        tokens += planned.tokens
        if not each.plain:
            special.append(look_closer(place, planned, each, logit_rows, num_rows))
        num_rows += count
        if planned.samples and each.chooses:
            if planned.num_drafts:
                choosing.add_drafted(place, planned, each.state, len(logit_rows))
                logit_rows += range(num_rows - 1 - planned.num_drafts, num_rows)
            else:
                choosing.add(place, len(logit_rows), each.state, planned.num_output)
                logit_rows.append(num_rows - 1)
        row_starts.append(num_rows)
        counts.append(count)
        contexts.append(start + count)
        tables.append(each.table)
    parents = np.array([parent for planned in plan.seqs for parent in row_parents(planned)], dtype=np.int32) if trees else None
    if any(each.embedding_row is not None for each in special):
        buffers = ("hidden",)
    batch = Batch(
        array(tokens), array(positions), array(slots), array(row_starts), array(contexts), tables, array(logit_rows),
        array(plan.copies) if plan.copies else NO_COPIES, buffers, parents, array(moves) if moves else None)
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
