"""As much of prompts as the tightest TPOT in the batch leaves time for.

A step takes no longer than any answer that runs can afford a token, for all of its tokens. When prompts would then miss their TTFT, a step
may use up all that the answers are ahead of their next tokens' deadlines, which still breaks none. Nor is an answer begun whose company
would make decoding alone slower than that. Answers beyond help hold nobody back: those that could not keep their TPOT beside half as many.
Without objectives every step takes all that it can.
"""
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from math import inf

from penstock.core.errors import UsageError
from penstock.core.needs import Needs
from penstock.core.types import Seq
from penstock.decide.scheduler.chunking.contract import ChunkView
from penstock.decide.scheduler.costs import StepCosts, mean_context
from penstock.decide.scheduler.promise import affords_s, first_due_s, has_objectives, next_due_s, num_left, tpot_s


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
        held = [seq for seq in view.decodes if has_objectives(seq)]
        if not held or most < 1:
            return most
        num, context = len(view.decodes), mean_context(view.decodes)
        afforded, spare = self._bounds(held, self._costs.step_s((num + 1) // 2, context), view.now)
        if afforded == inf:
            return most
        costs, start = self._costs, view.prefills[0].num_computed if view.prefills else 0
        rows = costs.rows_within(num, context, afforded, most, start)
        if rows < most and spare > afforded and self._presses(view, rows, afforded):
            rows = costs.rows_within(num, context, spare, most, start)
        return rows

    def may_start(self, seq: Seq, running: Iterable[Seq], now: float) -> bool:
        seqs = [*running, seq]
        held = [each for each in seqs if has_objectives(each)]
        if not held:
            return True
        context = mean_context(seqs)
        own = tpot_s(seq, now) if has_objectives(seq) else inf
        afforded, _ = self._bounds(held, self._costs.step_s(len(seqs) // 2, context), now)
        bound = min(afforded, self._planned * own)
        return bound == inf or self._costs.step_s(len(seqs), context) <= bound

    def _bounds(self, held: Sequence[Seq], helpless_s: float, now: float) -> tuple[float, float]:
        """(seconds a token that all of the answers can afford, seconds until the first of their next tokens is due). Those that cannot
        even afford `helpless_s` are left out."""
        afforded = spare = inf
        for seq in held:
            affords, until_due = tpot_s(seq, now), inf
            if seq.first_token_s is not None:
                affords, until_due = affords_s(seq, seq.first_token_s, now), next_due_s(seq, seq.first_token_s) - now
            if affords >= helpless_s:
                afforded = min(afforded, affords, max(until_due, 0.0))
                spare = min(spare, until_due)
        return self._planned * afforded, self._planned * spare

    def _presses(self, view: ChunkView, rows: int, step_s: float) -> bool:
        """Whether a prompt that could be in time would be late with so many rows in steps of `step_s`."""
        ahead = 0
        for seq in chain(view.prefills, view.waiting):
            ahead += num_left(seq)
            if seq.first_token_s is None and has_objectives(seq):
                due_s = first_due_s(seq, self._costs)
                if due_s == inf or view.now + self._costs.prompt_s(num_left(seq), len(seq.tokens)) > due_s:
                    continue
                if rows < 1 or view.now + -(-ahead // rows) * step_s > due_s:
                    return True
        return False
