"""What a value of one type must be, and shapes: what a value must be, for each type that it may have."""
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from penstock.compute.decoding.grammar.patterns.tree import Tree
from penstock.compute.decoding.grammar.schema.document import Goal

NULL, BOOLEAN, NUMBER, STRING, ARRAY, OBJECT = "null", "boolean", "number", "string", "array", "object"
Number = int | float
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Nulls:
    pass


@dataclass(frozen=True, slots=True)
class Booleans:
    values: frozenset[bool] = frozenset((True, False))


@dataclass(frozen=True, slots=True)
class Bound:
    value: Number
    is_open: bool = False  # the value itself is left out


@dataclass(frozen=True, slots=True)
class Numbers:
    integer: bool = False
    low: Bound | None = None
    high: Bound | None = None
    multiples: tuple[Number, ...] = ()  # of all of these
    values: tuple[Number, ...] | None = None  # one of these

    @property
    def is_plain(self) -> bool:
        """Whether it says no more than that a number is an integer, or one of a list."""
        return self.values is not None or replace(self, integer=False) == Numbers()


@dataclass(frozen=True, slots=True)
class Strings:
    low: int = 0  # characters
    high: int | None = None
    patterns: tuple[Tree, ...] = ()  # in all of these sets
    excluded: tuple[Tree, ...] = ()  # in none of these
    formats: tuple[str, ...] = ()
    values: tuple[str, ...] | None = None  # one of these


@dataclass(frozen=True, slots=True)
class Contained:
    """At least `low` items, and at most `high`, are as `goal` says."""

    goal: Goal
    low: int = 1
    high: int | None = None


@dataclass(frozen=True, slots=True)
class Arrays:
    prefix: tuple[Goal, ...] = ()
    rest: Goal = ()  # items behind the prefix
    low: int = 0
    high: int | None = None
    unique: bool = False
    contains: tuple[Contained, ...] = ()
    evaluated: float = 0  # items that some schema has spoken of; infinity: all

    def item(self, at: int) -> Goal:
        return self.prefix[at] if at < len(self.prefix) else self.rest


@dataclass(frozen=True, slots=True)
class Region:
    """Properties with names in a set of texts, beside those that are named."""

    names: Tree
    goal: Goal
    evaluated: bool = True  # some schema has spoken of them


@dataclass(frozen=True, slots=True)
class Objects:
    """`regions` do not overlap; `rest` holds for names that are neither named nor in one. `some`: in each of these regions there is a
    property as its goal says."""

    named: Mapping[str, Goal] = field(default_factory=dict)
    regions: tuple[Region, ...] = ()
    rest: Goal = ()
    required: tuple[str, ...] = ()
    low: int = 0
    high: int | None = None
    names: Goal = ()  # what every name must be
    some: tuple[Region, ...] = ()
    evaluated: frozenset[str] = frozenset()  # names that some schema has spoken of
    all_evaluated: bool = False


Record = Nulls | Booleans | Numbers | Strings | Arrays | Objects
Shape = Mapping[str, Record]  # by type; a type that is not in it is not possible

EVERY: Shape = {NULL: Nulls(), BOOLEAN: Booleans(), NUMBER: Numbers(), STRING: Strings(), ARRAY: Arrays(), OBJECT: Objects()}


def only(kind: str, record: Record) -> Shape:
    """Values of one type alone."""
    return {kind: record}


def narrowed(kind: str, record: Record) -> Shape:
    """Values of one type as the record says, and any of the others."""
    return {**EVERY, kind: record}


def unspoken(shape: Shape) -> Shape:
    """Which says nothing of its properties and items to the schemas around it, as what is excluded and listed values do not."""
    objects, arrays = shape.get(OBJECT), shape.get(ARRAY)
    found = dict(shape)
    if isinstance(objects, Objects):
        regions = tuple([replace(region, evaluated=False) for region in objects.regions])
        found[OBJECT] = replace(objects, regions=regions, evaluated=frozenset(), all_evaluated=False)
    if isinstance(arrays, Arrays):
        found[ARRAY] = replace(arrays, evaluated=0)
    return found


def bulk(record: Record) -> int:
    """How much there is to be looked at in it."""
    if isinstance(record, Objects):
        return len(record.named) + len(record.required) + 4 * len(record.regions)
    if isinstance(record, Arrays):
        return len(record.prefix) + len(record.contains)
    return len(record.values or ()) if isinstance(record, Numbers | Strings) else 0


def listed_in(a: tuple[T, ...] | None, b: tuple[T, ...] | None) -> tuple[T, ...] | None:
    """What both sides list; None: any value."""
    if a is None or b is None:
        return b if a is None else a
    others = frozenset(b)
    return tuple([value for value in a if value in others])
