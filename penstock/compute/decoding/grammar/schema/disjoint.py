"""Whether two shapes have nothing in common, as far as that is seen in a few looks."""
from collections.abc import Callable, Sequence

from penstock.compute.decoding.grammar.effort import CHOICES
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.schema.document import Goal
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError
from penstock.compute.decoding.grammar.schema.meet import goal_of, of_records
from penstock.compute.decoding.grammar.schema.records import Arrays, Objects, Record, Shape, Strings, bulk

MAX_DEPTH = 4
MAX_PAIRS = 400  # of shapes that two goals are compared by
A_LOOK = 5  # steps of comparing two shapes, or two records

Shapes = Callable[[Goal], Sequence[Shape]]


class Disjoint:
    """`mine` works goals out into what is generated, `its` into all that may be valid: what is generated is not valid by the other."""

    def __init__(self, mine: Shapes, its: Shapes, algebra: Algebra) -> None:
        self.mine = mine
        self.its = its
        self._algebra = algebra

    def __call__(self, mine: Shape, its: Shape, depth: int = 0) -> bool:
        self._algebra.effort.spend(A_LOOK, CHOICES)
        return all(kind not in its or self._records(record, its[kind], depth) for kind, record in mine.items())

    def _records(self, mine: Record, its: Record, depth: int) -> bool:
        self._algebra.effort.spend(A_LOOK + bulk(mine) + bulk(its), CHOICES)
        if of_records(mine, its, self._algebra) is None:
            return True
        if isinstance(mine, Objects) and isinstance(its, Objects):
            names = dict.fromkeys((*mine.required, *its.required))
            return any(self._goals(goal_of(mine, name, self._algebra), goal_of(its, name, self._algebra), depth + 1) for name in names)
        if isinstance(mine, Arrays) and isinstance(its, Arrays):
            places = range(min(max(mine.low, its.low), 8))
            return any(self._goals(mine.item(at), its.item(at), depth + 1) for at in places)
        return isinstance(mine, Strings) and isinstance(its, Strings) and self._texts(mine, its)

    def _texts(self, mine: Strings, its: Strings) -> bool:
        try:
            return any(not self._algebra.overlap(left, right) for left in mine.patterns for right in its.patterns)
        except PatternError:
            return False

    def _goals(self, mine: Goal, its: Goal, depth: int) -> bool:
        if depth > MAX_DEPTH or not mine or not its:
            return False
        try:
            left, right = self.mine(mine), self.its(its)
        except UnsupportedError:  # such as a goal that is being worked out
            return False
        if len(left) * len(right) > MAX_PAIRS:
            return False
        return all(self(a, b, depth) for a in left for b in right)
