// One panel of a packed matrix times any number of rows: which way is taken. A way is a file, which says its loop order.
//
//   weights     rows            few rows         many rows
//   f32         float           dense.h          dense.h
//   bf16        bf16 pairs      dense.h          dense.h
//   bf16, f16   float           dense.h          buffered.h, widened to float
//   i8          int8            inregisters.h    inregisters.h: nothing is to be unpacked
//   i6, i4      int8            inregisters.h    buffered.h
//   codes       int8 as int16   inregisters.h    buffered.h
//   codes       fixed point     inregisters.h    buffered.h, both over k-blocks of at most FIXED_K_BLOCK
//   codes       bf16, float     inregisters.h    buffered.h; i8 with one scale per column as dense numbers, scaled at the end
//   i4, units   integer         multiples.h      multiples.h
//   i8, i4      split           inregisters.h, multiples.h: one row of fixed point, or two (splits_fixed16)
//
// Fixed point rows have 16 bits (PENSTOCK_FIXED16), and where nothing multiplies bytes so do int8 rows (INT8_ELEM_BYTES). How many rows are
// few is UnpackLimits' matter. A class Step reads codes as they are packed and an Unpack makes the numbers that it would (steps.h, pairs.h,
// values.h): so both ways add the same products in the same order, and the number of rows may choose between them.
//
// With AMX, bf16 weights and codes for more than a few rows are multiplied elsewhere (amx.h); the rest comes here.
#pragma once
#include "buffered.h"
#include "inregisters.h"
#if defined(PENSTOCK_FIXED16)
#include "fixed16.h"
#endif
#include "multiples.h"

namespace PENSTOCK_ISA {

// 16-bit weights with float rows.
template <class Step> void multiply_widened(const Task& t) {
  t.rows > UNPACK_LIMIT_F16 ? multiply_dense_buffered(t, UnpackToFloat<Step>{}) : multiply_dense<Step>(t);
}

// Codes with scales: rows beyond `limit` find them unpacked once.
template <class Unpack, class Step>
void multiply_codes(const Task& t, int limit, const Unpack& unpack, const Step& step, const KBlocks& run) {
  if (t.rows > limit && fits_buffer<Unpack>(run.length)) return multiply_buffered(t, unpack, run);
  t.limits.with_block_rows(t.rows, [&](auto max) { multiply_in_registers<true, max>(t, step, run); });
}

inline I4ByteTable i4_byte_table(const Matrix& m) {  // i4 codebook plus zero point, as unsigned bytes
  std::uint8_t bytes[16];
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<std::uint8_t>(m.codebook[i] + m.zero_point());
  return make_i4_byte_table(bytes);
}

inline StepI4 step_i4(const Matrix& m) {
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = m.codebook[i];
  return StepI4{make_i4_table(values)};
}

inline void multiply_int8_rows(const Task& unscaled) {
  const Task t = unscaled.scaled_by(apply_row_scales);
  const Matrix& m = t.matrix;
  const KBlocks all = all_groups(t);
  if (m.format == Format::i8) {
    m.num_groups() == 1 ? multiply_in_registers<false, MAX_ROWS>(unscaled, StepInt8{}, all)
                        : multiply_in_registers<true, MAX_ROWS>(t, StepInt8{}, all);
  } else if (m.format == Format::i6) {
    multiply_codes(t, t.limits.i4_int8, UnpackI6ToInt8{}, StepI6Int8{}, all);
  } else {
    const I4ByteTable table = i4_byte_table(m);
    if (m.has_units()) multiply_units<MultipliedBytes>(t, t.limits.i4_units_int8, StepI4Int8{table});
    else multiply_codes(t, t.limits.i4_int8, UnpackI4ToInt8{table}, StepI4Int8{table}, all);
  }
}

#if defined(PENSTOCK_VNNI)

// The form Operand::split: codes of 8 bits, or consecutive ones of 4.
inline void multiply_split_rows(const Task& t) {
  if (t.matrix.has_units())
    return for_unit_blocks(t, [&](const UnitBlock& block) {
      multiply_units_in_registers<MAX_SPLIT_ROWS>(t, StepI4Split{}, block, packed_weights(t, block, StepI4Split::K));
    });
  for_k_block_runs(t, [&](const KBlocks& run) {
    if (t.matrix.format == Format::i8) multiply_in_registers<true, MAX_SPLIT_ROWS>(t, StepI8Split{}, run);
    else multiply_in_registers<true, MAX_SPLIT_ROWS>(t, StepI4Split{}, run);
  });
}

#endif
#if defined(PENSTOCK_FIXED16)

// Fixed point, of which integer sums hold FIXED_K_BLOCK, or int8, of which they hold any group.
inline void multiply_16_bit_rows(const Task& unscaled) {
  const Task t = unscaled.scaled_by(apply_row_scales);
  using Consecutive = StepI4Pairs<ConsecutiveCodes>;
  const Matrix& m = t.matrix;
#if defined(PENSTOCK_VNNI)
  if (t.x.split) return multiply_split_rows(t);
#endif
  if (m.has_units()) return multiply_units<MultipliedPairs>(t, t.limits.i4_units, Consecutive{});
  const auto multiply = [&](const KBlocks& run) {
    if (m.format == Format::i8) return multiply_codes(t, t.limits.i8, UnpackI8{}, StepI8{}, run);
    if (m.format == Format::i6) return multiply_codes(t, t.limits.i6, UnpackI6{}, StepI6{}, run);
    if (m.codebook_is_consecutive()) return multiply_codes(t, t.limits.i4, UnpackI4Pairs<ConsecutiveCodes>{}, Consecutive{}, run);
    const StepI4 step = step_i4(m);
    multiply_codes(t, t.limits.i4, UnpackI4{step}, step, run);
  };
  t.x.int8 ? multiply(all_groups(t)) : for_k_block_runs(t, multiply);
}

#else

inline void scale_sums(const Task& t, int first, int count) {  // Task::scale_rows of codes that were added as dense numbers
  scale_columns(t, first, count, [](int, const float* out) PENSTOCK_INLINED { return load(out); });
}

inline void multiply_16_bit_rows(const Task& t) {  // bf16, perhaps held as float
  const Matrix& m = t.matrix;
  const KBlocks all = all_groups(t);
  if (m.format == Format::i4) {
    const StepI4 step = step_i4(m);
    multiply_codes(m.has_units() ? t.scaled_by(apply_units) : t, t.limits.i4, UnpackI4{step}, step, all);
  } else if (m.format == Format::i6) {
    multiply_codes(t, t.limits.i6, UnpackI6{}, StepI6{}, all);
  } else if (m.num_groups() > 1) {
    multiply_codes(t, t.limits.i8, UnpackI8{}, StepI8{}, all);
  } else if (t.rows <= t.limits.i8) {
    multiply_in_registers<false, MAX_ROWS>(t, StepI8{}, all);
  } else {  // a k-block that is all of k does not fit the buffer
    multiply_dense_buffered(t.scaled_by(scale_sums), UnpackI8{});
  }
}

#endif

// out [rows, PANEL] of one panel, and its epilogue. Columns beyond the matrix get what the padding holds.
inline void multiply_panel(const Task& t) {
  switch (t.matrix.format) {
    case Format::f32: return multiply_dense<StepF32>(t);
    case Format::f16: return multiply_widened<StepF16>(t);
    case Format::bf16:
      if constexpr (BF16_ROWS_AS_FLOAT) return multiply_widened<StepBf16>(t);
      else return multiply_dense<StepBf16>(t);
    default:
      if constexpr (INT8_ELEM_BYTES == 1)
        if (t.x.int8) return multiply_int8_rows(t);
      return multiply_16_bit_rows(t);
  }
}

}  // namespace PENSTOCK_ISA
