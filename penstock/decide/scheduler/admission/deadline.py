"""Taken in is who can have its first token in time, beside answers that keep their TPOT.

Under overload somebody must miss. Without admission control everybody does: queues grow until no first token comes in time. Here a forecast
(see `forecast`) is made of the queue with the new sequence at its place in it, and one that would be late is refused at once, while its
client can still go elsewhere, and told when it would not have been. What has been taken in may yet be overtaken by tighter deadlines: it is
given up as soon as it could not be in time even if it were next. (To keep those who came first at the price of who is urgent fills the
queue with long requests of loose deadlines: at twice the capacity a third fewer were served in time.)
"""
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import inf

from penstock.core.errors import OverloadedError, RequestError, UsageError
from penstock.core.needs import Needs
from penstock.core.types import Seq
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.forecast import Load, first_token_s
from penstock.decide.scheduler.promise import first_due_s, has_objectives, num_left, tpot_s

LATE = ("refuse", "defer")


class Deadline:
    """`costs`: what steps take here. Its answers are forecasts, and no better than these."""

    needs = Needs(step_timer=True)

    @dataclass(frozen=True, slots=True)
    class Options:
        late: str = "refuse"  # what becomes of a request that would be late: refuse, or defer: it goes last
        reserve: float = 0.1  # share of objectives that is kept for what cannot be foreseen

        def __post_init__(self) -> None:
            if self.late not in LATE:
                raise UsageError(f"admission deadline: late must be one of {', '.join(LATE)}, not {self.late!r}")
            if not 0 <= self.reserve < 1:
                raise UsageError(f"admission deadline: reserve must be from 0 to below 1, not {self.reserve}")

    def __init__(self, costs: StepCosts, options: Options | None = None) -> None:
        options = options or self.Options()
        self.defers = options.late == "defer"
        self._costs = costs
        self._reserve = options.reserve

    def late(self, seq: Seq, load: Load) -> OverloadedError | None:
        self._check_alone(seq)
        first_s, latest_s = first_token_s(seq, load, self._costs, self._reserve), self._latest_s(seq)
        if first_s <= latest_s:
            return None
        soon, wanted = told(first_s - seq.arrival_s), told(latest_s - seq.arrival_s)
        return self._refusal(seq, load, f"its first token would come after {soon}, and should within {wanted}")

    def hopeless(self, waiting: Iterable[Seq], now: float) -> list[Seq]:
        costs = self._costs
        return [
            seq for seq in waiting
            if seq.first_scheduled_s is None and has_objectives(seq)
            and now + costs.prompt_s(num_left(seq), len(seq.tokens)) > first_due_s(seq, costs)]

    def given_up(self, seq: Seq, load: Load) -> OverloadedError:
        waited = told(load.now - seq.arrival_s)
        return self._refusal(seq, load, f"after {waited} its first token can no longer come in time, others having been more urgent")

    def _check_alone(self, seq: Seq) -> None:
        """Raises RequestError for objectives that are too tight for any load."""
        planned = 1 - self._reserve
        prompt_s = self._costs.prompt_s(num_left(seq), len(seq.tokens)) / planned
        allowed_s = first_due_s(seq, self._costs) - seq.arrival_s
        if prompt_s > allowed_s:
            raise unattainable(f"a first token within {told(allowed_s)}: this prompt alone takes {told(prompt_s)}, reserve included")
        step_s = self._costs.step_s(1, seq.max_len) / planned
        allowed_s = tpot_s(seq, seq.arrival_s + prompt_s)
        if seq.max_len > seq.num_prompt + 1 and step_s > allowed_s:
            raise unattainable(f"a token every {told(allowed_s)}: alone on the machine it takes {told(step_s)}, reserve included")

    def _latest_s(self, seq: Seq) -> float:
        """When its first token may be foreseen for."""
        return seq.arrival_s + (1 - self._reserve) * (first_due_s(seq, self._costs) - seq.arrival_s)

    def _refusal(self, seq: Seq, load: Load, why: str) -> OverloadedError:
        """It would be in time if it came so much later that the end of the queue, as it is now, is as near as its objective."""
        others = [other for other in load.waiting if other is not seq]
        last_s = first_token_s(seq, replace(load, waiting=[*others, seq]), self._costs, self._reserve)
        allowed_s = self._latest_s(seq) - seq.arrival_s
        retry_s = max(last_s - allowed_s - load.now, 0.001) if last_s < inf else 60.0
        message = f"too busy for the objectives of this request: {why}; try again in {told(retry_s)}"
        return OverloadedError(message, retry_s, "slo", "slo_overloaded")


def unattainable(what: str) -> RequestError:
    return RequestError(f"the objectives cannot be met even on an idle machine: they ask for {what}", "slo", code="slo_unattainable")


def told(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
