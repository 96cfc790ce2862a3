// Software prefetch of the matrix products. The weights of one k-block of a panel are read by one or several register blocks (rows x
// columns):
//
//   one block      covers all rows and columns: the weights are read once, as a stream, and prefetched as StreamPrefetch says.
//   several blocks the k-block stays in L1 or L2 while the blocks reuse it, and memory would be idle. Together they prefetch as many bytes,
//                  the longest k-block further on, in this panel or the next: each block a share proportional to its rows x columns. A
//                  whole panel further on would not fit L2 where k is large.
//
// Except for a single row block, blocks also prefetch the next block's rows of x into L1, since many rows are in L3 only.
#pragma once
#include "../kernels.h"
#include "steps.h"

namespace PENSTOCK_ISA {

PENSTOCK_INLINE void fetch_lines(Bytes from, int bytes, bool to_l1) {  // or to L2
  if (to_l1)
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, 0, 3);
  else
    for (int i = 0; i < bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
}

// What one register block prefetches.
struct Prefetch {
  Bytes at = nullptr;
  int lines_per_step = 0;
  bool next_rows = false;  // also the x rows of the next row block
  StreamPrefetch stream;

  // What lies ahead of these bytes of the stream.
  PENSTOCK_INLINE void fetch_ahead(Bytes of, int bytes) const {
    if (stream.distance) fetch_lines(of + stream.distance, bytes, stream.to_l1);
  }
  PENSTOCK_INLINE void fetch_step() {  // the lines of one step
    fetch_lines(at, 64 * lines_per_step, false);
    at += 64 * lines_per_step;
  }
  // Both, of COUNT steps whose bytes of the stream are `step` apart.
  template <int COUNT> PENSTOCK_INLINE void fetch_steps(Bytes of, int step, int bytes) {
    if (stream.distance)
      for (int i = 0; i < COUNT; ++i) fetch_lines(of + step * i + stream.distance, bytes, stream.to_l1);
    fetch_lines(at, 64 * COUNT * lines_per_step, false);
    at += 64 * COUNT * lines_per_step;
  }
};

// The weights of a k-block as memory has them: what its register blocks read, once or from cache.
struct PackedWeights {
  Bytes at;
  std::size_t bytes;
  std::size_t longest;  // bytes of the panel's longest k-block: how far ahead several register blocks prefetch
  int steps;            // that a register block takes for them
};

struct PrefetchPlan {
  int rows, rows_per_block;  // rows of x, and the most in one register block
  int vectors;               // column vectors of the panel
  PackedWeights weights;
  StreamPrefetch stream;
  int v = 0, vecs = 0;       // column vectors [v, v + vecs) of the current blocks

  PrefetchPlan for_columns(int first, int count) const {
    PrefetchPlan s = *this;
    s.v = first, s.vecs = count;
    return s;
  }
  // For the block of rows [row, row + count).
  Prefetch for_block(int row, int count) const {
    if (rows <= rows_per_block && vecs == vectors) return {nullptr, 0, false, stream};
    // Of the cache lines that all blocks together prefetch in a step, those that fall to the blocks before row r of these columns.
    const std::size_t one_line = std::size_t(weights.steps) * 64;  // bytes, over the k-block
    const int lines_per_step = static_cast<int>((weights.bytes + one_line - 1) / one_line), all = rows * vectors;
    const auto lines_until = [&](int r) { return (lines_per_step * (v * rows + vecs * r) + all - 1) / all; };
    const int first = lines_until(row), end = lines_until(row + count);
    return {weights.at + weights.longest + one_line * first, end - first, rows > rows_per_block, {}};
  }
};

}  // namespace PENSTOCK_ISA
