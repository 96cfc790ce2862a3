"""A batch starts when it is full, and runs to its end before the next; every request waits for the slowest of its batch.

So that the last requests are served too, a batch also starts when no further request has come for a while.
"""
from dataclasses import dataclass

from penstock.core.registry import check_ranges
from penstock.core.types import Seq
from penstock.decide.scheduler.entry import MAX_SIZE, MAX_WAIT_MS, EntryView


class Static:
    @dataclass(frozen=True, slots=True)
    class Options:
        size: int = 8  # sequences in a batch
        idle_ms: float = 200.0  # without an arrival for so long, a batch that is not full starts

        def __post_init__(self) -> None:
            check_ranges("batching mode static", self, size=(1, MAX_SIZE), idle_ms=(0, MAX_WAIT_MS))

    def __init__(self, options: Options | None = None) -> None:
        self._options = options or self.Options()

    def may_enter(self, seq: Seq, view: EntryView) -> bool:
        if view.num_running:
            return view.num_entered < self._options.size and seq.arrival_s <= view.began_s
        return len(view.waiting) >= self._options.size or view.now >= self.opens_s(view)

    def opens_s(self, view: EntryView) -> float:
        return view.newest_arrival_s() + self._options.idle_ms / 1000
