// 16-bit fixed-point activation rows for weights in codes, for processors on which an int16 pair product (VPDPWSSD, VPMADDWD) has twice
// the throughput of a float fma.
//
// x is first rounded to bf16, then to int16 with one power-of-two scale per row, chosen so that max |x| uses all 15 bits. bf16 values of
// at least 1/128 of the maximum are exact; smaller ones are rounded to 1/32768 of it. Products are summed exactly in int32 over k-blocks
// of FIXED_K_BLOCK, so integer sums do not depend on the order of summation.
#pragma once
#include "rows.h"
#include "steps.h"

namespace PENSTOCK_ISA {

static_assert(std::int64_t{FIXED_K_BLOCK} * 128 * 32640 < std::int64_t{1} << 31);

// i4 codes of a consecutive codebook are used as they are, 0 to 15: codebook[0] is part of the zero-point correction.
struct ConsecutiveCodes {
  template <int T> PENSTOCK_INLINE Pair k_pair(Raw raw) const { return i4_halves<T>(raw); }
};

// Storage of a row. int16: plain. byte_planes: [2, k_padded] all high bytes (signed), then all low bytes (unsigned). bf16_planes: the
// same two planes as bf16, the high one as 256 * high byte. interleaved: byte planes whose 8 along k stand as 0 4 1 5 2 6 3 7, the order in
// which i4 codes are unpacked to bytes. Those three are AMX forms. split_eights: [k_padded / 8, 2, 8], of each 8 along k the high bytes
// (signed), then the low ones (unsigned), in that order. split_fours: [k_padded / 4, 2, 4], in rising k.
enum class Fixed16Layout { int16, byte_planes, interleaved, bf16_planes, split_eights, split_fours };

template <Fixed16Layout LAYOUT> PENSTOCK_INLINE void store_fixed16(int k_padded, std::uint8_t* row, int i, int left, I fixed) {
#if defined(PENSTOCK_VNNI)
  if constexpr (LAYOUT == Fixed16Layout::byte_planes || LAYOUT == Fixed16Layout::interleaved) {
    if constexpr (LAYOUT == Fixed16Layout::interleaved) fixed = interleave_for_i4(fixed);
    store_i8(reinterpret_cast<std::int8_t*>(row) + i, high_byte(fixed));
    store_i8(reinterpret_cast<std::int8_t*>(row) + k_padded + i, fixed);
  } else if constexpr (LAYOUT == Fixed16Layout::split_eights) {
    fixed = interleave_for_i4(fixed);
    store_i8_eights(row + 2 * i, high_byte(fixed), fixed);
  } else if constexpr (LAYOUT == Fixed16Layout::split_fours) {
    store_i8_fours(row + 2 * i, high_byte(fixed), fixed);
  } else if constexpr (LAYOUT == Fixed16Layout::bf16_planes) {
    auto* out = reinterpret_cast<std::uint16_t*>(row) + i;
    const I lower = low_byte(fixed);
    store_bf16(out, to_float(subtract_i(fixed, lower)));
    store_bf16(out + k_padded, to_float(lower));
  }
#endif
  if constexpr (LAYOUT == Fixed16Layout::int16) store_some_i16(reinterpret_cast<std::int16_t*>(row) + i, fixed, left);
}

// x [n] -> out [k_padded]; returns the row's scale. See Kernels::to_fixed16. split_fours: only high bytes meet codes with a zero point
// (StepI8Split), so they alone need a correction.
template <Fixed16Layout LAYOUT>
float to_fixed16_as(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  const auto rounded = [](F v) PENSTOCK_INLINED { return widen_bf16<1>(round_to_bf16(v)); };
  const float row_max = reduce_max(rounded(set1(max_magnitude(x, n))));  // rounding keeps the order
  const bool finite = row_max < INFINITY;
  const int exponent = finite && row_max > 0 ? std::max(-100, std::ilogb(row_max)) : 0;
  constexpr bool MULTIPLIED = LAYOUT == Fixed16Layout::interleaved;
  const int zero_point = MULTIPLIED ? 128 : pairs_zero_point(matrix);
  const F inverse = set1(finite ? std::ldexp(1.0f, 14 - exponent) : 0.0f);
  RowSums sums(zero_point, acc_init, group_sums);
  each_k_block(matrix, MULTIPLIED ? matrix.k_padded : matrix.group, [&](int begin, int end) {
    I lane_sum = zero_i();
    each_vector_until(x, finite ? n : 0, begin, end, [&](int i, int left, F v) PENSTOCK_INLINED {
      const I fixed = to_int(round(rounded(v) * inverse));
      lane_sum = add_i(lane_sum, LAYOUT == Fixed16Layout::split_fours ? subtract_i(fixed, low_byte(fixed)) : fixed);
      store_fixed16<LAYOUT>(matrix.k_padded, out, i, left, fixed);
    });
    sums.add(lane_sum);
  });
  sums.flush();
  return finite ? std::ldexp(1.0f, exponent - 14) : NAN;
}

}  // namespace PENSTOCK_ISA
