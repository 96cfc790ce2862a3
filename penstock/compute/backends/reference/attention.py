"""Attention over paged keys and values, and over plain sequences, in the array API standard.

Batch invariance: queries are computed in tiles of TILE rows that start at multiples of TILE in their own sequence, keys in
chunks of CHUNK that start at multiples of CHUNK; each product has the same shape and each row the same place in it, whoever
else is in the step. A chunk that a row does not see adds exact zeros, so it does not matter how many chunks its neighbours need.
Online softmax: Milakov and Gimelshein 2018, arXiv:1805.02867.
"""
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.compute.backends.contract import Batch

Array = Any
TILE = 4
CHUNK = 128
NEVER = -1e30  # lower than any score, and finite, so that differences of maxima stay numbers


@dataclass(frozen=True, slots=True)
class Chunk:
    """What one chunk of keys means for the tiles that reach it; N of them."""

    tiles: Array  # [N] indices of tiles
    slots: Array  # [N, CHUNK] where the keys and values stand
    key_positions: Array  # [CHUNK]


@dataclass(frozen=True, slots=True)
class Tiles:
    """The step's rows as tiles; R tiles."""

    rows: Array  # [R, TILE] row of the step, or the padding row
    positions: Array  # [R, TILE] position in the sequence
    places: Array  # [T] where row t stands in the flattened tiles
    chunks: tuple[Chunk, ...]


def tile(batch: Batch, block_size: int, padding_row: int, zero_slot: int) -> Tiles:
    """Cuts the step into tiles and chunks: numpy indices, computed on the host.

    `zero_slot` stands for every key after the last one that a tile may see, so that nothing is read that the sequence has not written.
    """
    rows: list[Array] = []
    positions: list[Array] = []
    owners: list[int] = []
    places = np.empty(len(batch.tokens), dtype=np.int64)
    offsets = np.arange(TILE)
    for s in range(len(batch.contexts)):
        begin, end = int(batch.row_starts[s]), int(batch.row_starts[s + 1])
        if begin == end:
            continue
        first = int(batch.positions[begin])
        for at in range(first - first % TILE, first + end - begin, TILE):
            at_rows = begin + at - first + offsets
            live = (at_rows >= begin) & (at_rows < end)
            places[at_rows[live]] = len(rows) * TILE + offsets[live]
            rows.append(np.where(live, at_rows, padding_row))
            positions.append(at + offsets)
            owners.append(s)
    tiles = np.stack(positions)
    chunks = _chunks(batch, block_size, (owners, tiles), zero_slot)
    return Tiles(np.stack(rows), tiles, places, chunks)


def _chunks(batch: Batch, block_size: int, tiles: tuple[Sequence[int], Array], zero_slot: int) -> tuple[Chunk, ...]:
    """`tiles`: each one's sequence, and its positions [R, TILE]."""
    owners, positions = np.asarray(tiles[0]), tiles[1]
    longest = int(max(batch.contexts))
    last = np.minimum(positions[:, -1], np.asarray(batch.contexts)[owners] - 1)  # the last key that a tile may see
    reach = -(-longest // CHUNK) * CHUNK // block_size + 1
    tables = np.zeros((len(batch.contexts), max(reach, *map(len, batch.block_tables))), dtype=np.int64)
    for s, table in enumerate(batch.block_tables):
        tables[s, : len(table)] = table
    chunks = []
    for at in range(0, longest, CHUNK):
        reached = np.nonzero(last >= at)[0]
        keys = at + np.arange(CHUNK)
        blocks = tables[owners[reached]][:, keys // block_size]
        slots = np.where(keys <= last[reached, None], blocks * block_size + keys % block_size, zero_slot)
        chunks.append(Chunk(reached, slots, keys))
    return tuple(chunks)


@dataclass(frozen=True, slots=True)
class Attention:
    """The attributes of an attention op."""

    scale: float
    window: int | None
    softcap: float | None
    sinks: Array | None = None  # [heads]


def paged(xp: Any, q: Array, pool: tuple[Array, Array], tiles: Tiles, how: Attention) -> Array:
    """q [T, heads, dim] (its last row is padding) over `pool`: keys and values [slots, kv_heads, dim] -> [T, heads * dim]."""
    keys, values = pool
    _, heads, dim = q.shape
    kv_heads = keys.shape[1]
    group = heads // kv_heads
    count = tiles.rows.shape[0]
    # [R, TILE, kv_heads, group, dim] -> [R, kv_heads, TILE * group, dim]
    tiled = xp.reshape(q[tiles.rows], (count, TILE, kv_heads, group, dim))
    tiled = xp.astype(xp.reshape(xp.permute_dims(tiled, (0, 2, 1, 3, 4)), (count, kv_heads, TILE * group, dim)), xp.float32) * how.scale
    best = xp.full((count, kv_heads, TILE * group, 1), NEVER, dtype=xp.float32, device=q.device)
    total = xp.zeros_like(best)
    mixed = xp.zeros_like(tiled)
    for chunk in tiles.chunks:
        some = chunk.tiles
        k = xp.permute_dims(xp.astype(keys[chunk.slots], xp.float32), (0, 2, 3, 1))  # [N, kv_heads, dim, CHUNK]
        v = xp.permute_dims(xp.astype(values[chunk.slots], xp.float32), (0, 2, 1, 3))
        seen = visible(xp, tiles.positions[some], chunk.key_positions, how.window)  # [N, TILE, CHUNK]
        seen = xp.repeat(seen, group, axis=1)[:, None, :, :]
        scores = xp.matmul(tiled[some], k)
        if how.softcap is not None:
            scores = how.softcap * xp.tanh(scores / how.softcap)
        scores = xp.where(seen, scores, NEVER)
        old = best[some]
        new = xp.maximum(old, xp.max(scores, axis=-1, keepdims=True))
        powers = xp.where(seen, xp.exp(scores - new), 0.0)
        fade = xp.exp(old - new)
        total[some] = total[some] * fade + xp.sum(powers, axis=-1, keepdims=True)
        mixed[some] = mixed[some] * fade + mixture(xp, powers, seen, v)
        best[some] = new
    if how.sinks is not None:  # in the order of rows: a tile's tokens, and for each the heads of a group
        sinks = xp.tile(xp.reshape(xp.astype(how.sinks, xp.float32), (kv_heads, group)), (1, TILE))
        total = total + xp.exp(sinks[None, :, :, None] - best)
    out = xp.reshape(mixed / xp.where(total == 0, 1.0, total), (count, kv_heads, TILE, group, dim))
    out = xp.reshape(xp.permute_dims(out, (0, 2, 1, 3, 4)), (count * TILE, heads * dim))
    return xp.astype(out[tiles.places], q.dtype)


def mixture(xp: Any, powers: Array, seen: Array, values: Array) -> Array:
    """powers @ values; a row is NaN by values that it sees, and by no others, though 0 * NaN is NaN."""
    finite = xp.isfinite(values)
    if bool(xp.all(finite)):
        return xp.matmul(powers, values)
    broken = xp.matmul(xp.astype(seen, xp.float32), xp.astype(~finite, xp.float32)) > 0
    return xp.where(broken, xp.nan, xp.matmul(powers, xp.where(finite, values, 0.0)))


def visible(xp: Any, positions: Array, key_positions: Array, window: int | None) -> Array:
    """Which keys a query at each position sees: [..., queries, keys]."""
    distance = positions[..., :, None] - key_positions
    return (distance >= 0) if window is None else (distance >= 0) & (distance < window)


def dense(xp: Any, q: Array, k: Array, v: Array, length: int, how: Attention) -> Array:
    """Causal attention within sequences of `length` rows that stand one after another: q [B * length, heads, dim]; no cache.

    Differentiable; what training and perplexity use.
    """
    heads, dim = q.shape[1:]

    def per_head(x: Array) -> Array:  # -> [B, heads, length, dim]
        x = xp.permute_dims(xp.reshape(x, (-1, length, x.shape[1], dim)), (0, 2, 1, 3))
        return x if x.shape[1] == heads else xp.repeat(x, heads // x.shape[1], axis=1)

    q, k, v = per_head(q), per_head(k), per_head(v)
    positions = xp.arange(length, device=q.device)
    scores = xp.matmul(xp.astype(q, xp.float32) * how.scale, xp.permute_dims(xp.astype(k, xp.float32), (0, 1, 3, 2)))
    if how.softcap is not None:
        scores = how.softcap * xp.tanh(scores / how.softcap)
    scores = xp.where(visible(xp, positions, positions, how.window), scores, NEVER)
    top = xp.max(scores, axis=-1, keepdims=True)
    sinks = None if how.sinks is None else xp.astype(how.sinks, xp.float32)[:, None, None]
    if sinks is not None:
        top = xp.maximum(top, sinks)
    powers = xp.exp(scores - top)
    total = xp.sum(powers, axis=-1, keepdims=True)
    weights = powers / (total if sinks is None else total + xp.exp(sinks - top))
    mixed = xp.permute_dims(xp.matmul(xp.astype(weights, v.dtype), v), (0, 2, 1, 3))
    return xp.reshape(mixed, (-1, heads * dim))
