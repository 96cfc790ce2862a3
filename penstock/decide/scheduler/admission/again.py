"""When a request that is refused should come again: about the first moment when it would be let in, if nobody else came.

Its deadline moves with its arrival, and with that its place in the queue. So the queue is served ahead (see `forecast`) until that moment:
what goes before a request that comes then has been served, and what stands behind it has to be in time all the same, or is more expensive
and goes. What has a later deadline counts only as far as it is begun by then. Moments are tried in strides, and the last one is halved.
"""
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from math import inf
from typing import Any

from penstock.decide.scheduler.forecast import Forecast, Load
from penstock.decide.scheduler.live import Live
from penstock.decide.scheduler.promise import Claim, num_answers
from penstock.decide.scheduler.queue import Key

TRIES, LONGER = 40, 1.2  # moments, and how much later each is than the one before it, at least
UNSURE = 0.05  # of the time to what is forecast: it may be so much later or earlier, but no more than a step
ROUNDED = 1 + 1e-9
SEEN = 0.75  # of a step: who comes while one is under way is examined when it has ended


@dataclass(frozen=True, slots=True)
class Refused:
    """`allowed_s`: from its arrival until its first token may be forecast. `delay_s`: until it is examined, at least."""

    claim: Claim
    allowed_s: float
    delay_s: float = 0.0


@dataclass(slots=True)
class Again:
    """`others`: all who are there but those refused, in order; `forecast`: from `load` on. `first_s`: their first tokens, of all or of the
    last of them, where those are known. Of several who are refused ask for the most expensive first: smaller ones cost little after it."""

    others: Sequence[Claim]
    forecast: Forecast
    load: Load
    live: Live
    first_s: list[float] = field(default_factory=list)
    _ahead: Forecast = field(init=False)  # when so many of the others are served:
    _num: int = 0
    _begun: Sequence[Claim] = ()  # the next of them, if their prompts are in progress when one who may pass them is seen
    _served: dict[tuple[Forecast, int], Forecast] = field(default_factory=dict)  # what comes of one that serves on until so many are served
    _borne: dict[tuple[Any, ...], list[tuple[int, int]]] = field(default_factory=dict)  # num_left and num_more of who may come, by when

    def after_s(self, refused: Refused) -> float:
        """Seconds from `load.now`, not before the step that begins then has ended: nobody is examined sooner."""
        step_s = self.forecast.next_step_s(self.others)
        early_s = after_s = step_s
        self._ahead, self._num = self.forecast, 0
        for _ in range(TRIES):
            before = self._ahead, self._num
            if (needs_s := self._needs_s(refused, after_s, step_s)) <= after_s:
                break
            early_s, after_s = needs_s, max(needs_s, LONGER * after_s)
        while after_s - early_s > max(step_s, UNSURE * early_s):
            self._ahead, self._num = before
            middle_s = (early_s + after_s) / 2
            if (needs_s := self._needs_s(refused, middle_s, step_s)) <= middle_s:
                after_s = middle_s
            else:
                early_s, before = min(needs_s, after_s), (self._ahead, self._num)
        return after_s

    def _needs_s(self, refused: Refused, after_s: float, step_s: float) -> float:
        """What it would have to wait, as it looks when one who comes after so many seconds is examined: no longer, and it is let in; else
        a step longer, at least."""
        now, at_s = self.load.now, self.load.now + after_s
        claim = later(refused.claim, at_s)
        self._serve(self.live.key(claim, at_s), at_s + refused.delay_s + SEEN * step_s + min(UNSURE * after_s, step_s))
        begins, behind = self._begins(at_s, refused.delay_s), self.others[self._num :]
        if not behind and begins.is_idle:
            return after_s
        first_s = begins.first_token_s(claim, behind)
        needs_s = first_s + min(UNSURE * (first_s - now), step_s) - refused.allowed_s - now
        if needs_s <= after_s * ROUNDED and self._bear(claim, begins):
            return after_s
        return max(needs_s, after_s + step_s)

    def _serve(self, key: Key, seen_s: float) -> None:
        """Those who go before one with this key who may be seen as late as then."""
        if (place := bisect_left(self.others, key, key=self.live.key_of)) > self._num:
            self._ahead, self._num = self._until_served(place), place
        self._begun = ()
        while self._num < len(self.others) and self._ahead.now < seen_s:
            end = min(self._num + self._ahead.together, len(self.others))
            ahead, together = self._until_served(end), self.others[self._num : end]
            if ahead.begun_s >= seen_s:
                return
            if ahead.now >= seen_s and self.live.begun(together[0].seq) > key:  # passed
                self._begun = [each for each in together if each.seq not in self.live.running]
                return
            self._ahead, self._num = ahead, end

    def _until_served(self, num: int) -> Forecast:
        served = self._served.get((self._ahead, num))
        if served is None:
            served = self._served[self._ahead, num] = self._ahead.copied()
            served.serve(self.others[self._num : num])
        return served

    def _begins(self, at_s: float, delay_s: float) -> Forecast:
        """The step in which the prompt of one who comes then is begun at the latest, if nothing holds it up."""
        ahead = self._ahead.copied()
        if self._begun:
            ahead.let_in(self._begun)
        rows = ahead.until(at_s, ahead.num_in_progress)
        ahead.until(at_s + delay_s + ahead.seconds(rows), rows)
        return ahead

    def _bear(self, claim: Claim, begins: Forecast) -> bool:
        """Whether those who are not served yet are in time behind it, or one of them goes who takes more."""
        behind = self.others[self._num + len(self._begun) :]
        seq = claim.seq
        borne = self._borne.setdefault((self._ahead, begins.now, num_answers(seq), seq.tpot_slo_s, seq.e2e_slo_s), [])
        if all(each.due_s == inf for each in behind) or any(
                left >= claim.num_left and more >= claim.num_more for left, more in borne):
            return True
        behind_it_s = islice(chain.from_iterable(begins.copied().served([claim, *behind])), 1, None)
        late = next((at for at, (each, first_s) in enumerate(zip(behind, behind_it_s, strict=True))
                     if first_s > each.due_s >= self._without_s(len(behind) - at)), None)
        if late is None:
            borne.append((claim.num_left, claim.num_more))
            return True
        return any(
            each.due_s < inf and each.work_s > claim.work_s and each.prompt_s >= claim.prompt_s for each in behind[: late + 1])

    def _without_s(self, num: int) -> float:
        """When the first of the last `num` of the others has its first token, if nobody comes."""
        if len(self.first_s) < num:
            self.first_s = self._ahead.copied().first_tokens_s(self.others[self._num :])
        return self.first_s[-num]


def later(claim: Claim, at_s: float) -> Claim:
    """As it is if it comes then."""
    more_s = at_s - claim.seq.arrival_s
    return Claim(
        replace(claim.seq, arrival_s=at_s), claim.num_left, claim.num_more, claim.due_s + more_s, claim.prompt_s, claim.work_s,
        claim.hopeless_s + more_s)
