"""Samples one token for each row of logits.

The stages of a row, with the filters in the order of transformers (vLLM's V1 applies min-p before top-k and top-p):
1. log-probabilities are taken from the model's own logits, so that nothing below changes what is reported;
2. min_tokens, logit_bias, repetition, frequency and presence penalties (adjust.py); then the mask of the row's grammar, last so that
   nothing can make a forbidden token possible again;
3. temperature; at 0 the token with the highest logit is chosen, the lowest id among equals, and the stages below do not apply;
4. the filters in the order given: top-k, top-p, min-p, typical-p, each over the tokens that the ones before it have left;
5. the draw (draw.py).
A held row belongs to a search: no token is sampled, but its likeliest tokens after stage 2 are reported with their log-probabilities.

A row's result is bit-identical whatever rows are in the batch with it.
"""
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from penstock.compute.arrays import Array, array_namespace
from penstock.compute.decoding.adjust import change, changes
from penstock.compute.decoding.masking import RowMasks
from penstock.compute.decoding.portable import Filter, Portable
from penstock.compute.decoding.sampling import Sampling
from penstock.compute.decoding.state import RowState
from penstock.core.message import message
from penstock.core.types import SamplingParams, TokenLogprobs


@message
class Chosen:
    """Results by row. A held row has no token, but candidates: (token, log-probability) in falling order."""

    tokens: Sequence[int | None]  # [rows]
    logprobs: Mapping[int, TokenLogprobs] = field(default_factory=dict)  # by row
    candidates: Mapping[int, tuple[tuple[int, float], ...]] = field(default_factory=dict)  # by row


class Sampler:
    """Samples tokens, and reports log-probabilities, by the stages above."""

    def __init__(self, filters: Sequence[Filter], fused: Sampling | None = None) -> None:
        """`filters` are applied in this order, which is that of their table. `fused`: the backend's implementation of stages 3 to 5, of
        masks and of log-probabilities, used instead of the portable one."""
        self._portable = Portable(filters)
        self._sampling: Sampling = self._portable if fused is None else fused

    def sample(
        self, logits: Array, states: Sequence[RowState], output_index: Sequence[int], masks: RowMasks | None = None
    ) -> Chosen:
        """Samples a token for each row of `logits` [rows, vocab], of any floating type; computed in float32.

        `output_index[i]` is the number of output tokens before the one that row i samples; it selects the random number of the draw, and is
        compared with min_tokens. `masks`: grammar masks; applied to `logits` in place, except for rows that are sampled from a changed copy
        or whose log-probabilities are reported. Raises ValueError unless there are as many states and indices as rows.
        """
        num_rows = logits.shape[0]
        if not num_rows == len(states) == len(output_index):
            raise ValueError(f"{num_rows} rows of logits need as many states and indices, not {len(states)} and {len(output_index)}")
        logits = in_float32(logits)
        if False not in [state.plain for state in states]:
            return Chosen(self._sampling.choose(logits, None, self._drawings(states), output_index))
        parts = self._split(logits, states, output_index, masks)
        tokens = {row: token for part in parts for row, token in self._tokens(part, states, output_index)}
        candidates = {row: found for part in parts for row, found in self._candidates(part, states)}
        nums = {row: num for row in tokens if (num := states[row].num_logprobs) is not None}
        scored = self._report(logits, list(nums), [tokens[row] for row in nums], list(nums.values()))
        logprobs = dict(zip(nums, scored, strict=True))
        return Chosen([tokens.get(row) for row in range(num_rows)], logprobs, candidates)

    def guess(self, logits: Array, states: Sequence[RowState], output_index: Sequence[int]) -> list[int]:
        """Samples by temperature, filters and draw alone, from the logits of a draft model. Since the draw uses the random number that the
        target's draw will use, the two agree more often than independent draws would."""
        return self._sampling.choose(in_float32(logits), None, self._drawings(states), output_index)

    def score(self, logits: Array, token_ids: Sequence[int], nums: Sequence[int]) -> list[TokenLogprobs]:
        """For each row of logits [rows, vocab] the log-probability and rank of its token, and the `nums[row]` likeliest tokens."""
        return self._report(in_float32(logits), None, token_ids, nums)

    def scaled(self, logits: Array, params: SamplingParams) -> Array:
        """The logits that a row [vocab] is drawn from at a temperature above 0: (logits - maximum) / temperature, -inf for tokens that the
        filters removed."""
        return self._portable.scaled(in_float32(logits)[None, :], [self._portable.drawing(params, 0)])[0, :]

    def _report(
        self, logits: Array, rows: Sequence[int] | None, token_ids: Sequence[int], nums: Sequence[int]
    ) -> list[TokenLogprobs]:
        if not token_ids:
            return []
        scores = self._sampling.score(logits, rows, token_ids, max(nums))
        return [TokenLogprobs(token, values[0], rank, tuple(zip(ids[:num], values[1:], strict=False)))
                for token, num, rank, values, ids in zip(token_ids, nums, scores.ranks, scores.values, scores.ids, strict=True)]

    def _split(
        self, logits: Array, states: Sequence[RowState], output_index: Sequence[int], masks: RowMasks | None
    ) -> list["Part"]:
        """Splits the rows into those sampled from the model's own logits and those that need a changed copy, and applies masks to both."""
        masked = set(masks.rows) if masks is not None else ()
        changed = [row for row, state in enumerate(states)
                   if changes(state, output_index[row]) or row in masked and state.num_logprobs is not None]
        own = sorted(set(range(len(states))) - set(changed))
        parts = [Part(logits, own, own)]
        if changed:
            altered = change(logits, changed, [states[row] for row in changed], [output_index[row] for row in changed])
            parts.append(Part(altered, changed, list(range(len(changed)))))
        for part in parts:
            part_masks = None if masks is None else masks.among(part.rows)
            if part_masks is not None and part_masks.rows:
                self._sampling.forbid(part.logits, [part.places[row] for row in part_masks.rows], part_masks.allowed)
        return parts

    def _tokens(self, part: "Part", states: Sequence[RowState], output_index: Sequence[int]) -> Iterator[tuple[int, int]]:
        """(row, sampled token) of rows that are not held."""
        places = {row: place for row, place in zip(part.rows, part.places, strict=True) if not states[row].held}
        if places:
            drawings = self._drawings([states[row] for row in places])
            chosen = self._sampling.choose(part.logits, list(places.values()), drawings, [output_index[row] for row in places])
            yield from zip(places, chosen, strict=True)

    def _candidates(self, part: "Part", states: Sequence[RowState]) -> Iterator[tuple[int, tuple[tuple[int, float], ...]]]:
        """(row, likeliest tokens) of held rows."""
        places = {row: place for row, place in zip(part.rows, part.places, strict=True) if states[row].held}
        nums = [states[row].num_candidates for row in places]
        scored = self._report(part.logits, list(places.values()), [0] * len(places), nums)
        yield from zip(places, (each.top for each in scored), strict=True)

    def _drawings(self, states: Sequence[RowState]) -> list[Any]:
        return [state.drawing or self._begin(state) for state in states]

    def _begin(self, state: RowState) -> Any:
        state.drawing = self._sampling.drawing(state.params, state.seed)
        return state.drawing


@dataclass(frozen=True, slots=True)
class Part:
    """Some rows of a step: row rows[i] is sampled from logits[places[i]], which are the model's own or a changed copy."""

    logits: Array
    rows: list[int]
    places: list[int]


def in_float32(logits: Array) -> Array:
    xp = array_namespace(logits)
    return logits if logits.dtype == xp.float32 else xp.astype(logits, xp.float32)
