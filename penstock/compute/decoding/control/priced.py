"""Drafts only what is expected to pay.

**Decisions** (`_decide`, `_choose`). From time to time the controller chooses the set of drafts with the highest expected tokens per
second, adding drafts of all sequences in order of probability (after TurboSpec, Liu et al. 2024, arXiv:2406.14066). If the best set
promises less than MIN_SPEEDUP over plain decoding, the decision is against drafts. A decision holds for some steps, and is adapted when a
few sequences join or leave.

**Estimates.** The probability that a draft is accepted is kept by sequence and position, with that over all sequences as a prior
(`AcceptanceStats`). A step's time is the sum of a curve over its number of rows and of costs per context token, both measured at startup,
and of overheads learned while serving (`StepOverheads`). Since the drafts with the highest estimates are chosen, the estimates of chosen
drafts are too high on average: the ratio of observed to expected drafts scales them down (`Calibration`).

**Dry trials** (`_start_trials`, `record_trial`). While the decision is against drafts, sequences take turns in dry trials: the proposer is
asked, and its drafts are compared with the tokens that the next steps yield. Verification would have accepted exactly the drafts that
agree, so none is needed. After a failure the sequence waits twice as long for its next trial; a success brings the next decision forward.

**Trial budget** (`begin_step`, `_decide_shares`). Trials, recording them, and decisions against drafts take time and yield no tokens. They
are paid from a budget in seconds, to which each step adds a share of its own time: MAX_TRIAL_SHARE where perfect drafts would add
FULL_SHARE_GAIN to the speed, less where they would add less. That gain is computed in two ways, and the higher share counts: from the time
of rows alone, and with contexts and overheads, which promises more. The second is weighted with a confidence that falls while trials lead
to nothing. Showing answers that have ended to a proposer (`invests`) has a budget of its own, MAX_SHOW_SHARE at most: it costs little, and
without it jobs that repeat are not known when their turn comes, so that no trial could succeed.

**What drafts may lose** (`_observe_gain`). Whatever was expected, each step with drafts is compared with the plain steps that would have
yielded its tokens. What it took longer is spent from a budget of MAX_LOSS_SHARE of the time, what it saved is added. When the budget is
spent there are no drafts until it holds half a step's time again: so they lose no more than that share, whichever estimate is wrong.

**Lockstep**. Sequences that begin and end together are parted by drafts only where those promise more than parting costs (`Lockstep`).

**Skipped steps** (`num_skippable`). Observing a step costs as much as a trial. While nothing is drafted and no trial is due, only the first
SAMPLED_STEPS of SAMPLE_PERIOD steps are observed, or of more where steps are short, to follow what plain steps take.
"""
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.compute.decoding.control.budget import Budgets
from penstock.compute.decoding.control.contract import DraftingCost, DraftLimits, StepLoad, Use
from penstock.compute.decoding.control.estimates import AcceptanceStats, Calibration, Expected
from penstock.compute.decoding.control.lockstep import Lockstep
from penstock.compute.decoding.control.overheads import PROBE_PERIOD, StepOverheads
from penstock.compute.decoding.control.state import PLAIN_DECISION_STEPS, TRIAL_BACKOFF, Decision, SeqState, StepInFlight

MIN_SPEEDUP = 1.08  # that drafts must promise to be made, since estimates are uncertain
DRAFT_DECISION_STEPS, SEQS_PER_STEP = 8, 4  # steps that a decision for drafts holds, and sequences for each step more
MAX_TURNOVER = 0.25  # share of a decision's sequences that may join or leave before a new one is made
LOSS_PAUSE, STAKE = (32, 1024), 0.5  # steps without drafts once it is spent: at least, at most; time of a step that it holds then
MAX_TRIAL_SHARE, FULL_SHARE_GAIN = 0.015, 1.6  # of the time; reached where perfect drafts make decoding 1 + 1.6 times as fast
MAX_SHOW_SHARE = 0.002  # of the time, for showing answers; reached where perfect drafts make decoding twice as fast
CONFIDENCE_DECAY, MIN_CONFIDENCE = 0.5, 0.15  # of `_trial_confidence`: factor with each decision against drafts after a failed trial; floor
CONVINCING = 0.75  # share of a trial's drafts that are right, of as many as it was allowed, from which on it restores confidence
REFUND = 2.0  # trials whose time such a one brings back: its own, and about that of the decision that follows
REVISION_STEPS_PER_SEQ = 4  # steps from a decision against drafts to one due to a successful trial: deciding may take as long as a step
BATCHING_STEPS = 8  # steps over which trials that fall due, and sequences that join, are collected and handled together
SAMPLED_STEPS, SAMPLE_PERIOD, SAMPLE_S = 2, (64, 256), 0.05  # of a period's steps; it lasts so long, or as a decision against drafts
MAX_PAUSE_S = 1e-3  # after a longer pause the time from the beginning of one step to that of the next is not the former's time
LEAST_OF_ROWS = 0.1  # of the measured time of its rows, that a step is taken to need
NEARLY = 1 - 1e-9  # equal but for rounding


@dataclass(slots=True)
class Priced:
    """A `Controller`. `step_s` [rows + 1]: seconds of a step by its number of rows; `max_drafts` of a sequence; `context_s`: seconds more
    for each context token of a sequence; `pair_s`: seconds more for each context token that a row attends to."""

    step_s: Sequence[float]
    max_drafts: int
    context_s: float = 0.0
    pair_s: float = 0.0
    _curve: list[float] = field(init=False)  # `step_s`
    _step: int = 0  # number of the current step
    _in_flight: StepInFlight | None = None  # None: the step before was skipped
    _idle_until: int = 0  # the step before which nothing is due

    _pooled: AcceptanceStats = field(init=False)  # over all sequences
    _seqs: dict[int, SeqState] = field(default_factory=dict)
    _overheads: StepOverheads = field(default_factory=StepOverheads)
    _calibration: Calibration = field(default_factory=Calibration)

    _decision: Decision = field(default_factory=Decision)
    _next_expected: Expected | None = None  # of the drafts of the next step

    _lockstep: Lockstep = field(default_factory=Lockstep)
    _budgets: Budgets = field(default_factory=Budgets)
    _pauses_until: int = 0  # the step before which nothing is drafted, since the budget for losses was spent
    _budget_step: int = 0  # the latest step that has added to the budgets
    _share_decided_at: int | None = None  # `made_at` of the decision for which the shares of trials and of showing were computed
    _has_tried: bool = False
    _trial_confidence: float = 1.0  # weight, up to 1, of the trial share that takes contexts and overheads into account
    _trial_failed: bool = False  # since the last decision against drafts
    _is_trial_end: bool = False  # a trial was completed in this step
    _is_saving: bool = False  # the budget will not pay for a trial before `_idle_until`
    _trials_end: int = 0  # the step at which the latest trials are complete

    def __post_init__(self) -> None:
        self._pooled = AcceptanceStats.empty(self.max_drafts, prior_weight=1.0)
        self._curve = list(map(float, self.step_s))

    def num_skippable(self) -> int:
        following, period = self._step + 1, self._sample_period()
        has_drafts = self._in_flight is not None and self._in_flight.load.num_drafts > 0  # what it costs is only known in the step after it
        if has_drafts or not self._overheads.is_known() or following >= self._idle_until or following % period < SAMPLED_STEPS:
            return 0
        self._in_flight = None
        return min(self._idle_until, following - following % period + period) - following

    def skipped(self, num_steps: int) -> None:
        self._step += num_steps

    def begin_step(self, now: float, load: StepLoad) -> None:
        """Evaluates the step before, whose time is only known now, and adds to the trial budget."""
        self._step += 1
        last, num_steps = self._in_flight, min(self._step - self._budget_step, PLAIN_DECISION_STEPS[1])
        if last is not None and now - last.end_s < MAX_PAUSE_S:
            interval = now - last.begin_s
            if last.load.is_decode:
                if self._decision.limits is None and self._share_decided_at != self._decision.made_at:
                    self._decide_shares(last.load)
                if last.expected is not None:
                    self._calibration.observe(last.expected, last.load.num_drafts, last.num_accepted)
                if load.is_decode and load.num_seqs == last.load.num_seqs:  # else the host has worked for those that came or went
                    self._overheads.observe(last, interval, self._model_s(last.load, last.load.num_rows))
                    self._observe_gain(last, interval)
            plain_s = self._plain_s(last.load)
            self._budgets.earn_from(plain_s, self._overheads.trial_s)
            self._lockstep.earn_from(plain_s, last.load.num_seqs)
        if last is None or last.expected is None and not last.load.num_drafts:
            self._calibration.fade(num_steps)
        self._budgets.add(num_steps)
        self._lockstep.pass_steps(num_steps, is_together=load.in_lockstep and self._decision.limits is None)
        self._budget_step = self._step
        after_drafts = last is not None and last.load.num_drafts > 0
        self._in_flight, self._next_expected = StepInFlight(now, load, self._next_expected, after_drafts), None

    def record_verified(self, seq_id: int, path: Sequence[int]) -> None:
        seq = self._seq(seq_id)
        seq.stats.record_accepted(path)
        if seq.last_proposal[1]:  # pooled only now, so that the acceptance weighs as much as the proposal, whatever others proposed since
            self._pooled.record_proposal(*seq.last_proposal)
            self._pooled.record_accepted(path)
        if self._in_flight is not None:
            self._in_flight.num_accepted += len(path)

    def record_trial(self, seq_id: int, limit: int, num_drafts: int, path: Sequence[int]) -> None:
        seq, self._trial_failed = self._seq(seq_id), self._trial_failed or not path
        if limit and len(path) >= CONVINCING * limit:
            self._trial_confidence = min(1.0, 2 * self._trial_confidence)
            self._budgets.trials.spend(-REFUND * self._overheads.trial_s)
        self._is_trial_end = True
        for stats in (self._pooled, seq.stats):
            stats.record_proposal(limit, num_drafts)
            stats.record_accepted(path)
        if path:
            seq.backoff, seq.trial_due = TRIAL_BACKOFF[0], self._step + TRIAL_BACKOFF[0]
            steps = REVISION_STEPS_PER_SEQ * len(self._decision.seq_ids)
            revision = max(self._step, self._decision.made_at + steps, self._pauses_until)
            self._decision.valid_until, self._idle_until = min(self._decision.valid_until, revision), min(self._idle_until, revision)
        elif num_drafts:
            seq.trial_due, seq.backoff = self._step + seq.backoff, min(2 * seq.backoff, TRIAL_BACKOFF[1])
        else:
            seq.trial_due = self._step + BATCHING_STEPS

    def limits(self, seq_ids: Sequence[int], num_other_rows: int) -> DraftLimits | None:
        """Decides anew if the decision has run out (one against drafts only once the budget is positive), or if sequences have changed and
        it cannot be adapted. A decision against drafts leaves time for trials."""
        last = self._decision
        is_same = seq_ids == last.seq_ids
        if self._step < self._idle_until and is_same:
            return None
        self._idle_until = self._step
        is_free = last.limits is not None or last.only_lockstep and not self._is_in_lockstep()
        is_due = self._step >= last.valid_until and (is_free or self._budgets.trials.left_s > 0)
        if is_due or not is_same and not self._adapt(last, list(seq_ids)):
            self._decision = self._decide(list(seq_ids), num_other_rows)
        limits = self._decision.limits
        if limits is None:
            self._next_expected = None
            return self._start_trials(seq_ids)
        if self._overheads.takes_probe():
            return None
        self._next_expected = self._decision.expected
        return DraftLimits(limits)

    def record_proposal(self, seq_id: int, limit: int, num_drafts: int) -> None:
        seq = self._seq(seq_id)
        seq.stats.record_proposal(limit, num_drafts)
        seq.last_proposal = limit, num_drafts
        if not num_drafts:  # nothing will be verified, see `record_verified`
            self._pooled.record_proposal(limit, 0)

    def end_step(self, now: float, drafting: DraftingCost) -> None:
        if self._in_flight is not None:
            self._in_flight.end_s, self._in_flight.drafting_s = now, drafting.seconds
        overheads, asking_s, has_decided = self._overheads, drafting.seconds - drafting.deciding_s, self._decision.made_at == self._step
        if self._decision.limits is not None:
            if drafting.num_asked and self._in_flight is not None and self._in_flight.load.num_drafts:  # so it was asked a step before too
                overheads.observe_proposals(asking_s, drafting.num_asked)
        elif drafting.num_asked and not self._has_tried:  # the first of all trials finds cold caches and memory that is yet to be made
            self._has_tried = True
        elif drafting.num_asked or has_decided or self._is_trial_end:
            self._budgets.trials.spend(drafting.seconds)
            if drafting.num_asked:
                overheads.observe_trials(asking_s, drafting.num_asked, drafting.num_new_tokens)
        self._is_trial_end = False

    def invests(self) -> bool:
        return self._decision.limits is not None or self._budgets.showing.left_s > 0

    def invested(self, seconds: float) -> None:
        if self._decision.limits is None:
            self._budgets.showing.spend(seconds)

    def forget(self, seq_id: int) -> None:
        self._seqs.pop(seq_id, None)
        if not self._is_saving:
            self._idle_until = min(self._idle_until, self._step + BATCHING_STEPS)

    def _seq(self, seq_id: int) -> SeqState:
        known = self._seqs.get(seq_id)
        if known is None:
            known = self._seqs[seq_id] = SeqState(AcceptanceStats.empty(self.max_drafts), self._step)
        return known

    def _rows_s(self, num_rows: int) -> float:
        return self._curve[min(num_rows, len(self._curve) - 1)]

    def _model_s(self, load: StepLoad, num_rows: int) -> float:
        """Seconds of a step of this load's sequences with so many rows, without overheads."""
        return self._rows_s(num_rows) + load.num_context_tokens * (self.context_s + self.pair_s * num_rows / load.num_seqs)

    def _plain_s(self, load: StepLoad) -> float:
        """Seconds of a decode step of this load's sequences without drafts."""
        return self._model_s(load, load.num_seqs) + self._overhead_s(load.num_seqs, self._rows_s(load.num_seqs))

    def _overhead_s(self, num_seqs: int, rows_s: float) -> float:
        """Of a step without drafts whose rows take `rows_s`: it takes some time, however much too slow its rows were measured."""
        return max(self._overheads.plain_s(num_seqs), (LEAST_OF_ROWS - 1) * rows_s)

    def _observe_gain(self, step: StepInFlight, interval: float) -> None:
        """Compares a decode step with drafts with as many plain ones as would yield its tokens. The decision ends when drafts have lost
        what they may."""
        if step.load.num_drafts and self._overheads.unit_s is not None:
            lost_s = interval - (1 + step.num_accepted / step.load.num_seqs) * self._plain_s(step.load)
            self._budgets.losses.spend(lost_s)
            self._lockstep.spend(lost_s)
            if self._budgets.losses.left_s < 0:
                self._decision.valid_until = self._step

    def _decide(self, seq_ids: list[int], num_other_rows: int) -> Decision:
        if self._budgets.losses.left_s < 0:
            steps = self._budgets.losses.steps_to(STAKE * self._budgets.step_s)
            self._pauses_until = self._step + min(max(steps, LOSS_PAUSE[0]), LOSS_PAUSE[1])
            return Decision(seq_ids, made_at=self._step, valid_until=self._pauses_until)
        best, last = self._choose(seq_ids, num_other_rows), self._decision
        self._lockstep.promise.follow(self._step, 0.0 if best is None else best[3])
        in_lockstep = self._in_flight is not None and self._in_flight.load.in_lockstep
        if best is not None and (last.limits is not None or not in_lockstep or self._lockstep.may_part()):
            self._trial_confidence = min(1.0, 2 * self._trial_confidence)
            if last.limits is None:
                self._overheads.probe_period = PROBE_PERIOD[0]
                if in_lockstep:
                    self._lockstep.part()
            limits, expected, min_accepted, _ = best
            valid_until = self._step + DRAFT_DECISION_STEPS + len(seq_ids) // SEQS_PER_STEP
            return Decision(seq_ids, limits, expected, self._step, valid_until, min_accepted=min_accepted)
        is_repeated = last.limits is None and best is None
        num_steps = min(2 * last.num_steps, PLAIN_DECISION_STEPS[1]) if is_repeated else PLAIN_DECISION_STEPS[0]
        if self._trial_failed and best is None:
            self._trial_confidence, self._trial_failed = max(CONFIDENCE_DECAY * self._trial_confidence, MIN_CONFIDENCE), False
        return Decision(seq_ids, None, None, self._step, self._step + num_steps, num_steps, only_lockstep=best is not None)

    def _is_in_lockstep(self) -> bool:
        return self._in_flight is not None and self._in_flight.load.in_lockstep

    def _adapt(self, decision: Decision, seq_ids: list[int]) -> bool:
        """Adapts a decision to sequences that have joined or left; False: a new one is needed. Deciding may take as long as a step, so that
        a few sequences do not cause it. Those that have joined get the drafts that are as likely as those of the others."""
        if decision.limits is not None and decision.expected is not None:
            limits = dict(zip(decision.seq_ids, decision.limits, strict=True))
            joined = [seq_id for seq_id in seq_ids if seq_id not in limits]
            decision.num_changed += 2 * len(joined) + len(limits) - len(seq_ids)
            if decision.num_changed > MAX_TURNOVER * len(seq_ids):
                return False
            prior = self._pooled_estimate()
            for seq_id in joined:
                estimates = self._seq(seq_id).stats.estimate(*prior)
                limits[seq_id] = sum([accepted >= NEARLY * decision.min_accepted for accepted, _ in estimates])
            adapted = [limits[seq_id] for seq_id in seq_ids]
            if not any(adapted):
                return False
            decision.expected = decision.expected.scaled(sum(adapted) / sum(decision.limits))
            decision.limits = adapted
        decision.seq_ids = seq_ids
        return True

    def _choose(self, seq_ids: Sequence[int], num_other_rows: int) -> tuple[list[int], Expected, float, float] | None:
        """The drafts with the most expected tokens per second: (limits, what is expected of them, the least of their probabilities, the
        speed that they promise to add). None: no drafts.

        Drafts are added one by one, the likeliest first; a sequence's own are in order, since their probabilities never rise. The expected
        time of a step has a part for each draft, and one that is there only if any sequence has a draft at all: more rows, and the overhead
        of verifying.
        """
        count, overheads, curve = len(seq_ids), self._overheads, self._curve
        base_rows, last = count + num_other_rows, len(curve) - 1
        context = self._in_flight.load.num_context_tokens / self._in_flight.load.num_seqs if self._in_flight is not None else 0.0
        attention_s = context * self.pair_s  # of a row
        base_s = curve[min(base_rows, last)]
        other_s = self._overhead_s(count, base_s) + count * (context * self.context_s + attention_s)  # of a plain step
        candidates = self._candidates(seq_ids)
        drafts_ratio, accepted_ratio = self._calibration.drafts_ratio, self._calibration.accepted_ratio
        best_rate, num_best = MIN_SPEEDUP * count / (base_s + other_s), 0
        num_accepted, num_drafts, propose_s, none_proposed = 0.0, 0.0, 0.0, 1.0  # expected; `none_proposed`: probability of no draft at all
        for number, (accepted, _, is_first, proposed) in enumerate(candidates, 1):
            if is_first:
                none_proposed *= 1 - proposed
                propose_s += overheads.propose_s
            num_accepted += accepted_ratio * accepted
            num_drafts += drafts_ratio * proposed
            rows = base_rows + round(num_drafts / max(1 - none_proposed, 1e-9))  # given that there are drafts
            verify_s = curve[min(rows, last)] - base_s + count * overheads.drafting_s
            step_s = base_s + (1 - none_proposed) * verify_s + other_s + (overheads.per_draft_s + attention_s) * num_drafts + propose_s
            rate = (count + num_accepted) / step_s
            if rate > best_rate:
                best_rate, num_best = rate, number
        if not num_best:
            return None
        chosen, limits = candidates[:num_best], [0] * count
        for _, place, _, _ in chosen:
            limits[place] += 1
        expected = Expected(sum([proposed for _, _, _, proposed in chosen]), sum([accepted for accepted, _, _, _ in chosen]))
        return limits, expected, chosen[-1][0], best_rate * (base_s + other_s) / count - 1

    def _candidates(self, seq_ids: Sequence[int]) -> list[tuple[float, int, bool, float]]:
        """All drafts that may be made, the likeliest first, each as (probability that it is proposed and accepted, index of its sequence,
        whether it is the first of that sequence, probability that it is proposed)."""
        prior = self._pooled_estimate()
        found = [(accepted, place, position == 0, proposed) for place, seq_id in enumerate(seq_ids)
                 for position, (accepted, proposed) in enumerate(self._seq(seq_id).stats.estimate(*prior))]
        found.sort(key=lambda draft: -draft[0])
        return found

    def _pooled_estimate(self) -> tuple[float, float]:
        """Over all sequences the probability that a first draft is proposed and accepted, and that it is proposed."""
        num_allowed, num_proposed, num_accepted = self._pooled.counts(0)
        return num_accepted / num_allowed, num_proposed / num_allowed

    def _decide_shares(self, load: StepLoad) -> None:
        """What trials and showing answers may take of the time of steps of this load."""
        by_rows, by_all = self._most_gained(load), self._most_gained(load, self._overheads)
        self._budgets.trials.share = MAX_TRIAL_SHARE * max(
            min(1.0, gain / FULL_SHARE_GAIN) ** 2 * weight for gain, weight in ((by_rows, 1.0), (by_all, self._trial_confidence)))
        self._budgets.showing.share = MAX_SHOW_SHARE * min(1.0, max(by_rows, by_all))
        self._share_decided_at = self._decision.made_at

    def _most_gained(self, load: StepLoad, overheads: StepOverheads | None = None) -> float:
        """What drafts that are always accepted would add to the speed of steps of this load, as a share of it. Without `overheads` only
        the time of rows counts, and not what a step takes whether it has drafts or not."""
        count, rows_s = load.num_seqs, self._rows_s(load.num_seqs)
        plain_s, draft_s = rows_s, 0.0
        if overheads is not None:
            plain_s = self._plain_s(load)
            draft_s = load.num_context_tokens * self.pair_s + count * overheads.per_draft_s  # beside its row, one for each sequence
        speedups = [(1 + each) * plain_s / (plain_s + self._rows_s(count * (1 + each)) - rows_s + each * draft_s)
                    for each in range(1, self.max_drafts + 1)]
        return max(0.0, max(speedups) - 1)

    def _start_trials(self, seq_ids: Sequence[int]) -> DraftLimits | None:
        """Dry trials of the sequences that have been due for longest, as many as the budget pays for."""
        lacking_s = self._overheads.trial_s - self._budgets.trials.left_s
        self._is_saving = lacking_s >= 0
        if self._is_saving:
            self._postpone_trials(self._step + min(int(lacking_s / max(self._budgets.trials.income_s, 1e-12)), self._sample_period()))
            return None
        due = [self._seq(seq_id).trial_due for seq_id in seq_ids]
        if min(due) > self._step:
            self._postpone_trials(min(due))
            return None
        turns = sorted([(when, place) for place, when in enumerate(due) if when <= self._step])
        count = min(len(turns), int(self._budgets.trials.left_s / self._overheads.trial_s)) if self._overheads.trial_s else 1
        self._trials_end = self._idle_until = self._step + self.max_drafts + 1
        limits = [0] * len(seq_ids)
        for _, place in turns[:count]:
            limits[place] = self.max_drafts
            self._seq(seq_ids[place]).trial_due = self._trials_end
        return DraftLimits(limits, Use.COMPARE)

    def _postpone_trials(self, until: int) -> None:
        """No trial starts before; those that become due meanwhile start together."""
        later = min(max(until, self._step + BATCHING_STEPS), self._trials_end if self._trials_end > self._step else sys.maxsize)
        self._idle_until = min(self._decision.valid_until, later) if self._budgets.trials.left_s > 0 else later

    def _sample_period(self) -> int:
        short, long = SAMPLE_PERIOD
        return max(self._decision.num_steps, min(max(int(SAMPLE_S / max(self._budgets.step_s, 1e-9)), short), long))
