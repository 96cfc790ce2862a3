"""Log-probabilities as a request reports them: a token's own, its rank, and the likeliest tokens beside it."""
from collections.abc import Sequence
from typing import Any as Array

from penstock.compute.arrays import array_namespace, device
from penstock.compute.decoding.draw import row_max
from penstock.compute.decoding.rank import key_ids, largest_keys, rank_keys
from penstock.compute.decoding.sums import SumTree
from penstock.core.types import TokenLogprobs

_MAX_ROWS = 64  # rows worked on at once, which bounds the memory that a long prompt takes


def log_softmax(logits: Array, ids: Array) -> Array:
    """The logarithm of softmax(logits) at `ids`: float32 [rows, vocab], int64 [rows, n] -> float64 [rows, n]."""
    xp = array_namespace(logits)
    largest = row_max(logits)
    rows = xp.arange(logits.shape[0], device=device(logits))[:, None]
    log_total = xp.log(SumTree(xp.exp(logits - largest)).total)[:, None]
    return xp.astype(logits[rows, ids], xp.float64) - xp.astype(largest, xp.float64) - log_total


def likeliest(logits: Array, nums: Sequence[int]) -> list[tuple[tuple[int, float], ...]]:
    """For each row its `nums` likeliest tokens (all of them if the vocabulary is smaller) and their log-probabilities, in falling order,
    the lower id first among equals. float32 [rows, vocab]."""
    if not any(nums):
        return [()] * len(nums)
    ids = key_ids(largest_keys(rank_keys(logits), max(nums)))
    return _pairs(ids.tolist(), log_softmax(logits, ids).tolist(), nums)


def _pairs(ids: list[list[int]], values: list[list[float]], nums: Sequence[int]) -> list[tuple[tuple[int, float], ...]]:
    return [tuple(zip(row_ids[:num], row_values[:num], strict=True)) for row_ids, row_values, num in zip(ids, values, nums, strict=True)]


def token_logprobs(logits: Array, token_ids: Sequence[int], nums: Sequence[int]) -> list[TokenLogprobs]:
    """For each row of float32 logits [rows, vocab] the log-probability and rank of its token, and the `nums` likeliest tokens.

    The same serves a token just chosen and the tokens of a prompt: row i then holds the logits that the tokens before token_ids[i] gave.
    Rank 1 is the likeliest; among equals the lower id ranks first.
    """
    scored: list[TokenLogprobs] = []
    for start in range(0, len(token_ids), _MAX_ROWS):
        part = slice(start, start + _MAX_ROWS)
        scored += _score(logits[part, :], token_ids[part], nums[part])
    return scored


def _score(logits: Array, token_ids: Sequence[int], nums: Sequence[int]) -> list[TokenLogprobs]:
    xp = array_namespace(logits)
    chosen = xp.asarray(list(token_ids), dtype=xp.int64, device=device(logits))[:, None]
    rows = xp.arange(logits.shape[0], device=device(logits))[:, None]
    keys = rank_keys(logits)
    ranks = (1 + xp.sum(xp.astype(keys > keys[rows, chosen], xp.int64), axis=-1)).tolist()
    top = key_ids(largest_keys(keys, max(nums)))
    values = log_softmax(logits, xp.concat([chosen, top], axis=-1)).tolist()
    tops = _pairs(top.tolist(), [line[1:] for line in values], nums)
    return [TokenLogprobs(int(token), line[0], rank, pairs)
            for token, line, rank, pairs in zip(token_ids, values, ranks, tops, strict=True)]
