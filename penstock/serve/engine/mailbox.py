"""Where one request's deltas go: into a queue on its reader's event loop, each at once, or several as one where the reader can wait."""
import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

from penstock.core.errors import PenstockError
from penstock.serve.engine.requests import Delta

Item = Delta | PenstockError
Queue = asyncio.Queue[Item]


@dataclass(slots=True)
class Mailbox:
    """`times`, if given, gets the time at which each item was handed over. `patience_s`: as the request's."""

    loop: asyncio.AbstractEventLoop
    queue: Queue
    times: deque[float] | None = None
    patience_s: float = 0.0
    _held: list[Delta] = field(default_factory=list)
    _begun: set[int] = field(default_factory=set)  # choices
    _due_s: float = 0.0

    def ready(self, item: Item, now_s: float) -> Sequence[Item]:
        """What is handed over now: nothing while deltas are held, which a later item brings along. A choice's first is not held: from then
        on its tokens are timed."""
        if not self.patience_s:
            return (item,)
        if isinstance(item, PenstockError):
            return (*self._release(now_s), item)
        self._held.append(item)
        is_first = item.index not in self._begun
        self._begun.add(item.index)
        return self._release(now_s) if is_first or now_s >= self._due_s or item.finish_reason is not None or item.done else ()

    def _release(self, now_s: float) -> Sequence[Delta]:
        held, self._held, self._due_s = self._held, [], now_s + self.patience_s
        return joined(held)


def joined(deltas: Sequence[Delta]) -> Sequence[Delta]:
    """The same in one delta for each choice; the choice that spoke last comes last."""
    if len(deltas) < 2:
        return deltas
    by_choice: dict[int, list[Delta]] = {}
    for delta in deltas:
        said = by_choice.pop(delta.index, [])
        said.append(delta)
        by_choice[delta.index] = said
    return [said[0] if len(said) == 1 else _one(said) for said in by_choice.values()]


def _one(said: Sequence[Delta]) -> Delta:
    """Of one choice. What comes once comes with the first of its deltas, or with the last."""
    first, num_before, drafted = said[0], 0, list[int]()
    for delta in said:
        drafted += [num_before + place for place in delta.drafted]
        num_before += len(delta.token_ids)
    return replace(
        said[-1], text="".join([delta.text for delta in said]), token_ids=tuple(chain.from_iterable([delta.token_ids for delta in said])),
        logprobs=tuple(chain.from_iterable([delta.logprobs for delta in said])), drafted=tuple(drafted),
        prompt_logprobs=first.prompt_logprobs, queued_s=first.queued_s)


def hand_over(loop: asyncio.AbstractEventLoop, parcel: Iterable[tuple[Queue, Item]]) -> None:
    """One call into the event loop for all of it, from any thread."""
    with contextlib.suppress(RuntimeError):  # the event loop is closed
        loop.call_soon_threadsafe(_put_all, parcel)


def _put_all(parcel: Iterable[tuple[Queue, Item]]) -> None:
    for queue, item in parcel:
        queue.put_nowait(item)
