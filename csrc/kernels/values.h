// Steps with bf16 rows widened to float, where a processor has no products of bf16 pairs, or slow ones.
#pragma once

namespace PENSTOCK_ISA {

constexpr bool WIDE_ROWS = true;
constexpr int NUMBER = 4;  // bytes of a bf16 number in rows

struct StepBf16 {
  using Sum = F;
  static constexpr bool WHOLE = false;
  static constexpr int K = 2, W = 64, X = 8;
  template <int J> static PENSTOCK_INLINE F value(Bytes w) { return half<J>(load_raw(w)); }
  template <int R, int V> static PENSTOCK_INLINE void run(F (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) {
    add_values<StepBf16, R, V>({}, sum, w, x, stride);
  }
};

struct StepI8 {
  using Sum = F;
  static constexpr bool WHOLE = false;
  static constexpr int K = 4, W = 64, X = 16;
  template <int J> static PENSTOCK_INLINE F value(Bytes w) { return byte_value<J>(load_raw(w)); }
  template <int R, int V> static PENSTOCK_INLINE void run(F (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) {
    add_values<StepI8, R, V>({}, sum, w, x, stride);
  }
};

struct StepI4 {
  using Sum = F;
  static constexpr bool WHOLE = false;
  static constexpr int K = 8, W = 64, X = 32;
  Table table;
  template <int J> PENSTOCK_INLINE F value(Bytes w) const { return nibble_value<J>(load_raw(w), table); }
  template <int R, int V> PENSTOCK_INLINE void run(F (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    add_values<StepI4, R, V>(*this, sum, w, x, stride);
  }
};

using UnpackI8 = UnpackValues<StepI8>;
using UnpackI4 = UnpackValues<StepI4>;

}  // namespace PENSTOCK_ISA
