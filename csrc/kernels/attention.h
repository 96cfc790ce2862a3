// Attention of a few rows over one head of the KV pool: online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867) over chunks of
// keys, as in FlashAttention (Dao et al. 2022, arXiv:2205.14135). Rows are (token, query head) pairs that share a KV head.
//
// Chunks and spans begin at fixed positions. A chunk that a row does not see changes nothing of it, so a row's bits depend on its own
// position alone. Scores and mixtures use the blocks of the matrix products: a tile of keys or values is a small panel.
//
// Keys that a row does not see have the power 0, and 0 times a value adds nothing, unless the value is not finite: then a row that has
// become NaN by it is made again by itself, with zeros in place of what it does not see.
#pragma once
#include "../cache.h"
#include "linear.h"
#include "math.h"
#include "rows.h"

namespace PENSTOCK_ISA {

struct TilePointers { Bytes keys[CHUNK_TILES], values[CHUNK_TILES]; };

// The rows of one task while they pass over the keys. In the papers' letters: powers are P, exp(S - m); best is m, total l, mixed O;
// earlier sums fade by exp(m before - m).
struct Block {
  int rows;                      // R
  int padded;                    // head dimension, whole vectors
  const std::int32_t* positions; // [R]
  std::uint8_t* queries;         // [R][padded] as products with the pool take numbers
  float* scores;                 // [R][CHUNK]
  std::uint8_t* powers;          // [R][CHUNK] in the same form
  float* mixed;                  // [R][padded]
  float *best, *total;           // [R] running maximum and sum
  float *fade;                   // [R] what earlier sums shrink by
  std::uint8_t* copies;          // a chunk's values
  std::uint8_t* spare;           // for tiles: a chunk's values, and what a block of rows mixes of them
  float scale, cap;              // cap 0: none
  int window;                    // 0: none
};

template <class Step, int R, int V>
PENSTOCK_INLINE void score(const Block& b, const TilePointers& tiles, int first, int row, bool fetch) {
  const int steps = b.padded / Step::K;
  const std::size_t stride = std::size_t(steps) * Step::X;
  const Bytes x = b.queries + stride * row;
  float* out = b.scores + std::size_t(row) * CHUNK;
  F sum[R][V];
  unrolled<R>([&](auto r) PENSTOCK_INLINED { unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = zero(); }); });
  for (int s = 0; s < steps; ++s)
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      F column[R][1];
      unrolled<R>([&](auto r) PENSTOCK_INLINED { column[r][0] = sum[r][v]; });
      Step{}.template run<R, 1>(column, tiles.keys[first + v] + 64 * s, x + Step::X * s, stride);
      unrolled<R>([&](auto r) PENSTOCK_INLINED { sum[r][v] = column[r][0]; });
      if (fetch) __builtin_prefetch(tiles.values[first + v] + 64 * s, 0, 2);
    });
  unrolled<R>([&](auto r) PENSTOCK_INLINED { unrolled<V>([&](auto v) PENSTOCK_INLINED { store(out + r * CHUNK + LANES * (first + v), sum[r][v]); }); });
}

template <class Step, int R> void score_rows(const Block& b, const TilePointers& tiles, int count, int row, bool fetch) {
  int t = 0;
  if constexpr (block_vecs(R) > 1)
    for (constexpr int V = block_vecs(R); t + V <= count; t += V) score<Step, R, V>(b, tiles, t, row, fetch);
  for (; t < count; ++t) score<Step, R, 1>(b, tiles, t, row, fetch);
}

// mixed = mixed * fade + powers * values, for V vectors of the head dimension.
template <class Step, int R, int V>
PENSTOCK_INLINE void mix(const Block& b, const TilePointers& tiles, int count, int row, int vec, const TilePointers* next) {
  const int steps = TILE / Step::K, w_step = b.padded * 4;
  const std::size_t stride = std::size_t(CHUNK) / Step::K * Step::X;
  const Bytes x = b.powers + stride * row;
  F sum[R][V];
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    float* mixed = b.mixed + std::size_t(row + r) * b.padded + LANES * vec;
    const F fade = set1(b.fade[row + r]);
    unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = load(mixed + LANES * v) * fade; });
  });
  for (int t = 0; t < count; ++t) {
    Ahead ahead{next ? next->keys[t] + 64 * vec * steps : nullptr, next ? V : 0};
    accumulate<Step, R, V>(Step{}, sum, {tiles.values[t] + 64 * vec, w_step, x + Step::X * steps * t, stride, steps}, ahead);
  }
  unrolled<R>([&](auto r) PENSTOCK_INLINED { unrolled<V>([&](auto v) PENSTOCK_INLINED { store(b.mixed + std::size_t(row + r) * b.padded + LANES * (vec + v), sum[r][v]); }); });
}

template <class Step, int R> void mix_rows(const Block& b, const TilePointers& tiles, int count, int row, const TilePointers* next) {
  int v = 0;
  if constexpr (block_vecs(R) > 1)
    for (constexpr int V = block_vecs(R); v + V <= b.padded / LANES; v += V) mix<Step, R, V>(b, tiles, count, row, v, next);
  for (; v < b.padded / LANES; ++v) mix<Step, R, 1>(b, tiles, count, row, v, next);
}

struct Lanes { int from, to; };  // from <= lane < to

// Lanes that a row sees of the chunk whose first key stands at `begin`.
inline Lanes seen_lanes(const Block& b, int row, int begin) {
  const int position = b.positions[row], lowest = b.window ? std::max(0, position - b.window + 1) : 0;
  return {lowest - begin, position - begin + 1};
}

// Scores of one row -> powers, and the row's running maximum, sum and fade. `begin`: position of the chunk's first key.
template <bool BF16> void soften(const Block& b, int row, int begin, int count) {
  float* scores = b.scores + std::size_t(row) * CHUNK;
  const auto [from, to] = seen_lanes(b, row, begin);
  const F never = set1(-INFINITY);
  F most = never;
  for (int t = 0; t < count; ++t) {
    F s = load(scores + LANES * t) * set1(b.scale);
    if (b.cap != 0) s = set1(b.cap) * tanh(s / set1(b.cap));
    const int at = LANES * t;
    if (to < at + LANES) s = first_lanes(s, std::max(0, to - at), never);
    if (from > at) s = first_lanes(never, std::min(LANES, from - at), s);
    store(scores + at, s);
    most = max(most, s);
  }
  const float old = b.best[row], top = std::max(old, largest(most));
  const bool seen = from < count * LANES && to > 0;
  F fresh = zero();
  for (int t = 0; t < count; ++t) {
    const F p = seen ? exp(load(scores + LANES * t) - set1(top)) : zero();
    fresh = fresh + p;
    if (BF16) store_row(b.powers + (std::size_t(row) * CHUNK + LANES * t) * NUMBER, p);
    else store(reinterpret_cast<float*>(b.powers) + std::size_t(row) * CHUNK + LANES * t, p);
  }
  float shrink[LANES];
  store(shrink, exp(set1(old - top)));
  b.fade[row] = !seen ? 1.0f : old == -INFINITY ? 0.0f : shrink[0];
  if (!seen) return;
  b.total[row] = b.total[row] * b.fade[row] + sum(fresh);
  b.best[row] = top;
}

// One chunk of `count` tiles whose first key stands at `begin`. `next`: the tiles of the chunk after it, fetched meanwhile, or nullptr.
template <class Step, bool BF16>
void attend_chunk_as(const Block& b, const TilePointers& tiles, int begin, int count, const TilePointers* next) {
  each_rows<MAX_ROWS>(b.rows, [&](auto r, int row) { score_rows<Step, r>(b, tiles, count, row, row == 0); });
  for (int row = 0; row < b.rows; ++row) soften<BF16>(b, row, begin, count);
  each_rows<MAX_ROWS>(b.rows, [&](auto r, int row) { mix_rows<Step, r>(b, tiles, count, row, row == 0 ? next : nullptr); });
}

#if defined(PENSTOCK_TILES)
void attend_chunk_by_tiles(const Block& b, const TilePointers& tiles, int begin, int count, const TilePointers* next);
#endif

inline void attend_chunk(const Block& b, bool bf16, const TilePointers& tiles, int begin, int count, const TilePointers* next) {
  if (!bf16) return attend_chunk_as<StepF32, false>(b, tiles, begin, count, next);
#if defined(PENSTOCK_TILES)
  attend_chunk_by_tiles(b, tiles, begin, count, next);
#else
  attend_chunk_as<StepBf16, true>(b, tiles, begin, count, next);
#endif
}

// The mixture of a row is not a number though its powers are: a value was not finite, perhaps one that the row does not see.
inline bool poisoned(const Block& b, int row) {
  if (b.total[row] != b.total[row]) return false;
  unsigned numbers = 0xffff;
  for (int d = 0; d < b.padded; d += LANES) numbers &= at_least(load(b.mixed + std::size_t(row) * b.padded + d), set1(-INFINITY));
  return numbers != 0xffff;
}

// One row over one chunk, with zeros for the values of keys that it does not see.
inline void attend_seen(const Block& one, const Cache& cache, TilePointers tiles, int begin, int count) {
  const Lanes seen = seen_lanes(one, 0, begin);
  if (seen.from >= count * LANES || seen.to <= 0) return;
  const std::size_t bytes = cache.tile_bytes(), number = cache.bf16 ? 2 : 4;
  for (int t = 0; t < count; ++t) {
    std::uint8_t* copy = one.copies + bytes * t;
    std::memcpy(copy, tiles.values[t], bytes);
    for (int lane = 0; lane < TILE; ++lane)
      if (LANES * t + lane < seen.from || LANES * t + lane >= seen.to)
        for (int d = 0; d < cache.padded; ++d) std::memset(copy + number * cache.value_at(lane, d), 0, number);
    tiles.values[t] = copy;
  }
  attend_chunk(one, cache.bf16, tiles, begin, count, nullptr);
}

// Adds what a later span made of the rows to what the earlier ones made.
inline void merge_span(const Mixture& to, const Mixture& later, int rows, int padded) {
  for (int row = 0; row < rows; ++row) {
    if (later.total[row] == 0) continue;
    const float top = std::max(to.best[row], later.best[row]);
    const F here = to.total[row] == 0 ? zero() : exp(set1(to.best[row] - top)), there = exp(set1(later.best[row] - top));
    float a[LANES], c[LANES];
    store(a, here), store(c, there);
    to.total[row] = to.total[row] * a[0] + later.total[row] * c[0];
    to.best[row] = top;
    float* mixed = to.mixed + std::size_t(row) * padded;
    const float* more = later.mixed + std::size_t(row) * padded;
    for (int i = 0; i < padded; i += LANES) store(mixed + i, fma(load(more + i), there, load(mixed + i) * here));
  }
}

inline void divide(const float* mixed, float total, int n, float* out) {
  const F by = set1(total == 0 ? 1.0f : total);
  for (int i = 0; i < n; i += LANES) store_some(out + i, load_some(mixed + i, n - i) / by, n - i);
}

}  // namespace PENSTOCK_ISA
