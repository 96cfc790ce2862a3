// i4 codes whose scales are whole multiples of a unit of the column (Matrix::has_units), with integer rows: both ways of unpacking. A code
// times its multiple is at most 120, so sums over FIXED_K_BLOCK are exact in int32 across groups, and are scaled once. Loop order over one
// panel:
//
//   k-blocks of FIXED_K_BLOCK, runs of whole groups
//     (unpacked once: code * multiple of all columns, as int16 pairs, or as bytes plus 128 like i8 codes)
//     blocks of V column vectors
//       blocks of R rows              a micro-kernel: R x V int32 accumulators; then out += unit * sum
//         groups, steps of k          in registers: the sum of each group is multiplied by its multiple
//
// Few rows unpack in registers, many once for all, for the reasons given in inregisters.h and buffered.h.
//
// Batch invariance: both ways add the same integers, exactly; float sums take k-blocks in rising order.
#pragma once
#include "task.h"

namespace PENSTOCK_ISA {

static_assert(std::int64_t{FIXED_K_BLOCK} * 8 * 15 * 32640 < std::int64_t{1} << 31);

// One k-block of a panel, or of its columns from some vector on.
struct UnitBlock {
  int first, count, group;  // quantization groups first .. first + count - 1, and their k
  Bytes codes;              // of the first one, packed or as unpacked
  int w_step;               // bytes from one step of codes to the next
  Bytes multiples;          // of the first group, int8
  std::size_t record;       // bytes from group to group, of packed codes and of multiples
  const float* units;

  bool is_last(const Matrix& m) const { return first + count == m.num_groups(); }
  UnitBlock at_columns(int v) const {
    UnitBlock b = *this;
    b.codes += 64 * v, b.multiples += LANES * v, b.units += LANES * v;
    return b;
  }
  template <class Step> Bytes rows_at(const Operand& x) const { return x.data + std::size_t(first * group / Step::K) * Step::X_BYTES; }
  // out (+)= unit * sum, for the block of which `out` is the first row.
  template <int R, int V> PENSTOCK_INLINE void add_to(float* out, const I (&sum)[R][V]) const {
    unrolled<R>([&](auto r) PENSTOCK_INLINED {
      unrolled<V>([&](auto v) PENSTOCK_INLINED {
        float* to = out + r * PANEL + LANES * v;
        store(to, fma(to_float(sum[r][v]), load(units + LANES * v), first == 0 ? zero() : load(to)));
      });
    });
  }
};

// Calls body(block) for the k-blocks of a panel.
template <class Body> void for_unit_blocks(const Task& t, const Body& body) {
  const Matrix& m = t.matrix;
  const int groups_in_block = FIXED_K_BLOCK / m.group;
  UnitBlock block;
  block.group = m.group, block.w_step = t.w_step(64), block.record = m.record_bytes(t.width);
  block.units = reinterpret_cast<const float*>(t.panel + m.units_offset(t.width));
  for (int g = 0; g < m.num_groups(); g += groups_in_block) {
    block.first = g, block.count = std::min(groups_in_block, m.num_groups() - g);
    block.codes = t.panel + block.record * g, block.multiples = block.codes + m.code_bytes(t.width);
    body(block);
  }
}

// The memory of a k-block, of which a step takes `k_per_step`.
inline PackedWeights packed_weights(const Task& t, const UnitBlock& of, int k_per_step) {
  const std::size_t longest = of.record * std::min(FIXED_K_BLOCK / of.group, t.matrix.num_groups());
  return {of.codes, of.record * of.count, longest, of.group / k_per_step * of.count};
}

// Few rows: `step` unpacks codes in registers.
template <class Step, int R, int V>
void packed_unit_kernel(const Step& step, const UnitBlock& of, const Operand& x, float* out, Prefetch prefetch) {
  I total[R][V];
  fill_block(total, [](auto, auto) PENSTOCK_INLINED { return zero_i(); });
  Bytes x_at = of.rows_at<Step>(x);
  const int steps = of.group / Step::K;
  for (int g = 0; g < of.count; ++g, x_at += steps * Step::X_BYTES) {
    typename Step::Acc acc[R][V];
    unrolled<R>([&](auto r) PENSTOCK_INLINED {
      const I begin = broadcast_u32(x.acc_init + r * x.groups + of.first + g);
      unrolled<V>([&](auto v) PENSTOCK_INLINED { begin_sum(acc[r][v], begin); });
    });
    accumulate<Step, R, V>(step, acc, {of.codes + of.record * g, of.w_step, x_at, x.stride, steps}, prefetch);
    prefetch.fetch_ahead(of.multiples + of.record * g, V * LANES);
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      const I multiple = load_i8(of.multiples + of.record * g + LANES * v);
      unrolled<R>([&](auto r) PENSTOCK_INLINED { total[r][v] = add_i(total[r][v], multiply_i(whole_sum(acc[r][v]), multiple)); });
    });
  }
  of.add_to(out, total);
}

template <int MAX, class Step>
void multiply_units_in_registers(const Task& t, const Step& step, const UnitBlock& block, const PackedWeights& read) {
  for_columns<true, MAX>(t, read, [&](auto vecs, int v, const PrefetchPlan& plan) {
    const UnitBlock columns = block.at_columns(v);
    for_rows<vecs, true, MAX>(t, plan, block.is_last(t.matrix), [&](auto count, int r, const Prefetch& prefetch) PENSTOCK_INLINED {
      packed_unit_kernel<Step, count, vecs>(step, columns, t.x.at_row(r), t.out + std::size_t(PANEL) * r + LANES * v, prefetch);
    });
  });
}

// Many rows: one packed step of 16 columns -> code * multiple in the steps that a class Step reads.
#if defined(PENSTOCK_FIXED16)
struct MultipliedPairs {  // int16
  using Step = StepPairs;
  static constexpr int STEPS_OUT = 4;
  I multiple, offset;
  explicit MultipliedPairs(I m) : multiple(both_halves(m)), offset(both_halves(multiply_i(m, set1_i(-8)))) {}
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, std::size_t step) const {
    const Raw raw = load_raw(from);
    unrolled<4>([&](auto t) PENSTOCK_INLINED { store_raw(to + t * step, multiply_halves(i4_halves<t>(raw), multiple, offset)); });
  }
};
#endif
struct MultipliedBytes {  // plus 128, 8 k in the order 0 4 1 5, 2 6 3 7
  using Step = StepInt8;
  static constexpr int STEPS_OUT = 2;
  I multiple, offset;
  explicit MultipliedBytes(I m) : multiple(both_halves(m)) {
    const I one = add_i(multiply_i(m, set1_i(-8)), set1_i(128));
    offset = both_halves(add_i(one, shift_left_8(one)));
  }
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, std::size_t step) const {
    const Raw raw = load_raw(from);
    store_raw(to, multiply_halves(i4_bytes<0>(raw), multiple, offset));
    store_raw(to + step, multiply_halves(i4_bytes<1>(raw), multiple, offset));
  }
};

template <class Multiplied> void unpack_units(const UnitBlock& of, int vectors, std::uint8_t* to) {
  const std::size_t step = std::size_t(64) * vectors;
  const int steps = of.group / StepI4Int8::K;  // packed
  for (int g = 0; g < of.count; ++g) {
    const Bytes group = of.codes + of.record * g;
    std::uint8_t* out = to + step * Multiplied::STEPS_OUT * steps * g;
    const auto multiple = [&](int v) { return Multiplied(load_i8(of.multiples + of.record * g + LANES * v)); };
    if (vectors == 4) {  // as bytes lie in memory
      const Multiplied unpack[4] = {multiple(0), multiple(1), multiple(2), multiple(3)};
      for (int s = 0; s < steps; ++s)
        for (int v = 0; v < 4; ++v) unpack[v](group + step * s + 64 * v, out + step * Multiplied::STEPS_OUT * s + 64 * v, step);
      continue;
    }
    for (int v = 0; v < vectors; ++v) {
      const Multiplied unpack = multiple(v);
      for (int s = 0; s < steps; ++s) unpack(group + step * s + 64 * v, out + step * Multiplied::STEPS_OUT * s + 64 * v, step);
    }
  }
}

// For bytes plus 128: -128 * the sum of x over the block. acc_init holds -8 * the sum of each group, for codes plus 8: 16 times as much.
inline I byte_correction(const UnitBlock& of, const Operand& x, int r) {
  const std::int32_t* at = x.acc_init + r * x.groups + of.first;
  I sums = zero_i();
  int g = 0;
  for (; g + LANES <= of.count; g += LANES) sums = add_i(sums, load_raw(at + g));
  std::uint32_t sum = static_cast<std::uint32_t>(reduce_add_i(sums));  // modulo 2^32
  for (; g < of.count; ++g) sum += static_cast<std::uint32_t>(at[g]);
  return set1_i(static_cast<int>(16 * sum));
}

template <class Multiplied, int R, int V>
void unpacked_unit_kernel(const UnitBlock& of, const Operand& x, float* out, Prefetch prefetch) {
  using Step = typename Multiplied::Step;
  I acc[R][V];
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    const I begin = std::is_same_v<Multiplied, MultipliedBytes> ? byte_correction(of, x, r) : zero_i();
    unrolled<V>([&](auto v) PENSTOCK_INLINED { acc[r][v] = begin; });
  });
  accumulate<Step, R, V>(Step{}, acc, {of.codes, of.w_step, of.rows_at<Step>(x), x.stride, of.group / Step::K * of.count}, prefetch);
  of.add_to(out, acc);
}

template <class Multiplied> void multiply_units_buffered(const Task& t, const UnitBlock& block, const PackedWeights& read) {
  unpack_units<Multiplied>(block, t.vectors(), t.unpacked);
  UnitBlock unpacked = block;
  unpacked.codes = t.unpacked;
  for_columns<false, MAX_ROWS>(t, read, [&](auto vecs, int v, const PrefetchPlan& plan) {
    const UnitBlock columns = unpacked.at_columns(v);
    for_rows<vecs, false, MAX_ROWS>(t, plan, block.is_last(t.matrix), [&](auto count, int r, const Prefetch& prefetch) PENSTOCK_INLINED {
      unpacked_unit_kernel<Multiplied, count, vecs>(columns, t.x.at_row(r), t.out + std::size_t(PANEL) * r + LANES * v, prefetch);
    });
  });
}

// One panel. `step` reads packed codes; rows beyond `limit` take what Multiplied makes of them.
template <class Multiplied, class PackedStep> void multiply_units(const Task& t, int limit, const PackedStep& step) {
  for_unit_blocks(t, [&](const UnitBlock& block) {
    if (t.rows > limit) return multiply_units_buffered<Multiplied>(t, block, packed_weights(t, block, Multiplied::Step::K));
    t.limits.with_block_rows(t.rows, [&](auto max) {
      multiply_units_in_registers<max>(t, step, block, packed_weights(t, block, PackedStep::K));
    });
  });
}

}  // namespace PENSTOCK_ISA
