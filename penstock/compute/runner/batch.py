"""Turns a StepPlan into the flat arrays that a backend takes, and notes which of its outputs are needed for what."""
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.backends.contract import NO_COPIES, Batch
from penstock.compute.decoding.masking import RowMasks
from penstock.compute.decoding.state import RowState
from penstock.compute.runner.cached_seq import CachedSeq
from penstock.core.drafting import depths
from penstock.core.types import PlannedSeq, StepPlan
from penstock.core.work import StepWork


@dataclass(slots=True)
class SampledRows:
    """The rows from which a token is sampled, in the plan's order: of each sequence that samples the last row before its drafts, and those
    of its drafts. All lists are parallel."""

    places: list[int] = field(default_factory=list)  # index of the sequence in the plan
    rows: list[int] = field(default_factory=list)  # row of the logits
    states: list[RowState] = field(default_factory=list)
    output_index: list[int] = field(default_factory=list)  # of the sampled token
    drafted: dict[int, int] = field(default_factory=dict)  # place of a sequence with drafts -> index of its first row in these lists
    masks: RowMasks | None = None  # of rows that follow a grammar; set once the step has been computed

    def first_rows(self) -> dict[int, int]:
        """For each place, in the plan's order, the index in these lists of its first row."""
        return {**dict(zip(self.places, range(len(self.places)), strict=True)), **self.drafted}

    def add(self, place: int, row: int, state: RowState, output_index: int) -> None:
        """`row`: row of the logits."""
        self.places.append(place)
        self.rows.append(row)
        self.states.append(state)
        self.output_index.append(output_index)

    def add_drafted(self, place: int, planned: PlannedSeq, state: RowState, row: int) -> None:
        """`row`: row of the logits of the sequence's last token; those of its drafts follow."""
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
class ExtraOutputs:
    """A sequence that needs more than a sampled token."""

    place: int  # index in the plan
    prompt_rows: slice  # of the logits: rows that give the log-probabilities of the prompt tokens after them
    embedding_row: int | None  # of the step


@dataclass(frozen=True, slots=True)
class Assembled:
    batch: Batch
    work: StepWork
    sampled: SampledRows
    extras: list[ExtraOutputs]


def drafts_of(planned: PlannedSeq) -> tuple[int, ...]:
    return planned.tokens[len(planned.tokens) - planned.num_drafts :]


def draft_depths(planned: PlannedSeq) -> list[int]:
    """How many positions each draft is behind the sequence's last token."""
    return list(range(1, planned.num_drafts + 1)) if planned.draft_parents is None else depths(planned.draft_parents)


def row_parents(planned: PlannedSeq) -> list[int]:
    """For each row of a sequence the row (of the sequence) that it follows; -1: it follows the cached tokens."""
    fixed = len(planned.tokens) - planned.num_drafts
    chain = range(-1, len(planned.tokens) - 1)
    if planned.draft_parents is None:
        return list(chain)
    return [*chain[:fixed], *(fixed + parent for parent in planned.draft_parents)]


def prompt_rows(planned: PlannedSeq) -> range:
    """The sequence's rows that are followed by a prompt token whose log-probability is not known."""
    return range(max(planned.num_scored - planned.start, 0), min(len(planned.tokens), planned.num_prompt - 1 - planned.start))


def moves_of(planned: PlannedSeq, rows: Sequence[int], table: Array, block_size: int) -> list[tuple[int, int]]:
    """(source, target) slots: moves that make the drafts of an accepted path contiguous behind the last token. `rows` as accept.walk
    returns them."""
    last = planned.start + len(planned.tokens) - planned.num_drafts - 1

    def slot(at: int) -> int:
        return int(table[at // block_size]) * block_size + at % block_size

    return [(slot(last + row), slot(last + i)) for i, row in enumerate(rows) if row != i]


def slot_runs(block_ids: Sequence[int], start: int, end: int, block_size: int) -> Iterator[range]:
    """The slots of a sequence's tokens, block by block."""
    while start < end:
        within = start % block_size
        size = min(block_size - within, end - start)
        first = block_ids[start // block_size] * block_size + within
        yield range(first, first + size)
        start += size


def assemble(plan: StepPlan, cached: Sequence[CachedSeq], block_size: int, moves: Sequence[tuple[int, int]] = (),
             buffers: tuple[str, ...] = ()) -> Assembled:
    """`cached`: one for each planned sequence. `moves`: slots to move for the drafts that the last step accepted. `buffers`: outputs that
    are wanted of every step.

    The logits come in the plan's order: of each sequence first the rows of its prompt, where their log-probabilities are asked for, then
    that of its last token, if it samples, then those of its drafts.
    """
    tokens: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    logit_rows: list[int] = []
    row_starts, counts, contexts, tables = [0], [], [], []
    sampled, extras = SampledRows(), []
    num_rows, trees = 0, False
    for place, (planned, seq) in enumerate(zip(plan.seqs, cached, strict=True)):
        start, count, block_ids = planned.start, len(planned.tokens), planned.block_ids
        if block_ids is not seq.block_ids:
            seq.set_blocks(block_ids)
        if count == 1:
            slots.append(block_ids[start // block_size] * block_size + start % block_size)
            positions.append(start)
        else:
            slots += chain.from_iterable(slot_runs(block_ids, start, start + count, block_size))
            if planned.draft_parents is None:
                positions += range(start, start + count)
            else:
                trees, last = True, start + count - planned.num_drafts - 1
                positions += [*range(start, last + 1), *(last + depth for depth in draft_depths(planned))]
        tokens += planned.tokens
        if not seq.plain:
            extras.append(extra_outputs(place, planned, seq, logit_rows, num_rows))
        num_rows += count
        if planned.samples and seq.generates:
            if planned.num_drafts:
                sampled.add_drafted(place, planned, seq.state, len(logit_rows))
                logit_rows += range(num_rows - 1 - planned.num_drafts, num_rows)
            else:
                sampled.add(place, len(logit_rows), seq.state, planned.num_output)
                logit_rows.append(num_rows - 1)
        row_starts.append(num_rows)
        counts.append(count)
        contexts.append(start + count)
        tables.append(seq.table)
    parents = np.array([parent for planned in plan.seqs for parent in row_parents(planned)], dtype=np.int32) if trees else None
    if any(each.embedding_row is not None for each in extras):
        buffers = ("hidden",)
    batch = Batch(
        int64(tokens), int64(positions), int64(slots), int64(row_starts), int64(contexts), tables, int64(logit_rows),
        int64(plan.copies) if plan.copies else NO_COPIES, buffers, parents, int64(moves) if moves else None)
    return Assembled(batch, StepWork(tuple(zip(counts, contexts, strict=True)), len(logit_rows)), sampled, extras)


def extra_outputs(place: int, planned: PlannedSeq, cached: CachedSeq, logit_rows: list[int], first_row: int) -> ExtraOutputs:
    """What is needed of a sequence that is not plain, whose rows begin at `first_row`. Adds its prompt rows to `logit_rows`."""
    cached.count_appended(planned)
    begin = len(logit_rows)
    if cached.scores_prompt:
        rows = prompt_rows(planned)
        logit_rows += range(first_row + rows.start, first_row + rows.stop)
    embeds = planned.samples and not cached.generates
    return ExtraOutputs(place, slice(begin, len(logit_rows)), first_row + len(planned.tokens) - 1 if embeds else None)


def int64(values: Sequence[Any]) -> Array:
    return np.array(values, dtype=np.int64)
