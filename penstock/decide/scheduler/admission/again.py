"""When a request that is refused should come again: the first of the moments tried when it would be let in, if nobody else came.

Its deadline moves with its arrival, and with that its place in the queue. So the queue is served ahead (see `forecast`) until that moment:
what goes before a request that comes then has been served, and what stands behind it has to be in time all the same, or is more expensive
and goes. What has a later deadline counts only as far as it is begun by then.
"""
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf

from penstock.decide.scheduler.forecast import Forecast, Load
from penstock.decide.scheduler.live import Live
from penstock.decide.scheduler.promise import Claim
from penstock.decide.scheduler.queue import Key

TRIES, LONGER = 40, 1.2  # moments, and how much later each is than the one before it, at least
UNSURE = 0.05  # of the time to what is forecast: it may be so much later or earlier, but no more than a step
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
    last of them, where those are known."""

    others: Sequence[Claim]
    forecast: Forecast
    load: Load
    live: Live
    first_s: list[float] = field(default_factory=list)
    _num: int = 0  # of the others who are served

    def after_s(self, refused: Refused) -> float:
        """Seconds from `load.now`, not before the step that begins then has ended: nobody is examined sooner."""
        now, step_s = self.load.now, self.forecast.next_step_s(self.load.prompts)
        after_s = step_s
        for _ in range(TRIES):
            at_s = now + after_s
            self._serve(refused.claim, at_s, at_s + refused.delay_s + SEEN * step_s + min(UNSURE * after_s, step_s))
            begins = self._begins(at_s, refused.delay_s)
            behind = self.others[self._num :]
            if not behind and begins.is_idle:
                break
            first_s = begins.first_token_s(refused.claim, behind)
            needs_s = first_s + min(UNSURE * (first_s - now), step_s) - refused.allowed_s - now
            if needs_s <= after_s and self._bear(refused.claim, first_s - begins.now):
                break
            after_s = max(needs_s, LONGER * after_s, after_s + step_s)
        return after_s

    def _serve(self, claim: Claim, at_s: float, seen_s: float) -> None:
        """Those who go before one who comes at `at_s` and may be seen as late as at `seen_s`."""
        key = self.live.key(later(claim, at_s), at_s)
        if (place := bisect_left(self.others, key, key=self.live.key_of)) > self._num:
            self.forecast = self.forecast.copied()
            self.forecast.serve(self.others[self._num : place])
            self._num = place
        while self._num < len(self.others) and self.forecast.now < seen_s:
            ahead, together = self.forecast.copied(), self.others[self._num : self._num + self.forecast.together]
            ahead.serve(together)
            if (ahead.now if self._is_passed(together[0], key) else ahead.begun_s) >= seen_s:
                return
            self.forecast = ahead
            self._num += len(together)

    def _is_passed(self, other: Claim, key: Key) -> bool:
        return self.live.begun(other.seq) > key

    def _begins(self, at_s: float, delay_s: float) -> Forecast:
        """The step in which the prompt of one who comes then is begun at the latest, if nothing holds it up."""
        ahead, rows = self.forecast.copied(), sum([each.num_left for each in self.others[self._num :]])
        ahead.until(at_s, rows)
        ahead.until(at_s + delay_s + ahead.seconds(rows), rows)
        return ahead

    def _bear(self, claim: Claim, seconds: float) -> bool:
        """Whether those who are not served yet are in time so much later, or one of them goes who takes more."""
        behind = self.others[self._num :]
        if all(each.due_s == inf for each in behind):
            return True
        if len(self.first_s) < len(behind):
            self.first_s = self.forecast.copied().first_tokens_s(behind)
        first_s = self.first_s[-len(behind) :]
        late = next((at for at, each in enumerate(behind) if first_s[at] <= each.due_s < first_s[at] + seconds), None)
        return late is None or any(
            each.due_s < inf and each.work_s > claim.work_s and each.prompt_s >= claim.prompt_s for each in behind[: late + 1])


def later(claim: Claim, at_s: float) -> Claim:
    """As it is if it comes then."""
    more_s = at_s - claim.seq.arrival_s
    return Claim(
        replace(claim.seq, arrival_s=at_s), claim.num_left, claim.num_more, claim.due_s + more_s, claim.prompt_s, claim.work_s,
        claim.hopeless_s + more_s)
