"""Drafts what pays, and asks the proposer rarely while it offers nothing.

**What pays** (`_price`). A draft pays if it is accepted more often than its row, and asking for it, take of the time of a token without
drafts: then adding it raises the expected tokens per second, and the argmax over the number of drafts is where the likelihood falls below
that price. `StepCosts` and `Asking` know what these take; for that a plain step is observed now and then.

**Acceptance** is kept by index, over all sequences and by sequence (`PositionRates`). A sequence whose drafts do not pay is given none,
until after a number of steps that doubles each time. Where none of any sequence pay, one sequence tries all it can have now and then
(`_probe`); if the first PROBE_DRAFTS come true, failures before count half. So does one in lockstep where others could pay.

**Patience** (`end_step`). Asking takes time. While nothing is offered, no step is observed for as long as it takes to keep that below
ASK_SHARE of the time, or IDLE_SHARE if no drafts pay or hardly anything was offered of late. While anything is offered, the proposer is
asked in each step, and afterwards after 1, 2, 4 steps and so on, or less often where asking takes long.

**Lockstep**. Sequences that began together and were given the same `max_tokens` end together, and so the prompts of the next ones are
computed together, which takes less time. A single accepted draft parts them. So while they are in lockstep, offers are only counted, and
probes are rarer, until drafts and asking for them promise to add PARTING_GAIN to the speed, or more where few have any: a guess from few is
less certain.

**What drafts may lose** (`_observe`). Whatever was expected, each step with drafts is compared with the plain steps that would have yielded
its tokens. What it took longer is spent from a budget of MAX_LOSS_SHARE of the time, and so is the time of asking; without budget there are
no drafts. Where the proposer had to be shown much that it had missed, drafts may repay that bit by bit, until the sequence ends.
"""
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from penstock.compute.decoding.control.budget import MAX_LOSS_SHARE, SAVED_LOSS_STEPS, SAVED_SHOW_STEPS, WON_STEPS, Budget
from penstock.compute.decoding.control.contract import DraftLimits, StepLoad
from penstock.compute.decoding.control.costs import Asking, StepCosts
from penstock.compute.decoding.control.rates import PositionRates

ASK_SHARE, IDLE_SHARE, IDLE_OFFERS = 0.008, 0.004, 0.02  # of the time, for asking; the latter where no drafts pay or fewer have offers
MAX_WAIT, MAX_ASK_WAIT = 64, 4096  # steps between two times that the proposer is asked: at most, and where asking takes long
SHOW_SHARE = 0.002  # of the time, for showing it answers that have ended
PARTING_GAIN, PARTING_SHARE = 0.06, 0.2  # promised, from which on they may be parted where so many have offers; with fewer up to twice that
STAYING = 0.5  # of that gain: with less they may no longer
PRICE_STEPS = 32  # for which a price holds
SURE_PRICE = 0.2  # from which on only sure drafts are asked for: about what the others are accepted times what they cost the host
PRIOR_RATES, PRIOR_WEIGHT = (0.7, 0.96), 4.0  # of acceptance, given the draft before it: any, sure; proposals that this counts for
SELDOM = 0.9  # share of the sequences with offers from which on the proposer does not tell the sure ones
POOLED_WEIGHT = 0.5  # proposals that the acceptance over all sequences counts for in the estimate for one of them
POOL_DECAY, SEQ_DECAY = 0.99, 0.9  # weight of a proposal relative to the one after it
BEYOND_FADE = 0.3  # weight of what is known of a sequence's positions after drafts that all came true
BACKOFF = 8, 128  # steps without drafts for a sequence whose drafts do not pay: at first, and at most
PROBE_WAIT, PROBE_DRAFTS = (8, 512), 4  # steps between two probes while no drafts pay: at first, and at most; drafts that are to come true
PARTING_PROBE_WAIT = 512, 4096  # the same for sequences in lockstep, which a probe parts
PROBE_FADE = 0.5  # weight of drafts that did not come true, once those of a probe have
LOSS_PAUSE = 32, 1024  # steps without drafts once the budget for losses is spent: where it is not known what it earns, and at most
LENT_PAUSE = 4096  # at most, where it was spent on showing the proposer what it had missed
ODD, MAX_ODD = 1.5, 2  # a step that takes so many times what it should was disturbed by something else; so many in a row
STAKE = 0.5  # time of a step that it holds then
REPAID = 0.25  # of a step's time, with each step with drafts, of what it took to show the proposer what it had missed
MAX_OWED_STEPS, MAX_LENT_STEPS = [  # time of steps that it may owe: what the longest pause earns back
    pause * MAX_LOSS_SHARE - STAKE for pause in (LOSS_PAUSE[1], LENT_PAUSE)]
SAMPLE_PERIOD, SAMPLE_STEPS = (16, 128), 8  # steps from one of them to the next: at first, and at most; steps in which one is looked for
IN_VAIN = 4  # times as long until the next one, after these
MAX_PAUSE_S = 1e-3  # after a longer pause, longer than the step itself, what passed until the next one began is not the step's time


@dataclass(slots=True)
class SeqState:
    rates: PositionRates
    limit: int  # drafts that pay
    backoff: int = BACKOFF[0]
    rests_until: int = 0  # the step before which it has no drafts, if none pay
    num_drafts: int = 0  # of the step in flight


@dataclass(slots=True)
class Patient:
    """A `Controller`. `step_s` [rows + 1]: seconds of a step by its number of rows; `max_drafts` of a sequence; `context_s`: seconds more
    for each context token of a sequence; `pair_s`: seconds more for each context token that a row attends to."""

    step_s: Sequence[float]
    max_drafts: int
    context_s: float = 0.0
    pair_s: float = 0.0
    _costs: StepCosts = field(init=False)
    _asking: Asking = field(default_factory=Asking)
    _pooled: list[PositionRates] = field(init=False)  # over all sequences: of any drafts, and of sure ones
    _seqs: dict[int, SeqState] = field(default_factory=dict)  # that had drafts
    _step: int = 0  # number of the current step
    _load: StepLoad | None = None  # of the current step, or until the next one begins of the step before it; None: that was not observed
    _begin_s: float = 0.0
    _end_s: float = 0.0
    _between_s: float = 0.0  # the time from a step's end to the beginning of the next, when it was last observed
    _drafting_s: float = 0.0  # part of the step that went into asking
    _computing_s: float = 0.0  # and into the backend's work
    _is_settled: bool = False  # the step before it was of as many sequences, and neither computed a prompt nor verified drafts
    _num_accepted: int = 0
    _num_odd: int = 0  # steps with drafts in a row that took too long
    _sample_due: int = SAMPLE_PERIOD[0]  # step: the next plain one to be observed, as soon as there is one
    _sample_period: int = SAMPLE_PERIOD[0]
    _sure: bool = True  # only sure drafts are asked for
    _price: float = 0.0  # likelihood from which on a draft pays
    _model_price: float = 0.0  # the same, were drafts as dear as the model says
    _limit: int = 0  # drafts that pay for a sequence of which nothing is known
    _priced: tuple[int, int] = (0, -PRICE_STEPS)  # for so many sequences, at this step
    _declines: bool = False  # nothing is to be asked after this step
    _rest_until: int = 0  # the step before which no sequence has drafts that pay
    _probe_due: int = 0  # the step from which on a sequence may probe
    _probe_wait: int = PROBE_WAIT[0]
    _probe_waits: tuple[int, int] = PROBE_WAIT  # as it is after a failure: at least, and at most
    _probing: int | None = None  # the sequence that probes: tries drafts in this step, which the next one verifies
    _read_by_probe: int | None = None  # a sequence that probes as soon as the proposer has read it
    _may_part: bool = False  # sequences in lockstep
    _could_part: bool = False  # these, if drafts were as likely and as dear as was thought at first
    _is_counting: bool = False  # offers are not taken
    _resumes_at: int = 0  # the next step that is observed
    _next_wait: int = 1  # at most, if nothing is offered
    _pauses_until: int = 0  # the step before which nothing is drafted, since the budget for losses was spent
    _lent_s: float = 0.0  # that showing the proposer what it had missed took, and steps with drafts are still to repay
    _losses: Budget = field(default_factory=lambda: Budget(MAX_LOSS_SHARE, left_s=inf))
    _showing: Budget = field(default_factory=lambda: Budget(SHOW_SHARE))

    def __post_init__(self) -> None:
        self._costs = StepCosts(list(map(float, self.step_s)), self.context_s, self.pair_s)
        self._pooled = [PositionRates.none(self.max_drafts) for _ in range(2)]

    def num_skippable(self) -> int:
        return max(0, self._resumes_at - self._step - 1)

    def num_unasked(self) -> int:
        return max(0, self._resumes_at - self._step - 1, self._pauses_until - self._step - 1)

    def skipped(self, num_steps: int) -> None:
        self._pass(num_steps)
        self._load = None
        self._sample_due = max(self._sample_due, self._step + 1)

    def begin_step(self, now: float, load: StepLoad) -> None:
        self._pass(1)
        self._asking.begin_step()
        if self._step >= self._sample_due + SAMPLE_STEPS:  # prompts are in every step, or somebody comes or goes
            self._sample_due = self._step + IN_VAIN * self._sample_period
        last = self._load
        is_like = last is not None and last.is_decode and load.is_decode and last.num_seqs == load.num_seqs
        lasted_s, between_s = self._end_s - self._begin_s, now - self._end_s
        if last is not None and is_like and between_s < max(MAX_PAUSE_S, lasted_s):
            self._between_s = between_s
            self._observe(last, lasted_s + between_s)
        elif last is not None and last.is_decode and last.num_drafts:  # who comes or goes meanwhile has no part in it
            self._observe(last, lasted_s + self._between_s)
        self._is_settled = last is not None and is_like and not last.num_drafts
        self._load, self._begin_s, self._num_accepted = load, now, 0
        self._costs.count(load)

    def _pass(self, num_steps: int) -> None:
        self._step += num_steps
        self._losses.add(num_steps)
        self._showing.add(num_steps)

    def _observe(self, load: StepLoad, interval: float) -> None:
        """A decode step of this load took so long from its beginning to that of the next."""
        seconds = interval - self._drafting_s
        if load.num_drafts:
            plain_s = self._costs.plain_s(load)
            usual_s = plain_s + max(self._costs.expected_s(load), 0.0)
            self._num_odd = self._num_odd + 1 if seconds > ODD * usual_s else 0
            lasted_s = usual_s if 0 < self._num_odd <= MAX_ODD else seconds
            repaid_s = min(self._lent_s, REPAID * plain_s)
            self._lent_s -= repaid_s
            self._losses.spend(lasted_s + self._asking.seconds + repaid_s - (1 + self._num_accepted / load.num_seqs) * plain_s)
            self._costs.observe_drafts(load, seconds, plain_s)
            if self._losses.left_s < 0:
                self._call_in(self._lent_s)
                self._pause()
        elif self._is_settled:  # others find cold caches
            self._costs.observe_plain(load, seconds, self._computing_s)
            period, was_due = self._sample_period, self._samples()
            self._sample_due = self._step + period
            self._sample_period = min(2 * period, SAMPLE_PERIOD[1]) if was_due else period
            plain_s = self._costs.plain_s(load)
            self._losses.earn_from(plain_s, SAVED_LOSS_STEPS, WON_STEPS, MAX_OWED_STEPS, MAX_LENT_STEPS)
            self._showing.earn_from(plain_s, SAVED_SHOW_STEPS)

    def record_verified(self, seq_id: int, path: Sequence[int], depth: int) -> None:
        self._num_accepted += len(path)
        seq = self._seqs.get(seq_id)
        if seq is None:  # other drafts are asked for now
            return
        came_true = len(path) == depth
        self._pooled[self._sure].record(seq.num_drafts, path, POOL_DECAY)
        seq.rates.record(seq.num_drafts, path, SEQ_DECAY)
        if came_true and seq.num_drafts < self._limit:
            seq.rates.fade(BEYOND_FADE, seq.num_drafts)
        if seq_id == self._probing:
            self._end_probe(came_true or len(path) >= PROBE_DRAFTS)
        if not came_true or seq.limit < self._limit:
            seq.limit = num_paying(seq.rates.rates(self._pooled_rates(), POOLED_WEIGHT), self._price)
            if not seq.limit:
                seq.rests_until, seq.backoff = self._step + seq.backoff, min(2 * seq.backoff, BACKOFF[1])
            elif path:
                seq.backoff = BACKOFF[0]

    def limits(self, seq_ids: Sequence[int], num_other_rows: int) -> DraftLimits | None:
        self._declines, self._probing = True, None  # what the step before tried is verified by now, or will never be
        if self._step < self._pauses_until or self._load is None or not self._costs.is_known() or self._samples():
            return None
        count = len(seq_ids)
        if self._priced[0] != count or self._step - self._priced[1] >= PRICE_STEPS:
            self._set_price(self._load, count, num_other_rows)
        self._is_counting = self._load.in_lockstep and not self._may_part
        limits = self._chosen(seq_ids)
        self._declines = limits.count(0) == count
        return None if self._declines else DraftLimits(limits, self._sure, only_counted=self._is_counting)

    def _chosen(self, seq_ids: Sequence[int]) -> list[int]:
        known, most, count = self._seqs, self._limit, len(seq_ids)
        if self._read_by_probe is not None and self._read_by_probe in seq_ids:
            if not most and self._lent_s < MAX_LENT_STEPS * self._losses.step_s:
                return self._probe(seq_ids, seq_ids.index(self._read_by_probe))
            self._stop_reading()
        if self._step >= self._probe_due and (self._could_part if self._is_counting else self._may_probe()):
            return self._probe(seq_ids, self._step % count)
        if not most and not self._is_counting:
            return [0] * count
        most = max(most, 1)  # to be counted
        limits = [most if seq_id not in known else self._limit_of(known[seq_id]) for seq_id in seq_ids] if known else [most] * count
        self._rest_until = 0 if any(limits) else min([known[seq_id].rests_until for seq_id in seq_ids])
        return limits

    def _samples(self) -> bool:
        """Whether the next step is to be a plain one that is observed."""
        load = self._load
        return self._step >= self._sample_due or load is not None and load.is_decode and not self._costs.knows(load)

    def _may_probe(self) -> bool:
        """Whether drafts would pay if all came true and were no dearer than the model says, though by what is known they do not."""
        return not self._limit and self._model_price < 1

    def _probe(self, seq_ids: Sequence[int], place: int) -> list[int]:
        """What each may have in a step in which one of them tries a few drafts, against all that is known."""
        limits = [0] * len(seq_ids)
        limits[place], self._probing = self.max_drafts, seq_ids[place]
        self._probe_waits = PARTING_PROBE_WAIT if self._is_counting else PROBE_WAIT
        self._probe_due, self._is_counting = self._step + self._probe_wait, False
        return limits

    def _stop_reading(self) -> None:
        """A probe fails whose sequence was not read: it has ended, there is too much of it, or it need not probe any more."""
        self._read_by_probe = None
        self._call_in(self._lent_s)
        self._end_probe(came_true=False)

    def _end_probe(self, came_true: bool) -> None:
        self._probing = None
        if came_true:
            for rates in self._pooled:
                rates.forgive(PROBE_FADE)
            self._costs.forgive(PROBE_FADE)
            self._priced = 0, -PRICE_STEPS
        least, most = self._probe_waits
        self._probe_wait = PROBE_WAIT[0] if came_true else min(max(2 * self._probe_wait, least), most)
        self._probe_due = self._step + max(self._probe_wait, self._steps_to_ask())

    def _steps_to_ask(self) -> int:
        """Steps of which its share is as long as asking takes."""
        share = ASK_SHARE if self._limit and self._asking.share(self._sure) >= IDLE_OFFERS else IDLE_SHARE
        seconds = max(self._asking.seconds, self._asking.more_s if self._asking.is_reading else 0.0)
        return ceil(seconds / (share * self._costs.plain_s(self._load))) if self._load is not None else MAX_WAIT

    def _limit_of(self, seq: SeqState) -> int:
        """A sequence that has rested tries one draft."""
        return min(seq.limit, self._limit) or int(self._step >= seq.rests_until)

    def record_proposal(self, seq_id: int, num_drafts: int | None) -> None:
        if num_drafts is not None and seq_id == self._read_by_probe:
            self._read_by_probe = None
        self._asking.record(seq_id, num_drafts)
        if num_drafts and not self._is_counting:
            seq = self._seqs.get(seq_id)
            if seq is None:
                seq = self._seqs[seq_id] = SeqState(PositionRates.none(self.max_drafts), self._limit)
            seq.num_drafts = num_drafts

    def end_step(self, now: float, drafting_s: float, computing_s: float) -> None:
        """Also decides in which step the proposer is asked next."""
        self._end_s, self._drafting_s, self._computing_s = now, drafting_s, computing_s
        load, asking, wait = self._load, self._asking, 0  # steps that are not observed
        num_seqs, num_verified = (load.num_seqs, load.num_drafts) if load is not None else (0, 0)
        asking.end_step(self._step, self._sure, drafting_s, num_seqs, self._probing is not None)
        if asking.is_reading and self._probing is not None:
            self._read_by_probe = self._probing
        if (asking.is_reading or asking.num_offered) and not self._is_counting:
            self._lent_s += asking.more_s
            self._next_wait = 1
        elif not asking.was_asked and not self._declines and self._next_wait == 1:
            pass  # nobody could be asked, and there were offers before
        elif self._costs.is_known() and not num_verified and not self._samples():  # whose time is known when the next step begins
            wait = self._wait()
        if wait:
            self._call_in(self._lent_s)
        self._resumes_at = self._step + 1 + wait
        self._is_counting = self._declines = False

    def _call_in(self, lent_s: float) -> None:
        """No drafts are to come that could repay so much of what was lent for them."""
        if not lent_s:
            return
        self._lent_s -= lent_s
        self._losses.owe(lent_s)
        if self._losses.left_s < 0:
            self._pause()

    def _pause(self) -> None:
        steps = self._losses.steps_to(STAKE)
        self._pauses_until = self._step + min(max(steps, LOSS_PAUSE[0]), LENT_PAUSE)

    def _wait(self) -> int:
        """Steps before the proposer is asked again, or a sequence may probe."""
        if self._pauses_until > self._step + 1:  # until then only plain steps that are due are observed
            return min(self._pauses_until, self._sample_due) - self._step - 1
        if self._rest_until > self._step:
            return min(self._rest_until - self._step - 1, MAX_WAIT)
        if self._load is not None and (self._limit or self._asking.was_asked) and self._step >= self._pauses_until:
            wait = self._steps_to_ask()
            wait = min(wait, self._next_wait) if wait <= MAX_WAIT else min(wait, MAX_ASK_WAIT)
            self._next_wait = min(2 * self._next_wait, MAX_WAIT)
            return wait
        if self._may_probe():
            return min(max(self._probe_due - self._step - 1, 0), MAX_WAIT)
        return MAX_WAIT if self._step >= self._pauses_until else 0  # a pause that ends with this step has put off questions

    def invests(self) -> bool:
        return self._showing.left_s > 0

    def invested(self, seconds: float) -> None:
        self._showing.spend(seconds)

    def forget(self, seq_id: int) -> None:
        self._seqs.pop(seq_id, None)
        share = self._asking.forget(seq_id)
        self._call_in(share * self._lent_s)
        if seq_id == self._read_by_probe:
            self._stop_reading()

    def _prior(self, sure: bool) -> list[float]:
        return [PRIOR_RATES[sure and self._asking.share(sure) < SELDOM]] * self.max_drafts

    def _pooled_rates(self) -> list[float]:
        return self._pooled[self._sure].rates(self._prior(self._sure), PRIOR_WEIGHT)

    def _set_price(self, load: StepLoad, count: int, num_other_rows: int) -> None:
        """For steps of `count` sequences and so many rows of others."""
        self._priced = count, self._step
        drafted = max(1.0, self._asking.share_of_all(self._sure) * count)  # sequences with drafts
        dearer = self._costs.set_drafts(load, count + num_other_rows, drafted, self.max_drafts)
        tokens_per_s, ask_s = load.num_seqs / self._costs.usual_s(load), self._asking.each_s / self.max_drafts
        self._price = (dearer * self._costs.draft_s + ask_s) * tokens_per_s
        self._model_price = (self._costs.draft_s + ask_s) * tokens_per_s
        if self._sure != (self._price > SURE_PRICE):
            self._sure = not self._sure
            self._seqs.clear()
        rates = self._pooled_rates()
        self._limit, share = num_paying(rates, self._price), self._asking.share_of_all(self._sure)
        least, asking = PARTING_GAIN * (2 - min(share / PARTING_SHARE, 1.0)), self._asking.seconds * tokens_per_s / load.num_seqs
        self._may_part = gain(rates[: self._limit], share, self._price, asking) >= (STAYING * least if self._may_part else least)
        prior, price = self._prior(self._sure), self._model_price
        self._could_part = not self._may_part and gain(prior[: num_paying(prior, price)], share, price, asking) >= least


def num_paying(rates: Sequence[float], price: float) -> int:
    """How many of a sequence's drafts pay, that come true at these rates."""
    likelihood = 1.0
    for count, rate in enumerate(rates):
        likelihood *= rate
        if likelihood < price:
            return count
    return len(rates)


def gain(rates: Sequence[float], share: float, price: float, asking: float) -> float:
    """What drafts add to the speed, as a share of it, where so many of the sequences have them, each of which costs `price` tokens. `rates`
    [drafts of each]: how often one comes true if those before it have. `asking`: how long it takes, in times of a plain step."""
    likelihood, accepted = 1.0, 0.0
    for rate in rates:
        likelihood *= rate
        accepted += likelihood
    return (1 + share * accepted) / (1 + share * len(rates) * price + asking) - 1
