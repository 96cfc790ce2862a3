"""The traffic of a search: the same for the twin, which is told lengths and shared prefixes, and for the engine, which is given tokens."""
import hashlib
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from penstock.core.errors import UsageError
from penstock.study.measure.client.drive import Extent, output_of
from penstock.study.measure.client.openai import Ask, Wish
from penstock.study.measure.load import Arrivals, Dataset, Part, Prompt, Session, Turn, Writer
from penstock.study.measure.metrics import Warmup
from penstock.study.measure.onward import reads
from penstock.study.plan.simulate.call import Call, Stretches

MOST_PLAYED = 1000  # requests that the twin plays for each setting
Count = Callable[[Ask], Sequence[int]]  # the tokens of what is asked


@dataclass(frozen=True, slots=True)
class Traffic:
    """`dataset` makes one of a Writer and a seed. `text`: tokens that made-up prompts are cut from; empty: they are random. `more`:
    fields of each request's SamplingParams."""

    dataset: Callable[[Writer, str], Dataset]
    arrivals: Arrivals
    extent: Extent
    warmup: Warmup
    seed: str
    text: tuple[int, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)

    def arrivals_at(self, rate: float | None) -> Arrivals:
        return self.arrivals if rate is None else self.arrivals.at_rate(rate)

    def is_made_up(self) -> bool:
        """Whether the first prompt is written rather than read."""
        return not reads(self.dataset, self.seed)

    def digest(self) -> str:
        """Of what is asked: the files that it is read from may change, and keep their names."""
        writer = Stretches()
        sessions = list(islice(self.dataset(writer, self.seed).sessions(), MOST_PLAYED))
        return hashlib.blake2b(repr((sessions, writer.written, self.text)).encode(), digest_size=6).hexdigest()

    def calls(self, rate: float | None, tokens: Count) -> list[Call]:
        """What the twin is asked: as much as a run on the engine, which may be nothing. Of conversations the first turns, as if they came
        on their own.

        Raises UsageError where an answer's length is open.
        """
        writer, wish, found = Stretches(), Wish(more=self.more), []
        schedule = self.arrivals_at(rate).schedule(self.dataset(writer, self.seed).sessions(), f"{self.seed}/arrivals")
        for at_s, session in cut(schedule, self.extent):
            turn = session.turns[0]
            num_output = output_of(wish, turn)
            if num_output is None:
                raise UsageError("a search needs the length of each answer, and this dataset leaves it open: give it an output=TOKENS")
            found.append(Call(at_s, parts_of(turn, writer, tokens), num_output))
        return found


def cut(schedule: Iterator[tuple[float, Session]], extent: Extent) -> Iterator[tuple[float, Session]]:
    """As much as a run takes."""
    most = min(MOST_PLAYED, extent.num_sessions or MOST_PLAYED)
    for _, (at_s, session) in zip(range(most), schedule, strict=False):
        if extent.seconds is not None and at_s >= extent.seconds:
            return
        yield at_s, session


def parts_of(turn: Turn, writer: Stretches, tokens: Count) -> tuple[range, ...]:
    """Stretches of a prompt that was written; of one that was read, each token."""
    if isinstance(turn.prompt, tuple) and writer.written:
        return writer.written.pop(turn.prompt[0])
    ids = tokens(Ask(turn.prompt, turn.messages, turn.num_prompt, turn.num_output))
    return tuple([range(token, token + 1) for token in ids])


class CutFrom:
    """A Writer whose prompts are stretches of a text, so that they read like it. Parts of one seed have the same text."""

    def __init__(self, text: Sequence[int]) -> None:
        """Raises UsageError for an empty text."""
        if not text:
            raise UsageError("--text is a file with text in it: this one is empty")
        self._text = text

    def write(self, parts: Sequence[Part]) -> Prompt:
        ids: list[int] = []
        for part in parts:
            at = random.Random(part.seed).randrange(len(self._text))
            ids += [self._text[(at + number) % len(self._text)] for number in range(part.num_tokens)]
        return tuple(ids)

    def count(self, text: str) -> int | None:
        return None

