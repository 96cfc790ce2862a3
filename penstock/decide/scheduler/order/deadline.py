"""The earliest deadline that can still be met first; then requests without one; then those that are late beyond help or deferred.

Until its first token a request's deadline is that of its TTFT, and it is hopeless when its prompt can no longer be computed by then.
After that the deadline is its next token's, and it is hopeless when even alone its last token would come too late for its mean TPOT.
Among equals the smaller priority goes first. Earliest deadline first is optimal on one machine while all can be met (Jackson, 1955; Liu and
Layland, 1973); beyond that it is the worst of orders, which is why the hopeless go last and admission control stands before it.
"""
from math import inf

from penstock.core.needs import Needs
from penstock.core.types import Seq
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.promise import affords_s, first_due_s, has_objectives, next_due_s, num_left


class Deadline:
    needs = Needs(step_timer=True)
    varies = True

    def __init__(self, costs: StepCosts) -> None:
        self._costs = costs

    def key(self, seq: Seq, now: float) -> tuple[float, ...]:
        if seq.deferred:
            return (1.0, seq.arrival_s, seq.priority, seq.arrival_s)
        due_s, feasible = (inf, True) if not has_objectives(seq) else self._due(seq, now)
        return (0.0 if feasible else 1.0, due_s, seq.priority, seq.arrival_s)

    def _due(self, seq: Seq, now: float) -> tuple[float, bool]:
        """(when its next token is due, whether what was promised can still be kept)."""
        costs, first_s = self._costs, seq.first_token_s
        if first_s is None:
            due_s = first_due_s(seq, costs)
            return due_s, due_s == inf or now + costs.prompt_s(num_left(seq), len(seq.tokens)) <= due_s
        return next_due_s(seq, first_s), costs.step_s(1, len(seq.tokens)) <= affords_s(seq, first_s, now)
