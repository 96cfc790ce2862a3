// A chunk of attention by AMX tiles: scores of 16 rows with 64 keys, then mixtures of 16 rows by 64 numbers of the values. A tile of keys
// in the pool is, 32 numbers at a time, a B tile; two tiles of values that stand one behind the other are another.
//
// What a row gets does not depend on its block's other rows, nor on where values stand: two that stand apart are put together first.
#pragma once
#include "attention.h"
#include "tiles.h"

namespace PENSTOCK_ISA {

constexpr int BLOCK_COLUMNS = 64;

// 16 rows at x times `steps` tiles along k: those of step s and column v at w(s, v), rows of which are `w_row` bytes apart.
template <int V, class Where>
PENSTOCK_INLINE void multiply_tiles(Bytes x, std::size_t stride, int steps, int tile_bytes, std::size_t w_row, const Where& w) {
  zero_sums<V>();
  for (int s = 0; s < steps; ++s) {
    TILE_LOAD(4, x + std::size_t(s) * tile_bytes, stride);
    dot_columns<false, false, V>([&](int v) PENSTOCK_INLINED { return w(s, v); }, w_row);
  }
}

// Calls body(V, v) for four tiles at a time, from the v-th on, then for what is left.
template <class Body> PENSTOCK_INLINE void each_four(int count, const Body& body) {
  int v = 0;
  for (; v + 4 <= count; v += 4) body(std::integral_constant<int, 4>(), v);
  switch (count - v) {
    case 3: return body(std::integral_constant<int, 3>(), v);
    case 2: return body(std::integral_constant<int, 2>(), v);
    case 1: return body(std::integral_constant<int, 1>(), v);
  }
}

// Fetches `bytes` of a tile, in steps.
inline void fetch(Bytes from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
}

inline void score_tiles(const Block& b, const TilePointers& tiles, int count) {
  const int tile_bytes = b.padded % 32 ? 32 : 64, steps = b.padded * 2 / tile_bytes;
  const std::size_t stride = std::size_t(b.padded) * 2, w_tile = std::size_t(tile_bytes) * 16;
  shape_tiles(std::min(b.rows, TILE_ROWS), tile_bytes);
  for (int block = 0; block < block_count(b.rows); ++block)
    each_four(count, [&](auto vecs, int v) PENSTOCK_INLINED {
      constexpr int V = vecs;
      multiply_tiles<V>(b.queries + stride * TILE_ROWS * block, stride, steps, tile_bytes, 64,
                        [&](int s, int i) PENSTOCK_INLINED { return tiles.keys[v + i] + w_tile * s; });
      store_sums<V>(reinterpret_cast<std::uint8_t*>(b.scores + std::size_t(CHUNK) * TILE_ROWS * block + TILE * v), CHUNK * 4);
      if (block == 0)
        for (int i = 0; i < V; ++i) fetch(tiles.values[v + i], stride * TILE);
    });
}

// Pairs of tiles of values. Where the last has no other half, zeros stand for it.
inline int value_pairs(const Block& b, const TilePointers& tiles, int count, Bytes* pairs) {
  const std::size_t bytes = std::size_t(b.padded) * 2 * TILE;
  for (int t = 0; t < count; t += 2) {
    pairs[t / 2] = tiles.values[t];
    if (t + 1 < count && tiles.values[t + 1] == tiles.values[t] + bytes) continue;
    std::uint8_t* copy = b.spare + bytes * t;
    std::memcpy(copy, tiles.values[t], bytes);
    if (t + 1 < count) std::memcpy(copy + bytes, tiles.values[t + 1], bytes);
    else std::memset(copy + bytes, 0, bytes);
    pairs[t / 2] = copy;
  }
  return (count + 1) / 2;
}

// mixed = mixed * fade + what the chunk gives, of `rows` rows and 16 V columns.
template <int V> PENSTOCK_INLINE void add_mixture(const Block& b, int first, int rows, int column, const float* given) {
  for (int r = 0; r < rows; ++r) {
    float* mixed = b.mixed + std::size_t(first + r) * b.padded + column;
    const F fade = set1(b.fade[first + r]);
    unrolled<V>([&](auto v) PENSTOCK_INLINED { store(mixed + LANES * v, fma(load(mixed + LANES * v), fade, load(given + BLOCK_COLUMNS * r + LANES * v))); });
  }
}

inline void mix_tiles(const Block& b, const TilePointers& tiles, int count, const TilePointers* next) {
  Bytes pairs[CHUNK_TILES / 2];
  const int steps = value_pairs(b, tiles, count, pairs);
  const std::size_t w_row = std::size_t(b.padded) * 4, stride = CHUNK * 2;
  auto* given = reinterpret_cast<float*>(b.spare + std::size_t(b.padded) * 2 * TILE * CHUNK_TILES);
  shape_tiles(std::min(b.rows, TILE_ROWS), 64);
  for (int block = 0; block < block_count(b.rows); ++block)
    each_four(b.padded / LANES, [&](auto vecs, int v) PENSTOCK_INLINED {
      constexpr int V = vecs;
      tile_fence();
      multiply_tiles<V>(b.powers + stride * TILE_ROWS * block, stride, steps, 64, w_row, [&](int s, int i) PENSTOCK_INLINED { return pairs[s] + 64 * (v + i); });
      store_sums<V>(reinterpret_cast<std::uint8_t*>(given), BLOCK_COLUMNS * 4);
      tile_fence();
      if (next && block == 0)
        for (int t = 0; t < count; ++t) fetch(next->keys[t] + 64 * TILE / 2 * v, 64 * TILE / 2 * V);
      const int first = TILE_ROWS * block;
      add_mixture<V>(b, first, std::min(TILE_ROWS, b.rows - first), LANES * v, given);
    });
}

inline void attend_chunk_by_tiles(const Block& b, const TilePointers& tiles, int begin, int count, const TilePointers* next) {
  tile_fence();
  score_tiles(b, tiles, count);
  tile_fence();
  for (int row = 0; row < b.rows; ++row) soften<true>(b, row, begin, count);
  // an odd number of tiles: the pair's other half
  if (count % 2)
    for (int row = 0; row < b.rows; ++row) std::memset(b.powers + (std::size_t(row) * CHUNK + LANES * count) * 2, 0, LANES * 2);
  mix_tiles(b, tiles, count, next);
}

}  // namespace PENSTOCK_ISA
