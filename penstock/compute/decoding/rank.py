"""Ranking of a row's tokens, likeliest first and the lower id first among equals, by partial selection instead of a full sort."""

from penstock.compute.arrays import Array, array_namespace, device, is_numpy_array
from penstock.compute.decoding.sums import SumTree

_ID_BITS = 32
_ID_MASK = (1 << _ID_BITS) - 1
_FIRST_WIDTH = 512  # entries that `share_key` selects first: more than most nuclei hold
_GROWTH = 8


def rank_keys(scores: Array) -> Array:
    """Sort keys, int64 [rows, n], distinct within a row: larger for a larger score, and among equal scores for the lower index.

    `scores` is float32 [rows, n]. The upper 32 bits of a key are the score's bits, mapped so that they rise from -inf to inf; the lower 32
    bits are 2^32 - 1 - index.
    """
    xp = array_namespace(scores)
    bits = (scores + 0.0).view(xp.int32)  # -0.0 + 0.0 is 0.0
    keys = xp.astype(bits ^ ((bits >> 31) & 0x7FFFFFFF), xp.int64)
    keys <<= _ID_BITS
    keys += _ID_MASK - xp.arange(scores.shape[1], dtype=xp.int64, device=device(scores))
    return keys


def key_ids(keys: Array) -> Array:
    """The indices in keys from `rank_keys`."""
    return _ID_MASK - (keys & _ID_MASK)


def largest_keys(keys: Array, num: int) -> Array:
    """The `num` largest keys of each row (all of them if there are fewer), in falling order: [rows, min(num, n)]."""
    xp = array_namespace(keys)
    num = min(num, keys.shape[1])
    if not is_numpy_array(keys):
        return xp.topk(keys, num, dim=-1).values  # torch's; the array API standard has no partial selection
    if num == 0:
        return keys[:, :0]
    if num < keys.shape[1]:
        keys = keys.copy()
        keys.partition(keys.shape[1] - num, axis=-1)
        keys = keys[:, -num:]
    return xp.flip(xp.sort(keys, axis=-1), axis=-1)


def share_key(keys: Array, weights: Array, shares: Array) -> Array:
    """The key at which the running sum of a row's weights, in falling order of keys, first reaches `shares` of the row's total: the last
    key of a nucleus. int64 [rows, 1].

    keys: [rows, n] from `rank_keys`; weights: [rows, n], not negative; shares: float64 [rows], within (0, 1].
    Selects the 512 largest keys first, and more only for the rows that need them.
    """
    xp = array_namespace(keys)
    targets = SumTree(weights).total * shares
    found = xp.zeros_like(keys[:, 0])
    open_rows = xp.arange(keys.shape[0], device=device(keys))
    width = _FIRST_WIDTH
    while open_rows.shape[0]:
        top = largest_keys(keys[open_rows, :], width)
        tree = SumTree(weights[open_rows[:, None], key_ids(top)])
        wanted = targets[open_rows]
        at = tree.find(wanted, reach=True)
        reached = (tree.total >= wanted) | (top.shape[1] == keys.shape[1])
        found[open_rows[reached]] = top[xp.arange(at.shape[0], device=device(at)), at][reached]
        open_rows = open_rows[~reached]
        width *= _GROWTH
    return found[:, None]
