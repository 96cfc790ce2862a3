// Rows of 16-bit fixed point, for weights that are codes, where the processor multiplies pairs of such numbers twice as fast as floats.
//
// A row has one scale, a power of two by which its largest number takes all 15 bits: bf16 numbers of at least 1/128 of it stay what they
// are, smaller ones are rounded to 1/32,768 of it. Sums of products are exact; they hold SUM_LENGTH of them, so that they never overflow.
#pragma once
#include "rows.h"
#include "steps.h"

namespace PENSTOCK_ISA {

static_assert(std::int64_t{SUM_LENGTH} * 128 * 32640 < std::int64_t{1} << 31);

// 4-bit codes that stand for consecutive numbers: taken from 0 on, what the first stands for is told by where sums begin.
struct InOrder {
  template <int T> PENSTOCK_INLINE Pair quarter(Raw raw) const { return nibbles<T>(raw); }
};

// How a row keeps its words: whole, as int16; as two bytes, all upper ones, signed, before all lower ones, not signed; or the same two as
// bf16 numbers, the upper one times 256.
enum class Kept { whole, bytes, numbers };

template <Kept KEPT> PENSTOCK_INLINE void store_words(int k_padded, std::uint8_t* row, int i, int left, I words) {
  if constexpr (KEPT == Kept::bytes) {
    store_i8(reinterpret_cast<std::int8_t*>(row) + i, upper_bytes(words));
    store_i8(reinterpret_cast<std::int8_t*>(row) + k_padded + i, words);
  } else if constexpr (KEPT == Kept::numbers) {
    auto* out = reinterpret_cast<std::uint16_t*>(row) + i;
    const I lower = lower_bytes(words);
    store_bf16(out, to_float(subtract_i(words, lower)));
    store_bf16(out + k_padded, to_float(lower));
  } else {
    std::int16_t some[LANES], *out = reinterpret_cast<std::int16_t*>(row) + i;
    store_i16(left < LANES ? some : out, words);
    if (left < LANES) std::memcpy(out, some, left * sizeof(*out));
  }
}

// n floats, as bf16 numbers -> padded words, and the scale, which is NaN where one of them is none or infinite. `begins` and `totals` (or
// nullptr): for each sum -offset times the sum of its numbers, and that sum.
template <Kept KEPT> float to_words_as(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* begins, float* totals) {
  const auto rounded_row = [&](int i, int left) PENSTOCK_INLINED { return half<1>(rounded(load_some(x + i, std::min(left, n - i)))); };
  F most = zero();
  unsigned numbers = 0xffff;
  for (int i = 0; i < n; i += LANES) {
    const F v = abs(rounded_row(i, LANES));
    numbers &= at_least(v, zero());
    most = max(most, v);
  }
  const float top = numbers == 0xffff ? largest(most) : NAN;
  const bool finite = top < INFINITY;
  const int exponent = finite && top > 0 ? std::max(-100, std::ilogb(top)) : 0;
  const int offset = matrix.format == Format::i8 ? matrix.offset() : matrix.in_order() ? -matrix.values[0] : 0;
  const F inverse = set1(finite ? std::ldexp(1.0f, 14 - exponent) : 0.0f);
  each_sum(matrix, [&](int index, int begin, int end) {
    I total = zero_i();
    for (int i = begin; i < end; i += LANES) {
      const int left = std::min(LANES, end - i);
      F v = i < n && finite ? rounded_row(i, left) : zero();
      if (left < LANES) v = first_lanes(v, left, zero());
      const I words = to_int(round(v * inverse));
      total = add_i(total, words);
      store_words<KEPT>(matrix.k_padded, out, i, left, words);
    }
    const int sum = sum_i(total);
    begins[index] = -offset * sum;
    if (totals) totals[index] = static_cast<float>(sum);
  });
  return finite ? std::ldexp(1.0f, exponent - 14) : NAN;
}

}  // namespace PENSTOCK_ISA
