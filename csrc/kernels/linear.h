// Micro-kernels of y = x W^T: a register block of R rows x V vectors of 16 columns of one panel, over a k-block.
//
//   dense_micro_kernel   formats without scales: float accumulators, carried from k-block to k-block in `out`
//   scaled_micro_kernel  i8 and i4: a fresh accumulator for each k-block, then total += scale * acc + min * sum(x)
//
// Batch invariance: each output element has an accumulator of its own that takes k in rising order, whatever R and V are, and k-blocks
// begin at fixed indices. So the bits of a row do not depend on how many rows there are, nor on which block it is in.
#pragma once
#include "prefetch.h"
#include "steps.h"

namespace PENSTOCK_ISA {

// Block shapes. R * V accumulators fit the register file; `grouped` blocks also hold totals over groups.
constexpr int num_accumulators(bool grouped) { return grouped ? GROUPED_ACCUMULATORS : ACCUMULATORS; }
constexpr int block_rows(int vecs, bool grouped = false, int max_rows = MAX_ROWS) { return std::min(max_rows, num_accumulators(grouped) / vecs); }
constexpr int block_vecs(int rows, bool grouped = false, int max_rows = MAX_ROWS) {
  return rows <= block_rows(4, grouped, max_rows)   ? 4
         : rows <= block_rows(2, grouped, max_rows) ? 2
                                                    : std::max(1, num_accumulators(grouped) / max_rows);
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
  int w_step;
  Bytes x;
  std::size_t stride;
  int steps;
};

template <class Step, int R, int V, class Fetch>  // Fetch: Prefetch, or another class with its members
PENSTOCK_INLINE void accumulate(const Step& given, typename Step::Acc (&acc)[R][V], BlockInputs at, Fetch& prefetch) {
  constexpr int STEPS_PER_LINE = std::max(1, 64 / Step::X_BYTES);  // steps per cache line of x
  const Step step = in_registers(given);
  for (int first = 0; first < at.steps; first += STEPS_PER_LINE) {
    if (prefetch.next_rows)
      unrolled<R>([&](auto r) PENSTOCK_INLINED { __builtin_prefetch(at.x + at.stride * (R + r), 0, 3); });
    const int end = std::min(at.steps, first + STEPS_PER_LINE);
    for (int s = first; s < end; ++s) {
      apply_step<Step, R, V>(step, acc, at.w, at.x, at.stride);
      prefetch.fetch_ahead(at.w, V * Step::W_BYTES);
      prefetch.fetch_step();
      at.w += at.w_step;
      at.x += Step::X_BYTES;
    }
  }
}

// A k-block of one panel, without scales.
struct DenseKBlock {
  Bytes w;
  int w_step;  // bytes between steps
  int steps;
  bool first;  // first k-block: out is not initialized
  float* out;
  int out_stride;
};

// out (+)= x W^T over the k-block.
template <class Step, int R, int V>
void dense_micro_kernel(const Step& step, const DenseKBlock& part, Bytes x, std::size_t stride, Prefetch prefetch) {
  F acc[R][V];
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    unrolled<V>([&](auto v) PENSTOCK_INLINED { acc[r][v] = part.first ? zero() : load(part.out + r * part.out_stride + 16 * v); });
  });
  accumulate<Step, R, V>(step, acc, {part.w, part.w_step, x, stride, part.steps}, prefetch);
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    unrolled<V>([&](auto v) PENSTOCK_INLINED { store(part.out + r * part.out_stride + 16 * v, acc[r][v]); });
  });
}

// Consecutive scaled k-blocks (quantization groups, or parts of them) of one panel.
struct ScaledKBlocks {
  Bytes w;
  std::size_t block_stride;  // bytes between the weights of k-blocks
  int w_step, steps;         // bytes between steps, steps per k-block
  Bytes scales, mins;        // of the first k-block; mins: nullptr if there are none
  std::size_t scale_stride;
  int scale_bytes;
  int first, count;    // k-blocks, as indexed by Operand::acc_init
  float* out;
  int out_stride;

  F load_scale(Bytes p, int v) const {  // of one byte: a multiple of the column's unit, which is left to the caller
    if (scale_bytes == 1) return to_float(load_i8(p + 16 * v));
    return scale_bytes == 2 ? from_f16(reinterpret_cast<const std::uint16_t*>(p) + 16 * v) : load(reinterpret_cast<const float*>(p) + 16 * v);
  }
};

// out (+)= sum over k-blocks of scale * (x W^T) + min * sum(x). Integer accumulators start from the zero-point correction.
template <class Step, int R, int V, bool GROUPED>
void scaled_micro_kernel(const Step& step, const ScaledKBlocks& part, const Operand& x, Bytes x_at, Prefetch prefetch) {
  F total[R][V];
  const auto out = [&](int r, int v) PENSTOCK_INLINED { return part.out + r * part.out_stride + 16 * v; };
  if constexpr (GROUPED)
    unrolled<R>([&](auto r) PENSTOCK_INLINED {
      unrolled<V>([&](auto v) PENSTOCK_INLINED { total[r][v] = part.first == 0 ? zero() : load(out(r, v)); });
    });
  Bytes w = part.w, scales = part.scales, mins = part.mins;
  for (int g = part.first; g < part.first + part.count; ++g) {
    typename Step::Acc acc[R][V];
    unrolled<R>([&](auto r) PENSTOCK_INLINED {
      if constexpr (Step::INTEGER) {
        const I begin = broadcast_u32(x.acc_init + r * x.groups + g);
        unrolled<V>([&](auto v) PENSTOCK_INLINED { acc[r][v] = begin; });
      } else {
        unrolled<V>([&](auto v) PENSTOCK_INLINED { acc[r][v] = zero(); });
      }
    });
    accumulate<Step, R, V>(step, acc, {w, part.w_step, x_at, x.stride, part.steps}, prefetch);
    if constexpr (GROUPED) prefetch.fetch_ahead(scales, V * LANES * part.scale_bytes * (mins ? 2 : 1));
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      const F scale = part.load_scale(scales, v);
      unrolled<R>([&](auto r) PENSTOCK_INLINED {
        F value;
        if constexpr (Step::INTEGER) value = to_float(acc[r][v]);
        else value = acc[r][v];
        F previous = zero();
        if constexpr (GROUPED) previous = total[r][v];
        F next = fma(value, scale, previous);
        if (mins) next = fma(part.load_scale(mins, v), set1(x.group_sums[r * x.groups + g]), next);
        if constexpr (GROUPED) total[r][v] = next;
        else store(out(r, v), next);
      });
    });
    w += part.block_stride, scales += part.scale_stride, x_at += part.steps * Step::X_BYTES;
    if (mins) mins += part.scale_stride;
  }
  if constexpr (GROUPED)
    unrolled<R>([&](auto r) PENSTOCK_INLINED {
      unrolled<V>([&](auto v) PENSTOCK_INLINED { store(out(r, v), total[r][v]); });
    });
}

}  // namespace PENSTOCK_ISA
