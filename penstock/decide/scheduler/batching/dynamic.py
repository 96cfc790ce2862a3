"""A batch starts when it is full or its first request has waited for a window of time, and runs to its end before the next."""
from dataclasses import dataclass

from penstock.core.registry import check_ranges
from penstock.core.types import Seq
from penstock.decide.scheduler.entry import MAX_SIZE, MAX_WAIT_MS, EntryView


class Dynamic:
    @dataclass(frozen=True, slots=True)
    class Options:
        size: int = 8  # sequences in a batch at most
        window_ms: float = 50.0  # the longest that the oldest request waits for others, once nothing runs

        def __post_init__(self) -> None:
            check_ranges("batching mode dynamic", self, size=(1, MAX_SIZE), window_ms=(0, MAX_WAIT_MS))

    def __init__(self, options: Options | None = None) -> None:
        self._options = options or self.Options()

    def may_enter(self, seq: Seq, view: EntryView) -> bool:
        if view.num_running:
            return view.num_entered < self._options.size and seq.arrival_s <= view.began_s
        return len(view.waiting) >= self._options.size or view.now >= self.opens_s(view)

    def opens_s(self, view: EntryView) -> float:
        return view.oldest_arrival_s() + self._options.window_ms / 1000
