"""Requests as the page draws them: each has a lane while it lives, and what it did in each step stands in the columns of a timeline.

A lane that falls free is given to a request without one, the lowest first, and first to one that runs; requests beyond `MAX_LANES` are
counted, not drawn. A column is one step, or as many as fit into `COLUMN_S` seconds. Times are seconds on the engine's clock.
"""
import heapq
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from penstock.core.types import PlannedSeq, Seq, Status
from penstock.serve.engine.watch import Seen

MAX_LANES = 64
MAX_ENDED = 64  # that one update tells of
MAX_COLUMNS = 64  # of one update
COLUMN_S = 0.0625


@dataclass(slots=True)
class Entry:
    """A request that lives, or has ended since the last update."""

    request_id: str
    first: Seq
    seqs: dict[int, Seq] = field(default_factory=dict)  # that live; of a request that has ended, the last that did
    lane: int | None = None
    lane_s: float | None = None  # since when the lane is its own: since it arrived, or since the one before left
    ended_output: int = 0  # of sequences that have ended before the request; a search drops what these came to
    ended_preemptions: int = 0
    last_token_s: float | None = None  # of its first sequence
    num_told: int = 0  # output tokens that this had then
    ended_s: float | None = None
    was_told: bool = False  # its first token was handed to the figures

    @property
    def running(self) -> bool:
        """Also where its end, a step younger than the rest, is yet to be told."""
        return any(seq.status is not Status.WAITING for seq in self.seqs.values())

    @property
    def num_preemptions(self) -> int:
        counts = [self.ended_preemptions, *(seq.num_preemptions for seq in self.seqs.values())]
        return max(counts) if self.first.held else sum(counts)  # what a search forks has its parent's count

    @property
    def num_output(self) -> int:
        return self.ended_output + sum(seq.num_output for seq in self.seqs.values())

    @property
    def tpot_s(self) -> float | None:
        """Seconds for each output token after the first, of its first sequence so far; None where that has too few to tell."""
        first, last = self.first.first_token_s, self.last_token_s
        num_more = self.num_told - 1
        return (last - first) / num_more if first is not None and last is not None and num_more > 0 else None

    def forget(self, seqs: Iterable[Seq]) -> None:
        """They have ended, and others live on."""
        for seq in seqs:
            del self.seqs[seq.seq_id]
            if seq.held:
                self.ended_preemptions = max(self.ended_preemptions, seq.num_preemptions)
            else:
                self.ended_output += seq.num_output
                self.ended_preemptions += seq.num_preemptions


@dataclass(slots=True)
class Column:
    """Steps that are drawn as one. By lane: tokens of prompts, tokens decoded, drafts accepted, drafts rejected."""

    began_s: float
    ended_s: float = 0.0
    num_steps: int = 0
    cells: dict[int, list[int]] = field(default_factory=dict)

    def wire(self) -> list[Any]:
        cells = [[lane, *figures] for lane, figures in self.cells.items()]
        return [round(self.began_s, 4), round(self.ended_s, 4), self.num_steps, cells]


class Lanes:
    """Fed with steps and looks in the order of time, by one thread."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._owners: dict[int, Entry] = {}  # by seq_id
        self._free = list(range(MAX_LANES))
        self._freed_s = [0.0] * MAX_LANES  # when each was left last
        self._column: Column | None = None
        self._columns: list[Column] = []
        self.ended: list[Entry] = []  # since the last `tell`

    def entries(self) -> Iterable[Entry]:
        """Of the requests that live."""
        return self._entries.values()

    def counts(self) -> tuple[int, int]:
        """Requests that run, and that wait, now: the step in flight, if any, included."""
        num_running = sum(entry.running for entry in self._entries.values())
        return num_running, len(self._entries) - num_running

    def step(self, seen: Seen) -> None:
        """Takes in what a step did."""
        record = seen.record
        ended_s = record.began_s + record.seconds
        for seq in seen.entered:
            self._seat(self._enter(seq))
        column = self._open(record.began_s)
        column.ended_s, column.num_steps = ended_s, column.num_steps + 1
        accepted = {output.seq_id: output.check.num_accepted for output in seen.outputs if output.check is not None}
        num_before = {planned.seq_id: planned.num_output for planned in seen.plan.seqs}
        for planned in seen.plan.seqs:
            entry = self._owners.get(planned.seq_id)
            if entry is not None and entry.lane is not None:
                cell = column.cells.setdefault(entry.lane, [0, 0, 0, 0])
                for i, count in enumerate(figures_of(planned, accepted.get(planned.seq_id, 0))):
                    cell[i] += count
        for output in seen.outputs:
            entry = self._owners.get(output.seq_id)
            if entry is not None:
                if output.tokens and entry.first.seq_id == output.seq_id:
                    entry.last_token_s, entry.num_told = ended_s, num_before[output.seq_id] + len(output.tokens)
                if output.finish_reason is not None:
                    self._leave(entry, [entry.seqs[output.seq_id]], ended_s)

    def look(self, seqs: Iterable[Seq], now: float) -> None:
        """Takes in what lives now: who waits has had no step yet, and who has gone was ended from outside."""
        for seq in seqs:
            if seq.status is not Status.FINISHED:
                self._enter(seq)
        for entry in list(self._entries.values()):
            if gone := [seq for seq in entry.seqs.values() if seq.status is Status.FINISHED]:
                self._leave(entry, gone, now)
        if self._free:
            for entry in sorted(self._entries.values(), key=lambda entry: not entry.running):  # a lane first for those that run
                self._seat(entry)

    def lane_of(self, seq_id: int) -> int | None:
        """None where its request has none, or is not known."""
        entry = self._owners.get(seq_id)
        return None if entry is None else entry.lane

    def tell(self) -> dict[str, Any]:
        """What is new since the last time, and how all that live are."""
        columns, self._columns, self._column = self._columns[-MAX_COLUMNS:], [], None
        ended, self.ended = [entry for entry in self.ended if entry.lane is not None][-MAX_ENDED:], []
        shown = sorted((entry for entry in self._entries.values() if entry.lane is not None), key=lambda entry: entry.lane or 0)
        return {
            "columns": [column.wire() for column in columns],
            "requests": [row(entry) for entry in shown],
            "ended": [row(entry) for entry in ended],
            "hidden": len(self._entries) - len(shown),
        }

    def _enter(self, seq: Seq) -> Entry:
        """Its request, which has no lane yet where it is new."""
        entry = self._owners.get(seq.seq_id)
        if entry is None:
            entry = self._entries.setdefault(seq.request_id, Entry(seq.request_id, seq))
            entry.seqs[seq.seq_id] = seq
            self._owners[seq.seq_id] = entry
        return entry

    def _seat(self, entry: Entry) -> None:
        """Gives it a lane, where it has none and one is free."""
        if entry.lane is None and self._free:
            entry.lane = heapq.heappop(self._free)
            entry.lane_s = max(entry.first.arrival_s, self._freed_s[entry.lane])

    def _leave(self, entry: Entry, gone: list[Seq], now: float) -> None:
        """Sequences have ended, and their request with the last. Its siblings' first step may be yet to come: `look` tells of them."""
        for seq in gone:
            del self._owners[seq.seq_id]
        if len(gone) < len(entry.seqs):
            entry.forget(gone)
            return
        entry.ended_s = now
        del self._entries[entry.request_id]
        self.ended.append(entry)
        if entry.lane is not None:
            heapq.heappush(self._free, entry.lane)
            self._freed_s[entry.lane] = now

    def _open(self, began_s: float) -> Column:
        """The column of a step that begins now."""
        column = self._column
        if column is None or began_s - column.began_s >= COLUMN_S:
            column = self._column = Column(began_s)
            self._columns.append(column)
        return column


def figures_of(planned: PlannedSeq, num_accepted: int) -> Iterator[int]:
    """Tokens of a prompt (or of an answer that is computed again), tokens decoded, drafts accepted, drafts rejected."""
    num_final = len(planned.tokens) - planned.num_drafts
    is_decode = planned.start >= planned.num_prompt and num_final == 1
    yield 0 if is_decode else num_final
    yield 1 if is_decode else 0
    yield num_accepted
    yield planned.num_drafts - num_accepted


def row(entry: Entry) -> list[Any]:
    """[lane, id, state, arrived, first step, first token, ended, prompt, cached, output, blocks, preemptions,
    in its lane since]."""
    first = entry.first
    blocks = sum(len(seq.block_ids) for seq in entry.seqs.values())
    state = "ended" if entry.ended_s is not None else "running" if entry.running else "preempted" if entry.num_preemptions else "waiting"
    return [
        entry.lane, entry.request_id[-48:], state, rounded(first.arrival_s), rounded(first.first_scheduled_s),
        rounded(first.first_token_s), rounded(entry.ended_s), first.num_prompt, first.num_cached, entry.num_output, blocks,
        entry.num_preemptions, rounded(entry.lane_s)]


def rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
