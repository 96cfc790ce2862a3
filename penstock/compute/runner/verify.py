"""Chooses the tokens of a step that has drafts: for each sequence those that are accepted, and the one after them."""
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.compute.decoding.accept import Instead, walk
from penstock.compute.decoding.acceptance.contract import Acceptance
from penstock.compute.decoding.sampler import Sampler
from penstock.compute.runner.batch import Choosing, drafts_of
from penstock.core.types import PlannedSeq, SeqResult, StepPlan, TokenLogprobs

Array = Any


@dataclass(frozen=True, slots=True)
class Verified:
    """What became of one sequence that chooses. `rows` as accept.walk gives them; `choices`: after each row, where all are known."""

    place: int  # in the plan
    result: SeqResult
    rows: list[int]
    choices: tuple[int, ...] = ()


def verify(sampler: Sampler, acceptance: Acceptance, plan: StepPlan, choosing: Choosing, logits: Array) -> Iterator[Verified]:
    """A row's choice does not depend on the rows before it but where penalties count their tokens; those are chosen one by one. A mask
    belongs to the path of drafts that leads to its row, and is known like the row's logits."""
    states, drafted, masks = choosing.states, choosing.drafted, choosing.masks
    at_once = [i for i, place in enumerate(choosing.places) if not (place in drafted and states[i].penalized)]
    chosen = sampler.sample(
        some_of(logits, [choosing.rows[i] for i in at_once]), [states[i] for i in at_once], [choosing.output_index[i] for i in at_once],
        None if masks is None else masks.among(at_once))
    row_of = {i: row for row, i in enumerate(at_once)}
    for place, first in {**dict(zip(choosing.places, range(len(choosing.places)), strict=True)), **drafted}.items():
        planned = plan.seqs[place]
        if place in drafted and states[first].penalized:
            yield in_turn(sampler, place, planned, choosing, logits)
            continue
        choices = [chosen.tokens[row_of[first + row]] for row in range(planned.num_drafts + 1)]
        rows, tokens = walk(
            drafts_of(planned), planned.draft_parents, choices.__getitem__,
            replacing(sampler, acceptance, planned, choosing, first, logits))
        at = [row_of[first + row] for row in rows]
        result = SeqResult(
            planned.seq_id, tuple([token for token in tokens if token is not None]),
            tuple([chosen.logprobs[row] for row in at if row in chosen.logprobs]), candidates=chosen.candidates.get(at[0], ()))
        known = () if states[first].matcher is not None else tuple([token for token in choices if token is not None])
        yield Verified(place, result, rows, known)


def some_of(logits: Array, rows: list[int]) -> Array:
    """Without a copy where it is all of them, in their order."""
    return logits if rows == list(range(len(logits))) else logits[rows]


def replacing(sampler: Sampler, acceptance: Acceptance, planned: PlannedSeq, choosing: Choosing, first: int, logits: Array,
              ) -> Instead | None:
    """What may stand in for the choices of a sequence whose rows begin at `first`, where its choices may be replaced at all."""
    state = choosing.states[first]
    if acceptance.lossless or not planned.num_drafts or not state.plain or state.params.temperature == 0:
        return None
    drafts = drafts_of(planned)

    def instead(row: int, after: list[int]) -> int | None:
        found = acceptance.instead(sampler.scaled(logits[choosing.rows[first + row]], state.params), [drafts[i] for i in after])
        return None if found is None else after[found]

    return instead


def in_turn(sampler: Sampler, place: int, planned: PlannedSeq, choosing: Choosing, logits: Array) -> Verified:
    """Row after row along the accepted path; the sequence's state is told of each choice."""
    first = choosing.drafted[place]
    state = choosing.states[first]
    logprobs: list[TokenLogprobs] = []

    def choose(row: int) -> int:
        at = choosing.rows[first + row]
        masks = None if choosing.masks is None else choosing.masks.among([first + row])
        chosen = sampler.sample(logits[at : at + 1], [state], [choosing.output_index[first + row]], masks)
        (token,) = chosen.tokens
        assert token is not None
        state.extend((token,))
        logprobs.extend(chosen.logprobs.values())
        return token

    rows, tokens = walk(drafts_of(planned), planned.draft_parents, choose)
    return Verified(place, SeqResult(planned.seq_id, tuple([token for token in tokens if token is not None]), tuple(logprobs)), rows)
