"""What a step takes beyond the measured time of its rows and contexts, learned while serving."""
from dataclasses import dataclass, field

from penstock.compute.decoding.control.state import StepInFlight
from penstock.core.work import STEP_UNITS

FIT_DECAY = 0.98  # weight of a step with drafts relative to the one after it
FADING = 0.98  # of what is known of the costs of drafts, with each step without drafts that is observed
PRIOR_UNITS = 2.0, 0.5  # the host's work for a sequence with drafts, and for each draft, before anything is known
TOKENS_TO_ASK = 16  # tokens that the proposer sees for the first time take as long as asking it once
PRIOR_STEPS = 2  # observed steps with no draft, and as many with PRIOR_DRAFTS for each sequence, that this counts for
PRIOR_DRAFTS = 8
OUTLIER_FACTOR, MAX_OUTLIERS = 2, 2  # a step that takes so many times what is expected is ignored: something else ran; so many in a row
MEDIAN_OF = 5  # latest steps without drafts: a median ignores the odd one that was disturbed
FALL_RATE, RISE_RATE = 0.3, 0.03  # of the means of proposal times: an action done rarely finds cold caches, done often it takes the least
PROBE_PERIOD = 12, 96  # steps with drafts between two probes without: at first, and at most
PROBE_STEPS = 2  # the first is slowed down by the drafts before it and does not count


@dataclass(slots=True)
class StepOverheads:
    """What the host takes for a step, in seconds.

    Without drafts, `unit_s` for each sequence and STEP_UNITS times for the step: a median of the latest such steps, below zero where rows
    took longer when they were measured, beside other work of the machine. What drafts add to each
    sequence is a line through the latest steps with drafts, over the number of drafts for each: `drafting_s` + `per_draft_s` * drafts.
    While drafting goes on, `takes_probe` inserts a few steps without drafts now and then, so that `unit_s` stays true.
    """

    unit_s: float | None = None  # None: not observed yet
    drafting_s: float = 0.0
    per_draft_s: float = 0.0
    propose_s: float = 0.0  # asking the proposer, which was asked about most of the sequences one step before
    trial_s: float = 0.0  # asking it in a trial, when it has to catch up with what the sequence has become
    probe_period: int = PROBE_PERIOD[0]
    _least_propose_s: float = 0.0  # asking it in a trial, if each token that it had not seen took as long as the asking itself
    _has_proposed: bool = False  # `propose_s` was measured, not guessed from trials
    _steps_since_plain: int = 0
    _probes_left: int = 0
    _num_outliers: int = 0  # in a row
    _recent_plain: list[float] = field(default_factory=list)
    _sums: list[float] = field(default_factory=lambda: [0.0] * 5)  # of 1, x, x * x, y, x * y; x: drafts, y: seconds, for each sequence

    def plain_s(self, num_seqs: int) -> float:
        """Of a step without drafts."""
        return (self.unit_s or 0.0) * (num_seqs + STEP_UNITS)

    def is_known(self) -> bool:
        """Whether so many steps without drafts were observed that one that was disturbed does not count."""
        return len(self._recent_plain) > MEDIAN_OF // 2

    def observe(self, step: StepInFlight, interval_s: float, model_s: float) -> None:
        """A decode step took `interval_s`, of which its rows and contexts explain `model_s`. The step after it has the same sequences: host
        work for others that come or go belongs to neither."""
        load, known_s = step.load, self.plain_s(step.load.num_seqs)
        overhead, drafts = interval_s - step.drafting_s - model_s, load.num_drafts / load.num_seqs
        if self.unit_s is not None:
            drafts_s = load.num_seqs * self.drafting_s + load.num_drafts * self.per_draft_s if load.num_drafts else 0.0
            expected_s = model_s + known_s + drafts_s
            is_outlier = interval_s - step.drafting_s > OUTLIER_FACTOR * expected_s and self._num_outliers < MAX_OUTLIERS
            self._num_outliers = self._num_outliers + 1 if is_outlier else 0
            if is_outlier:
                return
        if load.num_drafts:
            self._steps_since_plain += 1
            if self.unit_s is not None and step.after_drafts:  # the first finds cold caches
                newest = powers(drafts, (overhead - known_s) / load.num_seqs)
                self._fit([FIT_DECAY * old + new for old, new in zip(self._sums, newest, strict=True)])
        elif not step.after_drafts:
            self._recent_plain = [*self._recent_plain[-MEDIAN_OF + 1 :], overhead / (load.num_seqs + STEP_UNITS)]
            self.unit_s = sorted(self._recent_plain)[len(self._recent_plain) // 2]
            self._steps_since_plain = 0
            self._fit([FADING * old for old in self._sums])
            self.trial_s = max(FADING * self.trial_s, self.propose_s)

    def _fit(self, sums: list[float]) -> None:
        """Weighted least squares."""
        self._sums = sums
        at_none, each = (units * max(0.0, self.unit_s or 0.0) for units in PRIOR_UNITS)
        ones, xs, squares, ys, products = [
            observed + PRIOR_STEPS * (low + high) for observed, low, high in
            zip(sums, powers(0.0, at_none), powers(PRIOR_DRAFTS, at_none + PRIOR_DRAFTS * each), strict=True)]
        self.per_draft_s = max(0.0, (ones * products - xs * ys) / (ones * squares - xs * xs))
        self.drafting_s = max(0.0, (ys - self.per_draft_s * xs) / ones)

    def takes_probe(self) -> bool:
        """Whether the next step is to be made without drafts to observe `plain_s`. If so, that probe counts as taken."""
        if self._steps_since_plain >= self.probe_period:
            self._steps_since_plain, self.probe_period, self._probes_left = 0, min(2 * self.probe_period, PROBE_PERIOD[1]), PROBE_STEPS
        is_due = self._probes_left > 0
        self._probes_left -= is_due
        return is_due

    def observe_proposals(self, seconds: float, count: int) -> None:
        """Asking the proposer about `count` sequences took `seconds`."""
        newest = seconds / count
        self.propose_s, self._has_proposed = low_mean(self.propose_s if self._has_proposed else newest, newest), True

    def observe_trials(self, seconds: float, count: int, num_tokens: int) -> None:
        """The same of trials, in which it saw `num_tokens` tokens of these sequences for the first time. They bound from both sides what
        asking takes outside of them."""
        newest, least = seconds / count, seconds / (count + num_tokens / TOKENS_TO_ASK)
        self.trial_s = low_mean(self.trial_s or newest, newest)
        self._least_propose_s = low_mean(self._least_propose_s or least, least)
        if not self._has_proposed:
            self.propose_s = self._least_propose_s
        elif newest < self.propose_s:
            self.propose_s = low_mean(self.propose_s, newest)


def powers(x: float, y: float) -> tuple[float, float, float, float, float]:
    return 1.0, x, x * x, y, x * y


def low_mean(mean: float, newest: float) -> float:
    """A running mean that leans to the lowest values."""
    return mean + (FALL_RATE if newest < mean else RISE_RATE) * (newest - mean)
