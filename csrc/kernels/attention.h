// Attention of a block of rows over one KV head: online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867) over chunks of CHUNK
// keys, as in FlashAttention (Dao et al. 2022, arXiv:2205.14135). Rows are (token, query head) pairs that share the KV head.
//
// Loop order: for each chunk, scores S = Q K^T of all rows, softmax row by row, then O = O * rescale + P V. Tiles of keys and values
// (cache.h) are small panels, so S and P V use the micro-kernels of the matrix products.
//
// Batch invariance: chunks and spans begin at fixed positions, and a chunk of which a row sees no key leaves its state unchanged. So a
// row's bits depend on its own position alone, not on the other rows of the block.
//
// Masked keys have probability 0, which contributes 0 to P V unless the value is not finite (0 * inf = NaN). Rows whose accumulator has
// become NaN that way are computed again one by one, with zeros in place of the masked values.
#pragma once
#include "../cache.h"
#include "linear.h"
#include "math.h"
#include "rows.h"

namespace PENSTOCK_ISA {

struct TilePointers { Bytes keys[CHUNK_TILES], values[CHUNK_TILES]; };

// Scratch and state of one task's rows. In the papers' letters, probs is P = exp(S - m), running_max m, running_sum l, acc O, and rescale
// exp(old m - new m).
struct AttentionBlock {
  int rows;                          // R below
  int padded;                        // head dimension, rounded up to 16
  const std::int32_t* positions;     // [R]
  std::uint8_t* queries;             // [R, padded] in the cache's element type, as operand rows
  float* scores;                     // [R, CHUNK]
  std::uint8_t* probs;               // [R, CHUNK] as operand rows
  float* acc;                        // [R, padded]
  float *running_max, *running_sum;  // [R]
  float* rescale;                    // [R] factor for acc and running_sum in this chunk
  std::uint8_t* masked_values;       // one chunk of value tiles
  std::uint8_t* tile_scratch;        // AMX: one chunk of value tiles, and the product of a block of rows
  float scale, cap;                  // cap 0: none
  int window;                        // 0: none
};

// Scores of R rows with the keys of V tiles, one column vector after another. `fetch`: prefetches the values of the same tiles.
template <class Step, int R, int V>
PENSTOCK_INLINE void score(const AttentionBlock& b, const TilePointers& tiles, int first, int row, bool fetch) {
  const int steps = b.padded / Step::K;
  const std::size_t stride = std::size_t(steps) * Step::X_BYTES;
  const Bytes x = b.queries + stride * row;
  float* out = b.scores + std::size_t(row) * CHUNK;
  F sum[R][V];
  unrolled<R>([&](auto r) PENSTOCK_INLINED { unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = zero(); }); });
  for (int s = 0; s < steps; ++s)
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      F column[R][1];
      unrolled<R>([&](auto r) PENSTOCK_INLINED { column[r][0] = sum[r][v]; });
      Step{}.template multiply<R, 1>(column, tiles.keys[first + v] + 64 * s, x + Step::X_BYTES * s, stride);
      unrolled<R>([&](auto r) PENSTOCK_INLINED { sum[r][v] = column[r][0]; });
      if (fetch) __builtin_prefetch(tiles.values[first + v] + 64 * s, 0, 2);
    });
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    unrolled<V>([&](auto v) PENSTOCK_INLINED { store(out + r * CHUNK + LANES * (first + v), sum[r][v]); });
  });
}

template <class Step, int R> void score_rows(const AttentionBlock& b, const TilePointers& tiles, int count, int row, bool fetch) {
  int t = 0;
  if constexpr (block_vecs(R) > 1)
    for (constexpr int V = block_vecs(R); t + V <= count; t += V) score<Step, R, V>(b, tiles, t, row, fetch);
  for (; t < count; ++t) score<Step, R, 1>(b, tiles, t, row, fetch);
}

// acc = acc * rescale + P V, for V vectors of the head dimension.
template <class Step, int R, int V>
PENSTOCK_INLINE void weigh_values(const AttentionBlock& b, const TilePointers& tiles, int count, int row, int vec, const TilePointers* next) {
  const int steps = TILE / Step::K, w_step = b.padded * 4;
  const std::size_t stride = std::size_t(CHUNK) / Step::K * Step::X_BYTES;
  const Bytes x = b.probs + stride * row;
  F sum[R][V];
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    float* acc = b.acc + std::size_t(row + r) * b.padded + LANES * vec;
    const F rescale = set1(b.rescale[row + r]);
    unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = load(acc + LANES * v) * rescale; });
  });
  for (int t = 0; t < count; ++t) {
    Prefetch prefetch{next ? next->keys[t] + 64 * vec * steps : nullptr, next ? V : 0};
    accumulate<Step, R, V>(Step{}, sum, {tiles.values[t] + 64 * vec, w_step, x + Step::X_BYTES * steps * t, stride, steps}, prefetch);
  }
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    unrolled<V>([&](auto v) PENSTOCK_INLINED { store(b.acc + std::size_t(row + r) * b.padded + LANES * (vec + v), sum[r][v]); });
  });
}

template <class Step, int R>
void weigh_values_rows(const AttentionBlock& b, const TilePointers& tiles, int count, int row, const TilePointers* next) {
  int v = 0;
  if constexpr (block_vecs(R) > 1)
    for (constexpr int V = block_vecs(R); v + V <= b.padded / LANES; v += V) weigh_values<Step, R, V>(b, tiles, count, row, v, next);
  for (; v < b.padded / LANES; ++v) weigh_values<Step, R, 1>(b, tiles, count, row, v, next);
}

struct LaneRange { int from, to; };  // from <= lane < to

// Keys that a row sees, as lanes of the chunk whose first key is at position `begin`.
inline LaneRange visible_lanes(const AttentionBlock& b, int row, int begin) {
  const int position = b.positions[row], lowest = b.window ? std::max(0, position - b.window + 1) : 0;
  return {lowest - begin, position - begin + 1};
}

// Scores of one row -> probs; updates the row's running_max, running_sum and rescale.
template <bool BF16> void softmax_chunk(const AttentionBlock& b, int row, int begin, int count) {
  float* scores = b.scores + std::size_t(row) * CHUNK;
  const auto [from, to] = visible_lanes(b, row, begin);
  const F minus_inf = set1(-INFINITY);
  F lane_max = minus_inf;
  for (int t = 0; t < count; ++t) {
    F s = load(scores + LANES * t) * set1(b.scale);
    if (b.cap != 0) s = set1(b.cap) * tanh(s / set1(b.cap));
    const int at = LANES * t;
    if (to < at + LANES) s = blend_first(s, std::max(0, to - at), minus_inf);
    if (from > at) s = blend_first(minus_inf, std::min(LANES, from - at), s);
    store(scores + at, s);
    lane_max = max(lane_max, s);
  }
  const float old_max = b.running_max[row], new_max = std::max(old_max, reduce_max(lane_max));
  const bool visible = from < count * LANES && to > 0;
  F chunk_sum = zero();
  for (int t = 0; t < count; ++t) {
    const F p = visible ? exp(load(scores + LANES * t) - set1(new_max)) : zero();
    chunk_sum = chunk_sum + p;
    if (BF16) store_bf16_row(b.probs + (std::size_t(row) * CHUNK + LANES * t) * BF16_ELEM_BYTES, p);
    else store(reinterpret_cast<float*>(b.probs) + std::size_t(row) * CHUNK + LANES * t, p);
  }
  float factor[LANES];
  store(factor, exp(set1(old_max - new_max)));
  b.rescale[row] = !visible ? 1.0f : old_max == -INFINITY ? 0.0f : factor[0];
  if (!visible) return;
  b.running_sum[row] = b.running_sum[row] * b.rescale[row] + reduce_add(chunk_sum);
  b.running_max[row] = new_max;
}

// One chunk of `count` tiles; `begin` is the position of its first key. `next`: the tiles of the next chunk, prefetched, or nullptr.
template <class Step, bool BF16>
void attend_chunk_with(const AttentionBlock& b, const TilePointers& tiles, int begin, int count, const TilePointers* next) {
  for_row_blocks<MAX_ROWS>(b.rows, [&](auto r, int row) { score_rows<Step, r>(b, tiles, count, row, row == 0); });
  for (int row = 0; row < b.rows; ++row) softmax_chunk<BF16>(b, row, begin, count);
  for_row_blocks<MAX_ROWS>(b.rows, [&](auto r, int row) { weigh_values_rows<Step, r>(b, tiles, count, row, row == 0 ? next : nullptr); });
}

#if defined(PENSTOCK_TILES)
void attend_chunk_by_tiles(const AttentionBlock& b, const TilePointers& tiles, int begin, int count, const TilePointers* next);
#endif

inline void attend_chunk(const AttentionBlock& b, bool bf16, const TilePointers& tiles, int begin, int count, const TilePointers* next) {
  if (!bf16) return attend_chunk_with<StepF32, false>(b, tiles, begin, count, next);
#if defined(PENSTOCK_TILES)
  attend_chunk_by_tiles(b, tiles, begin, count, next);
#else
  attend_chunk_with<StepBf16, true>(b, tiles, begin, count, next);
#endif
}

// Whether the accumulator is NaN although the probabilities are not: some value is not finite, perhaps a masked one.
inline bool acc_is_poisoned(const AttentionBlock& b, int row) {
  if (b.running_sum[row] != b.running_sum[row]) return false;
  unsigned valid_lanes = 0xffff;
  for (int d = 0; d < b.padded; d += LANES) valid_lanes &= mask_ge(load(b.acc + std::size_t(row) * b.padded + d), set1(-INFINITY));
  return valid_lanes != 0xffff;
}

// One row over one chunk, with masked values replaced by zeros.
inline void attend_chunk_masked(const AttentionBlock& one, const Cache& cache, TilePointers tiles, int begin, int count) {
  const LaneRange visible = visible_lanes(one, 0, begin);
  if (visible.from >= count * LANES || visible.to <= 0) return;
  const std::size_t bytes = cache.tile_bytes(), number = cache.bf16 ? 2 : 4;
  for (int t = 0; t < count; ++t) {
    std::uint8_t* copy = one.masked_values + bytes * t;
    std::memcpy(copy, tiles.values[t], bytes);
    for (int lane = 0; lane < TILE; ++lane)
      if (LANES * t + lane < visible.from || LANES * t + lane >= visible.to)
        for (int d = 0; d < cache.padded; ++d) std::memset(copy + number * cache.value_at(lane, d), 0, number);
    tiles.values[t] = copy;
  }
  attend_chunk(one, cache.bf16, tiles, begin, count, nullptr);
}

// Merges the state of a later span of keys into that of the spans before it.
inline void merge_spans(const AttentionState& to, const AttentionState& later, int rows, int padded) {
  for (int row = 0; row < rows; ++row) {
    if (later.running_sum[row] == 0) continue;
    const float new_max = std::max(to.running_max[row], later.running_max[row]);
    const F factor = to.running_sum[row] == 0 ? zero() : exp(set1(to.running_max[row] - new_max));
    const F later_factor = exp(set1(later.running_max[row] - new_max));
    float a[LANES], c[LANES];
    store(a, factor), store(c, later_factor);
    to.running_sum[row] = to.running_sum[row] * a[0] + later.running_sum[row] * c[0];
    to.running_max[row] = new_max;
    float* acc = to.acc + std::size_t(row) * padded;
    const float* more = later.acc + std::size_t(row) * padded;
    for (int i = 0; i < padded; i += LANES) store(acc + i, fma(load(more + i), later_factor, load(acc + i) * factor));
  }
}

inline void normalize(const float* acc, float running_sum, int n, float* out) {
  const F by = set1(running_sum == 0 ? 1.0f : running_sum);
  for (int i = 0; i < n; i += LANES) store_some(out + i, load_some(acc + i, n - i) / by, n - i);
}

}  // namespace PENSTOCK_ISA
