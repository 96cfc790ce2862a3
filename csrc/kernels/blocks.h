// Register blocks: R rows x V vectors of 16 columns of one panel, whose R * V accumulators stay in registers over a k-block.
//
// Batch invariance begins here: each output element has an accumulator of its own (a lane), which takes k in rising order, whatever R and V
// are. So the bits of a row do not depend on how many rows there are, nor on which block it is in.
#pragma once
#include "prefetch.h"
#include "steps.h"

namespace PENSTOCK_ISA {

// Block shapes. R * V accumulators fit the register file; `grouped` blocks also hold totals over groups.
constexpr int num_accumulators(bool grouped) { return grouped ? GROUPED_ACCUMULATORS : ACCUMULATORS; }
// The most rows of a block beside so many column vectors.
constexpr int block_rows(int vecs, bool grouped = false, int max_rows = MAX_ROWS) {
  return std::min(max_rows, num_accumulators(grouped) / vecs);
}
// The column vectors of blocks: 4, or 2, where one block takes all rows beside them, else as many as leave room for max_rows.
constexpr int block_vecs(int rows, bool grouped = false, int max_rows = MAX_ROWS) {
  return rows <= block_rows(4, grouped, max_rows)   ? 4
         : rows <= block_rows(2, grouped, max_rows) ? 2
                                                    : std::max(1, std::min(4, num_accumulators(grouped) / max_rows));
}

// Calls body(V, v) for blocks of V column vectors of a panel beginning at vector v, V as large as a register block of this many rows
// allows.
template <bool GROUPED, int MAX, class Body> void for_column_blocks(int rows, int width, const Body& body) {
  const int vectors = width / LANES, vecs = block_vecs(rows, GROUPED, MAX);
  int v = 0;
  if constexpr (block_rows(4, GROUPED, MAX) > 0)
    for (; vecs == 4 && v + 4 <= vectors; v += 4) body(std::integral_constant<int, 4>(), v);
  if constexpr (block_rows(2, GROUPED, MAX) > 0 && block_rows(4, GROUPED, MAX) < MAX)
    for (; vecs >= 2 && v + 2 <= vectors; v += 2) body(std::integral_constant<int, 2>(), v);
  for (; v < vectors; ++v) body(std::integral_constant<int, 1>(), v);
}

// Calls block(R, r) for blocks of R <= MAX rows beginning at row r. Rows are divided evenly: a small last block would have too few
// independent accumulators to hide the latency of the fma.
template <int MAX, class Block> PENSTOCK_INLINE void for_row_blocks(int rows, const Block& block) {
  static_assert(MAX <= 12);
  int count;
  for (int r = 0, blocks = (rows + MAX - 1) / MAX; r < rows; r += count, --blocks) switch (count = (rows - r + blocks - 1) / blocks) {
      case 1: block(std::integral_constant<int, 1>(), r); break;
      case 2: block(std::integral_constant<int, std::min(2, MAX)>(), r); break;
      case 3: block(std::integral_constant<int, std::min(3, MAX)>(), r); break;
      case 4: block(std::integral_constant<int, std::min(4, MAX)>(), r); break;
      case 5: block(std::integral_constant<int, std::min(5, MAX)>(), r); break;
      case 6: block(std::integral_constant<int, std::min(6, MAX)>(), r); break;
      case 7: block(std::integral_constant<int, std::min(7, MAX)>(), r); break;
      case 8: block(std::integral_constant<int, std::min(8, MAX)>(), r); break;
      case 9: block(std::integral_constant<int, std::min(9, MAX)>(), r); break;
      case 10: block(std::integral_constant<int, std::min(10, MAX)>(), r); break;
      case 11: block(std::integral_constant<int, std::min(11, MAX)>(), r); break;
      default: block(std::integral_constant<int, MAX>(), r);
    }
}

// acc[r][v] = value(r, v)
template <class Acc, int R, int V, class Value> PENSTOCK_INLINE void fill_block(Acc (&acc)[R][V], const Value& value) {
  unrolled<R>([&](auto r) PENSTOCK_INLINED { unrolled<V>([&](auto v) PENSTOCK_INLINED { acc[r][v] = value(r, v); }); });
}

template <class Step, int R, int V>
PENSTOCK_INLINE void apply_step(const Step& step, typename Step::Acc (&acc)[R][V], Bytes w, Bytes x, std::size_t stride) {
  if constexpr (ONE_VECTOR_AT_A_TIME && V > 1) {
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      typename Step::Acc column[R][1];
      unrolled<R>([&](auto r) PENSTOCK_INLINED { column[r][0] = acc[r][v]; });
      step.template multiply<R, 1>(column, w + Step::W_BYTES * v, x, stride);
      unrolled<R>([&](auto r) PENSTOCK_INLINED { acc[r][v] = column[r][0]; });
    });
  } else {
    step.template multiply<R, V>(acc, w, x, stride);
  }
}

// Operands of a register block over a k-block.
struct BlockInputs {
  Bytes w;
  int w_step;          // bytes between steps of w
  Bytes x;
  std::size_t stride;  // bytes between rows of x
  int steps;
};

// COUNT steps at once, and then what they prefetch.
template <int COUNT, class Step, int R, int V, class Fetch>
PENSTOCK_INLINE void take_steps(const Step& step, typename Step::Acc (&acc)[R][V], BlockInputs& at, Fetch& prefetch) {
  const Bytes first = at.w;
  unrolled<COUNT>([&](auto) PENSTOCK_INLINED {
    apply_step<Step, R, V>(step, acc, at.w, at.x, at.stride);
    at.w += at.w_step;
    at.x += Step::X_BYTES;
  });
  prefetch.template fetch_steps<COUNT>(first, at.w_step, V * Step::W_BYTES);
}

// acc += x W^T over the k-block, in rising k.
template <class Step, int R, int V, class Fetch>  // Fetch: Prefetch, or another class with its members
PENSTOCK_INLINE void accumulate(const Step& given, typename Step::Acc (&acc)[R][V], BlockInputs at, Fetch& prefetch) {
  constexpr int STEPS_PER_LINE = std::max(1, 64 / Step::X_BYTES);  // steps per cache line of x
  constexpr int AT_ONCE = Step::INTEGER ? std::max(1, UNROLLED_K / Step::K) : 1;
  const Step step = in_registers(given);
  for (int first = 0; first < at.steps; first += STEPS_PER_LINE) {
    if (prefetch.next_rows)
      unrolled<R>([&](auto r) PENSTOCK_INLINED { __builtin_prefetch(at.x + at.stride * (R + r), 0, 3); });
    const int end = std::min(at.steps, first + STEPS_PER_LINE);
    int s = first;
    if constexpr (AT_ONCE > 1)
      for (; s + AT_ONCE <= end; s += AT_ONCE) take_steps<AT_ONCE, Step, R, V>(step, acc, at, prefetch);
    for (; s < end; ++s) {
      apply_step<Step, R, V>(step, acc, at.w, at.x, at.stride);
      prefetch.fetch_ahead(at.w, V * Step::W_BYTES);
      prefetch.fetch_step();
      at.w += at.w_step;
      at.x += Step::X_BYTES;
    }
  }
}

}  // namespace PENSTOCK_ISA
