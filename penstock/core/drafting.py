"""What became of drafts: in one pass of one sequence, and added up over an answer, a request or a step.

A draft's position is its depth: 0 is right behind the sequence's last token. A chain has one draft at each position, a tree may have more,
of which at most one is accepted.
"""
from collections.abc import Iterable, Sequence

from penstock.core.message import message


@message
class DraftCheck:
    """A pass that checked drafts of a sequence: `drafted[j]` of them stood at position j, and the first `num_accepted` tokens that the
    sequence gained were drafts."""

    drafted: tuple[int, ...]
    num_accepted: int


@message
class Drafting:
    """Passes that checked drafts, counted once for each sequence in a step. Passes without a draft are not in here."""

    passes: int = 0
    tokens: int = 0  # that these passes added to the output
    drafted: tuple[int, ...] = ()  # by position
    accepted: tuple[int, ...] = ()  # by position; as long as `drafted`

    @property
    def num_drafted(self) -> int:
        return sum(self.drafted)

    @property
    def num_accepted(self) -> int:
        """Drafts that are in the output."""
        return sum(self.accepted)

    @property
    def tokens_per_draft_pass(self) -> float | None:
        """Of passes that checked drafts; those without a draft are left out. None where no pass checked any."""
        return self.tokens / self.passes if self.passes else None

    def tokens_per_pass(self, num_tokens: int) -> float | None:
        """Of all of an answer, which has so many tokens: passes without drafts and their one token included. None where no pass checked
        drafts."""
        return num_tokens / (num_tokens - self.tokens + self.passes) if self.passes else None

    @property
    def acceptance(self) -> list[float]:
        """Of the drafts at each position the share that was accepted."""
        return [accepted / drafted for accepted, drafted in zip(self.accepted, self.drafted, strict=True)]


NO_DRAFTS = Drafting()


class DraftTally:
    """Adds up passes."""

    __slots__ = ("_alike", "_tokens")

    def __init__(self) -> None:
        self._tokens = 0
        self._alike: dict[tuple[tuple[int, ...], int], int] = {}  # (drafted by position, accepted) -> passes

    def add(self, check: DraftCheck, num_tokens: int) -> None:
        """One pass, of whose tokens the output keeps the first `num_tokens`."""
        key = check.drafted, min(check.num_accepted, num_tokens)
        self._alike[key] = self._alike.get(key, 0) + 1
        self._tokens += num_tokens

    def total(self) -> Drafting:
        if not self._alike:
            return NO_DRAFTS
        drafted = [0] * max([len(each) for each, _ in self._alike])
        accepted = [0] * len(drafted)
        for (each, num_accepted), passes in self._alike.items():
            for position, count in enumerate(each):
                drafted[position] += passes * count
            for position in range(num_accepted):
                accepted[position] += passes
        return Drafting(sum(self._alike.values()), self._tokens, tuple(drafted), tuple(accepted))


def together(parts: Iterable[Drafting]) -> Drafting:
    """The sum of several."""
    given = [part for part in parts if part.passes]
    return Drafting(
        sum(part.passes for part in given), sum(part.tokens for part in given),
        sum_columns([part.drafted for part in given]), sum_columns([part.accepted for part in given]))


def sum_columns(rows: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Sums by position; a row that is too short has zeros at its end."""
    return tuple([sum([row[i] for row in rows if i < len(row)]) for i in range(max(map(len, rows), default=0))])


def depths(parents: Sequence[int]) -> list[int]:
    """How many drafts of a tree lead to each, itself included; `parents` as in `Seq.draft_parents`."""
    found: list[int] = []
    for parent in parents:
        found.append(1 if parent < 0 else found[parent] + 1)
    return found


def by_position(num_drafts: int, parents: Sequence[int] | None) -> tuple[int, ...]:
    """How many drafts stand at each position; `parents` None: a chain."""
    if parents is None:
        return (1,) * num_drafts
    found = depths(parents)
    return tuple([found.count(depth) for depth in range(1, max(found, default=0) + 1)])
