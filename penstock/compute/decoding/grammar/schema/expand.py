"""Works goals out into shapes: keyword by keyword, choice by choice."""
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from itertools import chain, islice, zip_longest
from typing import Any

from penstock.compute.decoding.grammar.effort import CHOICES
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.schema import values
from penstock.compute.decoding.grammar.schema.dialect import LATEST, keywords
from penstock.compute.decoding.grammar.schema.disjoint import Disjoint
from penstock.compute.decoding.grammar.schema.document import Document, Goal, Literal, Node, is_impossible, join
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError, reading
from penstock.compute.decoding.grammar.schema.keywords import FOLLOWED, POSITIVE, TOGETHER, Words, children, goal_for, union
from penstock.compute.decoding.grammar.schema.meet import goal_of, meet
from penstock.compute.decoding.grammar.schema.negate import NEGATIVE, untold
from penstock.compute.decoding.grammar.schema.records import ARRAY, EVERY, OBJECT, Arrays, Objects, Shape, only, unspoken

MAX_SHAPES = 1024  # of one goal
FEW = 64  # shapes, beyond which equal ones are not looked for, and to which what is too much is brought
A_MEETING = 10  # steps of finding what two shapes have in common
CIRCULAR = "a schema refers to itself at the same place, so that it says nothing"
SOME_SHAPES = 16  # of what is kept away from: any part of it will do
MAX_OPEN = 12  # goals in each other, beyond which properties are not looked into to see that they are impossible
# What the algebra makes narrower than it is.
LOSSY = frozenset((
    "not", "if", "format", "multipleOf", "propertyNames", "contains", "uniqueItems", "unevaluatedProperties",
    "unevaluatedItems"))

UNEVALUATED = {"unevaluatedProperties", "unevaluatedItems"}
ONE_OF = "oneOf"

Shapes = Sequence[Shape]
Keyword = tuple[Node, str]
Choices = list[tuple[Node, list[Any]]]


class Expander:
    """`loosely`: shapes allow all that may be valid, and more; otherwise what they allow is valid. `closed`: objects whose schema names
    properties, and says nothing of others, have no others. `hoping`: as if all were left that these keywords, in schemas that are kept away
    from, forbid and are not known to."""

    def __init__(self, document: Document, algebra: Algebra, loosely: bool = False, closed: bool = False,
                 hoping: Collection[Keyword] = ()) -> None:
        self.document = document
        self.algebra = algebra
        self.closed = closed
        self.loosely = loosely
        self._hoping = hoping
        self._goals: dict[Goal, Shapes] = {(): [EVERY]}
        self.excludes = False  # whether something had to be kept away from, of which only a part may be known
        self.untold: dict[Keyword, None] = {}  # in it, which forbid more than is known
        self._open: set[Goal] = set()  # being worked out
        self._disjoint = None if loosely else Disjoint(self.goal, Expander(document, algebra, loosely=True).goal, algebra)

    def goal(self, goal: Goal) -> Shapes:
        """Raises UnsupportedError for what cannot be obeyed, and when there are too many shapes."""
        if goal not in self._goals:
            if goal in self._open:
                raise UnsupportedError(CIRCULAR)
            self._open.add(goal)
            try:
                self._goals[goal] = self._work_out(goal)
            finally:
                self._open.discard(goal)
        return self._goals[goal]

    def literal(self, literal: Literal) -> Shapes:
        return self.goal((literal,))

    def cross(self, a: Shapes, b: Shapes, is_some_enough: bool = False) -> Shapes:
        """All that is in one of each; or, where that is too much and some is enough, something of each of the first FEW of `a`."""
        if len(a) == 1 and a[0] is EVERY:
            return b
        if len(b) == 1 and b[0] is EVERY:
            return a
        self.algebra.effort.spend(A_MEETING * len(a) * len(b), CHOICES)
        found: list[Shape] = []
        rows: list[list[Shape]] = []
        for mine in a:
            rows.append([])
            for its in b:
                shape = meet(mine, its, self.algebra)
                if is_some_enough and shape == mine:  # and what it has in common with others is in it
                    rows[-1] = [mine]
                    break
                if shape and (len(found) > FEW or shape not in found):
                    found.append(shape)
                    rows[-1].append(shape)
        if len(found) > FEW:
            rows = [list(filter(None, map(self._hopeful, row))) for row in rows]
        if is_some_enough and sum(map(len, rows)) > MAX_SHAPES:
            return some_of(rows, FEW)
        return not_too_many(list(chain.from_iterable(rows)))

    def _work_out(self, goal: Goal) -> Shapes:
        """Choices of one branch come last: what all else says tells their branches apart."""
        found: Shapes = [EVERY]
        choices: Choices = []
        for shapes, is_kept_away_from in self._parts(list(goal), {}, choices):
            found = self.cross(found, shapes, is_some_enough=is_kept_away_from)
        for node, listed in choices:
            with reading(node.schema):
                found = self._one_of(node, listed, found)
        return found

    def _parts(self, literals: list[Literal], seen: dict[Literal, bool], choices: Choices) -> Iterator[tuple[Shapes, bool]]:
        """All that must hold, `allOf` and references followed; but `oneOf`, which goes to `choices`; and whether it is what keeps away from
        a schema. `seen`: whether it is still open."""
        for literal in literals:
            if seen.get(literal):
                raise UnsupportedError(CIRCULAR)
            if literal in seen:
                continue
            self.algebra.effort.spend(A_MEETING, CHOICES)
            seen[literal] = True
            with reading(literal.node.schema):
                yield from self._said(literal, seen, choices)
            seen[literal] = False

    def _said(self, literal: Literal, seen: dict[Literal, bool], choices: Choices) -> Iterator[tuple[Shapes, bool]]:
        node = literal.node
        if isinstance(node.schema, bool):
            yield [EVERY] if node.schema is literal.positive else [], False
        elif not literal.positive:
            yield self._denied(node), True
        else:
            words = keywords(node.schema, node.draft, strictly=False)
            if UNEVALUATED & words.keys():
                yield self._evaluated(node, words), False
            else:
                yield from self._allowed(node, words, seen, choices)

    def _denied(self, node: Node) -> Shapes:
        self.excludes = True
        words = keywords(node.schema, node.draft, strictly=True)
        more = untold(node, words)
        found = [shape for name, deny in NEGATIVE.items() if (value := of_group(name, words)) is not None
                 for shape in deny(self, node, value[0], words)]
        self.untold |= dict.fromkeys((node, name) for name in more)
        perhaps = [only(kind, EVERY[kind]) for name, kind in more.items() if (node, name) in self._hoping]
        return [*perhaps, *(unspoken(shape) for shape in found[:SOME_SHAPES])]

    def _allowed(self, node: Node, words: Words, seen: dict[Literal, bool], choices: Choices) -> Iterator[tuple[Shapes, bool]]:
        done: set[str] = set()
        if self.loosely and "patternProperties" in words:
            words = {name: value for name, value in words.items() if name not in ("patternProperties", "additionalProperties")}
        for name, value in words.items():
            group = TOGETHER.get(name, name)
            if group in done or (self.loosely and name in LOSSY):
                continue
            done.add(group)
            if group in FOLLOWED:
                yield from self._parts(FOLLOWED[group](self, node, value), seen, choices)
            elif group in POSITIVE:
                yield POSITIVE[group](self, node, value, words), False
            elif group == ONE_OF:
                choices.append((node, values.schemas(group, value)))

    def _one_of(self, node: Node, listed: list[Any], base: Shapes) -> Shapes:
        """In each branch what is valid by none of the others."""
        branches = children(self, node, listed)
        if self._disjoint is None:
            return self.cross(base, union(self, map(self.literal, branches)))
        found: list[Shape] = []
        for at, branch in enumerate(branches):
            mine = list(self.cross(base, self.literal(branch)))
            most = max(len(mine), MAX_SHAPES // len(branches))
            for its in (*branches[:at], *branches[at + 1 :]):
                mine = self._without(mine, its, most)
            found += mine
        return not_too_many(found)

    def _without(self, shapes: list[Shape], literal: Literal, most: int) -> list[Shape]:
        """What of the shapes is not valid by a schema; as much of it as is easily told, in at most `most` shapes: something of each."""
        assert self._disjoint is not None
        kept: list[list[Shape]] = []
        for shape in shapes:
            if all(self._disjoint(shape, its) for its in self._disjoint.its((literal,))):
                kept.append([shape])
            else:
                without = self.cross([shape], self.literal(Literal(literal.node, False)), is_some_enough=True)
                kept.append(list(filter(None, map(self._hopeful, without)))[:SOME_SHAPES])
        return some_of(kept, most)

    def _hopeful(self, shape: Shape) -> Shape:
        """Without objects of which a property that must be there is seen to be impossible: each would be kept away from all branches."""
        record = shape.get(OBJECT)
        if not isinstance(record, Objects) or not self._is_hopeless(record):
            return shape
        return {kind: each for kind, each in shape.items() if kind != OBJECT}

    def _is_hopeless(self, record: Objects) -> bool:
        self.algebra.effort.spend(len(record.required), CHOICES)
        if any(self._has_no_value(goal_of(record, name, self.algebra)) for name in record.required):
            return True
        if not is_impossible(record.rest) or not all(is_impossible(region.goal) for region in record.regions):
            return False
        possible = [name for name, goal in record.named.items() if not is_impossible(goal)]
        return any(not any(self.algebra.holds(region.names, name) for name in possible) for region in record.some)

    def _has_no_value(self, goal: Goal) -> bool:
        """Of what two schemas say together."""
        if len(goal) < 2 or len(self._open) > MAX_OPEN:
            return is_impossible(goal)
        try:
            return not self.goal(goal)
        except UnsupportedError:  # such as a goal that is being worked out
            return False

    def _evaluated(self, node: Node, words: Words) -> Shapes:
        """Says something of properties and items that none of the schema's other parts has spoken of."""
        plain = {name: value for name, value in node.schema.items() if name not in UNEVALUATED}
        shapes = self.literal(Literal(self.document.beside(node, plain), True))
        if self.loosely:
            return shapes
        names = goal_for(self, node, words.get("unevaluatedProperties", True))
        unevaluated_items = words.get("unevaluatedItems", True)
        if "contains" in node.schema and node.draft >= LATEST:  # what it finds is evaluated
            unevaluated_items = {"anyOf": [unevaluated_items, node.schema["contains"]]}
        items = goal_for(self, node, unevaluated_items)
        found = []
        for shape in shapes:
            objects, arrays = shape.get(OBJECT), shape.get(ARRAY)
            changed = dict(shape)
            if isinstance(objects, Objects) and "unevaluatedProperties" in words:
                if not objects.all_evaluated:
                    named = {name: goal if name in objects.evaluated else join(goal, names) for name, goal in objects.named.items()}
                    regions = tuple([each if each.evaluated else replace(each, goal=join(each.goal, names)) for each in objects.regions])
                    objects = replace(objects, named=named, regions=regions, rest=join(objects.rest, names))
                changed[OBJECT] = replace(objects, all_evaluated=True)
            if isinstance(arrays, Arrays) and "unevaluatedItems" in words:
                prefix = [goal if at < arrays.evaluated else join(goal, items) for at, goal in enumerate(arrays.prefix)]
                rest = arrays.rest if arrays.evaluated == float("inf") else join(arrays.rest, items)
                changed[ARRAY] = replace(arrays, prefix=tuple(prefix), rest=rest, evaluated=float("inf"))
            found.append(changed)
        return found


def some_of(rows: Sequence[Sequence[Shape]], most: int) -> list[Shape]:
    """At most `most` shapes: the first of each row, then the second of each."""
    return list(islice((shape for column in zip_longest(*rows) for shape in column if shape is not None), most))


def not_too_many(shapes: Shapes) -> Shapes:
    if len(shapes) > MAX_SHAPES:
        raise UnsupportedError(f"its choices have more than {MAX_SHAPES} combinations at one place")
    return shapes


def of_group(name: str, words: Words) -> tuple[Any] | None:
    """The value of the first keyword that is read together with this one."""
    return next(((value,) for word, value in words.items() if TOGETHER.get(word, word) == name), None)
