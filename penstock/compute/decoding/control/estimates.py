"""What the controller learns about drafts: how often they are accepted, how far its expectations came true."""
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp

ACCEPTANCE_DECAY = 0.9  # weight of a proposal relative to the one after it
PRIOR_ACCEPTANCE = 0.7  # of a draft, before anything is known
POOLED_WEIGHT = 2.0  # proposals that the acceptance over all sequences counts for in the estimate for one of them
MIN_ACCEPTANCE = 0.02  # a draft that is accepted less often is not considered, nor are those after it
PROMISE_STEPS, PROMISED_STEPS = 1024, 32  # over which promises are averaged; for which one stands at most
MAX_WEIGHT = 1e100  # of a proposal; beyond it all weights are scaled down
CALIBRATION_DECAY = 0.98  # of the sums of `Calibration`, with each step that verifies drafts
CALIBRATION_FADING = 0.9975  # of what they say beyond the prior, with each step without drafts: half is left after 280
CALIBRATION_PRIOR = 4.0  # drafts that are taken to have come as expected, before anything is known
MAX_CALIBRATION = 1.3  # drafts are never taken to come true more often than this times what was expected


@dataclass(slots=True)
class AcceptanceStats:
    """Acceptance by position of a draft in its proposal, as exponentially decaying counts.

    Counts are kept by proposal, not by position, so that recording one costs the same for any number of drafts. Instead of scaling all
    counts down with each proposal, each proposal weighs more than the one before it; counts are divided by the latest weight when read.
    """

    _by_limit: list[float]  # [max_drafts + 1] proposals that were allowed so many drafts
    _by_num_drafts: list[float]  # [max_drafts + 1] proposals of so many drafts
    _accepted: list[float]  # [max_drafts] by position
    _weight: float = 1.0  # of the latest proposal

    @classmethod
    def empty(cls, max_drafts: int, prior_weight: float = 0.0) -> "AcceptanceStats":
        """As if `prior_weight` full-length proposals had been made, with PRIOR_ACCEPTANCE at each position."""
        return cls([0.0] * max_drafts + [prior_weight], [0.0] * max_drafts + [prior_weight], [prior_weight * PRIOR_ACCEPTANCE] * max_drafts)

    def counts(self, position: int) -> tuple[float, float, float]:
        """How often a draft at this position was allowed, was proposed, was accepted."""
        weight = self._weight
        return (sum(self._by_limit[position + 1 :]) / weight, sum(self._by_num_drafts[position + 1 :]) / weight,
                self._accepted[position] / weight)

    def estimate(self, first_accepted: float, first_proposed: float) -> list[tuple[float, float]]:
        """For each position the probability that a draft is proposed and accepted, and that it is proposed, up to where the former falls
        below MIN_ACCEPTANCE. Neither ever rises from one position to the next.

        Each is a mean of what was observed and a prior that counts for POOLED_WEIGHT proposals. The prior of the first position is given;
        that of a later one supposes that getting there from the one before it is as likely as it was to get to that one.
        """
        weight, (prior_accepted, prior_proposed) = self._weight, (first_accepted, first_proposed)
        num_allowed, num_proposed = sum(self._by_limit), sum(self._by_num_drafts)  # weighted
        before_accepted = before_proposed = 1.0  # probabilities at the position before
        found = []
        for num_limited, num_ended, num_accepted in zip(self._by_limit, self._by_num_drafts, self._accepted, strict=False):
            num_allowed, num_proposed = num_allowed - num_limited, num_proposed - num_ended
            total = num_allowed / weight + POOLED_WEIGHT
            accepted = min((num_accepted / weight + POOLED_WEIGHT * prior_accepted) / total, before_accepted)
            proposed = min((num_proposed / weight + POOLED_WEIGHT * prior_proposed) / total, before_proposed)
            if accepted < MIN_ACCEPTANCE:
                break
            found.append((accepted, proposed))
            prior_accepted, prior_proposed = accepted * accepted / before_accepted, proposed * proposed / before_proposed
            before_accepted, before_proposed = accepted, proposed
        return found

    def record_proposal(self, limit: int, num_drafts: int) -> None:
        """`limit` drafts were allowed and `num_drafts` proposed; both may exceed `max_drafts`."""
        if self._weight > MAX_WEIGHT:
            self._by_limit, self._by_num_drafts, self._accepted = (
                [count / MAX_WEIGHT for count in each] for each in (self._by_limit, self._by_num_drafts, self._accepted))
            self._weight /= MAX_WEIGHT
        self._weight /= ACCEPTANCE_DECAY
        max_drafts = len(self._accepted)
        self._by_limit[min(limit, max_drafts)] += self._weight
        self._by_num_drafts[min(num_drafts, max_drafts)] += self._weight

    def record_accepted(self, path: Sequence[int]) -> None:
        """These drafts of the latest proposal were accepted (positions)."""
        for position in path:
            self._accepted[position] += self._weight


@dataclass(frozen=True, slots=True)
class Expected:
    """What a decision expects of a step: drafts that are proposed, and drafts that are accepted."""

    num_drafts: float
    num_accepted: float

    def scaled(self, factor: float) -> "Expected":
        return Expected(factor * self.num_drafts, factor * self.num_accepted)


@dataclass(slots=True)
class Calibration:
    """How far expectations come true. The drafts with the highest estimates are the ones that are made, so their estimates are too high on
    average, the more so the more sequences there are to choose from."""

    _expected: list[float] = field(default_factory=lambda: [CALIBRATION_PRIOR, CALIBRATION_PRIOR])  # drafts, accepted
    _observed: list[float] = field(default_factory=lambda: [CALIBRATION_PRIOR, CALIBRATION_PRIOR])

    def observe(self, expected: Expected, num_drafts: int, num_accepted: int) -> None:
        self._expected = [
            CALIBRATION_DECAY * old + new for old, new in zip(self._expected, (expected.num_drafts, expected.num_accepted), strict=True)]
        self._observed = [CALIBRATION_DECAY * old + new for old, new in zip(self._observed, (num_drafts, num_accepted), strict=True)]

    def fade(self, num_steps: float) -> None:
        """After this many steps without drafts."""
        left = CALIBRATION_FADING**num_steps
        self._expected, self._observed = (
            [CALIBRATION_PRIOR + left * (old - CALIBRATION_PRIOR) for old in sums] for sums in (self._expected, self._observed))

    @property
    def drafts_ratio(self) -> float:
        """Drafts proposed for each one expected."""
        return min(MAX_CALIBRATION, self._observed[0] / self._expected[0])

    @property
    def accepted_ratio(self) -> float:
        """Drafts accepted for each one expected."""
        return min(MAX_CALIBRATION, self._observed[1] / self._expected[1])


@dataclass(slots=True)
class Promise:
    """What decisions promise to add to the speed, averaged over steps. One stands until the next decision, for PROMISED_STEPS at most:
    decisions are made when drafts have just come true, so that a single one says little."""

    mean: float = 0.0
    _latest: float = 0.0
    _step: int = 0  # at which it was made

    def follow(self, step: int, promise: float) -> None:
        """`promise`: of a decision at this step."""
        passed = step - self._step
        held = min(passed, PROMISED_STEPS)
        self.mean = self._latest + (self.mean - self._latest) * exp(-held / PROMISE_STEPS)
        self.mean *= exp((held - passed) / PROMISE_STEPS)
        self._latest, self._step = promise, step
