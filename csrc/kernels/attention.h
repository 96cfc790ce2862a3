// Attention of a block of rows over one KV head: online softmax (Milakov and Gimelshein 2018, arXiv:1805.02867) over chunks of CHUNK
// keys, as in FlashAttention (Dao et al. 2022, arXiv:2205.14135). Rows are (token, query head) pairs that share the KV head.
//
// Loop order: for each chunk, scores S = Q K^T of all rows, softmax row by row, then O = O * rescale + P V. Tiles of keys and values
// (cache.h) are small panels, so S and P V use the micro-kernels of the matrix products.
//
// Batch invariance: chunks and spans begin at fixed positions, and a chunk of which a row sees no key leaves its state unchanged, but
// for the sign of a zero, which no later sum shows. So a row's numbers depend on its own position alone, not on the other rows of the
// block.
//
// Masked keys have probability 0, which contributes 0 to P V unless the value is not finite (0 * inf = NaN). Rows whose accumulator has
// become NaN that way are computed again one by one, with zeros in place of the masked values.
#pragma once
#include "../cache.h"
#include "blocks.h"
#include "math.h"
#include "rows.h"

namespace PENSTOCK_ISA {

struct TilePointers { Bytes keys[CHUNK_TILES], values[CHUNK_TILES]; };

// The tiles of a chunk in the order in which they are read, keys then values, and which of those that follow are prefetched meanwhile:
// with several blocks of rows, which leave memory idle, the tile half a chunk further on, to L2; with one block, where the tiles are a
// stream, what AttendTask::stream says.
struct TileOrder {
  const TilePointers& tiles;
  int count;                 // of keys, and of values
  const TilePointers* next;  // the next chunk, at least as long, or nullptr
  int ahead;                 // tiles, at most `count`
  bool to_l1;

  // The tile that is read `ahead` tiles after the i-th, or nullptr.
  Bytes after(int i) const {
    const int at = i + ahead;
    return at < count ? tiles.keys[at] : at < 2 * count ? tiles.values[at - count] : next ? next->keys[at - 2 * count] : nullptr;
  }
};

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
  bool streamed;                     // one block of rows: tiles are a stream from memory, of which `tiles_ahead` are prefetched to L1
  int tiles_ahead;
};

// Scores of R rows with the keys of V tiles, one column vector after another.
template <class Step, int R, int V>
PENSTOCK_INLINE void score(const AttentionBlock& b, const TileOrder& order, int first, int row) {
  const int steps = b.padded / Step::K;
  const std::size_t stride = std::size_t(steps) * Step::X_BYTES;
  const Bytes x = b.queries + stride * row;
  float* out = b.scores + std::size_t(row) * CHUNK;
  const bool fetch = row == 0 && order.after(first + V - 1);
  F sum[R][V];
  Bytes keys[V], ahead[V];
  unrolled<V>([&](auto v) PENSTOCK_INLINED { keys[v] = order.tiles.keys[first + v], ahead[v] = fetch ? order.after(first + v) : nullptr; });
  unrolled<R>([&](auto r) PENSTOCK_INLINED { unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = zero(); }); });
  for (int s = 0; s < steps; ++s)
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      F column[R][1];
      unrolled<R>([&](auto r) PENSTOCK_INLINED { column[r][0] = sum[r][v]; });
      Step{}.template multiply<R, 1>(column, keys[v] + 64 * s, x + Step::X_BYTES * s, stride);
      unrolled<R>([&](auto r) PENSTOCK_INLINED { sum[r][v] = column[r][0]; });
      if (fetch) fetch_lines(ahead[v] + 64 * s, 64, order.to_l1);
    });
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    unrolled<V>([&](auto v) PENSTOCK_INLINED { store(out + r * CHUNK + LANES * (first + v), sum[r][v]); });
  });
}

// A stream is read one tile after another, else several tiles at once.
template <class Step, int R> void score_rows(const AttentionBlock& b, const TileOrder& order, int row) {
  int t = 0;
  if constexpr (block_vecs(R) > 1)
    for (constexpr int V = block_vecs(R); !b.streamed && t + V <= order.count; t += V) score<Step, R, V>(b, order, t, row);
  for (; t < order.count; ++t) score<Step, R, 1>(b, order, t, row);
}

// What `accumulate` prefetches meanwhile: a part of another tile.
struct TilePrefetch {
  Bytes at;
  int bytes_per_step;
  bool to_l1;
  static constexpr bool next_rows = false;
  PENSTOCK_INLINE void fetch_ahead(Bytes, int) const {}
  PENSTOCK_INLINE void fetch_step() {
    fetch_lines(at, bytes_per_step, to_l1);
    at += bytes_per_step;
  }
};

// acc = acc * rescale + P V of the tiles [from, to), for V vectors of the head dimension; rescaled where `from` is 0.
template <class Step, int R, int V>
PENSTOCK_INLINE void weigh_values(const AttentionBlock& b, const TileOrder& order, int from, int to, int row, int vec) {
  const int steps = TILE_SLOTS / Step::K, w_step = b.padded * 4;
  const std::size_t stride = std::size_t(CHUNK) / Step::K * Step::X_BYTES;
  const Bytes x = b.probs + stride * row;
  F sum[R][V];
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    float* acc = b.acc + std::size_t(row + r) * b.padded + LANES * vec;
    unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = load(acc + LANES * v); });
    if (from > 0) return;
    const F rescale = set1(b.rescale[row + r]);
    unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = sum[r][v] * rescale; });
  });
  for (int t = from; t < to; ++t) {
    const Bytes ahead = row == 0 ? order.after(order.count + t) : nullptr;
    TilePrefetch prefetch{ahead ? ahead + 64 * vec * steps : nullptr, ahead ? 64 * V : 0, order.to_l1};
    accumulate<Step, R, V>(Step{}, sum, {order.tiles.values[t] + 64 * vec, w_step, x + Step::X_BYTES * steps * t, stride, steps}, prefetch);
  }
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    unrolled<V>([&](auto v) PENSTOCK_INLINED { store(b.acc + std::size_t(row + r) * b.padded + LANES * (vec + v), sum[r][v]); });
  });
}

// A stream is read one tile after another; if those are wider than a register block, acc stays in memory.
template <class Step, int R> void weigh_values_rows(const AttentionBlock& b, const TileOrder& order, int row) {
  constexpr int V = block_vecs(R), WIDE = 8 * (R + 1) <= ACCUMULATORS ? 8 : V;
  const int vectors = b.padded / LANES, at_once = b.streamed && vectors > WIDE ? 1 : order.count;
  for (int t = 0; t < order.count; t += at_once) {
    int v = 0;
    if constexpr (WIDE > V)
      for (; b.streamed && v + WIDE <= vectors; v += WIDE) weigh_values<Step, R, WIDE>(b, order, t, t + at_once, row, v);
    if constexpr (V > 1)
      for (; v + V <= vectors; v += V) weigh_values<Step, R, V>(b, order, t, t + at_once, row, v);
    for (; v < vectors; ++v) weigh_values<Step, R, 1>(b, order, t, t + at_once, row, v);
  }
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
  const TileOrder order{tiles, count, next, b.streamed ? std::min(count, b.tiles_ahead) : count, b.streamed};
  for_row_blocks<MAX_ROWS>(b.rows, [&](auto r, int row) { score_rows<Step, r>(b, order, row); });
  for (int row = 0; row < b.rows; ++row) softmax_chunk<BF16>(b, row, begin, count);
  for_row_blocks<MAX_ROWS>(b.rows, [&](auto r, int row) { weigh_values_rows<Step, r>(b, order, row); });
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
    for (int lane = 0; lane < TILE_SLOTS; ++lane)
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
  const F by = set1(1.0f / (running_sum == 0 ? 1.0f : running_sum));
  for (int i = 0; i < n; i += LANES) store_some(out + i, load_some(acc + i, n - i) * by, n - i);
}

}  // namespace PENSTOCK_ISA
