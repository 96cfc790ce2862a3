"""As many prompt tokens as the tightest TPOT in the batch leaves time for.

A step takes no longer than every running answer can afford per token over all its remaining tokens. If prompts would then miss their TTFT,
a step may use up the slack that the answers have before their next tokens' deadlines, which breaks none of them. No answer is started that
would make decoding alone slower than that, or than what it needs itself, unless it could not have that even alone. Answers that could not
keep their TPOT even with half as many running are ignored. Without objectives every step takes all that it can.
"""
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from penstock.core.errors import UsageError
from penstock.core.needs import Needs
from penstock.core.types import Seq
from penstock.decide.scheduler.chunking.contract import ChunkView
from penstock.decide.scheduler.costs import StepCosts, mean_context
from penstock.decide.scheduler.promise import affords_s, dues_s, num_answers, pace_s, tpot_s


class Slo:
    needs = Needs(step_timer=True)

    @dataclass(frozen=True, slots=True)
    class Options:
        reserve: float = 0.1  # share of what answers can afford that is not planned with

        def __post_init__(self) -> None:
            if not 0 <= self.reserve < 1:
                raise UsageError(f"chunking slo: reserve must be from 0 to below 1, not {self.reserve}")

    def __init__(self, costs: StepCosts, options: Options | None = None) -> None:
        self._costs = costs
        self._planned = 1 - (options or self.Options()).reserve

    def num_rows(self, view: ChunkView, most: int) -> int:
        if not view.decodes or most < 1:
            return most
        costs, num, context = self._costs, len(view.decodes), mean_context(view.decodes)
        afforded, spare = self._bounds(view.decodes, costs.step_s((num + 1) // 2, context), view.now)
        if afforded == inf:
            return most
        start = view.prefills[0].num_computed if view.prefills else 0
        rows = costs.rows_within(num, context, afforded, most, start)
        if rows < most and spare > afforded and self._presses(view, rows, afforded):
            rows = costs.rows_within(num, context, spare, most, start)
        return rows

    def may_start(self, seq: Seq, running: Iterable[Seq], now: float) -> bool:
        answers = list(running)
        context, num = mean_context([*answers, seq]), sum(map(num_answers, answers))
        afforded, _ = self._bounds(answers, self._costs.step_s((num + 1) // 2, context), now)
        bound = min(afforded, pace_s(seq, now, self._costs, self._planned))
        return bound == inf or self._costs.step_s(num + num_answers(seq), context) <= bound

    def _bounds(self, answers: Iterable[Seq], helpless_s: float, now: float) -> tuple[float, float]:
        """(seconds per token that all of the answers can afford, seconds until the first of their next tokens is due). Answers that cannot
        even afford `helpless_s` are left out."""
        afforded = spare = inf
        for seq in answers:
            if seq.first_token_s is None:
                affords, until_due = tpot_s(seq, now), inf
            else:
                due_s, last_s = dues_s(seq, seq.first_token_s)
                if due_s == inf:
                    continue
                affords, until_due = affords_s(seq, last_s, now), due_s - now
            if affords >= helpless_s:
                afforded, spare = min(afforded, affords), min(spare, until_due)
        return self._planned * min(afforded, max(spare, 0.0)), self._planned * spare

    def _presses(self, view: ChunkView, rows: int, step_s: float) -> bool:
        """Whether a prompt that could be in time would be late with this many rows per step of `step_s`."""
        now, ahead = view.now, 0
        for claim in view.prompts():
            ahead += claim.num_left
            if claim.due_s == inf or now > claim.hopeless_s or claim.seq.first_token_s is not None:
                continue
            if rows < 1 or now + -(-ahead // rows) * step_s > claim.due_s:
                return True
        return False
