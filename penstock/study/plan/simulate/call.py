"""What is asked of the twin: requests whose prompts are stretches of numbers that stand for tokens."""
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from penstock.core.errors import UsageError
from penstock.study.measure.load import Arrivals, Part, Prompt, Session

STRETCH = 1 << 24  # tokens of one seed at most
GOES_ON = [-1]


@dataclass(frozen=True, slots=True)
class Call:
    """Parts with the same first number share a prefix, as far as the shorter one goes. `after_s`: in a closed loop, from when a user is
    answered until he asks this. `spare`: by its max_tokens it may have so many tokens more than `num_output`, and nobody knows that it will
    not; `is_open`: none was given."""

    at_s: float
    parts: tuple[range, ...]
    num_output: int
    ttft_slo_s: float | None = None
    tpot_slo_s: float | None = None
    e2e_slo_s: float | None = None
    priority: int = 0
    after_s: float = 0.0
    spare: int = 0
    is_open: bool = False

    @property
    def ends_early(self) -> bool:
        return self.is_open or self.spare > 0

    @property
    def num_prompt(self) -> int:
        return sum(map(len, self.parts))

    def tokens(self) -> list[int]:
        """Of each part its first number, and then one that begins none: two prompts have as much in common as their parts have, and
        numbers that are all one object are made and compared faster."""
        found: list[int] = []
        for part in self.parts:
            if part:
                found.append(part.start)
                found += GOES_ON * (len(part) - 1)
        return found


@dataclass(slots=True)
class Stretches:
    """A Writer (see measure/load.py) that remembers which numbers stand for a seed's tokens instead of making them."""

    _first: dict[str, int] = field(default_factory=dict)
    written: dict[int, tuple[range, ...]] = field(default_factory=dict)  # by the number that stands in for a prompt
    _numbers: Iterator[int] = field(default_factory=itertools.count)

    def write(self, parts: Sequence[Part]) -> Prompt:
        number = next(self._numbers)
        self.written[number] = self.ranges(parts)
        return (number,)

    def ranges(self, parts: Sequence[Part]) -> tuple[range, ...]:
        """The numbers of a prompt's parts."""
        for part in parts:
            if part.num_tokens > STRETCH:
                raise UsageError(f"a prompt, or a part of one, has {part.num_tokens:,} tokens; requests are made of up to {STRETCH:,}")
        return tuple([range(first := self._number(part.seed), first + part.num_tokens) for part in parts])

    def count(self, text: str) -> int | None:
        return None

    def _number(self, seed: str) -> int:
        return self._first.setdefault(seed, len(self._first) * STRETCH)


def calls(schedule: Iterator[tuple[float, Session]], stretches: Stretches) -> Iterator[Call]:
    """Of a dataset that `stretches` wrote. Raises UsageError for what has no length of its own: conversations, answers of any length."""
    for at_s, session in schedule:
        if len(session.turns) > 1:
            raise UsageError("the twin takes requests on their own, not conversations: the next question depends on the last answer")
        turn = session.turns[0]
        if not isinstance(turn.prompt, tuple) or turn.num_output is None:
            raise UsageError("the twin needs the length of each prompt and answer: take a trace or synthetic prompts")
        yield Call(at_s, stretches.written.pop(turn.prompt[0]), turn.num_output)


def shares_prefixes(asked: Sequence[Call]) -> bool:
    """Whether a prefix cache could find anything: two prompts begin alike."""
    first = [call.parts[0].start for call in asked if call.parts]
    return len(set(first)) < len(first)


def scheduled(arrivals: Arrivals, sessions: Iterator[Session], seed: str, most: int) -> Iterator[tuple[float, Session]]:
    """The first `most` of what arrives."""
    schedule = arrivals.schedule(sessions, seed)
    for _, found in zip(range(most), schedule, strict=False):
        yield found
