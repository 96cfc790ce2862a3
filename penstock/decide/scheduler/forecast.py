"""When a prompt that waits will have its first token: the scheduler's next steps, run ahead in strides.

Prompts fill steps in their order, beside a token of every answer that runs; answers end when they are as long as they may be. A prompt
enters when there is a seat, room for its keys and values, and an answer more would not make steps slower than all can afford. A stretch in
which nothing changes is one stride, so the work is that of the number of sequences, not of steps.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from penstock.core.types import Seq
from penstock.decide.scheduler.costs import StepCosts, mean_context
from penstock.decide.scheduler.limits import Limits
from penstock.decide.scheduler.promise import affords_s, has_objectives, num_left, num_more, tpot_s


@dataclass(frozen=True, slots=True)
class Load:
    """What there is at `now`. `free_tokens`: room in the KV cache for sequences that enter."""

    now: float
    decodes: Sequence[Seq]  # running, one token behind
    prefills: Sequence[Seq]  # running, more than one
    waiting: Sequence[Seq]  # in order
    limits: Limits
    free_tokens: int


@dataclass(slots=True)
class _Answer:
    """One that runs in the forecast, from the step `begun` to that with its last token."""

    begun: int
    end: int
    affords_s: float
    num_tokens: int  # in the cache, when it began


class Forecast:
    """`reserve`: share of what answers can afford a token that steps do not use."""

    def __init__(self, costs: StepCosts, load: Load, reserve: float) -> None:
        self._costs = costs
        self._load = load
        self._planned = 1 - reserve
        self._context = mean_context([*load.decodes, *load.prefills, *load.waiting])
        self._now = load.now
        self._step = 0
        self._rows = 0  # of prompts in the step that is being filled
        self._start = 0  # tokens before them
        self._free = load.free_tokens
        self._answers = [self._running(seq) for seq in load.decodes]
        self._seats = load.limits.max_num_seqs - len(load.prefills)
        self._settle()

    def first_token_s(self, wanted: Seq) -> float:
        """When the first token of one of the prompts comes; inf where there never is time for it."""
        load = self._load
        queue = [(seq, True) for seq in load.prefills] + [(seq, False) for seq in load.waiting]
        behind = sum([num_left(seq) for seq, _ in queue])
        for seq, entered in queue:
            left = num_left(seq)
            behind -= left
            if not entered:
                self._enter(seq)
            if not self._compute(left, len(seq.tokens) - left):
                break
            if seq is wanted:
                return self._now + self._step_s(max(self._rows, min(self._rows + behind, self._num_rows)))
            self._begin(seq, entered)
        return inf

    def _running(self, seq: Seq) -> _Answer:
        first_s = self._load.now if seq.first_token_s is None else seq.first_token_s
        affords = affords_s(seq, first_s, self._load.now) if has_objectives(seq) else inf
        return _Answer(0, num_more(seq) + 1, affords, len(seq.tokens))

    def _enter(self, seq: Seq) -> None:
        """Runs until the prompt is let in: at the latest when nothing else runs."""
        own = self._planned * tpot_s(seq, self._now) if has_objectives(seq) else inf
        while self._answers:
            num, bound = len(self._answers), min(self._bound, own)
            bears = bound == inf or self._costs.step_s(num + 1, self._context) <= bound
            if bears and num < self._seats and self._free >= len(seq.tokens):
                return
            self._skip()

    def _compute(self, left: int, start: int) -> bool:
        """Fills steps with so many rows behind `start` others; the last of them is in the step that is then being filled. False: there
        never is time for them."""
        end = start + left
        while True:
            self._start = end - left
            most = self._num_rows
            room = most - self._rows
            if left <= room:
                self._rows += left
                return True
            if not most and not self._answers:
                return False
            if not most:
                self._skip()
                continue
            left -= max(room, 0)
            self._rows = max(self._rows, most)
            whole = min((left - 1) // most, self._next_end() - self._step - 1)
            self._advance(1)
            if whole > 0:
                self._rows, self._start = most, end - left + whole * most // 2
                left -= whole * most
                self._advance(whole)

    def _begin(self, seq: Seq, entered: bool) -> None:
        """Its prompt is in the step that is being filled: from the next one on it gains a token a step."""
        self._free -= 0 if entered else len(seq.tokens)
        self._seats += entered
        more, begun = num_more(seq), self._step + 1
        if more:
            affords = tpot_s(seq, self._now) if has_objectives(seq) else inf
            self._answers += [_Answer(begun, begun + more, affords, len(seq.tokens))] * seq.params.n
            self._settle()

    def _skip(self) -> None:
        """On to the end of the next answer."""
        if self._rows:
            self._advance(1)
        if self._answers:
            self._advance(max(1, self._next_end() - self._step))

    def _next_end(self) -> int:
        return min([answer.end for answer in self._answers], default=1 << 62)

    def _advance(self, num_steps: int) -> None:
        """So many steps like the one that is being filled; answers that end with them leave."""
        num = len(self._answers)
        self._now += num_steps * self._step_s(self._rows)
        self._step += num_steps
        self._rows = 0
        self._free -= num * num_steps
        if self._next_end() <= self._step:
            for answer in self._answers:
                if answer.end <= self._step:
                    self._free += answer.num_tokens + answer.end - answer.begun
            self._answers = [answer for answer in self._answers if answer.end > self._step]
            self._settle()

    def _step_s(self, rows: int) -> float:
        return self._costs.step_s(len(self._answers), self._context, rows, self._start if rows else 0)

    def _settle(self) -> None:
        """What holds while the same answers run: the seconds that a step may take."""
        helpless = self._costs.step_s((len(self._answers) + 1) // 2, self._context)
        affords = [answer.affords_s for answer in self._answers if helpless <= answer.affords_s < inf]
        self._bound = self._planned * min(affords, default=inf)
        self._fitting: int | None = None

    @property
    def _num_rows(self) -> int:
        """Of prompts, in a step."""
        if self._fitting is None:
            num = len(self._answers)
            most = self._load.limits.max_num_batched_tokens - num
            self._fitting = most if self._bound == inf else self._costs.rows_within(num, self._context, self._bound, most)
        return self._fitting


def first_token_s(seq: Seq, load: Load, costs: StepCosts, reserve: float) -> float:
    """When the first token of `seq`, one of `load`, comes. `reserve`: share of what answers can afford a token that steps do not use."""
    return Forecast(costs, load, reserve).first_token_s(seq)
