"""Records brought to what can be written: items that arrays must contain, names, numbers of properties become choices.

Each record gives several, any of which will do; none where there is no such value.
"""
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice
from typing import Any

from penstock.compute.decoding.grammar.effort import PARTS
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.completions import MANY
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.patterns.tree import Tree, alt, both, longest, other, text, texts
from penstock.compute.decoding.grammar.patterns.write import is_plain, writable
from penstock.compute.decoding.grammar.schema.document import Document, Goal, Literal, is_anything, is_impossible, join
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError
from penstock.compute.decoding.grammar.schema.meet import fits, goal_of, inhabited, least, outside
from penstock.compute.decoding.grammar.schema.numbers import few as few_numbers
from penstock.compute.decoding.grammar.schema.places import Differing, differing
from penstock.compute.decoding.grammar.schema.records import (
    STRING,
    Arrays,
    Booleans,
    Contained,
    Nulls,
    Numbers,
    Objects,
    Record,
    Region,
    Shape,
    Strings,
    bulk,
)
from penstock.compute.decoding.grammar.schema.texts import set_of

MOST = 64  # choices that one record is made into
MOST_NAMES = 400  # optional ones in all such choices together: a place in the grammar is at each of them at once
MOST_WRITTEN = 8192  # names in all choices of those that must be there
MOST_MIXED = 2048  # the same where others without a name are beside them
MORE_CONTAINED = 8  # items that may be contained beyond the least, where there is a most: each number of them is a choice
MOST_ITEMS = 4000  # of an array: more are never written, fewer are always enough
A_RECORD = 20  # steps of making one
UNCOMPARED = "uniqueItems asks for items that differ, which a grammar cannot compare"


class Settling:
    """Settles the records of one document. `shapes` works goals out. Items that must differ are compared while an answer is written, but
    for those that are `uncompared`; None: all are. Raises UnsupportedError for what cannot be settled."""

    def __init__(self, document: Document, shapes: Callable[[Goal], Sequence[Shape]], algebra: Algebra,
                 uncompared: Collection[Goal] | None = None) -> None:
        self._document = document
        self._shapes = shapes
        self._algebra = algebra
        self._uncompared = uncompared

    def arrays(self, record: Arrays) -> Iterator[Arrays]:
        """Without `contains`, and without `unique` unless items are compared while they are written. Raises UnsupportedError for items that
        cannot be kept apart."""
        if record.low > MOST_ITEMS:
            raise UnsupportedError(f"minItems is {record.low}; at most {MOST_ITEMS} items are written")
        if record.high is not None and record.high > MOST_ITEMS:
            record = replace(record, high=MOST_ITEMS)
        for placed in self._containing(record):
            if placed.unique and (placed.high is None or placed.high > 1):
                yield from self._unique(placed)
            else:
                yield replace(placed, unique=False)

    def objects(self, record: Objects) -> Iterator[Objects]:
        """Without `some`, `names` and numbers of properties beyond what is counted of those without a name."""
        for named in self._with_some(self._with_names(record)):
            yield from islice(self._counted(self._nameable(named)), MOST)

    def _containing(self, record: Arrays) -> Iterator[Arrays]:
        """The first items are those that must be in it, or the first behind the prefix."""
        if not record.contains:
            yield record
            return
        first, rest = record.contains[0], record.contains[1:]
        most = first.low if first.high is None else min(first.high, first.low + MORE_CONTAINED)
        for low in range(first.low, most + 1):
            for start in dict.fromkeys((0, len(record.prefix) if low else 0)):
                yield from self._containing(replace(self._placed(record, replace(first, low=low), start), contains=rest))

    def _placed(self, record: Arrays, wanted: Contained, start: int) -> Arrays:
        length = max(len(record.prefix), start + wanted.low)
        self._algebra.effort.spend(A_RECORD + 2 * length, PARTS)
        inside = range(start, start + wanted.low)
        denied: Goal = ()
        if wanted.high is not None:
            (literal,) = wanted.goal
            denied = (Literal(literal.node, not literal.positive),)
        prefix = [join(record.item(at), wanted.goal if at in inside else denied) for at in range(length)]
        return replace(record, prefix=tuple(prefix), rest=join(record.rest, denied), low=max(record.low, start + wanted.low))

    def _unique(self, record: Arrays) -> Iterator[Arrays]:
        """Of few possible items, selections in their order; of items that cannot be alike, or are compared later, whatever they are: if
        that can be is told by the places where they stand."""
        if record.prefix:
            if not self._are_unlike(record):
                raise UnsupportedError(UNCOMPARED)
            yield replace(record, unique=False)
            return
        items = self._differing(record.rest)
        if items is not None:
            high = least(record.high, num if (num := items.num()) < MANY else None)
            if high is None or record.low <= high:
                yield replace(record, high=high)
            return
        found = self._values(record.rest)
        if None in found.values():
            if self._is_compared(record.rest):
                yield record
                return
            raise UnsupportedError(UNCOMPARED if record.low > 1 else f"{UNCOMPARED}; with maxItems 1 it could")
        values = [value for each in found.values() for value in each or ()]
        most = min(len(values), len(values) if record.high is None else record.high)
        goals = [(Literal(self._document.made({"const": value}), True),) for value in values]
        selections = (chosen for size in range(record.low, most + 1) for chosen in combinations(goals, size))
        for chosen in islice(selections, 4 * MOST):
            yield Arrays(chosen, self._document.nothing, len(chosen), len(chosen))

    def _is_compared(self, goal: Goal) -> bool:
        return self._uncompared is not None and goal not in self._uncompared

    def _differing(self, goal: Goal) -> Differing | None:
        """What is known of items that are compared while they are written; None for others."""
        if not self._is_compared(goal):
            return None
        records = [record for shape in self._shapes(goal) for record in shape.values()]
        texts = [record for record in records if isinstance(record, Strings)]
        return differing(texts, self._algebra) if len(texts) == len(records) else None

    def _are_unlike(self, record: Arrays) -> bool:
        """Whether no two items can be equal."""
        most = len(record.prefix) if record.high is None else record.high
        if most > len(record.prefix) + 1 or (record.high is None and not is_impossible(record.rest)):
            return False
        self._algebra.effort.spend(most * most, PARTS)
        items = [self._values(record.item(at)) for at in range(most)]
        return not any(are_alike(a, b) for a, b in combinations(items, 2))

    def _values(self, goal: Goal) -> Mapping[str, list[Any] | None]:
        """By their types, all values that are valid; None: more than a few."""
        found: dict[str, list[Any] | None] = {}
        for shape in self._shapes(goal):
            for kind, record in shape.items():
                few, known = self._few(record), found.get(kind, [])
                found[kind] = None if few is None or known is None else list(dict.fromkeys([*known, *few]))
        return found

    def _few(self, record: Record) -> Sequence[Any] | None:
        if isinstance(record, Nulls):
            return [None]
        if isinstance(record, Booleans):
            return sorted(record.values)
        if isinstance(record, Numbers):
            return few_numbers(record, MOST)
        if not isinstance(record, Strings):
            return None
        listed: Sequence[str] | None = record.values
        if listed is None and not record.formats:
            listed = next((few for each in record.patterns if (few := texts(each, MOST)) is not None), None)
        if listed is None:
            return None
        return [each for each in listed if fits(each, record, self._algebra) and self._algebra.is_writable(text(each))]

    def _with_names(self, record: Objects) -> Objects:
        """Names that are not as they must be are impossible."""
        if not record.names:
            return record
        allowed = self._names(record.names)
        named = {name: goal if self._algebra.holds(allowed, name) else self._document.nothing for name, goal in record.named.items()}
        for name in record.required:
            if name not in named and not self._algebra.holds(allowed, name):
                named[name] = self._document.nothing
        for value in self._listed(record.names):
            named.setdefault(value, goal_of(record, value, self._algebra))
        regions = [Region(both([region.names, allowed]), region.goal) for region in record.regions]
        if not is_impossible(record.rest) and not self._listed(record.names):
            regions.append(Region(both([outside(record.regions), allowed]), record.rest))
        return replace(record, named=named, regions=tuple(inhabited(regions, self._algebra)), rest=self._document.nothing, names=())

    def _nameable(self, record: Objects) -> Objects:
        """Without others of which all names have a property of their own; and where that cannot be told, without others."""
        nothing = self._document.nothing
        named = {**record.named, **{name: goal_of(record, name, self._algebra) for name in record.required}}
        regions = []
        for region in record.regions:
            taken = [name for name in named if self._algebra.holds(region.names, name)]
            known = not taken or self._has_names(region.names, taken)
            if known is not False:
                regions.append(region if known else replace(region, goal=nothing))
        rest = record.rest
        if record.regions and not is_impossible(rest) and not self._has_names(outside(record.regions), list(named)):
            rest = nothing
        return replace(record, named=named, regions=tuple(regions), rest=rest)

    def _has_names(self, names: Tree, taken: Sequence[str]) -> bool | None:
        """Whether there are others than those that are taken; None: that is not known."""
        if is_plain(names) and longest(writable(names)) is None:
            return True
        try:
            return self._algebra.is_writable(both([names, other(alt(list(map(text, taken))))]))
        except PatternError:
            return None

    def _names(self, goal: Goal) -> Tree:
        """The texts that are valid. Raises UnsupportedError for formats, of which not all texts are known."""
        found = []
        for shape in self._shapes(goal):
            record = shape.get(STRING)
            if isinstance(record, Strings):
                if record.formats:
                    raise UnsupportedError(f"propertyNames has the format {record.formats[0]!r}, which is not known of names")
                found.append(set_of(record))
        return alt(found)

    def _listed(self, goal: Goal) -> tuple[str, ...]:
        """Names, where few are valid."""
        return tuple(self._values(goal).get(STRING) or ())

    def _with_some(self, record: Objects) -> Iterator[Objects]:
        """A property that must be there is one of those with a name."""
        if not record.some:
            yield record
            return
        first, rest = record.some[0], record.some[1:]
        if is_anything(first.goal) and any(self._algebra.holds(first.names, name) for name in record.required):
            yield from self._with_some(replace(record, some=rest))
            return
        for name, goal in record.named.items():
            if self._algebra.holds(first.names, name) and not is_impossible(goal):
                self._algebra.effort.spend(A_RECORD + bulk(record), PARTS)
                named = {**record.named, name: join(goal, first.goal)}
                required = tuple(dict.fromkeys((*record.required, name)))
                yield from self._with_some(replace(record, named=named, required=required, some=rest))

    def _counted(self, record: Objects) -> Iterator[Objects]:
        self._algebra.effort.spend(A_RECORD + bulk(record), PARTS)
        required = frozenset(record.required)
        optional = [name for name, goal in record.named.items() if name not in required and not is_impossible(goal)]
        is_open = not is_impossible(record.rest) or any(not is_impossible(region.goal) for region in record.regions)
        need = record.low - len(record.required)
        room = None if record.high is None else record.high - len(record.required)
        if room is not None and room < 0:
            return
        if need <= 0 and (room is None or (len(optional) <= room and not is_open)):
            yield replace(record, low=0, high=None)
        elif need > 0:
            yield from self._with_more(record, optional, need, is_open)
        elif room is not None and (room < len(optional) or not is_open):
            size = min(room, len(optional))
            for kept in islice(combinations(optional, size), max(1, min(MOST, MOST_NAMES // max(1, size)))):
                yield replace(self._without(record, frozenset(optional).difference(kept)), low=0, high=None)
            if is_open and room:
                yield from self._with_others(record, optional, range(room))
        elif not optional:
            yield record
        else:
            assert room is not None
            yield replace(self._without(record, []), low=0, high=None)
            yield from self._with_others(record, optional, range(room))

    def _with_others(self, record: Objects, optional: list[str], sizes: Iterable[int]) -> Iterator[Objects]:
        """So many of those that are optional, and others without a name."""
        chosen = (each for size in sizes for each in combinations(optional, size))
        for kept in islice(chosen, max(1, min(MOST, MOST_MIXED // max(1, len(optional))))):
            required = (*record.required, *kept)
            yield self._without(replace(record, required=required), frozenset(optional).difference(kept), closed=False)

    def _with_more(self, record: Objects, optional: list[str], need: int, is_open: bool) -> Iterator[Objects]:
        """At least `need` of those that are optional, or one without a name: of several such, nothing says that their names differ.

        `chosen` are the first of those that are there, so that no object is of two choices.
        """
        listed = combinations(optional, need) if need <= len(optional) else ()
        for chosen in islice(listed, max(1, min(MOST, MOST_WRITTEN // max(1, len(optional))))):
            before = frozenset(optional[: optional.index(chosen[-1])]).difference(chosen)
            absent = {**record.named, **dict.fromkeys(before, self._document.nothing)}
            yield from self._counted(replace(record, named=absent, required=(*record.required, *chosen)))
        if is_open and need <= len(optional) + 1:
            yield from self._with_others(record, optional, (need - 1,))
        elif is_open:
            raise UnsupportedError(f"minProperties asks for {record.low} names that differ, which a grammar cannot compare")

    def _without(self, record: Objects, names: Iterable[str], closed: bool = True) -> Objects:
        """Without these properties; `closed`: and without any that has no name."""
        self._algebra.effort.spend(A_RECORD + bulk(record), PARTS)
        nothing = self._document.nothing
        named = {**record.named, **dict.fromkeys(names, nothing)}
        if not closed:
            return replace(record, named=named)
        kept = {name: goal_of(record, name, self._algebra) for name in record.required if name not in record.named}
        return replace(record, named=named | kept, regions=(), rest=nothing)


def are_alike(a: Mapping[str, list[Any] | None], b: Mapping[str, list[Any] | None]) -> bool:
    """Whether a value of each can be the same."""
    common = [(mine, b[kind]) for kind, mine in a.items() if kind in b]
    return any(mine is None or its is None or not set(mine).isdisjoint(its) for mine, its in common)
