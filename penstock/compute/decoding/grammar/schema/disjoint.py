"""Whether two shapes have nothing in common, as far as that is seen in a few looks."""
from collections.abc import Callable, Sequence

from penstock.compute.decoding.grammar.schema.document import Goal
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError
from penstock.compute.decoding.grammar.schema.meet import goal_of, of_records
from penstock.compute.decoding.grammar.schema.records import Arrays, Objects, Record, Shape

MAX_DEPTH = 4
MAX_PAIRS = 400  # of shapes that two goals are compared by

Shapes = Callable[[Goal], Sequence[Shape]]


class Disjoint:
    """`mine` works goals out into what is generated, `its` into all that may be valid: what is generated is not valid by the other."""

    def __init__(self, mine: Shapes, its: Shapes) -> None:
        self.mine = mine
        self.its = its

    def __call__(self, mine: Shape, its: Shape, depth: int = 0) -> bool:
        return all(kind not in its or self._records(record, its[kind], depth) for kind, record in mine.items())

    def _records(self, mine: Record, its: Record, depth: int) -> bool:
        if of_records(mine, its) is None:
            return True
        if isinstance(mine, Objects) and isinstance(its, Objects):
            names = dict.fromkeys((*mine.required, *its.required))
            return any(self._goals(goal_of(mine, name), goal_of(its, name), depth + 1) for name in names)
        if isinstance(mine, Arrays) and isinstance(its, Arrays):
            places = range(min(max(mine.low, its.low), 8))
            return any(self._goals(mine.item(at), its.item(at), depth + 1) for at in places)
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
