"""Executes plans: assembles the batch, runs the backend's step, chooses tokens."""
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Backend, Outputs
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.decoding.state import RowState
from penstock.compute.price import Price
from penstock.compute.runner.batch import Wanted, assemble
from penstock.compute.runner.known import Known
from penstock.core.clock import Clock
from penstock.core.types import PlannedSeq, SeqResult, StepPlan, StepResult, TokenLogprobs

Array = Any


@dataclass(slots=True)
class Choosing:
    """The rows of a step that choose a token, in the plan's order."""

    rows: list[int]  # of the logits
    states: list[RowState]
    output_index: list[int]
    places: list[int | None]  # of each planned sequence: which of these rows is its own


class Runner:
    """Keeps what sampling needs of each sequence from its first row until the plan says that it has finished."""

    def __init__(self, backend: Backend, loaded: Any, sampler: Sampler, price: Price, clock: Clock) -> None:
        self._backend = backend
        self._loaded = loaded
        self._sampler = sampler
        self._price = price
        self._clock = clock
        self._block_size: int = loaded.layout.block_size
        self._known: dict[int, Known] = {}

    def execute(self, plan: StepPlan) -> StepResult:
        """One step. Raises whatever the backend raises; nothing is half-done then but slots that will be written again.

        What can be made before the backend's step is made before it: a model's weights leave nothing else in the caches.
        """
        known = self._look_up(plan)
        wanted = [each.plan(planned) for each, planned in zip(known, plan.seqs, strict=True)]
        special = [i for i, each in enumerate(known) if wanted[i].num_prompt or each.info.wants_embedding]
        embeds = any([known[i].embeds(plan.seqs[i]) for i in special])
        batch, work = assemble(plan, self._block_size, wanted, [each.table for each in known], ("hidden",) if embeds else ())
        cost = self._price.count(work)
        choosing = choose_rows(plan, known, wanted)
        seq_ids = [planned.seq_id for planned in plan.seqs]
        penalized = [i for i, each in enumerate(known) if each.state.penalized]
        began = self._clock.now()
        outputs = self._backend.step(self._loaded, batch)
        seconds = self._clock.now() - began
        results = self._choose(seq_ids, choosing, outputs.logits)
        for i in penalized:
            known[i].state.extend(results[i].tokens)
        if special:
            self._add_special(results, (plan, known, wanted), outputs)
        return StepResult(
            plan.step_id, tuple(results), seconds, cost.weight_bytes, cost.kv_bytes, cost.activation_bytes, cost.operations)

    def _look_up(self, plan: StepPlan) -> list[Known]:
        """What is known of each planned sequence; forgets those that have finished."""
        for seq_id in plan.finished:
            self._known.pop(seq_id, None)
        for planned in plan.seqs:
            if planned.new is not None:
                self._known[planned.seq_id] = Known(planned.new)
        return [self._known[planned.seq_id] for planned in plan.seqs]

    def _choose(self, seq_ids: list[int], choosing: Choosing, logits: Array) -> list[SeqResult]:
        """What each planned sequence chose, if anything."""
        rows = choosing.rows
        if not rows:
            return [SeqResult(seq_id) for seq_id in seq_ids]
        choices = self._sampler.sample(logits if len(rows) == len(logits) else logits[rows], choosing.states, choosing.output_index)
        results = []
        for seq_id, place in zip(seq_ids, choosing.places, strict=True):
            if place is None:
                results.append(SeqResult(seq_id))
                continue
            choice = choices[place]
            tokens = () if choice.token is None else (choice.token,)
            results.append(SeqResult(seq_id, tokens, () if choice.logprobs is None else (choice.logprobs,), (), choice.candidates))
        return results

    def _add_special(
        self, results: list[SeqResult], step: tuple[StepPlan, list[Known], list[Wanted]], outputs: Outputs
    ) -> None:
        """Log-probabilities of prompt tokens, and embeddings."""
        row = at = 0  # of the step's rows, and of the logits
        for i, (planned, each, rows) in enumerate(zip(step[0].seqs, step[1], step[2], strict=True)):
            row += len(planned.tokens)
            if rows.num_prompt:
                scored = self._score_prompt(planned, each, outputs.logits[at : at + rows.num_prompt])
                results[i] = replace(results[i], prompt_logprobs=scored)
            if each.embeds(planned):
                results[i] = replace(results[i], embedding=normalized(outputs.buffers["hidden"][row - 1]))
            at += rows.num_prompt + rows.ends

    def _score_prompt(self, planned: PlannedSeq, known: Known, logits: Array) -> tuple[TokenLogprobs, ...]:
        tokens = known.info.prompt[planned.start + 1 : planned.start + 1 + logits.shape[0]]
        return tuple(self._sampler.score(logits, tokens, [known.info.params.prompt_logprobs or 0] * len(tokens)))


def choose_rows(plan: StepPlan, known: list[Known], wanted: list[Wanted]) -> Choosing:
    choosing = Choosing([], [], [], [])
    at = 0  # of the logits
    for planned, each, asked in zip(plan.seqs, known, wanted, strict=True):
        at += asked.num_prompt
        if asked.ends:
            choosing.places.append(len(choosing.rows))
            choosing.rows.append(at)
            choosing.states.append(each.state)
            choosing.output_index.append(planned.num_output)
            at += 1
        else:
            choosing.places.append(None)
    return choosing


def normalized(hidden: Array) -> tuple[float, ...]:
    """The last token's hidden state at length one: what a decoder has to say of a text."""
    wide = hidden.astype(np.float64)
    return tuple((wide / max(float(np.sqrt((wide * wide).sum())), 1e-12)).tolist())
