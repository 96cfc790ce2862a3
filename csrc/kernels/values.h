// Steps for bf16 rows held as float, where the processor has no bf16 dot product or a slow one: weights are widened or dequantized to
// float in registers.
#pragma once

namespace PENSTOCK_ISA {

constexpr bool BF16_ROWS_AS_FLOAT = true;
constexpr int BF16_ELEM_BYTES = 4;  // of a bf16 element in operand rows

struct StepBf16 : FloatStep<StepBf16, 2, 64> {
  template <int J> static PENSTOCK_INLINE F value(Bytes w) { return widen_bf16<J>(load_raw(w)); }
};

#if !defined(PENSTOCK_FIXED16)
struct StepI8 : FloatStep<StepI8, 4, 64> {
  template <int J> static PENSTOCK_INLINE F value(Bytes w) { return i8_to_float<J>(load_raw(w)); }
};

struct StepI6 : FloatStep<StepI6, 16, I6_BYTES> {
  template <int J> static PENSTOCK_INLINE F value(Bytes w) { return i8_to_float<J % 4>(i6_word<J / 4, 128>(w)); }
};

struct StepI4 : FloatStep<StepI4, 8, 64> {
  explicit StepI4(const I4Table& of) : table(of) {}
  template <int J> PENSTOCK_INLINE F value(Bytes w) const { return i4_to_float<J>(load_raw(w), table); }
  I4Table table;
};

using UnpackI8 = UnpackToFloat<StepI8>;
using UnpackI6 = UnpackToFloat<StepI6>;
using UnpackI4 = UnpackToFloat<StepI4>;
#endif

}  // namespace PENSTOCK_ISA
