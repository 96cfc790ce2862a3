"""Chooses one token for each row of logits.

A row is processed in this order, vLLM's:
1. log-probabilities are taken from the model's own logits: nothing below alters what is reported;
2. min_tokens, logit_bias, repetition, frequency and presence penalties (adjust.py);
3. temperature; at 0 the likeliest token is taken, the lowest id among equals, and the rest does not apply;
4. the filters, in the order they were given: top-k, top-p, min-p, typical-p, each over what those before it have left;
5. the draw (draw.py).
A held row belongs to a search: it chooses nothing and reports its likeliest tokens after step 2 with their log-probabilities.

A row's result has the same bits whatever rows are beside it: all but exact selection is done entry by entry, sums included (sums.py).
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any as Array
from typing import Protocol

from penstock.compute.arrays import array_namespace, device
from penstock.compute.decoding.adjust import adjust
from penstock.compute.decoding.draw import below_max, draw, uniform
from penstock.compute.decoding.logprobs import likeliest, token_logprobs
from penstock.compute.decoding.state import RowState
from penstock.core.types import SamplingParams, TokenLogprobs

_COLDEST, _HOTTEST = 1e-30, 1e30  # a temperature beyond these is no different from them in float32


class Filter(Protocol):
    def setting(self, params: SamplingParams) -> float | None:
        """What this request asks of the filter; None: nothing, its rows are not touched."""
        ...

    def apply(self, logits: Array, settings: Sequence[float]) -> Array:
        """float32 [rows, vocab], after temperature -> the same with -inf for each token that must not be drawn; one stays at least."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """What one row came to. A held row has no token, but candidates: (token, log-probability) in falling order."""

    token: int | None
    logprobs: TokenLogprobs | None = None
    candidates: tuple[tuple[int, float], ...] = ()


class Sampler:
    def __init__(self, filters: Sequence[Filter]) -> None:
        """`filters` in the order in which they are applied, which is that of their table."""
        self._filters = tuple(filters)

    def sample(self, logits: Array, states: Sequence[RowState], output_index: Sequence[int]) -> list[Choice]:
        """One Choice per row of `logits` [rows, vocab], of any floating type, computed in float32.

        `output_index[i]` is the number of output tokens before the one that row i chooses: the index of its draw, and what min_tokens
        is compared with. `states` are read, not changed. Raises ValueError unless there is one state and one index for each row.
        """
        num_rows = logits.shape[0]
        if not num_rows == len(states) == len(output_index):
            raise ValueError(f"{num_rows} rows of logits need as many states and indices, not {len(states)} and {len(output_index)}")
        xp = array_namespace(logits)
        logits = xp.astype(logits, xp.float32, copy=False)
        if all(state.plain for state in states):
            return [Choice(token) for token in xp.argmax(logits, axis=-1).tolist()]
        adjusted = adjust(logits, states, output_index)
        tokens = self._choose(adjusted, states, output_index)
        scores = _score(logits, states, tokens)
        held = [row for row, state in enumerate(states) if state.held]
        candidates = dict(zip(held, likeliest(_take(adjusted, held), [states[row].num_candidates for row in held]), strict=True))
        return [Choice(tokens.get(row), scores.get(row), candidates.get(row, ())) for row in range(num_rows)]

    def _choose(self, logits: Array, states: Sequence[RowState], output_index: Sequence[int]) -> dict[int, int]:
        """row -> token, for all rows that are not held."""
        xp = array_namespace(logits)
        greedy = [row for row, state in enumerate(states) if state.params.temperature == 0 and not state.held]
        drawn = [row for row, state in enumerate(states) if state.params.temperature != 0 and not state.held]
        tokens: dict[int, int] = {}
        if greedy:
            tokens.update(zip(greedy, xp.argmax(_take(logits, greedy), axis=-1).tolist(), strict=True))
        if drawn:
            chosen = self._draw(_take(logits, drawn), [states[row] for row in drawn], [output_index[row] for row in drawn])
            tokens.update(zip(drawn, chosen, strict=True))
        return tokens

    def _draw(self, logits: Array, states: Sequence[RowState], output_index: Sequence[int]) -> list[int]:
        xp = array_namespace(logits)
        temperatures = [min(max(state.params.temperature, _COLDEST), _HOTTEST) for state in states]
        scaled = below_max(logits) / xp.asarray(temperatures, dtype=xp.float32, device=device(logits))[:, None]
        for each in self._filters:
            settings = {row: setting for row, state in enumerate(states) if (setting := each.setting(state.params)) is not None}
            if len(settings) == len(states):
                scaled = each.apply(scaled, list(settings.values()))
            elif settings:
                rows = xp.asarray(list(settings), device=device(logits))
                scaled[rows] = each.apply(scaled[rows, :], list(settings.values()))
        return draw(scaled, [uniform(state.seed, index) for state, index in zip(states, output_index, strict=True)])


def _score(logits: Array, states: Sequence[RowState], tokens: dict[int, int]) -> dict[int, TokenLogprobs]:
    """row -> what it reports of its token, for the rows that report."""
    nums = {row: num for row in tokens if (num := states[row].num_logprobs) is not None}
    scored = token_logprobs(_take(logits, list(nums)), [tokens[row] for row in nums], list(nums.values()))
    return dict(zip(nums, scored, strict=True))


def _take(logits: Array, rows: Sequence[int]) -> Array:
    """Some rows of the logits: without a copy when it is all of them, in their order."""
    if list(rows) == list(range(logits.shape[0])):
        return logits
    xp = array_namespace(logits)
    return xp.take(logits, xp.asarray(list(rows), dtype=xp.int64, device=device(logits)), axis=0)
