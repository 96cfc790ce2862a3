"""Where in an answer there are arrays whose items must differ, which a grammar cannot say: they are compared while it is written
(differ.py)."""
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from penstock.compute.decoding.grammar.effort import PARTS
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.schema.document import Goal
from penstock.compute.decoding.grammar.schema.meet import goal_of
from penstock.compute.decoding.grammar.schema.records import Arrays, Objects, Record, Strings, bulk

MAX_PLACES = 1000
A_PLACE = 10  # steps
ELSEWHERE = 0  # the place behind which nothing is compared
ROOT = 1


class MixedError(Exception):
    """Where items must differ, something else may stand, so that an answer could come to where nothing may follow."""


@dataclass(frozen=True, slots=True)
class Differing:
    """Items of an array, all of them strings, that must differ. `values`: all that they can be, as they are written between the quotes, in
    order; None: any text of at most `most` characters, None: of any length."""

    values: tuple[bytes, ...] | None = None
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """Where the values in a value stand, as numbers of places: those of an object's properties by name, and of all others; those of an
    array's first items, and of all behind them."""

    names: Mapping[str, int] = field(default_factory=dict)
    others: int = ELSEWHERE
    prefix: tuple[int, ...] = ()
    rest: int = ELSEWHERE
    items: Differing | None = None


def differing(records: Iterable[Record]) -> Differing | None:
    """What items are that are one of these; None if they cannot be compared while they are written: where an item cannot end, because it
    would be another's equal, something else must be able to follow."""
    strings = [record for record in records if isinstance(record, Strings)]
    listed = [record.values for record in strings if record.values is not None]
    if listed and len(listed) == len(strings):
        return Differing(tuple(sorted({written(value) for values in listed for value in values})))
    free = [record for record in strings if not (record.patterns or record.excluded or record.formats or record.values is not None)]
    if len(free) != len(strings) or len({record.high for record in free}) != 1 or free[0].high == 0:
        return None
    return Differing(most=free[0].high)


def written(value: str) -> bytes:
    """What stands between the quotes, as llguidance writes it."""
    return json.dumps(value, ensure_ascii=False)[1:-1].encode()


class Places:
    """Of one schema. `records`: what the values of each goal may be; a goal that is not in it may be anything."""

    def __init__(self, records: Mapping[Goal, list[Record]], algebra: Algebra) -> None:
        self._records = records
        self._algebra = algebra
        self._leading = self._find_leading()
        self._numbers: dict[frozenset[Goal], int] = {}
        self._queue: list[frozenset[Goal]] = []

    def of(self, root: Goal) -> tuple[Place, ...]:
        """All places, the root at ROOT; none if items need not be compared. Raises MixedError."""
        if not self._number([root]):
            return ()
        found = [Place()]
        while self._queue:
            found.append(self._place(self._queue.pop(0)))
        return tuple(found)

    def _find_leading(self) -> frozenset[Goal]:
        """Goals with arrays inside whose items must be compared."""
        found = [goal for goal, records in self._records.items() if any(isinstance(each, Arrays) and each.unique for each in records)]
        if not found:
            return frozenset()
        within: dict[Goal, list[Goal]] = {}
        for goal, records in self._records.items():
            for record in records:
                self._algebra.effort.spend(1 + bulk(record), PARTS)
                for part in self._parts(record):
                    within.setdefault(part, []).append(goal)
        leading = set(found)
        while found:
            new = [goal for goal in within.get(found.pop(), ()) if goal not in leading]
            leading.update(new)
            found += new
        return frozenset(leading)

    def _parts(self, record: Record) -> list[Goal]:
        if isinstance(record, Arrays):
            return [*record.prefix, record.rest]
        if isinstance(record, Objects):
            return [*(goal_of(record, name, self._algebra) for name in names_of([record])), *others_of(record)]
        return []

    def _number(self, goals: Iterable[Goal]) -> int:
        """Of the place where a value may be one of these."""
        met = frozenset(goals)
        if self._leading.isdisjoint(met):
            return ELSEWHERE
        if met not in self._numbers:
            if len(self._numbers) == MAX_PLACES:
                raise MixedError
            self._numbers[met] = ROOT + len(self._numbers)
            self._queue.append(met)
        return self._numbers[met]

    def _place(self, goals: frozenset[Goal]) -> Place:
        records = [record for goal in goals for record in self._records.get(goal, ())]
        objects = [record for record in records if isinstance(record, Objects)]
        arrays = [record for record in records if isinstance(record, Arrays)]
        self._algebra.effort.spend(A_PLACE + sum([len(record.named) for record in objects]), PARTS)
        others = self._number(goal for record in objects for goal in others_of(record))
        names = {name: self._number(goal for record in objects for goal in self._of_name(record, name)) for name in names_of(objects)}
        length = max([len(record.prefix) for record in arrays], default=0)
        prefix = tuple([self._number(record.item(at) for record in arrays) for at in range(length)])
        return Place(names, others, prefix, self._number(record.rest for record in arrays), self._items(arrays))

    def _of_name(self, record: Objects, name: str) -> list[Goal]:
        named = name in record.named or name in record.required
        return [goal_of(record, name, self._algebra)] if named else others_of(record)

    def _items(self, arrays: list[Arrays]) -> Differing | None:
        """Whatever else may stand where items must differ has the same items, or none that are strings."""
        unique = {self._differing([record.rest]) for record in arrays if record.unique}
        if not unique:
            return None
        plain = [record for record in arrays if not record.unique]
        alike = {self._differing([*record.prefix, record.rest]) for record in plain if self._has_strings(record)}
        (found, *more) = unique | alike
        if more or found is None or (alike and found.values is not None):
            raise MixedError
        return found

    def _differing(self, goals: list[Goal]) -> Differing | None:
        return differing([record for goal in goals for record in self._records.get(goal, [Strings()])])

    def _has_strings(self, array: Arrays) -> bool:
        return any(isinstance(record, Strings) for goal in (*array.prefix, array.rest) for record in self._records.get(goal, [Strings()]))


def names_of(objects: Iterable[Objects]) -> list[str]:
    return list(dict.fromkeys([name for record in objects for name in (*record.named, *record.required)]))


def others_of(record: Objects) -> list[Goal]:
    """Of properties that have no name in the schema: which of them a name belongs to is not looked at."""
    return [*(region.goal for region in record.regions), record.rest]
