"""Executes plans: assembles the batch, runs the backend's step, chooses tokens."""
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Backend
from penstock.compute.price import Price
from penstock.compute.runner.batch import Choosing, assemble, moves_of
from penstock.compute.runner.decoding import Decoding
from penstock.compute.runner.drafter import Drafter
from penstock.compute.runner.known import Known
from penstock.compute.runner.verify import verify
from penstock.core.clock import Clock
from penstock.core.types import PlannedSeq, SeqResult, StepPlan, StepResult, TokenLogprobs

Array = Any


class Runner:
    """Keeps what sampling needs of each sequence from its first row until the plan says that it has finished."""

    def __init__(self, backend: Backend, loaded: Any, decoding: Decoding, price: Price, clock: Clock) -> None:
        self._sampler = decoding.sampler
        self._acceptance = decoding.acceptance
        self._drafter = drafter = decoding.drafter
        self._constraints = decoding.constraints
        self._buffers = () if drafter is None else drafter.buffers
        self._backend = backend
        self._loaded = loaded
        self._price = price
        self._clock = clock
        self._block_size: int = loaded.layout.block_size
        self._known: dict[int, Known] = {}
        self._moves: list[tuple[int, int]] = []  # slots, before anything else in the next step

    def execute(self, plan: StepPlan) -> StepResult:
        """One step. Raises whatever the backend raises; nothing is half-done then but slots that will be written again.

        What can be made before the backend's step is made before it: a model's weights leave nothing else in the caches.
        """
        known = self._look_up(plan)
        drafter = self._drafter
        if drafter is not None:
            rest = drafter.rest
            if rest.left > rest.heard:
                rest.left -= 1
                drafter = None
            else:
                drafter.began(plan)
        made = assemble(plan, known, self._block_size, self._moves, self._buffers)
        cost = self._price.count(made.work)
        seq_ids = [planned.seq_id for planned in plan.seqs]
        drafted = made.choosing.drafted
        penalized = [place for place, each in enumerate(known) if each.state.penalized and place not in drafted]
        if self._constraints is not None:
            self._constraints.began(plan, made.choosing)
        began = self._clock.now()
        outputs = self._backend.step(self._loaded, made.batch)
        seconds = self._clock.now() - began
        self._moves = []
        if self._constraints is not None:
            made.choosing.masks = self._constraints.masks()
        if drafted:
            results = self._verify(plan, known, made.choosing, outputs.logits, drafter)
        else:
            results = self._choose(seq_ids, made.choosing, outputs.logits)
        for place in penalized:
            known[place].state.extend(results[place].tokens)
        if self._constraints is not None:
            self._constraints.follow(known, results)
        asks: tuple[tuple[int, int], ...] = ()
        if drafter is not None:
            if self._buffers:
                drafter.keep(plan, known, outputs.buffers)
            asks = drafter.propose(plan, known, results)
        for each in made.special:
            place = each.place
            results[place] = replace(
                results[place], prompt_logprobs=self._score_prompt(plan.seqs[place], known[place], outputs.logits[each.prompt_rows]),
                embedding=None if each.embedding_row is None else normalized(outputs.buffers["hidden"][each.embedding_row]))
        return StepResult(
            plan.step_id, tuple(results), seconds, cost.weight_bytes, cost.kv_bytes, cost.activation_bytes, cost.operations,
            made.work, asks)

    def _look_up(self, plan: StepPlan) -> list[Known]:
        """What is known of each planned sequence, their tokens where they were asked for; forgets those that have finished."""
        for seq_id in plan.finished:
            self._known.pop(seq_id, None)
            if self._drafter is not None:
                self._drafter.end(seq_id)
            if self._constraints is not None:
                self._constraints.forget(seq_id)
        for planned in plan.seqs:
            if planned.new is not None:
                if self._drafter is not None:
                    self._drafter.forget(planned.seq_id)
                before = self._known.get(planned.seq_id)
                self._known[planned.seq_id] = Known(planned.new)
                if self._constraints is not None:
                    self._constraints.enter(planned.seq_id, self._known[planned.seq_id], before)
        for seq_id, start, tokens in plan.tails:
            self._known[seq_id].tokens[start:] = tokens
        return [self._known[planned.seq_id] for planned in plan.seqs]

    def _choose(self, seq_ids: list[int], choosing: Choosing, logits: Array) -> list[SeqResult]:
        """What each planned sequence chose, if anything."""
        rows = choosing.rows
        if not rows:
            return [SeqResult(seq_id) for seq_id in seq_ids]
        chosen = self._sampler.sample(
            logits if len(rows) == len(logits) else logits[rows], choosing.states, choosing.output_index, choosing.masks)
        if len(rows) == len(seq_ids) and not chosen.logprobs and not chosen.candidates:
            return [SeqResult(seq_id, (token,)) for seq_id, token in zip(seq_ids, chosen.tokens, strict=True)]
        found = [SeqResult(seq_id) for seq_id in seq_ids]
        for row, (place, token) in enumerate(zip(choosing.places, chosen.tokens, strict=True)):
            logprobs = (chosen.logprobs[row],) if row in chosen.logprobs else ()
            tokens = () if token is None else (token,)
            found[place] = SeqResult(seq_ids[place], tokens, logprobs, candidates=chosen.candidates.get(row, ()))
        return found

    def _verify(
        self, plan: StepPlan, known: list[Known], choosing: Choosing, logits: Array, drafter: Drafter | None
    ) -> list[SeqResult]:
        """The same of a step with drafts: those that were accepted, and the token after them. `drafter`: unless it rests."""
        found = [SeqResult(planned.seq_id) for planned in plan.seqs]
        for each in verify(self._sampler, self._acceptance, plan, choosing, logits):
            planned, found[each.place] = plan.seqs[each.place], each.result
            if planned.num_drafts:
                if planned.draft_parents is not None:  # what is accepted of a chain stands where it belongs
                    self._moves += moves_of(planned, each.rows, known[each.place].table, self._block_size)
                if drafter is not None:
                    drafter.check(planned, each.rows, each.choices)
        return found

    def _score_prompt(self, planned: PlannedSeq, known: Known, logits: Array) -> tuple[TokenLogprobs, ...]:
        tokens = known.info.prompt[planned.start + 1 : planned.start + 1 + len(logits)]
        return tuple(self._sampler.score(logits, tokens, [known.info.params.prompt_logprobs or 0] * len(tokens)))


def normalized(hidden: Array) -> tuple[float, ...]:
    """The last token's hidden state at length one: what a decoder has to say of a text."""
    wide = hidden.astype(np.float64)
    return tuple((wide / max(float(np.sqrt((wide * wide).sum())), 1e-12)).tolist())
