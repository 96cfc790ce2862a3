"""How long the values of a record are at least, so that what is too long for any answer is known to be impossible."""
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.tree import shortest
from penstock.compute.decoding.grammar.schema.document import Goal
from penstock.compute.decoding.grammar.schema.meet import goal_of
from penstock.compute.decoding.grammar.schema.records import Arrays, Numbers, Objects, Record, Strings

A_WORD = 4  # characters of true and null
A_PROPERTY = 4  # characters of the shortest, a colon included
MINIMUM: Mapping[type, str] = {Strings: "minLength", Arrays: "minItems", Objects: "minProperties"}
UNLIMITED = 1 << 62  # characters: more than there are


@dataclass(frozen=True, slots=True)
class Outline:
    """A value in as few characters as JSON needs, or fewer. `fixed`: those beside the values inside of it. `inside`: each of these, and how
    often it is there. `more`: a further property is as one of these; None: none is needed."""

    fixed: int
    inside: tuple[tuple[Goal, int], ...] = ()
    more: tuple[Goal, ...] | None = None


def outline(record: Record, algebra: Algebra) -> Outline:
    """Of the shortest values of a record: as many parts as it asks for, no white space, no escapes."""
    if isinstance(record, Strings):
        return Outline(2 + of_text(record))
    if isinstance(record, Arrays):
        first = record.prefix[: record.low]
        rest = [(record.rest, record.low - len(first))] if record.low > len(first) else []
        return Outline(2 + max(record.low - 1, 0), (*[(goal, 1) for goal in first], *rest))
    if isinstance(record, Objects):
        names = record.required
        num_more = max(record.low - len(names), 0)
        commas = max(len(names) + num_more - 1, 0)
        fixed = 2 + commas + num_more * A_PROPERTY + sum([len(name) + 3 for name in names])
        more = (record.rest, *[region.goal for region in record.regions]) if num_more else None
        return Outline(fixed, tuple([(goal_of(record, name, algebra), 1) for name in names]), more)
    return Outline(1 if isinstance(record, Numbers) else A_WORD)


def most(record: Record, algebra: Algebra, fits: Callable[[Outline], bool]) -> tuple[str, int] | None:
    """Of a record that does not fit: the keyword that asks for so many characters, items or properties, and for how many it could. None
    where that alone is not what makes its values too long."""
    if not isinstance(record, Strings | Arrays | Objects):
        return None
    most, too_many = -1, record.low
    while too_many - most > 1:
        tried = (most + too_many) // 2
        if fits(outline(replace(record, low=tried), algebra)):
            most = tried
        else:
            too_many = tried
    return (MINIMUM[type(record)], most) if most >= 0 else None


def of_text(record: Strings) -> int:
    if record.values is not None:
        return min(map(len, record.values), default=0)
    return max([record.low, *map(shortest, record.patterns)])
