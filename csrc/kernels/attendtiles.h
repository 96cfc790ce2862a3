// attend_chunk on AMX tiles: S = Q K^T in blocks of 16 rows x 64 keys, P V in blocks of 16 rows x 64 columns of the head dimension. A
// tile of keys in the pool is a B tile for each 32 of the head dimension. A B tile of values spans 32 keys: two tiles of the pool that
// are adjacent, or are copied together first.
//
// A few rows take vectors instead (tilesums.h), which read tiles of values where they lie.
//
// Batch invariance: each row of a tile product depends on its own row of A only.
#pragma once
#include "attention.h"
#include "tilesums.h"

namespace PENSTOCK_ISA {

constexpr int BLOCK_COLUMNS = 64;

// [16 rows] x [steps tiles along k] x [V x 16 columns] -> accumulator tiles. w(s, v) is the B tile of step s and column vector v; its
// rows are `w_row` bytes apart.
template <int V, class Where>
PENSTOCK_INLINE void multiply_tiles(Bytes x, std::size_t stride, int steps, int tile_bytes, std::size_t w_row, const Where& w) {
  zero_acc<V>();
  for (int s = 0; s < steps; ++s) {
    TILE_LOAD(4, x + std::size_t(s) * tile_bytes, stride);
    accumulate_columns<false, false, V>([&](int v) PENSTOCK_INLINED { return w(s, v); }, w_row);
  }
}

// Calls body(V, v) for V = 4 column vectors at a time, then for the rest.
template <class Body> PENSTOCK_INLINE void for_tile_quads(int count, const Body& body) {
  int v = 0;
  for (; v + 4 <= count; v += 4) body(std::integral_constant<int, 4>(), v);
  switch (count - v) {
    case 3: return body(std::integral_constant<int, 3>(), v);
    case 2: return body(std::integral_constant<int, 2>(), v);
    case 1: return body(std::integral_constant<int, 1>(), v);
  }
}

// Prefetches `bytes` into L2.
inline void fetch(Bytes from, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
}

inline void score_tiles(const AttentionBlock& b, const TilePointers& tiles, int count) {
  const int tile_bytes = b.padded % 32 ? 32 : 64, steps = b.padded * 2 / tile_bytes;
  const std::size_t stride = std::size_t(b.padded) * 2, w_tile = std::size_t(tile_bytes) * 16;
  configure_tiles(std::min(b.rows, TILE_ROWS), tile_bytes);
  for (int block = 0; block < block_count(b.rows); ++block)
    for_tile_quads(count, [&](auto vecs, int v) PENSTOCK_INLINED {
      constexpr int V = vecs;
      multiply_tiles<V>(b.queries + stride * TILE_ROWS * block, stride, steps, tile_bytes, 64,
                        [&](int s, int i) PENSTOCK_INLINED { return tiles.keys[v + i] + w_tile * s; });
      store_acc<V>(reinterpret_cast<std::uint8_t*>(b.scores + std::size_t(CHUNK) * TILE_ROWS * block + TILE_SLOTS * v), CHUNK * 4);
      if (block == 0)
        for (int i = 0; i < V; ++i) fetch(tiles.values[v + i], stride * TILE_SLOTS);
    });
}

// B tiles of 32 keys each. The last is padded with zeros if `count` is odd.
inline int value_pairs(const AttentionBlock& b, const TilePointers& tiles, int count, Bytes* pairs) {
  const std::size_t bytes = std::size_t(b.padded) * 2 * TILE_SLOTS;
  for (int t = 0; t < count; t += 2) {
    pairs[t / 2] = tiles.values[t];
    if (t + 1 < count && tiles.values[t + 1] == tiles.values[t] + bytes) continue;
    std::uint8_t* copy = b.tile_scratch + bytes * t;
    std::memcpy(copy, tiles.values[t], bytes);
    if (t + 1 < count) std::memcpy(copy + bytes, tiles.values[t + 1], bytes);
    else std::memset(copy + bytes, 0, bytes);
    pairs[t / 2] = copy;
  }
  return (count + 1) / 2;
}

// acc = acc * rescale + product, for `rows` rows and 16 V columns.
template <int V> PENSTOCK_INLINE void add_weighed_values(const AttentionBlock& b, int first, int rows, int column, const float* product) {
  for (int r = 0; r < rows; ++r) {
    float* acc = b.acc + std::size_t(first + r) * b.padded + column;
    const F rescale = set1(b.rescale[first + r]);
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      store(acc + LANES * v, fma(load(acc + LANES * v), rescale, load(product + BLOCK_COLUMNS * r + LANES * v)));
    });
  }
}

inline void weigh_values_tiles(const AttentionBlock& b, const TilePointers& tiles, int count, const TilePointers* next) {
  Bytes pairs[CHUNK_TILES / 2];
  const int steps = value_pairs(b, tiles, count, pairs);
  const std::size_t w_row = std::size_t(b.padded) * 4, stride = CHUNK * 2;
  auto* product = reinterpret_cast<float*>(b.tile_scratch + std::size_t(b.padded) * 2 * TILE_SLOTS * CHUNK_TILES);
  configure_tiles(std::min(b.rows, TILE_ROWS), 64);
  for (int block = 0; block < block_count(b.rows); ++block)
    for_tile_quads(b.padded / LANES, [&](auto vecs, int v) PENSTOCK_INLINED {
      constexpr int V = vecs;
      tile_fence();
      multiply_tiles<V>(b.probs + stride * TILE_ROWS * block, stride, steps, 64, w_row,
                        [&](int s, int i) PENSTOCK_INLINED { return pairs[s] + 64 * (v + i); });
      store_acc<V>(reinterpret_cast<std::uint8_t*>(product), BLOCK_COLUMNS * 4);
      tile_fence();
      if (next && block == 0)
        for (int t = 0; t < count; ++t) fetch(next->keys[t] + 64 * TILE_SLOTS / 2 * v, 64 * TILE_SLOTS / 2 * V);
      const int first = TILE_ROWS * block;
      add_weighed_values<V>(b, first, std::min(TILE_ROWS, b.rows - first), LANES * v, product);
    });
}

// Scores of R rows. Meanwhile prefetches the values.
template <int R> [[gnu::noinline]] void score_tileless(const AttentionBlock& b, const TilePointers& tiles, int count) {
  const int tile_bytes = b.padded % 32 ? 32 : 64, steps = b.padded * 2 / tile_bytes;
  const std::size_t stride = std::size_t(b.padded) * 2, w_tile = std::size_t(tile_bytes) * 16;
  const auto score = [&](auto vecs, int t) PENSTOCK_INLINED {
    constexpr int V = vecs;
    F sum[R][V];
    fill_block(sum, [](auto, auto) PENSTOCK_INLINED { return zero(); });
    for (int s = 0; s < steps; ++s)
      add_tile<R, V>(sum, b.queries + std::size_t(s) * tile_bytes, stride, tile_bytes / 4, [&](int p, int v) PENSTOCK_INLINED {
        const std::size_t at = w_tile * s + std::size_t(64) * p;
        __builtin_prefetch(tiles.values[t + v] + at, 0, 2);
        return tiles.keys[t + v] + at;
      });
    store_sums(sum, b.scores + TILE_SLOTS * t, CHUNK);
  };
  constexpr int V = tileless_vectors(R);
  int t = 0;
  for (; t + V <= count; t += V) score(std::integral_constant<int, V>(), t);
  for (; t < count; ++t) score(std::integral_constant<int, 1>(), t);
}

// P V of R rows and V column vectors from vector `vec` on. Meanwhile prefetches the next chunk's keys. Of an odd last tile there are eight
// pairs, where tiles add eight products of zeros more: no sum differs by that, unless a zero is negative.
template <int R, int V>
[[gnu::noinline]] void weigh_tileless(const AttentionBlock& b, const TilePointers& tiles, int count, int vec, const TilePointers* next,
                                      float* out) {
  constexpr int PAIRS = TILE_SLOTS / 2;
  F sum[R][V];
  fill_block(sum, [](auto, auto) PENSTOCK_INLINED { return zero(); });
  for (int t = 0; t < count; t += 2)
    add_tile<R, V>(sum, b.probs + std::size_t(2 * TILE_SLOTS) * t, CHUNK * 2, std::min(2, count - t) * PAIRS,
                   [&](int p, int v) PENSTOCK_INLINED {
      const int tile = t + p / PAIRS;
      const std::size_t at = std::size_t(p % PAIRS) * b.padded * 4 + 64 * (vec + v);
      if (next) __builtin_prefetch(next->keys[tile] + at, 0, 2);
      return tiles.values[tile] + at;
    });
  store_sums(sum, out, BLOCK_COLUMNS);
}

template <int R>
void attend_chunk_tileless(const AttentionBlock& b, const TilePointers& tiles, int begin, int count, const TilePointers* next) {
  {
    const FlushedDenormals flushed;
    score_tileless<R>(b, tiles, count);
  }
  for (int row = 0; row < R; ++row) softmax_chunk<true>(b, row, begin, count);
  constexpr int V = tileless_vectors(R);
  const auto weigh = [&](auto vecs, int v) PENSTOCK_INLINED {
    auto* product = reinterpret_cast<float*>(b.tile_scratch);
    {
      const FlushedDenormals flushed;
      weigh_tileless<R, vecs>(b, tiles, count, v, next, product);
    }
    add_weighed_values<vecs>(b, 0, R, LANES * v, product);
  };
  int v = 0;
  for (; v + V <= b.padded / LANES; v += V) weigh(std::integral_constant<int, V>(), v);
  for (; v < b.padded / LANES; ++v) weigh(std::integral_constant<int, 1>(), v);
}

inline void attend_chunk_by_tiles(const AttentionBlock& b, const TilePointers& tiles, int begin, int count, const TilePointers* next) {
  if (b.rows <= MAX_TILELESS_ROWS)
    return for_row_blocks<MAX_TILELESS_ROWS>(b.rows, [&](auto r, int) PENSTOCK_INLINED {
      attend_chunk_tileless<r>(b, tiles, begin, count, next);
    });
  tile_fence();
  score_tiles(b, tiles, count);
  tile_fence();
  for (int row = 0; row < b.rows; ++row) softmax_chunk<true>(b, row, begin, count);
  // zero probabilities for the padding of the last pair
  if (count % 2)
    for (int row = 0; row < b.rows; ++row) std::memset(b.probs + (std::size_t(row) * CHUNK + LANES * count) * 2, 0, LANES * 2);
  weigh_values_tiles(b, tiles, count, next);
}

}  // namespace PENSTOCK_ISA
