"""What an answer in the making may do: bring sequences to the scheduler, fork them, end them."""
import itertools
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.core.types import Seq, SeqOutput
from penstock.decide.scheduler.scheduler import Scheduler
from penstock.serve.engine.requests import Delta, Request, Usage
from penstock.serve.text.tokenizer import Tokenizer

GOLDEN = 0x9E3779B97F4A7C15  # 2^64 / golden ratio: spreads the seeds of one request's answers


class Answer(Protocol):
    """How a request's sequences become its deltas: plainly sampled, or searched."""

    request: Request
    done: bool

    def start(self) -> None: ...

    def take(self, output: SeqOutput) -> list[Delta]:
        """What came of one of its sequences in a step."""
        ...

    def settle(self) -> list[Delta]:
        """Called after all of a step's outputs were taken."""
        ...

    def seqs(self) -> list[Seq]:
        """Those that live."""
        ...

    def usage(self) -> Usage: ...


@dataclass(slots=True)
class Desk:
    """`owners` tells whose each live sequence is."""

    scheduler: Scheduler
    tokenizer: Tokenizer
    search: type[Any]  # of decoding/search, made anew for each request that is searched for
    owners: dict[int, Answer] = field(default_factory=dict)
    _ids: Iterator[int] = field(default_factory=itertools.count)

    def add(self, owner: Answer, seq: Seq) -> None:
        self.owners[seq.seq_id] = owner
        self.scheduler.add(seq)

    def fork(self, owner: Answer, parent: Seq, child: Seq, num_tokens: int) -> None:
        self.owners[child.seq_id] = owner
        self.scheduler.fork(parent.seq_id, child, num_tokens)

    def finish(self, seq: Seq, reason: str) -> None:
        self.owners.pop(seq.seq_id, None)
        self.scheduler.finish(seq.seq_id, reason)

    def forget(self, seq: Seq) -> None:
        """A sequence that the scheduler has ended itself."""
        self.owners.pop(seq.seq_id, None)

    def next_id(self) -> int:
        return next(self._ids)


def seed_of(seed: int, index: int) -> int:
    """The seed of a request's answer number `index`; the first one's is the request's own."""
    return (seed + index * GOLDEN) % 2**64
