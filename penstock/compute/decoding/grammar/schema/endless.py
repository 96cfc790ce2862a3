"""Whether there is always another value: of the values of a goal each, as soon as it has come to its end, could have gone on and become
another, without end. Items of such values can be kept apart while they are written: whatever ends one like one before it is struck out.

A text goes on with more characters, an array with more items, an object with properties that have no name in the schema, or with its last
one: that may follow, or goes on itself.
"""
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.patterns.tree import longest
from penstock.compute.decoding.grammar.patterns.write import is_plain, writable
from penstock.compute.decoding.grammar.schema.document import Goal
from penstock.compute.decoding.grammar.schema.meet import goal_of
from penstock.compute.decoding.grammar.schema.records import Arrays, Booleans, Nulls, Numbers, Objects, Record, Strings
from penstock.compute.decoding.grammar.schema.texts import set_of

Goals = frozenset[Goal]


@dataclass(frozen=True, slots=True)
class Ending:
    """Of objects. `last`: names of properties by whose values an object is determined; none where others may always follow. `behind`: names
    of those that may come behind these, and are not compared."""

    last: frozenset[str] = frozenset()
    behind: frozenset[str] = frozenset()


class Endless:
    """Of one schema. `records`: what the values of each goal may be, none where there is no value; a goal that is not in it may be
    anything."""

    def __init__(self, records: Mapping[Goal, Sequence[Record]], algebra: Algebra) -> None:
        self._records = records
        self._algebra = algebra
        self._known: dict[Goals, bool] = {}

    def has_value(self, goal: Goal) -> bool:
        return bool(self._records.get(goal, True))

    def holds(self, goals: Goals) -> bool:
        """Of the values of any of the goals together, and of each alone, where what was before leaves no other. Null, true and false may be
        among them: they are struck out where they begin."""
        if goals not in self._known:
            self._known[goals] = False  # where it leads to itself
            alone = [frozenset((goal,)) for goal in goals] if len(goals) > 1 else []
            self._known[goals] = self._holds(goals) and all(map(self.holds, alone))
        return self._known[goals]

    def _holds(self, goals: Goals) -> bool:
        if any(goal not in self._records for goal in goals):
            return False
        records = [record for goal in goals for record in self._records[goal]]
        if all(isinstance(record, Nulls | Booleans) for record in records):
            return False
        texts = [record for record in records if isinstance(record, Strings)]
        ending = self.of([record for record in records if not isinstance(record, Strings)])
        return ending is not None and not ending.behind and (not texts or are_endless(texts, self._algebra))

    def of(self, others: Sequence[Record]) -> Ending | None:
        """Of values that are no strings; None: it does not hold, even for objects without what is behind their last property."""
        arrays = [record for record in others if isinstance(record, Arrays)]
        if any(isinstance(record, Numbers) for record in others):
            return None
        if any(each.high is not None or not self.has_value(each.rest) for each in arrays):
            return None
        return self._of_objects([record for record in others if isinstance(record, Objects)])

    def _of_objects(self, objects: Sequence[Objects]) -> Ending | None:
        found = [Ending() if self._is_open(record) else self._of_closed(record) for record in objects]
        known = [each for each in found if each is not None]
        last = frozenset([name for each in known for name in each.last])
        behind = frozenset([name for each in known for name in each.behind])
        if len(known) < len(found) or not last.isdisjoint(behind):
            return None
        return Ending(last, behind) if all(self.holds(self._of_name(objects, name)) for name in last) else None

    def _of_closed(self, record: Objects) -> Ending | None:
        """The last property that others may take the place of, or follow: one that must be there, where others come behind it."""
        names = [name for name in dict.fromkeys((*record.named, *record.required)) if self.has_value(goal_of(record, name, self._algebra))]
        if any(self.has_value(region.goal) for region in record.regions):
            return None
        for at in range(len(names) - 1, -1, -1):
            can_be_left_out = at < len(names) - 1 and names[at] not in record.required
            if not can_be_left_out and self.holds(self._of_name([record], names[at])):
                return Ending(frozenset((names[at],)), frozenset(names[at + 1 :]))
        return None

    def _is_open(self, record: Objects) -> bool:
        """Whether a property that has no name in the schema may always follow, with one of names without end."""
        if record.high is not None:
            return False
        if not record.regions:
            return self.has_value(record.rest)
        names = [region.names for region in record.regions if self.has_value(region.goal)]
        return any(is_plain(each) and longest(writable(each)) is None for each in names)

    def _of_name(self, objects: Iterable[Objects], name: str) -> Goals:
        goals = {goal_of(record, name, self._algebra) for record in objects}
        return frozenset(filter(self.has_value, goals))


def are_endless(texts: Collection[Strings], algebra: Algebra) -> bool:
    """Whether each text of one of these is the beginning of another, and so on."""
    if any(is_free(each) for each in texts):
        return True
    if any(each.formats or each.values is not None or each.high is not None for each in texts):
        return False
    try:
        return all(algebra.completions(set_of(each)).are_endless for each in texts)
    except PatternError:
        return False


def is_free(record: Strings) -> bool:
    """Whether each text that is not whole, or that is, may go on with any character."""
    return not (record.patterns or record.excluded or record.formats) and record.values is None and record.high is None
