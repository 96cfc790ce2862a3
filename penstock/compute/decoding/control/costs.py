"""What plain steps, drafts and asking for them take: measured at startup, corrected while serving."""
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp

from penstock.compute.decoding.control.contract import StepLoad
from penstock.core.work import STEP_UNITS

DRAFTED_UNITS, DRAFT_UNITS = 2.0, 0.5  # the host's work for a sequence with drafts, and for each draft, in units of a sequence's plain work
MEDIAN_OF = 5  # latest plain steps: a median ignores the odd one
LEAST_OF_ROWS = 0.1  # of the measured time of its rows, that a step is taken to need
FRESH_RATE = 0.02  # weight of a decode step in the share of those that are fresh
COST_DECAY, COST_PRIOR = 0.98, 64.0  # of `_drafted`, with each step; drafts that were as dear as they should
DEARER = 0.5, 4.0  # times as dear: at least, at most
OFFERS_STEPS = 128, 512  # over which the share of sequences with offers is averaged: at first, and later
FALL_RATE, RISE_RATE = 0.3, 0.05  # of a `low_mean`
MAX_MISSED = 32  # times as long as asking, that what it has missed of known sequences may take: else something has disturbed it


@dataclass(slots=True)
class StepCosts:
    """Seconds of steps. A step takes the time of its rows, of its contexts, and of the host. The first two were measured at startup; the
    third is learned from plain steps, of fresh ones and of others apart, and from steps with drafts how much dearer than all that says
    drafts really are."""

    curve: Sequence[float]  # [rows + 1]: of a step by its number of rows
    context_s: float  # for each context token of a sequence
    pair_s: float  # for each context token that a row attends to
    draft_s: float = 0.0  # that a draft adds to a step, as measured at startup
    _units: dict[bool, list[tuple[float, float]]] = field(default_factory=dict)  # of plain steps that are fresh, and of others, for a
    # sequence: beside the model, of the host
    _unit_s: dict[bool, float] = field(default_factory=dict)  # median of the former; below zero where rows took longer when measured
    _host_unit_s: float = 0.0  # median of the latter
    _fresh_share: float = 0.0  # of decode steps
    _drafted: tuple[float, float] = (0.0, 0.0)  # that steps with drafts took longer than plain ones, and that they should have

    def is_known(self) -> bool:
        return bool(self._units)

    def knows(self, load: StepLoad) -> bool:
        """Whether a plain step of this load's kind was observed."""
        return load.is_fresh in self._units

    def plain_s(self, load: StepLoad) -> float:
        """A decode step of this load's sequences without drafts."""
        return self._plain_s(load, load.is_fresh)

    def usual_s(self, load: StepLoad) -> float:
        """The same, as often fresh as decode steps are of late."""
        fresh_s, other_s = [self._plain_s(load, kind) for kind in (True, False)]
        return other_s + self._fresh_share * (fresh_s - other_s)

    def count(self, load: StepLoad) -> None:
        """A step of this load begins."""
        if load.is_decode:
            self._fresh_share += FRESH_RATE * (load.is_fresh - self._fresh_share)

    def observe_plain(self, load: StepLoad, seconds: float, computing_s: float) -> None:
        units = load.num_seqs + STEP_UNITS
        known = self._units.setdefault(load.is_fresh, [])
        known.append(((seconds - self._model_s(load)) / units, (seconds - computing_s) / units))
        del known[:-MEDIAN_OF]
        self._unit_s[load.is_fresh], self._host_unit_s = [sorted(each)[len(each) // 2] for each in zip(*known, strict=True)]

    def expected_s(self, load: StepLoad) -> float:
        """What this load's drafts add to its step, as measured at startup."""
        return load.num_drafts * self.draft_s

    def observe_drafts(self, load: StepLoad, seconds: float, plain_s: float | None = None) -> None:
        """`plain_s`: of this load, where it is known already."""
        expected_s = self.expected_s(load)
        beside_s = seconds - (self.plain_s(load) if plain_s is None else plain_s) - expected_s
        most_s = (DEARER[1] - 1) * expected_s
        more_s = expected_s + min(max(beside_s, -most_s), most_s)  # as far either way: noise is to average out
        self._drafted = COST_DECAY * self._drafted[0] + more_s, COST_DECAY * self._drafted[1] + expected_s

    def forgive(self, factor: float) -> None:
        """What drafts have cost counts so much less."""
        self._drafted = factor * self._drafted[0], factor * self._drafted[1]

    def set_drafts(self, load: StepLoad, num_rows: int, num_seqs: float, num_drafts: int) -> float:
        """Sets `draft_s` for steps that have `num_rows` without drafts, and `num_drafts` for each of `num_seqs` sequences. Returns how many
        times as dear drafts really are."""
        more = num_seqs * num_drafts
        host_s = (DRAFT_UNITS + DRAFTED_UNITS / num_drafts) * self._host_unit_s
        attention_s = self.pair_s * load.num_context_tokens / load.num_seqs
        self.draft_s = (self._rows_s(num_rows + more) - self._rows_s(num_rows)) / more + attention_s + host_s
        prior_s = COST_PRIOR * self.draft_s
        return max((self._drafted[0] + prior_s) / (self._drafted[1] + prior_s), DEARER[0]) if prior_s > 0 else 1.0

    def _plain_s(self, load: StepLoad, is_fresh: bool) -> float:
        rows_s = self._rows_s(load.num_seqs)
        model_s = rows_s + load.num_context_tokens * (self.context_s + self.pair_s)
        return max(model_s + self._of_kind(is_fresh) * (load.num_seqs + STEP_UNITS), LEAST_OF_ROWS * rows_s)

    def _of_kind(self, is_fresh: bool) -> float:
        """Of the other kind, where none of this was observed."""
        return self._unit_s.get(is_fresh, self._unit_s.get(not is_fresh, 0.0))

    def _rows_s(self, num_rows: float) -> float:
        return self.curve[min(round(num_rows), len(self.curve) - 1)]

    def _model_s(self, load: StepLoad) -> float:
        """The same step without the host."""
        return self._rows_s(load.num_seqs) + load.num_context_tokens * (self.context_s + self.pair_s)


@dataclass(slots=True)
class Asking:
    """How long asking the proposer takes, and how often it has an offer: for any drafts, and for sure ones."""

    seconds: float = 0.0  # that a step takes longer in which it is asked
    each_s: float = 0.0  # the same for each sequence that it is asked for, where any has offers
    more_s: float = 0.0  # that it took longer than `seconds` in this step: the proposer was shown what it had missed
    num_asked: int = 0  # sequences in this step
    num_offered: int = 0  # of these
    is_reading: bool = False  # of a sequence in this step what it has missed, for drafts in a later one
    _known: set[int] = field(default_factory=set)  # sequences that it has read
    _asks_new: bool = False  # others were asked for in this step
    _is_guess: bool = False  # `seconds`: from the reading of prompts, and never reached since
    _shares: list[float] = field(default_factory=lambda: [0.0, 0.0])  # mean share of those asked for, with offers: any, sure
    _all_shares: list[float] = field(default_factory=lambda: [0.0, 0.0])  # the same of all sequences, also those that rest
    _asked_at: int = 0  # step
    _asked_about: int = 0  # sequences, in that step

    @property
    def was_asked(self) -> bool:
        """In this step."""
        return self.num_asked > 0 or self.is_reading

    def share(self, sure: bool) -> float:
        """Of the sequences asked for, that have offers."""
        return self._shares[sure]

    def share_of_all(self, sure: bool) -> float:
        """Of all sequences, that have offers."""
        return self._all_shares[sure]

    def record(self, seq_id: int, num_drafts: int | None) -> None:
        """The proposer was asked for one sequence. None: it is reading."""
        if num_drafts is None:
            self.is_reading = self._asks_new = True
        else:
            self.num_asked += 1
            self.num_offered += num_drafts > 0
        if num_drafts != 0 and seq_id not in self._known:
            self._known.add(seq_id)
            self._asks_new = True

    def forget(self, seq_id: int) -> float:
        """The share of this sequence among those that have been read."""
        share = 1 / len(self._known) if seq_id in self._known else 0.0
        self._known.discard(seq_id)
        return share

    def begin_step(self) -> None:
        self.num_asked = self.num_offered = 0
        self.is_reading = self._asks_new = False

    def end_step(self, step: int, sure: bool, seconds: float, num_seqs: int, is_probe: bool) -> None:
        """Of `num_seqs` sequences; asking took so long. `is_probe`: the others were left out to try one."""
        if self.is_reading and not self.num_asked:
            self.more_s = seconds
        if self.num_asked:
            weight = 1 - exp((self._asked_at - step) / min(max(step, OFFERS_STEPS[0]), OFFERS_STEPS[1]))
            num_able = self.num_asked if is_probe else max(self.num_asked, num_seqs)
            for shares, count in ((self._shares, self.num_asked), (self._all_shares, num_able)):
                shares[sure] += weight * (self.num_offered / count - shares[sure])
            repeats = step == self._asked_at + 1 and self.num_asked <= self._asked_about and not self._asks_new
            self._asked_at, self._asked_about = step, self.num_asked
            usual_s = min(seconds, (1 + MAX_MISSED) * (self.seconds or seconds))
            self.more_s = max((seconds if self._asks_new else usual_s) - self.seconds, 0.0)
            if self.is_reading:  # which is not what asking usually takes
                return
            seconds = usual_s
            if self._asks_new and not self.seconds:  # it reads whole prompts
                self._is_guess, seconds = True, usual_s / (1 + MAX_MISSED)
            self._is_guess &= seconds >= self.seconds
            rise = FALL_RATE if self._is_guess and repeats else RISE_RATE
            self.seconds = low_mean(self.seconds, seconds, rise)
            if self.num_offered and 2 * self.num_asked >= num_seqs:  # so that what is common is shared, as it is while drafts are made
                each_s = seconds / self.num_asked
                self.each_s = low_mean(self.each_s or each_s, each_s, rise)


def low_mean(mean: float, newest: float, rise: float) -> float:
    """A running mean that leans to the lowest values."""
    return mean + (FALL_RATE if newest < mean else rise) * (newest - mean)
