"""Executes plans: assembles the batch, runs the backend's step, samples tokens, verifies drafts and obtains new ones."""
import logging
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.compute.arrays import Array, array_namespace
from penstock.compute.backends.contract import Backend
from penstock.compute.decoding.state import RowState
from penstock.compute.price import Price
from penstock.compute.runner.batch import SampledRows, assemble, moves_of
from penstock.compute.runner.cached_seq import CachedSeq
from penstock.compute.runner.decoding import Decoding
from penstock.compute.runner.drafter import Drafter
from penstock.compute.runner.verify import results_of, select_rows, verify
from penstock.core.clock import Clock
from penstock.core.types import PlannedSeq, SeqInfo, SeqResult, StepPlan, StepResult, TokenLogprobs

log = logging.getLogger("penstock.engine")
STEPS_PER_CHECK = 64  # of the logits


class Runner:
    """Keeps a `CachedSeq` of each sequence from its first row until a plan says that it has finished."""

    def __init__(self, backend: Backend, loaded: Any, decoding: Decoding, price: Price, clock: Clock) -> None:
        self._sampler = decoding.sampler
        self._acceptance = decoding.acceptance
        self._drafter = decoding.drafter
        self._constraints = decoding.constraints
        self._backend = backend
        self._loaded = loaded
        self._price = price
        self._clock = clock
        self._block_size: int = loaded.layout.block_size
        self._cached: dict[int, CachedSeq] = {}  # by sequence
        self._moves: list[tuple[int, int]] = []  # (source, target) slots, to move before anything else in the next step
        self._is_broken = False

    def execute(self, plan: StepPlan) -> StepResult:
        """One step. Raises whatever the backend raises; the step can be repeated if no slot was moved before that.

        What can be computed before the backend's step is computed before it: the model's weights leave nothing else in the CPU's caches.
        """
        cached = self._look_up(plan)
        drafter = self._drafter
        if drafter is not None:
            skip = drafter.skip
            if skip.left > skip.num_shown:
                skip.left -= 1
                drafter = None
            else:
                drafter.begin_step(plan, cached)
        made = assemble(plan, cached, self._block_size, self._moves, () if drafter is None else drafter.buffers)
        cost = self._price.count(made.work)
        drafted = made.sampled.drafted
        penalized = [place for place, seq in enumerate(cached) if seq.state.penalized and place not in drafted]
        if self._constraints is not None:
            self._constraints.begin_step(plan, made.sampled)
        began = self._clock.now()
        outputs = self._backend.step(self._loaded, made.batch)
        seconds = self._clock.now() - began
        self._moves = []
        if plan.step_id % STEPS_PER_CHECK == 0:
            self._check_logits(plan.step_id, outputs.logits)
        if self._constraints is not None:
            made.sampled.masks = self._constraints.masks()
        if drafted:
            results = self._verify(plan, cached, made.sampled, outputs.logits, drafter)
        else:
            results = self._sample(plan, made.sampled, outputs.logits)
        for place in penalized:
            cached[place].state.extend(results[place].tokens)
        if self._constraints is not None:
            self._constraints.advance(cached, results)
        asks: tuple[tuple[int, int], ...] = ()
        if drafter is not None:
            if drafter.buffers:
                drafter.keep_states(plan, cached, outputs.buffers, self._cached.values())
            asks = drafter.propose(plan, cached, results, seconds)
        for extra in made.extras:
            place = extra.place
            results[place] = replace(
                results[place], prompt_logprobs=self._score_prompt(plan.seqs[place], cached[place], outputs.logits[extra.prompt_rows]),
                embedding=None if extra.embedding_row is None else normalized(outputs.buffers["hidden"][extra.embedding_row]))
        return StepResult(
            plan.step_id, tuple(results), seconds, cost.weight_bytes, cost.kv_bytes, cost.activation_bytes, cost.operations,
            made.work, asks, cost.more_weight_bytes, 0.0 if drafter is None else drafter.spent_s)

    def _look_up(self, plan: StepPlan) -> list[CachedSeq]:
        """What is kept of each planned sequence, with tokens that the plan brings. Drops the sequences that have finished, and a
        drafter that has failed."""
        if self._drafter is not None and self._drafter.has_failed:
            self._drafter = None
        for place, seq_id in enumerate(plan.finished):
            ended = self._cached.pop(seq_id, None)
            if self._drafter is not None:
                self._drafter.finish(seq_id, ended, plan.outputs[place] if plan.outputs else ())
            if self._constraints is not None:
                self._constraints.forget(seq_id)
        for planned in plan.seqs:
            if planned.new is not None:
                if self._drafter is not None:
                    self._drafter.forget(planned.seq_id)
                self._cached[planned.seq_id] = CachedSeq(planned.new, self._drafter is not None, self._kin(planned.new))
                if self._constraints is not None:
                    self._constraints.enter(planned.seq_id, self._cached[planned.seq_id])
        for seq_id, start, tokens in plan.tails:
            self._cached[seq_id].change(start, tokens)
        return [self._cached[planned.seq_id] for planned in plan.seqs]

    def _kin(self, info: SeqInfo) -> RowState | None:
        """The state of another answer to the same request, where it holds what takes long to find."""
        if info.params.repetition_penalty == 1:
            return None
        return next((each.state for each in self._cached.values()
                     if each.info.prompt is info.prompt and each.info.params.repetition_penalty != 1), None)

    def _check_logits(self, step_id: int, logits: Array) -> None:
        """Tells once of a model that computes nothing but NaN."""
        if logits.shape[0] and not self._is_broken and not bool(array_namespace(logits).any(logits[0, :] == logits[0, :])):
            self._is_broken = True
            log.error("step %d: every logit is NaN, so answers mean nothing: weights hold NaN, or something overflowed", step_id)

    def _sample(self, plan: StepPlan, sampled: SampledRows, logits: Array) -> list[SeqResult]:
        """The results of a step without drafts, one for each planned sequence."""
        if not sampled.rows:
            return [SeqResult(planned.seq_id) for planned in plan.seqs]
        chosen = self._sampler.sample(select_rows(logits, sampled.rows), sampled.states, sampled.output_index, sampled.masks)
        return results_of(plan, sampled, chosen, {})

    def _verify(
        self, plan: StepPlan, cached: list[CachedSeq], sampled: SampledRows, logits: Array, drafter: Drafter | None
    ) -> list[SeqResult]:
        """The same of a step with drafts: accepted drafts and the token after them. `drafter` None: there is none, or it skips the step."""
        results, drafted = verify(self._sampler, self._acceptance, plan, sampled, logits)
        for verified in drafted:
            planned = plan.seqs[verified.place]
            if planned.draft_parents is not None:  # the accepted drafts of a chain are contiguous already
                self._moves += moves_of(planned, verified.rows, cached[verified.place].table, self._block_size)
            if drafter is not None:
                drafter.record_verified(planned, verified.rows, verified.choices)
        return results

    def _score_prompt(self, planned: PlannedSeq, cached: CachedSeq, logits: Array) -> tuple[TokenLogprobs, ...]:
        start = max(planned.start, planned.num_scored) + 1
        tokens = cached.info.prompt[start : start + len(logits)]
        return tuple(self._sampler.score(logits, tokens, [cached.info.params.prompt_logprobs or 0] * len(tokens)))


def normalized(hidden: Array) -> tuple[float, ...]:
    """A hidden state [width] scaled to length one. That of a text's last token is its embedding."""
    wide = hidden.astype(np.float64)
    return tuple((wide / max(float(np.sqrt((wide * wide).sum())), 1e-12)).tolist())
