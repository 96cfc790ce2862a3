"""Admits a request if its first token, and those of all others that wait, can come in time while running answers keep their TPOT.

Under overload some requests must miss their objectives. Without admission control all do: queues grow until no first token comes in time.
So all prompts are forecast (see `forecast`), those in progress too, with the new sequence at its place. If any would be late, the most
expensive one up to that place is dropped, which leaves the most jobs of one machine in time (Moore, 1968). If that is the new one, it is
refused at once, while its client can still go elsewhere, and told when to retry; if it is another, that one is dropped before any work is
spent on it. At most one is dropped per arrival: if that is not enough, the new one is refused. So every waiting request is expected to be
in time. One that turns out late after all (steps took longer) keeps no other out, and is dropped as soon as it could not be in time even if
it were next.
"""
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TypeVar

from penstock.core.errors import OverloadedError, RequestError, UsageError
from penstock.core.needs import Needs
from penstock.core.types import Seq
from penstock.decide.scheduler.admission.again import Again, Refused
from penstock.decide.scheduler.admission.contract import Late
from penstock.decide.scheduler.admission.returns import Returns
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.firsts import Firsts
from penstock.decide.scheduler.forecast import Forecast
from penstock.decide.scheduler.live import Live
from penstock.decide.scheduler.promise import Claim, is_due_by_e2e, num_answers

T = TypeVar("T")
LATE = ("refuse", "defer")
DELAYS = 64  # requests whose delays are remembered; of fewer than two nothing is concluded: a server's first request takes longest


class Deadline:
    """`costs`: predicts how long steps take here; decisions are only as good as its predictions."""

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
        self._returns = Returns()
        self._gives_way: set[int] = set()  # seq_id of who was given up since the last look at who was overtaken
        self._delays_s: deque[float] = deque(maxlen=DELAYS)  # from arrival to here, of the latest that found nobody else

    def late(self, seq: Seq, live: Live, now: float) -> Late | None:
        """Raises RequestError for objectives that an idle machine could not keep."""
        if not self._defers:
            self._returns.came(seq, now)
        load = live.load(now)
        prompts = [claim for claim in load.prompts if claim.seq.seq_id not in self._gives_way]
        place = next(place for place, claim in enumerate(prompts) if claim.seq is seq)
        if len(prompts) == 1 and not load.decodes:
            self._delays_s.append(max(0.0, now - seq.arrival_s))
        self._check_alone(prompts[place])
        latest_s = [inf] * place + [self._latest_s(prompts[place])] + [claim.due_s for claim in prompts[place + 1 :]]
        firsts, others_s = Firsts(Forecast(self._costs, load, self._reserve), prompts, place=place), list[float]()
        late = firsts.first_late(latest_s)
        if late is None:
            return None
        forecast = Forecast(self._costs, load, self._reserve)
        if late > place or costliest(prompts[: late + 1], place) != place:
            others = firsts.without(place, forecast)
            latest_s[place + 1 :] = [may if may < inf and others.until(at + 1)[at] <= may else inf
                                     for at, may in enumerate(latest_s[place + 1 :], place)]
            late, others_s = firsts.first_late(latest_s), others.told()
            if late is None:
                return None
            goes = costliest(prompts[: late + 1], place)
            if goes != place and firsts.without(goes, forecast).first_late(without(goes, latest_s)) is None:
                self._gives_way.add(prompts[goes].seq.seq_id)
                return None
        if self._defers:
            return Late(seq, None)
        again = Again(without(place, prompts), forecast, load, live, others_s)
        return Late(seq, self._refusal(prompts[place], firsts.until(place + 1)[place], again))

    def overtaken(self, live: Live, now: float) -> list[Late]:
        lost = {claim.seq.seq_id: claim for claim in live.waiting.hopeless(now) if claim.seq.first_scheduled_s is None}
        gives_way, self._gives_way = self._gives_way, set()
        if gives_way:
            lost |= {claim.seq.seq_id: claim for claim in live.waiting.claims(now) if claim.seq.seq_id in gives_way}
        if not lost or self._defers:
            return [Late(claim.seq, None) for claim in lost.values()]
        load = live.load(now)
        others = [claim for claim in load.prompts if claim.seq.seq_id not in lost]
        again, found = Again(others, Forecast(self._costs, load, self._reserve), load, live), []
        for claim in sorted(lost.values(), key=lambda claim: -claim.work_s):
            retry_s = self._retry_s(claim, again)
            why = gave_way_to if claim.seq.seq_id in gives_way and now <= claim.hopeless_s else overtaken_by
            found.append(Late(claim.seq, refusal(why(now - claim.seq.arrival_s), retry_s)))
        return found

    def _refusal(self, claim: Claim, first_s: float, again: Again) -> OverloadedError:
        latest_s, retry_s = self._latest_s(claim), self._retry_s(claim, again)
        if first_s <= latest_s:
            return refusal(f"it takes {told(claim.work_s)} of machine time, and would make cheaper requests late", retry_s)
        soon, wanted = told(first_s - claim.seq.arrival_s), told(latest_s - claim.seq.arrival_s)
        reserve = f" less the reserve of {self._reserve:.0%}" if self._reserve else ""
        kept = f", its objective{reserve}" if reserve else ""
        if is_due_by_e2e(claim.seq, claim.due_s):
            kept = f", what an end within {told(claim.seq.e2e_slo_s or 0.0)} leaves for it{reserve}"
        return refusal(f"its first token would come after {soon}, and should come within {wanted}{kept}", retry_s)

    def _retry_s(self, claim: Claim, again: Again) -> float:
        after_s = again.after_s(Refused(claim, self._latest_s(claim) - claim.seq.arrival_s, self._delay_s))
        return self._returns.after_s(claim, again.load.now, after_s)

    @property
    def _delay_s(self) -> float:
        """From an arrival to here, at least."""
        return min(self._delays_s) if len(self._delays_s) > 1 else 0.0

    def _check_alone(self, claim: Claim) -> None:
        """Raises RequestError for objectives that are too tight for any load."""
        seq, planned = claim.seq, 1 - self._reserve
        delay_s = self._delay_s
        first_s, allowed_s = (delay_s + claim.prompt_s) / planned, claim.due_s - seq.arrival_s
        num, more = num_answers(seq), seq.max_len - seq.num_prompt - 1
        step_s = self._costs.step_s(num, seq.max_len) / planned
        if seq.e2e_slo_s is not None:
            ends_s = first_s + step_s * more
            if is_due_by_e2e(seq, claim.due_s):  # a first token may come half as much later as the end
                ends_s = max(ends_s, seq.e2e_slo_s + 2 * (first_s - allowed_s))
            if ends_s > seq.e2e_slo_s:
                tokens = f"{more + 1:,} tokens" if more > 0 else "a single token"
                answer = f"{num} answers of {tokens} take" if num > 1 else f"an answer of {tokens} takes" if more > 0 else f"{tokens} takes"
                raise unattainable(f"an end within {told(seq.e2e_slo_s)}, but even alone {answer} {told(ends_s)}, reserve included")
        if first_s > allowed_s:
            begun = f"begins after {told(delay_s)} and then" if delay_s else "alone"
            raise unattainable(
                f"a first token within {told(allowed_s)}, but this prompt {begun} takes {told(first_s - delay_s)}, reserve included")
        if more > 0 and seq.tpot_slo_s is not None and step_s > seq.tpot_slo_s:
            step = f"a step of {num} answers" if num > 1 else "it"
            raise unattainable(f"a token every {told(seq.tpot_slo_s)}, but even alone {step} takes {told(step_s)}, reserve included")

    def _latest_s(self, claim: Claim) -> float:
        """The latest time for which its first token may be forecast."""
        return claim.seq.arrival_s + (1 - self._reserve) * (claim.due_s - claim.seq.arrival_s)


def costliest(prompts: Sequence[Claim], new: int) -> int:
    """The place of the one of these to drop: the most expensive of those on which no work was spent; among equals the one at `new`."""
    may_go = [at for at, claim in enumerate(prompts) if claim.due_s < inf and claim.seq.first_scheduled_s is None]
    return max([new, *may_go], key=lambda at: prompts[at].work_s)


def without(place: int, found: Sequence[T]) -> list[T]:
    return [*found[:place], *found[place + 1 :]]


def refusal(why: str, retry_s: float) -> OverloadedError:
    message = f"too busy for the objectives of this request: {why}; try again in {told(retry_s)}"
    return OverloadedError(message, retry_s, "slo", "slo_overloaded")


def unattainable(what: str) -> RequestError:
    return RequestError(f"the objectives cannot be met even on an idle machine: they ask for {what}", "slo", code="slo_unattainable")


def gave_way_to(waited_s: float) -> str:
    return f"after {told(waited_s)} it makes way for cheaper requests, since not all can be in time"


def overtaken_by(waited_s: float) -> str:
    return f"after {told(waited_s)} its first token can no longer come in time, because others were more urgent"


def told(seconds: float) -> str:
    ms = max(seconds, 0.0) * 1000
    return f"{ms:.2g} ms" if ms < 10 else f"{ms:.0f} ms" if ms < 1000 else f"{seconds:.1f} s"
