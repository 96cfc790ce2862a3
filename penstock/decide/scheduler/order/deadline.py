"""Earliest deadline first, among deadlines that can still be met; then requests without one; then those that are hopelessly late or
deferred.

Until its first token a request's deadline is that of its TTFT, and it is hopeless when its prompt can no longer be computed by then.
After that the deadline is its next token's, and it is hopeless when even alone its last token would come too late for its mean TPOT.
Among equals the smaller priority goes first. A prompt in progress that has a deadline is finished before all that wait, or the work spent
on it may be lost; one without, or one that is hopeless or deferred, is passed.

Earliest deadline first meets all deadlines if that is possible (Jackson, 1955; Liu and Layland, 1973). If it is not, that order ignores
what each request costs. So a request's deadline is moved back by `work` times the seconds that it takes of a full machine (its prompt, and
its answer's share of steps): of two that cannot both be in time, the expensive one yields. While there is time for all, that changes
little.
"""
from dataclasses import dataclass
from math import inf

from penstock.core.errors import UsageError
from penstock.core.needs import Needs
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.promise import Claim


class Deadline:
    needs = Needs(step_timer=True)

    @dataclass(frozen=True, slots=True)
    class Options:
        work: float = 16.0  # seconds that a deadline is put back for each second that it takes; 0: earliest deadline first

        def __post_init__(self) -> None:
            if not 0 <= self.work < inf:
                raise UsageError(f"order deadline: work must be 0 or above, not {self.work}")

    def __init__(self, costs: StepCosts, options: Options | None = None) -> None:
        self.costs = costs
        self._work = (options or self.Options()).work

    def key(self, claim: Claim, now: float) -> tuple[float, ...]:
        seq = claim.seq
        if seq.deferred:
            return (1.0, seq.arrival_s, seq.priority, seq.arrival_s)
        return (0.0 if now <= claim.hopeless_s else 1.0, claim.due_s + self._work * claim.work_s, seq.priority, seq.arrival_s)

    def begun(self, key: tuple[float, ...]) -> tuple[float, ...]:
        return (*key[:3], -inf) if key[1] == inf else (key[0], -inf)
