"""Changes of the logits that a request asks for: min_tokens, logit_bias, then repetition, frequency and presence penalties."""
from array import array
from collections.abc import Sequence

from penstock.compute.arrays import Array, array_namespace, device
from penstock.compute.decoding.state import RowState

_LARGEST = 1e30  # far beyond any model's logits, and twice it still fits float32


def changes(state: RowState, output_index: int) -> bool:
    """Whether `change` changes the row that samples output token `output_index`."""
    early = output_index < state.params.min_tokens and bool(state.stop_ids)
    return early or bool(state.bias_ids) or bool(state.seen_ids)


def change(logits: Array, rows: Sequence[int], states: Sequence[RowState], output_index: Sequence[int]) -> Array:
    """float32 [any, vocab] -> a changed copy of `rows`, each with its state and output index.

    - min_tokens: -inf for each token that would end the sequence, until it has so many output tokens.
    - logit_bias: added.
    - repetition_penalty r, for tokens of the prompt or the output: a positive logit is divided by r, any other multiplied
      (Keskar et al. 2019, arXiv:1909.05858).
    - frequency_penalty f and presence_penalty p, for tokens of the output: f * count + p is subtracted.
    """
    xp = array_namespace(logits)
    logits = xp.take(logits, xp.asarray(list(rows), dtype=xp.int64, device=device(logits)), axis=0)
    early = [row for row, state in enumerate(states) if state.stop_ids and output_index[row] < state.params.min_tokens]
    biased = [row for row, state in enumerate(states) if state.bias_ids]
    penalized = [row for row, state in enumerate(states) if state.seen_ids]
    if early:
        _forbid_stops(logits, states, early)
    if biased:
        _add_bias(logits, states, biased)
    if penalized:
        _penalize(logits, states, penalized)
    return logits


class _Entries:
    """(row, token) indices into the logits, collected over rows."""

    def __init__(self) -> None:
        self.rows = array("q")
        self.ids = array("q")

    def add(self, row: int, ids: Sequence[int]) -> None:
        self.rows.extend(array("q", [row]) * len(ids))
        self.ids.extend(ids)

    def index(self, logits: Array) -> tuple[Array, Array]:
        return _to(logits, self.rows, "int64"), _to(logits, self.ids, "int64")


def _to(logits: Array, values: "array[int] | array[float]", dtype: str) -> Array:
    xp = array_namespace(logits)
    return xp.asarray(values, dtype=getattr(xp, dtype), device=device(logits))


def _forbid_stops(logits: Array, states: Sequence[RowState], rows: Sequence[int]) -> None:
    entries = _Entries()
    for row in rows:
        entries.add(row, [token for token in states[row].stop_ids if 0 <= token < logits.shape[1]])
    logits[entries.index(logits)] = -array_namespace(logits).inf


def _add_bias(logits: Array, states: Sequence[RowState], rows: Sequence[int]) -> None:
    entries, values = _Entries(), array("d")
    for row in rows:
        entries.add(row, states[row].bias_ids)
        values.extend(states[row].bias_values)
    xp = array_namespace(logits)
    logits[entries.index(logits)] += xp.astype(_to(logits, values, "float64"), xp.float32)


def _penalize(logits: Array, states: Sequence[RowState], rows: Sequence[int]) -> None:
    entries, counts = _Entries(), array("q")
    repetition, frequency, presence = array("d"), array("d"), array("d")
    for row in rows:
        params, ids = states[row].params, states[row].seen_ids
        entries.add(row, ids)
        counts.extend(states[row].seen_counts)
        repetition.extend(array("d", [params.repetition_penalty]) * len(ids))
        frequency.extend(array("d", [params.frequency_penalty]) * len(ids))
        presence.extend(array("d", [params.presence_penalty]) * len(ids))
    xp = array_namespace(logits)
    index = entries.index(logits)
    factor = xp.clip(_to(logits, repetition, "float64"), min=1 / _LARGEST, max=_LARGEST)
    num_seen = xp.astype(_to(logits, counts, "int64"), xp.float64)
    before = xp.astype(logits[index], xp.float64)
    after = xp.where(before > 0, before / factor, before * factor)
    after -= _to(logits, frequency, "float64") * num_seen
    after -= _to(logits, presence, "float64") * xp.astype(num_seen > 0, xp.float64)
    after = xp.where(xp.isfinite(before), xp.clip(after, min=-_LARGEST, max=_LARGEST), before)
    logits[index] = xp.astype(after, xp.float32)
