"""Chooses the tokens of a step that has drafts: for each sequence those that are accepted, and the one after them."""
from collections.abc import Iterator, Sequence
from typing import Any

from penstock.compute.decoding.accept import Instead, walk
from penstock.compute.decoding.acceptance.contract import Acceptance
from penstock.compute.decoding.sampler import Chosen, Sampler
from penstock.compute.runner.batch import Choosing, drafts_of
from penstock.core.message import message
from penstock.core.types import PlannedSeq, SeqResult, StepPlan, TokenLogprobs

Array = Any


@message
class Verified:
    """What became of one sequence that chooses. `rows` as accept.walk gives them; `choices`: after each row, where all are known."""

    place: int  # in the plan
    result: SeqResult
    rows: list[int]
    choices: tuple[int, ...] = ()


def verify(sampler: Sampler, acceptance: Acceptance, plan: StepPlan, choosing: Choosing, logits: Array) -> Iterator[Verified]:
    """A row's choice does not depend on the rows before it but where penalties count their tokens; those are chosen one by one. A mask
    belongs to the path of drafts that leads to its row, and is known like the row's logits."""
    states, drafted = choosing.states, choosing.drafted
    alone = {place for place, first in drafted.items() if states[first].penalized}
    chosen = at_once(sampler, choosing, logits, alone)
    for place, first in {**dict(zip(choosing.places, range(len(choosing.places)), strict=True)), **drafted}.items():
        planned = plan.seqs[place]
        if place in alone:
            yield in_turn(sampler, place, planned, choosing, logits)
            continue
        choices = chosen.tokens[first : first + planned.num_drafts + 1]
        rows, tokens = [0], choices
        if planned.num_drafts:
            instead = None if acceptance.lossless else replacing(sampler, acceptance, planned, choosing, first, logits)
            rows, tokens = walk(drafts_of(planned), planned.draft_parents, choices.__getitem__, instead)
        logprobs = tuple([chosen.logprobs[first + row] for row in rows if first + row in chosen.logprobs]) if chosen.logprobs else ()
        result = SeqResult(planned.seq_id, whole(tokens), logprobs, (), chosen.candidates.get(first, ()))
        yield Verified(place, result, rows, () if states[first].matcher is not None else whole(choices))


def at_once(sampler: Sampler, choosing: Choosing, logits: Array, alone: set[int]) -> Chosen:
    """What all rows come to but those of the places that are chosen alone."""
    if not alone:
        return sampler.sample(some_of(logits, choosing.rows), choosing.states, choosing.output_index, choosing.masks)
    those = [i for i, place in enumerate(choosing.places) if place not in alone]
    chosen = sampler.sample(
        some_of(logits, [choosing.rows[i] for i in those]), [choosing.states[i] for i in those], [choosing.output_index[i] for i in those],
        None if choosing.masks is None else choosing.masks.among(those))
    tokens: list[int | None] = [None] * len(choosing.places)
    for i, token in zip(those, chosen.tokens, strict=True):
        tokens[i] = token
    return Chosen(tokens, {those[row]: found for row, found in chosen.logprobs.items()},
                  {those[row]: found for row, found in chosen.candidates.items()})


def some_of(logits: Array, rows: list[int]) -> Array:
    """Without a copy where it is all of them, in their order."""
    return logits if rows == list(range(len(logits))) else logits[rows]


def whole(tokens: Sequence[int | None]) -> tuple[int, ...]:
    return tuple([token for token in tokens if token is not None])


def replacing(sampler: Sampler, acceptance: Acceptance, planned: PlannedSeq, choosing: Choosing, first: int, logits: Array,
              ) -> Instead | None:
    """What may stand in for the choices of a sequence whose rows begin at `first`, where its choices may be replaced at all."""
    state = choosing.states[first]
    if not state.plain or state.params.temperature == 0:
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
    return Verified(place, SeqResult(planned.seq_id, whole(tokens), tuple(logprobs)), rows)
