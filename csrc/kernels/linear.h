// Products of rows with one panel of a packed matrix: out[row][column] = sum over k of x[row][k] * w[column][k].
//
// Every output has one accumulator that takes the inner indices in rising order, whatever the number of rows: the bits of a row do
// not depend on its neighbours. A register block is ROWS x VECS accumulators; blocks along k come back to the same sums.
#pragma once
#include "ahead.h"
#include "steps.h"

namespace PENSTOCK_ISA {

// A block is as wide as its rows leave room for: its sums stay in registers. `several`: beside totals over several groups.
constexpr int most_sums(bool several) { return several ? SUMS_BESIDE_TOTALS : SUMS; }
constexpr int block_rows(int vecs, bool several = false, int most = MAX_ROWS) { return std::min(most, most_sums(several) / vecs); }
constexpr int block_vecs(int rows, bool several = false, int most = MAX_ROWS) {
  return rows <= block_rows(4, several, most) ? 4 : rows <= block_rows(2, several, most) ? 2 : std::max(1, most_sums(several) / most);
}

// Calls block(R, r) for R rows from the r-th on, at most MOST at a time and no block much smaller than another: few sums wait for each
// other more than they calculate.
template <int MOST, class Block> PENSTOCK_INLINE void each_rows(int rows, const Block& block) {
  static_assert(MOST <= 12);
  int count;
  for (int r = 0, blocks = (rows + MOST - 1) / MOST; r < rows; r += count, --blocks) switch (count = (rows - r + blocks - 1) / blocks) {
      case 1: block(std::integral_constant<int, 1>(), r); break;
      case 2: block(std::integral_constant<int, std::min(2, MOST)>(), r); break;
      case 3: block(std::integral_constant<int, std::min(3, MOST)>(), r); break;
      case 4: block(std::integral_constant<int, std::min(4, MOST)>(), r); break;
      case 5: block(std::integral_constant<int, std::min(5, MOST)>(), r); break;
      case 6: block(std::integral_constant<int, std::min(6, MOST)>(), r); break;
      case 7: block(std::integral_constant<int, std::min(7, MOST)>(), r); break;
      case 8: block(std::integral_constant<int, std::min(8, MOST)>(), r); break;
      case 9: block(std::integral_constant<int, std::min(9, MOST)>(), r); break;
      case 10: block(std::integral_constant<int, std::min(10, MOST)>(), r); break;
      case 11: block(std::integral_constant<int, std::min(11, MOST)>(), r); break;
      default: block(std::integral_constant<int, MOST>(), r);
    }
}

template <class Step, int R, int V>
PENSTOCK_INLINE void step_once(const Step& step, typename Step::Sum (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) {
  if constexpr (VECS_IN_TURN && V > 1) {
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      typename Step::Sum column[R][1];
      unrolled<R>([&](auto r) PENSTOCK_INLINED { column[r][0] = sum[r][v]; });
      step.template run<R, 1>(column, w + Step::W * v, x, stride);
      unrolled<R>([&](auto r) PENSTOCK_INLINED { sum[r][v] = column[r][0]; });
    });
  } else {
    step.template run<R, V>(sum, w, x, stride);
  }
}

// Where the factors of a block's sums stand: weights `w_step` bytes from step to step, rows `stride` bytes apart.
struct Walk {
  Bytes w;
  int w_step;
  Bytes x;
  std::size_t stride;
  int steps;
};

template <class Step, int R, int V>
PENSTOCK_INLINE void accumulate(const Step& given, typename Step::Sum (&sum)[R][V], Walk at, Ahead& ahead) {
  constexpr int LINE = std::max(1, 64 / Step::X);  // steps that a cache line of x lasts for
  const Step step = held(given);
  for (int done = 0; done < at.steps; done += LINE) {
    if (ahead.rows)
      unrolled<R>([&](auto r) PENSTOCK_INLINED { __builtin_prefetch(at.x + at.stride * (R + r), 0, 3); });
    const int until = std::min(at.steps, done + LINE);
    for (int s = done; s < until; ++s) {
      step_once<Step, R, V>(step, sum, at.w, at.x, at.stride);
      for (int i = 0; i < ahead.lines; ++i) __builtin_prefetch(ahead.at + 64 * i, 0, 2);
      ahead.at += 64 * ahead.lines;
      at.w += at.w_step;
      at.x += Step::X;
    }
  }
}

// A stretch of k of one panel, and where its sums stand.
struct Stretch {
  Bytes w;
  int w_step;  // bytes from step to step
  int steps;
  bool first;  // out holds nothing yet
  float* out;
  int out_stride;
};

// out (+)= x w without scales.
template <class Step, int R, int V>
void dense_block(const Step& step, const Stretch& part, Bytes x, std::size_t stride, Ahead ahead) {
  F sum[R][V];
  unrolled<R>([&](auto r) PENSTOCK_INLINED { unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = part.first ? zero() : load(part.out + r * part.out_stride + 16 * v); }); });
  accumulate<Step, R, V>(step, sum, {part.w, part.w_step, x, stride, part.steps}, ahead);
  unrolled<R>([&](auto r) PENSTOCK_INLINED { unrolled<V>([&](auto v) PENSTOCK_INLINED { store(part.out + r * part.out_stride + 16 * v, sum[r][v]); }); });
}

// Groups of one panel, one after another: where their codes, scales and mins stand.
struct Groups {
  Bytes w;
  std::size_t next;    // bytes from group to group
  int w_step, steps;   // bytes from step to step, steps of a group
  Bytes scales, mins;  // of the first group; mins: nullptr when there are none
  std::size_t next_scales;
  int scale_bytes;
  int first, count;    // index of the first group among the row's groups
  float* out;
  int out_stride;

  F read(Bytes p, int v) const {
    return scale_bytes == 2 ? from_f16(reinterpret_cast<const std::uint16_t*>(p) + 16 * v) : load(reinterpret_cast<const float*>(p) + 16 * v);
  }
};

// out += the sum over groups of (x w) * scale + total(x) * min. Sums of integers begin with what their codes are too large by.
template <class Step, int R, int V, bool SEVERAL>
void group_block(const Step& step, const Groups& part, const Operand& x, Bytes x_at, Ahead ahead) {
  F total[R][V];
  const auto out = [&](int r, int v) PENSTOCK_INLINED { return part.out + r * part.out_stride + 16 * v; };
  if constexpr (SEVERAL)
    unrolled<R>([&](auto r) PENSTOCK_INLINED {
      unrolled<V>([&](auto v) PENSTOCK_INLINED { total[r][v] = part.first == 0 ? zero() : load(out(r, v)); });
    });
  Bytes w = part.w, scales = part.scales, mins = part.mins;
  for (int g = part.first; g < part.first + part.count; ++g) {
    typename Step::Sum sum[R][V];
    unrolled<R>([&](auto r) PENSTOCK_INLINED {
      if constexpr (Step::WHOLE) {
        const I begin = broadcast_raw(x.begins + r * x.groups + g);
        unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = begin; });
      } else {
        unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = zero(); });
      }
    });
    accumulate<Step, R, V>(step, sum, {w, part.w_step, x_at, x.stride, part.steps}, ahead);
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      const F scale = part.read(scales, v);
      unrolled<R>([&](auto r) PENSTOCK_INLINED {
        F value;
        if constexpr (Step::WHOLE) value = to_float(sum[r][v]);
        else value = sum[r][v];
        F before = zero();
        if constexpr (SEVERAL) before = total[r][v];
        F after = fma(value, scale, before);
        if (mins) after = fma(part.read(mins, v), set1(x.totals[r * x.groups + g]), after);
        if constexpr (SEVERAL) total[r][v] = after;
        else store(out(r, v), after);
      });
    });
    w += part.next, scales += part.next_scales, x_at += part.steps * Step::X;
    if (mins) mins += part.next_scales;
  }
  if constexpr (SEVERAL)
    unrolled<R>([&](auto r) PENSTOCK_INLINED {
      unrolled<V>([&](auto v) PENSTOCK_INLINED { store(out(r, v), total[r][v]); });
    });
}

}  // namespace PENSTOCK_ISA
