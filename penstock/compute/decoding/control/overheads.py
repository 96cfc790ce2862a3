"""What a step takes beyond the measured time of its rows and contexts, learned while serving."""
from dataclasses import dataclass, field

from penstock.compute.decoding.control.state import StepInFlight

FIT_DECAY = 0.98  # weight of a step with drafts relative to the one after it
FIT_FADING = 0.98  # of the fit to steps with drafts, with each step without drafts that is observed
OUTLIER_FACTOR = 4  # a step that takes so many times what is expected is ignored: something else ran
MEDIAN_OF = 5  # latest steps without drafts: a median ignores the odd one that was disturbed
FALL_RATE, RISE_RATE = 0.3, 0.03  # of the means of proposal times: an action done rarely finds cold caches, done often it takes the least
PROBE_PERIOD = 12, 96  # steps with drafts between two probes without: at first, and at most
PROBE_STEPS = 2  # the first is slowed down by the drafts before it and does not count


@dataclass(slots=True)
class StepOverheads:
    """Seconds for each sequence of a step.

    `plain_s` is a median of the latest steps without drafts. What drafts add is a line through the latest steps with drafts, over the
    number of drafts for each sequence: `drafting_s` + `per_draft_s` * drafts. While drafting goes on, `takes_probe` inserts a few steps
    without drafts now and then, so that `plain_s` stays true.
    """

    plain_s: float | None = None  # None: not observed yet
    drafting_s: float = 0.0
    per_draft_s: float = 0.0
    propose_s: float = 0.0  # asking the proposer, which was asked about most of the sequences one step before
    trial_s: float = 0.0  # asking it in a trial, when it has to catch up with what the sequence has become
    probe_period: int = PROBE_PERIOD[0]
    _steps_since_plain: int = 0
    _probes_left: int = 0
    _recent_plain: list[float] = field(default_factory=list)
    _sums: list[float] = field(default_factory=lambda: [0.0] * 5)  # of 1, x, x * x, y, x * y; x: drafts, y: seconds, for each sequence

    def observe(self, step: StepInFlight, interval_s: float, model_s: float) -> None:
        """A decode step took `interval_s`, of which its rows and contexts explain `model_s`."""
        count = step.load.num_seqs
        overhead, drafts = (interval_s - step.drafting_s - model_s) / count, step.load.num_drafts / count
        if self.plain_s is not None and interval_s > OUTLIER_FACTOR * (
                model_s + count * (self.plain_s + self.drafting_s + self.per_draft_s * drafts)):
            return
        if not step.load.num_drafts:
            if step.after_drafts:
                return
            self._recent_plain = [*self._recent_plain[-MEDIAN_OF + 1 :], overhead]
            self.plain_s = sorted(self._recent_plain)[len(self._recent_plain) // 2]
            self._steps_since_plain = 0
            self.drafting_s, self.per_draft_s, *self._sums = [
                FIT_FADING * old for old in (self.drafting_s, self.per_draft_s, *self._sums)]
        elif self.plain_s is not None:
            self._steps_since_plain += 1
            self._fit(drafts, overhead, self.plain_s)

    def _fit(self, drafts: float, overhead: float, plain_s: float) -> None:
        """Weighted least squares. While the steps hardly differ in their number of drafts, all that these add counts as `drafting_s`."""
        ones, xs, squares, ys, products = self._sums = [
            FIT_DECAY * old + new
            for old, new in zip(self._sums, (1, drafts, drafts * drafts, overhead, drafts * overhead), strict=True)]
        spread = ones * squares - xs * xs
        slope = (ones * products - xs * ys) / spread if spread > 1e-2 * ones * squares else 0.0
        self.per_draft_s = max(0.0, slope)
        self.drafting_s = max(0.0, (ys - self.per_draft_s * xs) / ones - plain_s)

    def takes_probe(self) -> bool:
        """Whether the next step is to be made without drafts to observe `plain_s`. If so, that probe counts as taken."""
        if self._steps_since_plain >= self.probe_period:
            self._steps_since_plain, self.probe_period, self._probes_left = 0, min(2 * self.probe_period, PROBE_PERIOD[1]), PROBE_STEPS
        is_due = self._probes_left > 0
        self._probes_left -= is_due
        return is_due

    def observe_proposals(self, seconds: float, count: int) -> None:
        """Asking the proposer about `count` sequences took `seconds`."""
        self.propose_s = low_mean(self.propose_s or seconds / count, seconds / count)

    def observe_trials(self, seconds: float, count: int) -> None:
        """The same of trials, which bound what asking takes outside of them from above."""
        newest = seconds / count
        self.trial_s = low_mean(self.trial_s or newest, newest)
        if not self.propose_s or newest < self.propose_s:
            self.propose_s = low_mean(self.propose_s or newest, newest)


def low_mean(mean: float, newest: float) -> float:
    """A running mean that leans to the lowest values."""
    return mean + (FALL_RATE if newest < mean else RISE_RATE) * (newest - mean)
