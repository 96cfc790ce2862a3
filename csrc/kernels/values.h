// Steps with bf16 rows widened to float, where a processor has no products of bf16 pairs, or slow ones.
#pragma once

namespace PENSTOCK_ISA {

constexpr bool WIDE_ROWS = true;
constexpr int NUMBER = 4;  // bytes of a bf16 number in rows

struct StepBf16 : OverValues<StepBf16, 2, 64> {
  template <int J> static PENSTOCK_INLINE F value(Bytes w) { return half<J>(load_raw(w)); }
};

#if !defined(PENSTOCK_WORDS)
struct StepI8 : OverValues<StepI8, 4, 64> {
  template <int J> static PENSTOCK_INLINE F value(Bytes w) { return byte_value<J>(load_raw(w)); }
};

struct StepI4 : OverValues<StepI4, 8, 64> {
  explicit StepI4(const Table& of) : table(of) {}
  template <int J> PENSTOCK_INLINE F value(Bytes w) const { return nibble_value<J>(load_raw(w), table); }
  Table table;
};

using UnpackI8 = UnpackValues<StepI8>;
using UnpackI4 = UnpackValues<StepI4>;
#endif

}  // namespace PENSTOCK_ISA
