// i4 weights whose scales are whole multiples of a unit of the column (Matrix::has_units), with integer rows. A code times its multiple
// is at most 120, so sums over FIXED_K_BLOCK are exact in int32 across groups, and are scaled once:
//
//   packed    few rows: codes are unpacked in registers; the sum of each group is multiplied by the multiple
//   unpacked  many rows: code * multiple is unpacked once for all rows, as int16 pairs, or as bytes plus 128 like i8 codes
//
// Both add the same integers. Groups divide the k-block, so k-blocks are runs of whole groups.
#pragma once
#include "task.h"

namespace PENSTOCK_ISA {

static_assert(std::int64_t{FIXED_K_BLOCK} * 8 * 15 * 32640 < std::int64_t{1} << 31);

// Groups [first, first + count) of one panel, at most a k-block.
struct UnitBlock {
  Bytes w, multiples;
  std::size_t record;  // bytes between groups
  const float* units;
  int w_step, steps;  // bytes between packed steps, steps of a group
  int first, count;
  float* out;  // rows are PANEL apart

  UnitBlock at_columns(int v) const {
    UnitBlock b = *this;
    b.w += 64 * v, b.multiples += LANES * v, b.units += LANES * v, b.out += LANES * v;
    return b;
  }
  // out (+)= sum * unit
  void add(int r, int v, I sum) const {
    float* to = out + r * PANEL + LANES * v;
    store(to, fma(to_float(sum), load(units + LANES * v), first == 0 ? zero() : load(to)));
  }
};

template <class Step, int R, int V>
void packed_unit_kernel(const Step& step, const UnitBlock& part, const Operand& x, Bytes x_at, Prefetch prefetch) {
  I total[R][V];
  unrolled<R>([&](auto r) PENSTOCK_INLINED { unrolled<V>([&](auto v) PENSTOCK_INLINED { total[r][v] = zero_i(); }); });
  for (int g = 0; g < part.count; ++g, x_at += part.steps * Step::X_BYTES) {
    I acc[R][V];
    unrolled<R>([&](auto r) PENSTOCK_INLINED {
      const I begin = broadcast_u32(x.acc_init + r * x.groups + part.first + g);
      unrolled<V>([&](auto v) PENSTOCK_INLINED { acc[r][v] = begin; });
    });
    accumulate<Step, R, V>(step, acc, {part.w + part.record * g, part.w_step, x_at, x.stride, part.steps}, prefetch);
    prefetch.fetch_ahead(part.multiples + part.record * g, V * LANES);
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      const I multiple = load_i8(part.multiples + part.record * g + LANES * v);
      unrolled<R>([&](auto r) PENSTOCK_INLINED { total[r][v] = add_i(total[r][v], multiply_i(acc[r][v], multiple)); });
    });
  }
  unrolled<R>([&](auto r) PENSTOCK_INLINED { unrolled<V>([&](auto v) PENSTOCK_INLINED { part.add(r, v, total[r][v]); }); });
}

// One packed step of 16 columns -> code * multiple in the steps that a class Step reads.
struct MultipliedPairs {  // int16
  static constexpr int STEPS_OUT = 4;
  I multiple, offset;
  explicit MultipliedPairs(I m) : multiple(both_halves(m)), offset(both_halves(multiply_i(m, set1_i(-8)))) {}
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, std::size_t step) const {
    const Raw raw = load_raw(from);
    unrolled<4>([&](auto t) PENSTOCK_INLINED { store_raw(to + t * step, multiply_halves(i4_halves<t>(raw), multiple, offset)); });
  }
};
struct MultipliedBytes {  // plus 128, 8 k in the order 0 4 1 5, 2 6 3 7
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

template <class Multiplied> void unpack_units(const UnitBlock& part, int vectors, std::uint8_t* to) {
  const std::size_t step = std::size_t(64) * vectors;
  for (int g = 0; g < part.count; ++g)
    for (int v = 0; v < vectors; ++v) {
      const Multiplied unpack(load_i8(part.multiples + part.record * g + LANES * v));
      const Bytes from = part.w + part.record * g + 64 * v;
      std::uint8_t* out = to + step * Multiplied::STEPS_OUT * part.steps * g + 64 * v;
      for (int s = 0; s < part.steps; ++s) unpack(from + step * s, out + step * Multiplied::STEPS_OUT * s, step);
    }
}

// Sum of the zero-point corrections of the block's groups, 8 * sum of x each, for bytes plus 128.
inline I byte_correction(const UnitBlock& part, const Operand& x, int r) {
  std::int32_t sum = 0;
  for (int g = 0; g < part.count; ++g) sum += x.acc_init[r * x.groups + part.first + g];
  return set1_i(16 * sum);
}

template <class Step, int R, int V, bool BYTES>
void unpacked_unit_kernel(const Step& step, const UnitBlock& part, const Operand& x, Bytes x_at, Prefetch prefetch) {
  I acc[R][V];
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    const I begin = BYTES ? byte_correction(part, x, r) : zero_i();
    unrolled<V>([&](auto v) PENSTOCK_INLINED { acc[r][v] = begin; });
  });
  accumulate<Step, R, V>(step, acc, {part.w, part.w_step, x_at, x.stride, part.steps * part.count}, prefetch);
  unrolled<R>([&](auto r) PENSTOCK_INLINED { unrolled<V>([&](auto v) PENSTOCK_INLINED { part.add(r, v, acc[r][v]); }); });
}

// Calls body(part) for the k-blocks of a panel.
template <class Body> void for_unit_blocks(const Task& t, const Body& body) {
  const Matrix& m = t.matrix;
  const std::size_t record = m.record_bytes(t.width);
  const int at_once = FIXED_K_BLOCK / m.group, w_step = t.w_step(64);
  for (int g = 0; g < m.num_groups(); g += at_once) {
    const Bytes w = t.panel + record * g;
    body(UnitBlock{w, w + m.code_bytes(t.width), record, t.units(), w_step, m.group / m.k_per_step(), g, std::min(at_once, m.num_groups() - g), t.out});
  }
}

// All rows of one panel: PackedStep reads packed codes, Step what Multiplied makes of them.
template <class Multiplied, class Step, class PackedStep> void multiply_units(const Task& t, int max_packed_rows, const PackedStep& packed) {
  constexpr bool BYTES = std::is_same_v<Multiplied, MultipliedBytes>;
  for_unit_blocks(t, [&](const UnitBlock& block) {
    const std::size_t bytes = block.record * block.count;
    const std::size_t longest = block.record * std::min(FIXED_K_BLOCK / t.matrix.group, t.matrix.num_groups());
    const std::size_t x_offset = std::size_t(block.first) * t.matrix.group / Step::K * Step::X_BYTES;
    if (t.rows <= max_packed_rows)
      return t.packed_rows.with_block_rows(t.rows, [&](auto max) {
        const PrefetchPlan plan = t.prefetch(t.rows_per_block(true, max), block.w, bytes, longest, block.steps * block.count);
        for_column_blocks<true, max>(t.rows, t.width, [&](auto vecs, int v) {
          UnitBlock part = block.at_columns(v);
          for_row_blocks<block_rows(vecs, true, max)>(t.rows, [&](auto count, int r) PENSTOCK_INLINED {
            const Operand x = t.x.at_row(r);
            packed_unit_kernel<PackedStep, count, vecs>(packed, part, x, x.data + x_offset, plan.for_columns(v, vecs).for_block(r, count));
            part.out += PANEL * count;
          });
        });
      });
    unpack_units<Multiplied>(block, t.vectors(), t.unpacked);
    UnitBlock unpacked = block;
    unpacked.w = t.unpacked, unpacked.steps = t.matrix.group / Step::K;
    const PrefetchPlan plan = t.prefetch(t.rows_per_block(), block.w, bytes, longest, unpacked.steps * block.count);
    for_column_blocks(t.rows, t.width, [&](auto vecs, int v) {
      UnitBlock part = unpacked.at_columns(v);
      for_row_blocks<block_rows(vecs)>(t.rows, [&](auto count, int r) PENSTOCK_INLINED {
        const Operand x = t.x.at_row(r);
        unpacked_unit_kernel<Step, count, vecs, BYTES>(Step{}, part, x, x.data + x_offset, plan.for_columns(v, vecs).for_block(r, count));
        part.out += PANEL * count;
      });
    });
  });
}

}  // namespace PENSTOCK_ISA
