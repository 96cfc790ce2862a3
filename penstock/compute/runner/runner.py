"""Executes plans: assembles the batch, runs the backend's step, chooses tokens."""
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Backend, Outputs
from penstock.compute.decoding.sampler import Choice, Sampler
from penstock.compute.decoding.state import RowState
from penstock.compute.price import Price
from penstock.compute.runner.batch import Wanted, assemble, wanted_rows
from penstock.core.clock import Clock
from penstock.core.types import PlannedSeq, SeqInfo, SeqResult, StepPlan, StepResult, TokenLogprobs
from penstock.core.work import StepWork

Array = Any


class Runner:
    """Keeps what sampling needs of each sequence from its first row until the plan says that it has finished."""

    def __init__(self, backend: Backend, loaded: Any, sampler: Sampler, price: Price, clock: Clock) -> None:
        self._backend = backend
        self._loaded = loaded
        self._sampler = sampler
        self._price = price
        self._clock = clock
        self._block_size: int = loaded.layout.block_size
        self._infos: dict[int, SeqInfo] = {}
        self._states: dict[int, RowState] = {}
        self._counted: dict[int, int] = {}  # output tokens that the state of a held sequence has been told of

    def execute(self, plan: StepPlan) -> StepResult:
        """One step. Raises whatever the backend raises; nothing is half-done then but slots that will be written again."""
        self._keep_books(plan)
        wanted = [self._wanted(planned) for planned in plan.seqs]
        buffers = ("hidden",) if any(self._embeds(planned) for planned in plan.seqs) else ()
        batch = assemble(plan, self._block_size, wanted, buffers)
        began = self._clock.now()
        outputs = self._backend.step(self._loaded, batch)
        seconds = self._clock.now() - began
        work = StepWork(tuple((len(p.tokens), p.start + len(p.tokens)) for p in plan.seqs), len(batch.logit_rows))
        cost = self._price.count(work)
        return StepResult(
            plan.step_id, tuple(self._results(plan, wanted, outputs)), compute_seconds=seconds, weight_bytes=cost.weight_bytes,
            kv_bytes=cost.kv_bytes, activation_bytes=cost.activation_bytes, operations=cost.operations)

    def _keep_books(self, plan: StepPlan) -> None:
        for seq_id in plan.finished:
            self._infos.pop(seq_id, None)
            self._states.pop(seq_id, None)
            self._counted.pop(seq_id, None)
        for planned in plan.seqs:
            if planned.new is not None:
                self._infos[planned.seq_id] = planned.new
                self._states[planned.seq_id] = RowState(planned.new, planned.new.output)
                self._counted[planned.seq_id] = len(planned.new.output)
            if self._infos[planned.seq_id].held:
                self._count_appended(planned)

    def _count_appended(self, planned: PlannedSeq) -> None:
        """A search appends tokens by itself: the state hears of them when they are computed."""
        counted = self._counted[planned.seq_id]
        fresh = planned.tokens[max(0, planned.num_prompt + counted - planned.start) :]
        self._states[planned.seq_id].extend(fresh)
        self._counted[planned.seq_id] = counted + len(fresh)

    def _wanted(self, planned: PlannedSeq) -> Wanted:
        info = self._infos[planned.seq_id]
        return wanted_rows(planned, info.params.prompt_logprobs is not None, not info.wants_embedding)

    def _embeds(self, planned: PlannedSeq) -> bool:
        return planned.samples and self._infos[planned.seq_id].wants_embedding

    def _results(self, plan: StepPlan, wanted: list[Wanted], outputs: Outputs) -> list[SeqResult]:
        sizes = [rows.num_prompt + rows.ends for rows in wanted]
        starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()  # [S + 1] rows of the logits
        choosing = [i for i, rows in enumerate(wanted) if rows.ends]
        choices = self._choose(plan, choosing, [starts[i + 1] - 1 for i in choosing], outputs.logits)
        results, row = [], 0
        for i, planned in enumerate(plan.seqs):
            choice = choices.get(i, Choice(None))
            tokens = () if choice.token is None else (choice.token,)
            self._states[planned.seq_id].extend(tokens)
            row += len(planned.tokens)
            results.append(SeqResult(
                planned.seq_id, tokens=tokens, logprobs=() if choice.logprobs is None else (choice.logprobs,),
                prompt_logprobs=self._score_prompt(planned, outputs.logits[starts[i] : starts[i] + wanted[i].num_prompt]),
                candidates=choice.candidates,
                embedding=normalized(outputs.buffers["hidden"][row - 1]) if self._embeds(planned) else None))
        return results

    def _choose(self, plan: StepPlan, choosing: list[int], rows: list[int], logits: Array) -> dict[int, Choice]:
        """Index in the plan -> choice."""
        if not choosing:
            return {}
        if len(rows) != logits.shape[0]:
            logits = logits[rows]
        states = [self._states[plan.seqs[i].seq_id] for i in choosing]
        choices = self._sampler.sample(logits, states, [plan.seqs[i].num_output for i in choosing])
        return dict(zip(choosing, choices, strict=True))

    def _score_prompt(self, planned: PlannedSeq, logits: Array) -> tuple[TokenLogprobs, ...]:
        if not logits.shape[0]:
            return ()
        info = self._infos[planned.seq_id]
        tokens = info.prompt[planned.start + 1 : planned.start + 1 + logits.shape[0]]
        return tuple(self._sampler.score(logits, tokens, [info.params.prompt_logprobs or 0] * len(tokens)))


def normalized(hidden: Array) -> tuple[float, ...]:
    """The last token's hidden state at length one: what a decoder has to say of a text."""
    wide = hidden.astype(np.float64)
    return tuple((wide / max(float(np.sqrt((wide * wide).sum())), 1e-12)).tolist())
