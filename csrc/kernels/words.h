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

// n floats, as bf16 numbers -> padded int16, and the scale, which is NaN where one of them is none or infinite. `begins` and `totals` (or
// nullptr): for each sum -offset times the sum of its numbers, and that sum.
inline float to_words(const float* x, int n, const Matrix& matrix, std::int16_t* out, std::int32_t* begins, float* totals) {
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
      std::int16_t some[LANES];
      store_i16(left < LANES ? some : out + i, words);
      if (left < LANES) std::memcpy(out + i, some, left * sizeof(*out));
    }
    const int sum = sum_i(total);
    begins[index] = -offset * sum;
    if (totals) totals[index] = static_cast<float>(sum);
  });
  return finite ? std::ldexp(1.0f, exponent - 14) : NAN;
}

}  // namespace PENSTOCK_ISA
