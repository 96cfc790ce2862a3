"""Chooses the tokens of a step: for each sequence one, or the accepted drafts and the token after the last of them."""
from collections.abc import Mapping, Sequence

from penstock.compute.arrays import Array
from penstock.compute.decoding.accept import Substitute, num_agreeing, walk
from penstock.compute.decoding.acceptance.contract import Acceptance
from penstock.compute.decoding.sampler import Chosen, Sampler
from penstock.compute.runner.batch import SampledRows, drafts_of
from penstock.core.message import message
from penstock.core.types import PlannedSeq, SeqResult, StepPlan, TokenLogprobs


@message
class Verified:
    """One sequence with drafts. `rows`: the accepted path as accept.walk returns it; `choices`: the model's choice after each row of the
    sequence, [1 + drafts], empty where these depend on each other."""

    place: int  # index in the plan
    result: SeqResult
    rows: Sequence[int]
    choices: Sequence[int | None] = ()


def verify(sampler: Sampler, acceptance: Acceptance, plan: StepPlan, sampled: SampledRows, logits: Array,
           ) -> tuple[list[SeqResult], list[Verified]]:
    """The results of all sequences, and what became of the drafts of those that have any.

    All rows are sampled in one call, since a row's choice does not depend on the rows before it. Penalties are the exception, because they
    count the tokens before a row: sequences with penalties and drafts are sampled row by row. A grammar's mask belongs to the draft path
    that leads to its row, so it is known beforehand.
    """
    states, drafted = sampled.states, sampled.drafted
    sequential = {place for place, first in drafted.items() if states[first].penalized}
    chosen = sample_parallel(sampler, sampled, logits, sequential)
    found: list[Verified] = []
    for place, first in drafted.items():
        planned = plan.seqs[place]
        if place in sequential:
            found.append(sample_sequential(sampler, place, planned, sampled, logits))
            continue
        choices = chosen.tokens[first : first + planned.num_drafts + 1]
        rows: Sequence[int]
        tokens: Sequence[int | None]
        if acceptance.lossless and planned.draft_parents is None:
            num = 1 + num_agreeing(drafts_of(planned), choices)
            rows, tokens = range(num), choices[:num]
        else:
            substitute = None if acceptance.lossless else substitution(sampler, acceptance, planned, sampled, first, logits)
            rows, tokens = walk(drafts_of(planned), planned.draft_parents, choices.__getitem__, substitute)
        logprobs = tuple([chosen.logprobs[first + row] for row in rows if first + row in chosen.logprobs]) if chosen.logprobs else ()
        result = SeqResult(planned.seq_id, without_none(tokens), logprobs, (), chosen.candidates.get(first, ()))
        found.append(Verified(place, result, rows, () if states[first].matcher is not None else choices))
    return results_of(plan, sampled, chosen, {verified.place: verified.result for verified in found}), found


def results_of(plan: StepPlan, sampled: SampledRows, chosen: Chosen, verified: Mapping[int, SeqResult]) -> list[SeqResult]:
    """Of all sequences. `verified`: by place, those of sequences with drafts."""
    tokens, logprobs, candidates = chosen.tokens, chosen.logprobs, chosen.candidates
    is_plain = not logprobs and not candidates
    if is_plain and not verified and len(tokens) == len(plan.seqs):
        return [SeqResult(planned.seq_id, (token,)) for planned, token in zip(plan.seqs, without_none(tokens), strict=True)]
    row_of = dict(zip(sampled.places, range(len(sampled.places)), strict=True))
    results: list[SeqResult] = []
    for place, planned in enumerate(plan.seqs):
        if place in verified:
            results.append(verified[place])
        elif (row := row_of.get(place)) is None:
            results.append(SeqResult(planned.seq_id))
        elif is_plain:
            results.append(SeqResult(planned.seq_id, without_none((tokens[row],))))
        else:
            results.append(SeqResult(
                planned.seq_id, without_none((tokens[row],)), (logprobs[row],) if row in logprobs else (), (), candidates.get(row, ())))
    return results


def sample_parallel(sampler: Sampler, sampled: SampledRows, logits: Array, excluded: set[int]) -> Chosen:
    """Samples all rows at once, except those of the `excluded` places, whose tokens are None."""
    if not excluded:
        return sampler.sample(select_rows(logits, sampled.rows), sampled.states, sampled.output_index, sampled.masks)
    kept = [i for i, place in enumerate(sampled.places) if place not in excluded]
    chosen = sampler.sample(
        select_rows(logits, [sampled.rows[i] for i in kept]), [sampled.states[i] for i in kept], [sampled.output_index[i] for i in kept],
        None if sampled.masks is None else sampled.masks.among(kept))
    tokens: list[int | None] = [None] * len(sampled.places)
    for i, token in zip(kept, chosen.tokens, strict=True):
        tokens[i] = token
    return Chosen(tokens, {kept[row]: found for row, found in chosen.logprobs.items()},
                  {kept[row]: found for row, found in chosen.candidates.items()})


def select_rows(logits: Array, rows: list[int]) -> Array:
    """Some rows of the logits, in rising order; no copy if these are all rows."""
    return logits if len(rows) == len(logits) else logits[rows]


def without_none(tokens: Sequence[int | None]) -> tuple[int, ...]:
    return tuple([token for token in tokens if token is not None])


def substitution(sampler: Sampler, acceptance: Acceptance, planned: PlannedSeq, sampled: SampledRows, first: int, logits: Array,
                 ) -> Substitute | None:
    """A lossy acceptance rule applied to the sequence whose rows begin at index `first`. None where the rule does not apply: the sequence
    is greedy, or anything but temperature and filters is asked of it."""
    state = sampled.states[first]
    if not state.plain or state.params.temperature == 0:
        return None
    drafts = drafts_of(planned)

    def substitute(row: int, children: list[int]) -> int | None:
        scaled = sampler.scaled(logits[sampled.rows[first + row]], state.params)
        found = acceptance.substitute(scaled, [drafts[i] for i in children])
        return None if found is None else children[found]

    return substitute


def sample_sequential(sampler: Sampler, place: int, planned: PlannedSeq, sampled: SampledRows, logits: Array) -> Verified:
    """Samples row after row along the accepted path, and adds each choice to the sequence's state before the next."""
    first = sampled.drafted[place]
    state = sampled.states[first]
    logprobs: list[TokenLogprobs] = []

    def choose(row: int) -> int:
        logit_row = sampled.rows[first + row]
        masks = None if sampled.masks is None else sampled.masks.among([first + row])
        chosen = sampler.sample(logits[logit_row : logit_row + 1], [state], [sampled.output_index[first + row]], masks)
        (token,) = chosen.tokens
        assert token is not None
        state.extend((token,))
        logprobs.extend(chosen.logprobs.values())
        return token

    rows, tokens = walk(drafts_of(planned), planned.draft_parents, choose)
    return Verified(place, SeqResult(planned.seq_id, without_none(tokens), tuple(logprobs)), rows)
