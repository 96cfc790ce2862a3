// Codes with scales (i8, i6, i4): what their two ways share (inregisters.h, buffered.h). A panel's k is cut into k-blocks, one for each
// quantization group or part of a group, and
//
//   y = sum over k-blocks of (scale * sum of x * code + min * sum of x)
//
// The inner sum is an accumulator of its own for each k-block: an integer where rows are integers, so exact in any order, else a float that
// takes k in rising order. Outer sums are floats, `totals`, which take k-blocks in rising order; they leave for `out` and come back
// unrounded.
//
// Batch invariance: k-blocks depend on the matrix alone, and both orders are those of k.
#pragma once
#include "task.h"

namespace PENSTOCK_ISA {

// Consecutive k-blocks of equal length of one panel, or of its columns from some vector on.
struct KBlocks {
  int first, count;           // as indexed by Operand::acc_init
  int begin, length;          // k at which the first one begins; k of each
  Bytes codes;                // of the first one, packed or as unpacked
  int w_step;                 // bytes from one step of codes to the next
  std::size_t stride;         // bytes from the codes of one k-block to those of the next
  Bytes scales, mins;         // of the first one; mins: nullptr if there are none
  std::size_t scale_stride;   // bytes from k-block to k-block, 0 within one group
  int scale_bytes;            // 1 (times a factor, or a multiple of the column's unit, which is left to the caller), 2 (f16) or 4
  Bytes factors = nullptr;    // f16, of the panel's first k-block whatever `first` is; nullptr: none
  std::size_t min_factors = 0;    // bytes from the factors of scales to those of mins
  std::size_t factor_stride = 0;  // bytes from factor to factor
  int factor_shift = 0;       // log2 of the k-blocks that share one

  // Without its factor.
  F load_scale(Bytes of, int v) const {
    if (scale_bytes == 1) return to_float(load_i8(of + LANES * v));
    return scale_bytes == 2 ? from_f16(reinterpret_cast<const std::uint16_t*>(of) + LANES * v)
                            : load(reinterpret_cast<const float*>(of) + LANES * v);
  }
  // `side`: 0 for scales, min_factors for mins.
  F load_factor(int k_block, int v, std::size_t side) const {
    return from_f16(reinterpret_cast<const std::uint16_t*>(factors + factor_stride * (k_block >> factor_shift) + side) + LANES * v);
  }
  // Of the first k-block.
  F scale(int v) const { return factors ? load_scale(scales, v) * load_factor(first, v, 0) : load_scale(scales, v); }
  F min(int v) const { return factors ? load_scale(mins, v) * load_factor(first, v, min_factors) : load_scale(mins, v); }
  // The k-block after those that share the factor of this one.
  int next_factor(int k_block) const { return ((k_block >> factor_shift) + 1) << factor_shift; }
  // k-blocks [from, from + num) of these.
  KBlocks part(int from, int num) const {
    KBlocks p = *this;
    p.first += from, p.count = num, p.begin += from * length, p.codes += stride * from, p.scales += scale_stride * from;
    if (mins) p.mins += scale_stride * from;
    return p;
  }
  // Calls body(part) for `at_once` k-blocks at a time.
  template <class Body> void in_parts(int at_once, const Body& body) const {
    if (count <= at_once) return body(*this);
    for (int from = 0; from < count; from += at_once) body(part(from, std::min(at_once, count - from)));
  }
  // The columns from vector v on, of codes whose steps are `step_bytes` for each vector.
  KBlocks at_columns(int v, int step_bytes) const {
    KBlocks p = *this;
    p.codes += step_bytes * v, p.scales += std::size_t(v) * LANES * scale_bytes;
    if (mins) p.mins += std::size_t(v) * LANES * scale_bytes;
    if (factors) p.factors += std::size_t(v) * LANES * 2;
    return p;
  }
  // The same where codes were unpacked to a buffer, `bytes` for each k-block.
  KBlocks unpacked_at(Bytes buffer, std::size_t bytes, int step) const {
    KBlocks p = *this;
    p.codes = buffer, p.stride = bytes, p.w_step = step;
    return p;
  }
};

// One k-block per quantization group.
inline KBlocks all_groups(const Task& t) {
  const Matrix& m = t.matrix;
  KBlocks all;
  all.first = 0, all.count = m.num_groups(), all.begin = 0, all.length = m.group;
  all.codes = t.panel, all.w_step = t.w_step(m.code_step_bytes());
  all.scales = t.panel + m.code_bytes(t.width), all.scale_bytes = m.scale_bytes;
  all.mins = m.has_mins ? all.scales + std::size_t(t.width) * m.scale_bytes : nullptr;
  all.stride = all.scale_stride = m.record_bytes(t.width);
  if (m.has_factors()) {
    all.factors = t.panel + m.units_offset(t.width), all.factor_stride = m.factor_bytes(t.width);
    all.min_factors = std::size_t(t.width) * 2, all.factor_shift = __builtin_ctz(m.factor_groups);
  }
  return all;
}

// Calls body(run) for runs of equally long k-blocks that integer sums fit: all groups at once, or each group cut at FIXED_K_BLOCK.
template <class Body> void for_k_block_runs(const Task& t, const Body& body) {
  const Matrix& m = t.matrix;
  const KBlocks all = all_groups(t);
  if (m.group <= FIXED_K_BLOCK) return body(all);
  const int full = m.group / FIXED_K_BLOCK, left = m.group % FIXED_K_BLOCK;
  for (int g = 0; g < m.num_groups(); ++g) {
    KBlocks run = all.part(g, full);
    run.first = g * m.k_blocks_in_group(), run.length = FIXED_K_BLOCK;
    run.stride = std::size_t(FIXED_K_BLOCK) * t.width * m.bits() / 8, run.scale_stride = 0;
    body(run);
    if (left == 0) continue;
    KBlocks rest = run.part(full, 1);
    rest.length = left;
    body(rest);
  }
}

// Accumulators at the beginning of a k-block: zero, or for integers the zero-point correction.
template <class Step, int R, int V> PENSTOCK_INLINE void begin_k_block(typename Step::Acc (&acc)[R][V], const Operand& x, int k_block) {
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    if constexpr (Step::INTEGER) {
      const I begin = broadcast_u32(x.acc_init + r * x.groups + k_block);
      unrolled<V>([&](auto v) PENSTOCK_INLINED { begin_sum(acc[r][v], begin); });
    } else {
      unrolled<V>([&](auto v) PENSTOCK_INLINED { acc[r][v] = zero(); });
    }
  });
}

// out (+)= the k-blocks; `x` and `out` at the block's first row. GROUPED: several k-blocks, so that totals are kept in registers; integer
// rows are left to Task::scale_rows then.
template <class Step, int R, int V, bool GROUPED>
void scaled_micro_kernel(const Step& step, const KBlocks& of, const Operand& x, float* out, Prefetch prefetch) {
  const auto out_at = [&](int r, int v) PENSTOCK_INLINED { return out + r * PANEL + LANES * v; };
  F total[R][V];
  if constexpr (GROUPED)
    fill_block(total, [&](auto r, auto v) PENSTOCK_INLINED { return of.first == 0 ? zero() : load(out_at(r, v)); });
  Bytes codes = of.codes, scales = of.scales, mins = of.mins, x_at = x.data + std::size_t(of.begin / Step::K) * Step::X_BYTES;
  const int steps = of.length / Step::K;
  F factor[V] = {}, min_factor[V] = {};
  for (int g = of.first, changes = g; g < of.first + of.count; ++g) {
    if (of.factors && g == changes) {
      unrolled<V>([&](auto v) PENSTOCK_INLINED {
        factor[v] = of.load_factor(g, v, 0);
        min_factor[v] = mins ? of.load_factor(g, v, of.min_factors) : zero();
      });
      changes = of.next_factor(g);
    }
    typename Step::Acc acc[R][V];
    begin_k_block<Step, R, V>(acc, x, g);
    accumulate<Step, R, V>(step, acc, {codes, of.w_step, x_at, x.stride, steps}, prefetch);
    if constexpr (GROUPED) prefetch.fetch_ahead(scales, V * LANES * of.scale_bytes * (mins ? 2 : 1));
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      F scale = of.load_scale(scales, v), min = mins ? of.load_scale(mins, v) : zero();
      if (of.factors) scale = scale * factor[v], min = min * min_factor[v];
      unrolled<R>([&](auto r) PENSTOCK_INLINED {
        F sum, previous = zero();
        if constexpr (Step::INTEGER) sum = to_float(whole_sum(acc[r][v]));
        else sum = acc[r][v];
        if constexpr (GROUPED) previous = total[r][v];
        F next = fma(sum, scale, previous);
        if (mins) next = fma(min, set1(x.group_sums[r * x.groups + g]), next);
        if constexpr (GROUPED) total[r][v] = next;
        else store(out_at(r, v), Step::INTEGER ? next * set1(x.scales[r]) : next);
      });
    });
    codes += of.stride, scales += of.scale_stride, x_at += steps * Step::X_BYTES;
    if (mins) mins += of.scale_stride;
  }
  if constexpr (GROUPED)
    unrolled<R>([&](auto r) PENSTOCK_INLINED {
      unrolled<V>([&](auto v) PENSTOCK_INLINED { store(out_at(r, v), total[r][v]); });
    });
}

// All columns and rows over some k-blocks. `read`: the memory that their codes are in, or were unpacked from.
template <bool GROUPED, int MAX, class Step>
void multiply_k_blocks(const Task& t, const Step& step, const KBlocks& of, const PackedWeights& read) {
  for_columns<GROUPED, MAX>(t, read, [&](auto vecs, int v, const PrefetchPlan& plan) {
    const KBlocks columns = of.at_columns(v, Step::W_BYTES);
    for_rows<vecs, GROUPED, MAX>(t, plan, of.first + of.count == t.x.groups,
                                 [&](auto count, int r, const Prefetch& prefetch) PENSTOCK_INLINED {
      scaled_micro_kernel<Step, count, vecs, GROUPED>(step, columns, t.x.at_row(r), t.out + std::size_t(PANEL) * r + LANES * v, prefetch);
    });
  });
}

// out = f(row, vector of columns, address) for each vector of some rows of the panel.
template <class Function> void each_out(const Task& t, int first, int count, const Function& function) {
  for (int r = first; r < first + count; ++r)
    for (int v = 0; v < t.vectors(); ++v) {
      float* out = t.out + std::size_t(r) * PANEL + LANES * v;
      store(out, function(r, v, out));
    }
}

// Of a finished product, where one group is all of k: out = scale * sum + min * sum of x. sum(r, address): what `out` holds, as floats.
template <class Sum> void scale_columns(const Task& t, int first, int count, const Sum& sum) {
  const KBlocks all = all_groups(t);
  each_out(t, first, count, [&](int r, int v, const float* out) PENSTOCK_INLINED {
    const F scaled = fma(sum(r, out), all.scale(v), zero());
    return all.mins ? fma(all.min(v), set1(t.x.group_sums[r]), scaled) : scaled;
  });
}

// Task::scale_rows
inline void apply_row_scales(const Task& t, int first, int count) {  // of integer rows
  each_out(t, first, count, [&](int r, int, const float* out) PENSTOCK_INLINED { return load(out) * set1(t.x.scales[r]); });
}
inline void apply_units(const Task& t, int first, int count) {  // of codes that were scaled by multiples of them
  const auto* units = reinterpret_cast<const float*>(t.panel + t.matrix.units_offset(t.width));
  each_out(t, first, count, [&](int, int v, const float* out) PENSTOCK_INLINED { return load(out) * load(units + LANES * v); });
}

}  // namespace PENSTOCK_ISA
