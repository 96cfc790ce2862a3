"""Taken in is who can have its first token in time, beside answers that keep their TPOT.

Under overload somebody must miss. Without admission control everybody does: queues grow until no first token comes in time. Here a forecast
(see `forecast`) is made of the queue with the new sequence at its place in it, and one that would be late is refused at once, while its
client can still go elsewhere, and told when it would not have been. What has been taken in may yet be overtaken by tighter deadlines: it is
given up as soon as it could not be in time even if it were next. (To keep those who came first at the price of who is urgent fills the
queue with long requests of loose deadlines: at twice the capacity a third fewer were served in time.)
"""
from dataclasses import dataclass

from penstock.core.errors import OverloadedError, RequestError, UsageError
from penstock.core.needs import Needs
from penstock.core.types import Seq
from penstock.decide.scheduler.admission.contract import Late
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.forecast import Forecast, Load
from penstock.decide.scheduler.live import Live
from penstock.decide.scheduler.promise import Claim, tpot_s

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
        self._defers = options.late == "defer"
        self._costs = costs
        self._reserve = options.reserve

    def late(self, seq: Seq, live: Live, now: float) -> Late | None:
        load = live.load(now)
        place = next(place for place, claim in enumerate(load.waiting) if claim.seq is seq)
        claim, behind = load.waiting[place], load.waiting[place + 1 :]
        self._check_alone(claim)
        forecast = Forecast(self._costs, load, self._reserve)
        forecast.serve(load.waiting[:place])
        first_s, latest_s = forecast.first_token_s(claim, behind), self._latest_s(claim)
        if first_s <= latest_s:
            return None
        if self._defers:
            return Late(seq, None)
        forecast.serve(behind)
        last_s = max(first_s, forecast.first_token_s(claim, ()))  # wherever it would stand
        retry_s = self._retry_s(load, last_s - latest_s)
        soon, wanted = told(first_s - seq.arrival_s), told(latest_s - seq.arrival_s)
        kept = f", its objective less the reserve of {self._reserve:.0%}" if self._reserve else ""
        return Late(seq, refusal(f"its first token would come after {soon}, and should within {wanted}{kept}", retry_s))

    def overtaken(self, live: Live, now: float) -> list[Late]:
        lost = {claim.seq.seq_id: claim for claim in live.waiting.hopeless(now) if claim.seq.first_scheduled_s is None}
        if not lost or self._defers:
            return [Late(claim.seq, None) for claim in lost.values()]
        load = live.load(now)
        forecast = Forecast(self._costs, load, self._reserve)
        forecast.serve([claim for claim in load.waiting if claim.seq.seq_id not in lost])
        found = []
        for claim in lost.values():
            allowed_s = self._latest_s(claim) - claim.seq.arrival_s
            retry_s = self._retry_s(load, forecast.first_token_s(claim, ()) - now - allowed_s)
            found.append(Late(claim.seq, refusal(overtaken_for(now - claim.seq.arrival_s), retry_s)))
        return found

    def _check_alone(self, claim: Claim) -> None:
        """Raises RequestError for objectives that are too tight for any load."""
        seq, planned = claim.seq, 1 - self._reserve
        prompt_s = claim.prompt_s / planned
        allowed_s = claim.due_s - seq.arrival_s
        if prompt_s > allowed_s:
            raise unattainable(f"a first token within {told(allowed_s)}: this prompt alone takes {told(prompt_s)}, reserve included")
        step_s = self._costs.step_s(1, seq.max_len) / planned
        allowed_s = tpot_s(seq, seq.arrival_s + prompt_s)
        if seq.max_len > seq.num_prompt + 1 and step_s > allowed_s:
            raise unattainable(f"a token every {told(allowed_s)}: alone on the machine it takes {told(step_s)}, reserve included")

    def _latest_s(self, claim: Claim) -> float:
        """When its first token may be foreseen for."""
        return claim.seq.arrival_s + (1 - self._reserve) * (claim.due_s - claim.seq.arrival_s)

    def _retry_s(self, load: Load, late_s: float) -> float:
        """When a request like one that was late by so much is sent again. If it comes so much later, and is seen as soon after it came, the
        end of the queue, as it is now, is as near as its objective. Before the step that begins now has ended nobody is taken in."""
        return max(late_s, Forecast(self._costs, load, self._reserve).next_step_s(load.waiting))


def refusal(why: str, retry_s: float) -> OverloadedError:
    message = f"too busy for the objectives of this request: {why}; try again in {told(retry_s)}"
    return OverloadedError(message, retry_s, "slo", "slo_overloaded")


def unattainable(what: str) -> RequestError:
    return RequestError(f"the objectives cannot be met even on an idle machine: they ask for {what}", "slo", code="slo_unattainable")


def overtaken_for(waited_s: float) -> str:
    return f"after {told(waited_s)} its first token can no longer come in time, others having been more urgent"


def told(seconds: float) -> str:
    ms = max(seconds, 0.0) * 1000
    return f"{ms:.2g} ms" if ms < 10 else f"{ms:.0f} ms" if ms < 1000 else f"{seconds:.1f} s"
