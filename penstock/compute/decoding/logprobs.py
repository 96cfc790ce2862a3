"""Log-probabilities and ranks of given tokens, and the likeliest tokens of each row."""
from collections.abc import Sequence

from penstock.compute.arrays import Array, array_namespace, device
from penstock.compute.decoding.draw import row_max
from penstock.compute.decoding.rank import key_ids, largest_keys, rank_keys
from penstock.compute.decoding.sampling import Scores
from penstock.compute.decoding.sums import SumTree

_MAX_ROWS = 64  # rows per chunk, which bounds the memory that a long prompt takes


def log_softmax(logits: Array, ids: Array) -> Array:
    """log(softmax(logits)) at `ids`: float32 [rows, vocab], int64 [rows, n] -> float64 [rows, n]."""
    xp = array_namespace(logits)
    largest = row_max(logits)
    rows = xp.arange(logits.shape[0], device=device(logits))[:, None]
    log_total = xp.log(SumTree(xp.exp(logits - largest)).total)[:, None]
    return xp.astype(logits[rows, ids], xp.float64) - xp.astype(largest, xp.float64) - log_total


def score(logits: Array, token_ids: Sequence[int], num: int) -> Scores:
    """See Sampling.score; logits are float32 [rows, vocab]. Row i holds the logits that predict token_ids[i], chosen or of a prompt."""
    parts = [_score(logits[at : at + _MAX_ROWS, :], token_ids[at : at + _MAX_ROWS], num) for at in range(0, len(token_ids), _MAX_ROWS)]
    return Scores(
        [rank for part in parts for rank in part.ranks], [line for part in parts for line in part.values],
        [line for part in parts for line in part.ids])


def _score(logits: Array, token_ids: Sequence[int], num: int) -> Scores:
    xp = array_namespace(logits)
    chosen = xp.asarray(list(token_ids), dtype=xp.int64, device=device(logits))[:, None]
    rows = xp.arange(logits.shape[0], device=device(logits))[:, None]
    keys = rank_keys(logits)
    ranks = 1 + xp.sum(xp.astype(keys > keys[rows, chosen], xp.int64), axis=-1)
    top = key_ids(largest_keys(keys, num))
    return Scores(ranks.tolist(), log_softmax(logits, xp.concat([chosen, top], axis=-1)).tolist(), top.tolist())
