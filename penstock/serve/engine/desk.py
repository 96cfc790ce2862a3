"""What an unfinished answer may do with the scheduler: add sequences, fork them, end them."""
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.core.types import Seq, SeqOutput
from penstock.decide.scheduler.scheduler import Scheduler
from penstock.serve.engine.requests import Delta, Request, Usage
from penstock.serve.text.tokenizer import Tokenizer

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: spreads the seeds of one request's answers


class Owner(Protocol):
    """Whose a live sequence is."""

    request_id: str

    def take(self, output: SeqOutput) -> Delta | None:
        """What a step computed for the sequence."""
        ...


class Answer(Protocol):
    """How a request's sequences become its deltas: plainly sampled, or searched."""

    request: Request
    done: bool

    def start(self) -> None: ...

    def settle(self) -> Sequence[Delta]:
        """Called after all of a step's outputs were taken, if the answer is in `due`."""
        ...

    def seqs(self) -> list[Seq]:
        """Those that live."""
        ...

    def usage(self) -> Usage: ...


@dataclass(slots=True)
class Desk:
    """`owners` tells whose each live sequence is; `due` are answers that have ended in this step, or something to say when all of its
    outputs are known."""

    scheduler: Scheduler
    tokenizer: Tokenizer
    search: type[Any]  # of decoding/search, made anew for each request that is searched for
    owners: dict[int, Owner] = field(default_factory=dict)
    due: list[Answer] = field(default_factory=list)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def add(self, owner: Owner, seq: Seq) -> None:
        """Raises what `Scheduler.add` raises; then nothing has changed."""
        self.scheduler.add(seq)
        self.owners[seq.seq_id] = owner

    def fork(self, owner: Owner, parent: Seq, child: Seq, num_tokens: int) -> None:
        self.owners[child.seq_id] = owner
        self.scheduler.fork(parent.seq_id, child, num_tokens)

    def finish(self, seq: Seq, reason: str) -> None:
        self.owners.pop(seq.seq_id, None)
        self.scheduler.finish(seq.seq_id, reason)

    def forget(self, seq: Seq) -> None:
        """A sequence that the scheduler has ended itself."""
        self.owners.pop(seq.seq_id, None)

    def reset(self) -> None:
        """Nothing lives any more."""
        self.owners.clear()
        self.due.clear()

    def next_id(self) -> int:
        return next(self._ids)


def seed_of(seed: int, index: int) -> int:
    """The seed of a request's answer number `index`; the first one's is the request's own."""
    return (seed + index * GOLDEN) % 2**64
