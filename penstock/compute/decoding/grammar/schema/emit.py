"""Goals written as the schemas that llguidance knows: types, bounds, patterns, properties, anyOf, references to definitions."""
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import compress
from math import inf
from typing import Any

from penstock.compute.decoding.grammar.effort import PARTS
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.patterns.tree import ANYTHING, Seq, alt, both, other, text
from penstock.compute.decoding.grammar.schema.document import Goal
from penstock.compute.decoding.grammar.schema.endless import Goals
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError
from penstock.compute.decoding.grammar.schema.expand import ONE_OF, Expander
from penstock.compute.decoding.grammar.schema.keywords import FOLLOWED, POSITIVE, TOGETHER
from penstock.compute.decoding.grammar.schema.meet import goal_of
from penstock.compute.decoding.grammar.schema.merge import merged
from penstock.compute.decoding.grammar.schema.numbers import MOST_LISTED_IN_ALL
from penstock.compute.decoding.grammar.schema.numbers import written as number_written
from penstock.compute.decoding.grammar.schema.places import Place, Places
from penstock.compute.decoding.grammar.schema.records import EVERY, Arrays, Booleans, Nulls, Numbers, Objects, Record, Strings, bulk
from penstock.compute.decoding.grammar.schema.settle import Settling
from penstock.compute.decoding.grammar.schema.shortest import UNLIMITED, Outline, most, outline
from penstock.compute.decoding.grammar.schema.texts import Texts, pattern_written

MAX_GOALS = 20_000
MOST_COUNTED = 10**9  # properties: more are never written
MOST_KEPT_APART = 3  # patterns beside one that is found anywhere, beyond which its text stands alone
A_RECORD = 10  # steps of writing one
A_NUMBER = 2  # the same, of a listed number

SAID = frozenset((*POSITIVE, *FOLLOWED, *TOGETHER, ONE_OF, "unevaluatedProperties", "unevaluatedItems"))  # what a schema says

Schema = dict[str, Any] | bool


@dataclass(slots=True)
class Worked:
    """A goal worked out: the records that a value may be one of, and how short they are; `anything` where it may be any. `within`: the
    goal that it was found in; the root in itself."""

    name: str
    within: Goal
    records: list[Record] = field(default_factory=list)
    outlines: list[Outline] = field(default_factory=list)
    anything: bool = False
    least: float = inf  # characters of the shortest value, as far as that is found out; infinity: none is known


class Writer:
    """Writes goals with all that they lead to; for one document. `room`: characters, and no value has more. `called`: what the names of
    definitions begin with. `uncompared`: items that must differ and are not left to whoever follows `places`, which tell where they are;
    None: all."""

    def __init__(self, expander: Expander, room: int = UNLIMITED, called: str = "g", uncompared: Goals | None = None) -> None:
        self.room = room
        self._expander = expander
        self._called = called
        self._algebra = expander.algebra
        self._settling = Settling(expander.document, expander.goal, expander.algebra, uncompared)
        self._texts = Texts(expander.algebra)
        self._worked: dict[Goal, Worked] = {}
        self._listable = MOST_LISTED_IN_ALL
        self.at: Goal = ()  # what is being worked out
        self.places: tuple[Place, ...] = ()

    def write(self, goal: Goal) -> Schema:
        """Raises UnsupportedError for what cannot be obeyed, and MixedError; gives False where no value is valid."""
        self._work_out(goal)
        self._find_shortest()
        if not self._can(goal):
            return False
        definitions = {}
        for part, worked in self._worked.items():
            if self._can(part) and not worked.anything:
                self.at = part
                definitions[worked.name] = self._definition(worked)
        records = {part: list(self._possible(worked)) for part, worked in self._worked.items() if not worked.anything}
        self.places = Places(records, self._algebra).of(goal)
        whole = self._reference(goal)
        return whole if isinstance(whole, bool) else merged({**whole, "$defs": definitions})

    def place_of(self, definition: str) -> tuple[str, list[str]]:
        """Where in the document what has this name in its `$defs` stands, as a reference, and the keywords there: see `said`."""
        return self.said(next((goal for goal, worked in self._worked.items() if worked.name == definition), ()))

    def said(self, goal: Goal) -> tuple[str, list[str]]:
        """The place of a goal and its keywords; of what it was found in, where it is nowhere in the document, as parts of a `const` are."""
        place = self._expander.document.place_of(goal)
        while not place and goal in self._worked and (within := self._worked[goal].within) != goal:
            goal, place = within, self._expander.document.place_of(within)
        schemas = [literal.node.schema if literal.positive else ["not"] for literal in goal if isinstance(literal.node.schema, dict)]
        return place, list(dict.fromkeys(name for schema in schemas for name in schema if name in SAID))

    def hopeless(self, goal: Goal) -> Goal:
        """Of a goal that has been written, and that no value is valid by: the deepest part that it needs and that no value is valid by."""
        seen: set[Goal] = set()
        while goal not in seen:
            seen.add(goal)
            outlines = self._worked[goal].outlines
            needed = [part for part, _ in outlines[0].inside] if len(outlines) == 1 else []
            goal = next((part for part in needed if not self._can(part)), goal)
        return goal

    def least(self, goal: Goal) -> float:
        """Characters of the shortest value of a goal that has been written; infinity where there is none, however long."""
        return self._worked[goal].least if goal else 1

    def most(self, goal: Goal) -> tuple[str, int] | None:
        """Where a goal's own keyword asks for too many characters, items or properties: it, and the largest number that it could be."""
        records = self._worked[goal].records
        found = most(records[0], self._algebra, lambda each: self._least_of(each) <= self.room) if len(records) == 1 else None
        return found if found is not None and found[0] in self.said(goal)[1] else None

    def _work_out(self, root: Goal) -> None:
        queue = [(root, root)]
        while queue:
            goal, within = queue.pop()
            if goal in self._worked:
                continue
            if len(self._worked) >= MAX_GOALS:
                raise UnsupportedError(f"it has more than {MAX_GOALS} different parts")
            self.at = goal
            self._worked[goal] = worked = Worked(f"{self._called}{len(self._worked)}", within)
            shapes = self._expander.goal(goal)
            if any(shape == EVERY for shape in shapes):
                worked.anything, worked.least = True, 1
                continue
            for record in (settled for shape in shapes for each in shape.values() for settled in self._settled(each)):
                self._algebra.effort.spend(A_RECORD + 4 * bulk(record), PARTS)
                worked.records.append(record)
                worked.outlines.append(outline(record, self._algebra))
                queue += [(part, goal) for part in parts_of(record, self._algebra)]

    def _settled(self, record: Record) -> Iterator[Record]:
        if isinstance(record, Arrays | Objects) and record.low > self.room:
            yield record  # which is never written
        elif isinstance(record, Arrays):
            yield from self._settling.arrays(record)
        elif isinstance(record, Objects):
            yield from self._settling.objects(record)
        elif isinstance(record, Strings):
            yield from self._strings(record)
        else:
            yield record

    def _strings(self, record: Strings) -> Iterator[Strings]:
        """Texts that keep away from others are left out where that cannot be written; others must be written."""
        record = self._apart(record)
        try:
            if self._texts.any(record):
                yield record
        except PatternError as error:
            if not record.excluded:
                raise UnsupportedError(str(error)) from None

    def _apart(self, record: Strings) -> Strings:
        """Without what it has nothing in common with. A pattern that is found anywhere, and kept away from many, is all there is."""
        if not record.excluded or len(record.patterns) != 1:
            return record
        (pattern,) = record.patterns
        try:
            excluded = tuple([each for each in record.excluded if self._algebra.overlap(pattern, each)])
            items = pattern.items if isinstance(pattern, Seq) else ()
            core = Seq(items[1:-1]) if items[:1] == items[-1:] == (ANYTHING,) else None
            if len(excluded) > MOST_KEPT_APART and core and not any(self._algebra.overlap(core, each) for each in excluded):
                return replace(record, patterns=(core,), excluded=())
        except PatternError:
            return record
        return replace(record, excluded=excluded)

    def _find_shortest(self) -> None:
        """What has a finite value; what only has others, such as an object that must hold itself, has none."""
        found = True
        while found:
            found = False
            for worked in reversed(self._worked.values()):  # what others are made of was found later
                self._algebra.effort.spend(1, PARTS)
                least = min(map(self._least_of, worked.outlines), default=inf)
                if least < worked.least:
                    worked.least, found = least, True

    def _least_of(self, record: Outline) -> float:
        if record.more is not None and not any(map(self._can, record.more)):
            return inf
        return record.fixed + sum([times * self.least(goal) for goal, times in record.inside])

    def _can(self, goal: Goal) -> bool:
        return self.least(goal) <= self.room

    def _reference(self, goal: Goal) -> Schema:
        if not goal:
            return True
        worked = self._worked[goal]
        if worked.anything or not self._can(goal):
            return worked.anything
        return {"$ref": f"#/$defs/{worked.name}"}

    def _possible(self, worked: Worked) -> Iterator[Record]:
        return compress(worked.records, [self._least_of(each) <= self.room for each in worked.outlines])

    def _definition(self, worked: Worked) -> Schema:
        written = [self._record(record) for record in self._possible(worked)]
        distinct = [*{json.dumps(each): each for each in written}.values()]  # 1 and true are equal in Python
        return distinct[0] if len(distinct) == 1 else {"anyOf": distinct}

    def _record(self, record: Record) -> dict[str, Any]:
        if isinstance(record, Strings):
            return self._texts.written(record)
        if isinstance(record, Numbers):
            return {"enum": list(record.values)} if record.values is not None else self._number(record)
        if isinstance(record, Booleans):
            return {"enum": sorted(record.values)} if len(record.values) == 1 else {"type": "boolean"}
        if isinstance(record, Nulls):
            return {"type": "null"}
        return self._array(record) if isinstance(record, Arrays) else self._object(record)

    def _number(self, record: Numbers) -> dict[str, Any]:
        found = number_written(record, self._listable)
        listed = len(found.get("enum", ()))
        self._algebra.effort.spend(A_NUMBER * listed, PARTS)
        self._listable -= listed
        return found

    def _array(self, record: Arrays) -> dict[str, Any]:
        found: dict[str, Any] = {"type": "array"}
        if record.prefix:
            found["prefixItems"] = [self._reference(goal) for goal in record.prefix]
        if record.rest:
            found["items"] = self._reference(record.rest)
        if record.low:
            found["minItems"] = record.low
        if record.high is not None:
            found["maxItems"] = record.high
        return found

    def _object(self, record: Objects) -> dict[str, Any]:
        """Names that are required have a property of their own; regions leave out the names that have."""
        found: dict[str, Any] = {"type": "object"}
        goals = dict(record.named) | {name: goal_of(record, name, self._algebra) for name in record.required}
        if goals:
            found["properties"] = {name: self._reference(goal) for name, goal in goals.items()}
        patterns = {}
        for region in record.regions:
            inside = [text(name) for name in goals if self._algebra.holds(region.names, name)]
            names = both([region.names, other(alt(inside))]) if inside else region.names
            try:
                patterns[pattern_written(names, self._algebra)] = self._reference(region.goal)
            except PatternError as error:
                raise UnsupportedError(str(error)) from None
        if patterns:
            found["patternProperties"] = patterns
        if record.rest:
            found["additionalProperties"] = self._reference(record.rest)
        if record.required:
            found["required"] = list(record.required)
        if record.low:
            found["minProperties"] = record.low
        if record.high is not None:
            found["maxProperties"] = min(record.high, MOST_COUNTED)
        return found


def parts_of(record: Record, algebra: Algebra) -> Iterator[Goal]:
    """The goals of what is in it, that are anything but anything."""
    if isinstance(record, Arrays):
        yield from filter(None, (*record.prefix, record.rest))
    elif isinstance(record, Objects):
        goals = [*record.named.values(), *(goal_of(record, name, algebra) for name in record.required)]
        yield from filter(None, (*goals, *(region.goal for region in record.regions), record.rest))
