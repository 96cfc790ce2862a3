"""Where in an answer there are arrays whose items must differ, which a grammar cannot say: they are compared while it is written
(differ.py)."""
from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from penstock.compute.decoding.grammar.alike import written
from penstock.compute.decoding.grammar.effort import PARTS
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.completions import MANY, Completions, num_short
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.patterns.tree import alt
from penstock.compute.decoding.grammar.schema.document import Goal
from penstock.compute.decoding.grammar.schema.endless import Ending, Endless, Goals, are_endless, is_free
from penstock.compute.decoding.grammar.schema.meet import goal_of
from penstock.compute.decoding.grammar.schema.records import Arrays, Booleans, Nulls, Numbers, Objects, Record, Strings, bulk
from penstock.compute.decoding.grammar.schema.texts import set_of

MAX_PLACES = 1000
A_PLACE = 10  # steps
ELSEWHERE = 0  # the place behind which nothing is compared
ROOT = 1
BEHIND = b"\xff"  # a byte that is in no text


class MixedError(Exception):
    """Items that must differ cannot be compared while they are written, or something else may stand where they do, so that an answer could
    come to where nothing may follow. `items`: of which arrays; None: there are too many places."""

    def __init__(self, items: Goals | None) -> None:
        super().__init__()
        self.items = items


@dataclass(frozen=True, slots=True)
class Differing:
    """Strings among items of an array that must differ. `values`: all that they can be, as they are written between the quotes, in order;
    `texts`: the same, counted; neither: any text of at most `most` characters, None: of any length."""

    values: tuple[bytes, ...] | None = None
    most: int | None = None
    texts: Completions | None = None

    @property
    def is_free(self) -> bool:
        """Whether any text may go on, so that none has to be kept from beginning."""
        return self.values is None and self.most is None and self.texts is None

    def num(self, begun: bytes = b"") -> int:
        """How many begin so, up to MANY: more than there can be items. `begun`: as it is written between the quotes, cut anywhere."""
        if self.values is not None:
            return bisect_left(self.values, begun + BEHIND) - bisect_left(self.values, begun)
        if self.texts is not None:
            return self.texts.num(begun)
        return MANY if self.most is None else num_short(begun, self.most)


@dataclass(frozen=True, slots=True)
class Place:
    """Where the values in a value stand, as numbers of places: those of an object's properties by name, and of all others; those of an
    array's first items, and of all behind them.

    `items`: of an array whose items must differ, the strings among them; `has_others`: there are others, which are compared as a whole.
    `ending`: of an object that is such an item, or is in one."""

    names: Mapping[str, int] = field(default_factory=dict)
    others: int = ELSEWHERE
    prefix: tuple[int, ...] = ()
    rest: int = ELSEWHERE
    items: Differing | None = None
    has_others: bool = False
    ending: Ending = Ending()


def differing(texts: Collection[Strings], algebra: Algebra) -> Differing | None:
    """What items are that are one of these; None if they cannot be compared while they are written: where an item cannot end, because it
    would be another's equal, something else must be able to follow."""
    listed = [record.values for record in texts if record.values is not None]
    if listed and len(listed) == len(texts):
        return Differing(tuple(sorted({written(value) for values in listed for value in values})))
    if are_endless(texts, algebra):
        return Differing()
    highest = {record.high for record in texts}
    if len(highest) == 1 and 0 not in highest and all(is_free(replace(record, high=None)) for record in texts):
        return Differing(most=highest.pop())
    if any(record.formats for record in texts):
        return None
    try:
        return Differing(texts=algebra.completions(alt(list(map(set_of, texts)))))
    except PatternError:
        return None


class Places:
    """Of one schema. `records`: what the values of each goal may be; a goal that is not in it may be anything."""

    def __init__(self, records: Mapping[Goal, Sequence[Record]], algebra: Algebra) -> None:
        self._records = records
        self._algebra = algebra
        self._endless = Endless(records, algebra)
        self._leading = self._find_leading()
        self._followed: set[Goals] = set()
        self._mixed: set[Goal] = set()  # items that cannot be compared
        self._numbers: dict[frozenset[Goal], int] = {}
        self._queue: list[frozenset[Goal]] = []

    def of(self, root: Goal) -> tuple[Place, ...]:
        """All places, the root at ROOT; none if items need not be compared. Raises MixedError."""
        found = [Place()]
        num_leading = 0
        while num_leading < len(self._leading):  # more may be found to lead on the way
            num_leading = len(self._leading)
            self._numbers.clear()
            self._number([root])
            found = [Place()]
            while self._queue:
                found.append(self._place(self._queue.pop(0)))
        if self._mixed:
            raise MixedError(frozenset(self._mixed))
        return tuple(found) if len(found) > ROOT else ()

    def _find_leading(self) -> set[Goal]:
        """Goals with arrays inside whose items must be compared."""
        found = [goal for goal, records in self._records.items() if any(isinstance(each, Arrays) and each.unique for each in records)]
        if not found:
            return set()
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
        return leading

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
                raise MixedError(None)
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
        items, has_others = self._items(arrays)
        rest = self._number(record.rest for record in arrays)
        return Place(names, others, prefix, rest, items, has_others, self._endless.of(objects) or Ending())

    def _of_name(self, record: Objects, name: str) -> list[Goal]:
        named = name in record.named or name in record.required
        return [goal_of(record, name, self._algebra)] if named else others_of(record)

    def _items(self, arrays: list[Arrays]) -> tuple[Differing | None, bool]:
        """The strings among items that must differ, and whether there are others. Whatever else may stand there has the same items, or none
        that are strings; beside others, nothing else."""
        unique, plain = ([record for record in arrays if record.unique is each] for each in (True, False))
        if not unique:
            return None, False
        found = {self._differing([array.rest]) for array in unique if self._has_strings(array)} or {Differing()}
        alike = {self._differing([*array.prefix, array.rest]) for array in plain if self._has_strings(array)}
        (first, *more) = found | alike
        others = [[record for record in self._of_items([array.rest]) if not isinstance(record, Strings)] for array in unique]
        has_others, items = any(others), frozenset([array.rest for array in unique])
        if first is None or more or (plain if has_others else alike and first.num() < MANY) or not self._can_be_compared(others, first):
            self._mixed |= items
        elif has_others:
            self._follow(items)
        return first, has_others

    def _can_be_compared(self, others: Sequence[Sequence[Record]], texts: Differing) -> bool:
        """Whether items that are no texts, of each array, can be. Null, true and false can where something else is always left."""
        if any(each and all(isinstance(record, Nulls | Booleans) for record in each) for each in others) and texts.num() < MANY:
            return False
        return self._endless.of([record for each in others for record in each]) is not None

    def _follow(self, goals: Goals) -> None:
        """Values by whose ends an item may be determined have places."""
        if goals not in self._followed:
            self._followed.add(goals)
            self._leading |= goals
            objects = [record for goal in goals for record in self._records.get(goal, ()) if isinstance(record, Objects)]
            for name in (self._endless.of(objects) or Ending()).last:
                self._follow(frozenset([goal for record in objects for goal in self._of_name(record, name)]))

    def _of_items(self, goals: Iterable[Goal]) -> list[Record]:
        return [record for goal in goals for record in self._records.get(goal, [Strings(), Numbers()])]

    def _differing(self, goals: list[Goal]) -> Differing | None:
        return differing([record for record in self._of_items(goals) if isinstance(record, Strings)], self._algebra)

    def _has_strings(self, array: Arrays) -> bool:
        return any(isinstance(record, Strings) for record in self._of_items([*array.prefix, array.rest]))


def names_of(objects: Iterable[Objects]) -> list[str]:
    return list(dict.fromkeys([name for record in objects for name in (*record.named, *record.required)]))


def others_of(record: Objects) -> list[Goal]:
    """Of properties that have no name in the schema: which of them a name belongs to is not looked at."""
    return [*(region.goal for region in record.regions), record.rest]
