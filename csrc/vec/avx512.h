// 16 lanes in one AVX-512 register. Needs F, BW, VL and DQ; uses VNNI or BF16 where the compiler is given them.
#pragma once
#include <immintrin.h>

#include <cstdint>

#if defined(__AVX512VNNI__) && !defined(__AVX512BF16__)
#define PENSTOCK_FIXED16 1  // activation rows in 16-bit fixed point (kernels/fixed16.h)
#define PENSTOCK_VNNI 1     // and further forms of them, for VPDPBUSD and for AMX
#endif

namespace PENSTOCK_ISA {

using F = __m512;     // 16 float
using I = __m512i;    // 16 int32
using Raw = __m512i;  // 64 bytes of packed weights: a 32-bit word for each of 16 columns

constexpr int MAX_ROWS = 6, ACCUMULATORS = 24;  // register block: rows, and rows x vectors
constexpr int INT8_ELEM_BYTES = 1;              // of an element of int8 rows
#if defined(PENSTOCK_FIXED16)
constexpr int MAX_ROWS_UNPACKING = 12;  // taller blocks where codes are unpacked in registers: each unpacking serves more rows
constexpr int LOW_ROWS_UNPACKING = 8;   // the same where that gains less than it costs in registers (UnpackLimits)
#else
constexpr int MAX_ROWS_UNPACKING = MAX_ROWS, LOW_ROWS_UNPACKING = MAX_ROWS;
#endif
constexpr bool ONE_VECTOR_AT_A_TIME = false;
// Rows up to which codes are unpacked in registers for each block rather than once for all rows: the measured break-even (docs/LOG.md).
constexpr int UNPACK_LIMIT_F16 = 64;
constexpr int UNROLLED_K = 1;               // so much of k is taken in one turn of a loop over integers (blocks.h)
constexpr int MIN_UNPACKED_INT_BLOCKS = 4;  // so many at least are unpacked at once: totals are loaded and stored once for them
#if defined(__AVX512BF16__)
constexpr int GROUPED_ACCUMULATORS = 12, UNPACK_LIMIT_I8 = MAX_ROWS, UNPACK_LIMIT_I4 = 1 << 30, UNPACK_LIMIT_I4_INT8 = 1 << 30;
#else
constexpr int GROUPED_ACCUMULATORS = ACCUMULATORS;  // totals are spilled to memory
#if defined(PENSTOCK_FIXED16)
constexpr int UNPACK_LIMIT_I8 = 48, UNPACK_LIMIT_I4 = 32, UNPACK_LIMIT_I4_INT8 = 24;
#else
constexpr int UNPACK_LIMIT_I8 = MAX_ROWS, UNPACK_LIMIT_I4 = 16, UNPACK_LIMIT_I4_INT8 = 1 << 30;
#endif
#endif
constexpr int UNPACK_LIMIT_I6 = UNPACK_LIMIT_I8;

inline F zero() { return _mm512_setzero_ps(); }
inline I zero_i() { return _mm512_setzero_si512(); }
inline F set1(float x) { return _mm512_set1_ps(x); }
inline I set1_i(int x) { return _mm512_set1_epi32(x); }
inline F load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, F x) { _mm512_storeu_ps(p, x); }
inline F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
inline F max(F a, F b) { return _mm512_max_ps(a, b); }
inline F min(F a, F b) { return _mm512_min_ps(a, b); }
inline F abs(F a) { return _mm512_abs_ps(a); }
inline F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline I to_int(F a) { return _mm512_cvtps_epi32(a); }
inline F to_float(I a) { return _mm512_cvtepi32_ps(a); }
inline F select_lt(F x, F bound, F then, F otherwise) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, bound, _CMP_LT_OQ), otherwise, then);
}
// Lane masks, false for NaN.
inline unsigned mask_gt(F x, F bound) { return _mm512_cmp_ps_mask(x, bound, _CMP_GT_OQ); }
inline unsigned mask_ge(F x, F bound) { return _mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ); }
// a / b within 3 ulp, for finite b >= 1, by one Newton step: a division takes as long as about ten multiplications. The last bits differ
// between processors, as the approximation RCP14 does.
inline F fast_div(F a, F b) {
  const F near = _mm512_rcp14_ps(b);
  return a * (near * _mm512_fnmadd_ps(b, near, set1(2.0f)));
}
inline F scale_pow2(F x, F n) { return _mm512_scalef_ps(x, n); }  // x * 2^n
inline F blend_first(F x, int n, F otherwise) { return _mm512_mask_blend_ps(static_cast<__mmask16>((1u << n) - 1), otherwise, x); }

// Pairwise: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
inline float reduce_add(F x) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
inline float reduce_max(F x) { return _mm512_reduce_max_ps(x); }

inline F from_f16(const std::uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
#if defined(__AVX512BF16__)
inline void store_bf16(std::uint16_t* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
#else
inline I round_to_bf16(F x) {  // nearest even; the result is in the upper half words
  const I bits = _mm512_castps_si512(x);
  const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const I sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 no_number = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(sum, no_number, bits, _mm512_set1_epi32(0x400000));
}
inline void store_bf16(std::uint16_t* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(round_to_bf16(x), 16)));
}
#endif
inline void store_i8(std::int8_t* p, I x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x)); }
// The lower bytes of 8 lanes of a, 8 of b, then the others of a and of b.
inline void store_i8_eights(std::uint8_t* p, I a, I b) {
  const __m128i first = _mm512_cvtepi32_epi8(a), second = _mm512_cvtepi32_epi8(b);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi64(first, second));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), _mm_unpackhi_epi64(first, second));
}
// The same of 4 lanes.
inline void store_i8_fours(std::uint8_t* p, I a, I b) {
  const __m128i first = _mm512_cvtepi32_epi8(a), second = _mm512_cvtepi32_epi8(b);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_unpacklo_epi32(first, second));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 16), _mm_unpackhi_epi32(first, second));
}
// Lanes of each 8 in the order 0 4 1 5 2 6 3 7.
inline I interleave_for_i4(I x) {
  return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), x);
}
inline I high_byte(I x) { return _mm512_srai_epi32(x, 8); }  // of int16 values
inline I low_byte(I x) { return _mm512_and_si512(x, _mm512_set1_epi32(255)); }
inline I subtract_i(I a, I b) { return _mm512_sub_epi32(a, b); }
inline I shift_left_8(I x) { return _mm512_slli_epi32(x, 8); }
inline int reduce_add_i(I x) { return _mm512_reduce_add_epi32(x); }
inline int reduce_max_i(I x) { return _mm512_reduce_max_epi32(x); }
// Lane i: the sum of x[i], added up while they are transposed.
inline I reduce_add_each(const I (&x)[16]) {
  const auto both = [](I a, I b) { return _mm512_add_epi32(a, b); };
  I pairs[8], fours[4], halves[2];
  for (int i = 0; i < 8; ++i) pairs[i] = both(_mm512_unpacklo_epi32(x[2 * i], x[2 * i + 1]), _mm512_unpackhi_epi32(x[2 * i], x[2 * i + 1]));
  for (int i = 0; i < 4; ++i)
    fours[i] = both(_mm512_unpacklo_epi64(pairs[2 * i], pairs[2 * i + 1]), _mm512_unpackhi_epi64(pairs[2 * i], pairs[2 * i + 1]));
  for (int i = 0; i < 2; ++i)
    halves[i] = both(_mm512_shuffle_i32x4(fours[2 * i], fours[2 * i + 1], 0x88),
                     _mm512_shuffle_i32x4(fours[2 * i], fours[2 * i + 1], 0xdd));
  return both(_mm512_shuffle_i32x4(halves[0], halves[1], 0x88), _mm512_shuffle_i32x4(halves[0], halves[1], 0xdd));
}
inline I max_i(I a, I b) { return _mm512_max_epi32(a, b); }
inline I as_int(F x) { return _mm512_castps_si512(x); }  // the same bits
inline I add_i(I a, I b) { return _mm512_add_epi32(a, b); }
inline I multiply_i(I a, I b) { return _mm512_mullo_epi32(a, b); }
inline I load_i8(const void* p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))); }  // 16 int8

// Pins a value to a register: compilers short of registers would load it again at each use.
inline void pin_register(__m512i& x) { __asm__("" : "+v"(x)); }
inline void pin_register(__m512& x) { __asm__("" : "+v"(x)); }

inline Raw load_raw(const void* p) { return _mm512_loadu_si512(p); }
inline Raw shift_right(Raw raw, int bits) { return _mm512_srli_epi32(raw, bits); }
inline Raw select_bits(int mask, Raw a, Raw b) { return _mm512_ternarylogic_epi32(a, _mm512_set1_epi32(mask), b, 0xea); }  // a & mask | b
inline Raw shift_and_mask(Raw raw, int bits, int mask) { return _mm512_and_si512(_mm512_srli_epi32(raw, bits), _mm512_set1_epi32(mask)); }
inline void store_raw(void* p, Raw x) { _mm512_storeu_si512(p, x); }
inline Raw flip_byte_signs(Raw x) { return _mm512_xor_si512(x, _mm512_set1_epi8(static_cast<char>(0x80))); }
inline Raw broadcast_u32(const void* p) { return _mm512_set1_epi32(*static_cast<const int*>(p)); }

// The bf16 at even (0) or odd (1) k of each word, as float.
template <int ODD> F widen_bf16(Raw x) {
  return _mm512_castsi512_ps(ODD ? _mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))) : _mm512_slli_epi32(x, 16));
}

#if defined(__AVX512BF16__)

// 16 columns x 2 consecutive k, bf16.
using Pair = __m512i;
using PairSum = F;
constexpr bool PAIRS_ARE_INTEGER = false;
using I4Table = __m512i;  // 16 bf16, twice: VPERMW uses five index bits
inline F dot2(F acc, Pair w, Pair x) { return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x)); }
inline I4Table make_i4_table(const float* values) {
  alignas(64) std::uint16_t both[32];
  for (int i = 0; i < 2; ++i) store_bf16(both + 16 * i, load(values));
  return _mm512_load_si512(both);
}
template <int T> Pair lookup_i4(Raw raw, I4Table table) { return _mm512_permutexvar_epi16(_mm512_srli_epi16(raw, 4 * T), table); }

// The value of the nibble at bit SHIFT of each word.
template <int SHIFT> F i4_value(Raw raw, F table) { return _mm512_permutexvar_ps(SHIFT ? _mm512_srli_epi32(raw, SHIFT) : raw, table); }
// A NaN becomes the one that bf16_pairs leaves a NaN: others may carry into the sign, and end as zero.
inline F plain_nan(F x) { return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), set1(NAN)); }
// Words of two bf16, `even` in the lower half, rounded to the nearest, halves away from zero.
inline Pair bf16_pairs(F even, F odd) {
  const __m512i half = _mm512_set1_epi32(0x8000), upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
  const __m512i low = _mm512_srli_epi32(_mm512_add_epi32(_mm512_castps_si512(even), half), 16);
  return _mm512_ternarylogic_epi32(_mm512_add_epi32(_mm512_castps_si512(odd), half), upper, low, 0xea);  // high & upper | low
}

// bf16 of |code| by lookup, low and high bytes in separate tables. |code| is 0 to 128 but a table has 128 entries: entry 0 holds 128, and
// code 0 is masked out.
struct I8Table { __m512i low[2], high[2]; };
inline void pin_register(I8Table& t) { pin_register(t.low[0]), pin_register(t.low[1]), pin_register(t.high[0]), pin_register(t.high[1]); }
inline I8Table make_i8_table() {
  alignas(64) std::uint8_t low[128], high[128];
  for (int i = 0; i < 128; i += 16) {
    float values[16];
    for (int j = 0; j < 16; ++j) values[j] = static_cast<float>(i + j ? i + j : 128);
    std::uint16_t narrow[16];
    store_bf16(narrow, load(values));
    for (int j = 0; j < 16; ++j) low[i + j] = narrow[j] & 0xff, high[i + j] = narrow[j] >> 8;
  }
  I8Table t;
  for (int i = 0; i < 2; ++i) t.low[i] = _mm512_load_si512(low + 64 * i), t.high[i] = _mm512_load_si512(high + 64 * i);
  return t;
}
inline const I8Table& i8_table() {
  static const I8Table table = make_i8_table();
  return table;
}
inline void unpack_i8(Raw raw, const I8Table& t, Pair& first, Pair& second) {
  // within 16 bytes: columns 0-3 with k = 0 and 1 of each, then with k = 2 and 3
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
  const __m512i zero_code = _mm512_set1_epi8(static_cast<char>(0x80));  // the stored code of 0
  const __m512i code = _mm512_shuffle_epi8(raw, order);
  const __mmask64 nonzero = _mm512_cmpneq_epu8_mask(code, zero_code);
  const __m512i magnitude = _mm512_abs_epi8(_mm512_xor_si512(code, zero_code));
  const __m512i low = _mm512_maskz_permutex2var_epi8(nonzero, t.low[0], magnitude, t.low[1]);
  const __m512i high = _mm512_maskz_permutex2var_epi8(nonzero, t.high[0], magnitude, t.high[1]);
  const __m512i with_sign = _mm512_ternarylogic_epi32(high, code, zero_code, 0xf2);  // high | (~code & zero): the sign bit of codes below 0
  first = _mm512_unpacklo_epi8(low, with_sign), second = _mm512_unpackhi_epi8(low, with_sign);
}

#else

inline void store_bf16_row(std::uint8_t* p, F x) { store(reinterpret_cast<float*>(p), widen_bf16<1>(round_to_bf16(x))); }
#if defined(PENSTOCK_FIXED16)

// 16 columns x 2 consecutive k, int16.
using Pair = __m512i;
using PairSum = I;
constexpr bool PAIRS_ARE_INTEGER = true;
inline I dot2(I acc, Pair w, Pair x) {
  __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));  // GCC 12 spills the accumulators of the intrinsic
  return acc;
}
inline void store_i16(std::int16_t* p, I x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x)); }
using I4Table = __m512i;  // 16 int16, twice: VPERMW uses five index bits
inline I4Table make_i4_table(const float* values) {
  alignas(64) std::int16_t both[32];
  for (int i = 0; i < 32; ++i) both[i] = static_cast<std::int16_t>(values[i % 16]);
  return _mm512_load_si512(both);
}
template <int T> Pair lookup_i4(Raw raw, I4Table table) { return _mm512_permutexvar_epi16(_mm512_srli_epi16(raw, 4 * T), table); }
struct I8Table { __m512i first, second; };  // byte shuffles that zero-extend bytes to words
inline void pin_register(I8Table& t) { pin_register(t.first), pin_register(t.second); }
inline I8Table i8_table() {
  return {_mm512_broadcast_i32x4(_mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1)),
          _mm512_broadcast_i32x4(_mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1))};
}
inline void unpack_i8(Raw raw, const I8Table& t, Pair& first, Pair& second) {  // codes stay plus 128
  first = _mm512_shuffle_epi8(raw, t.first), second = _mm512_shuffle_epi8(raw, t.second);
}

#else

// Byte J of each word, stored plus 128, as float: 2^23 + x has x in its low mantissa bits.
template <int J> F i8_to_float(Raw raw) {
  const I bits = _mm512_ternarylogic_epi32(_mm512_srli_epi32(raw, 8 * J), _mm512_set1_epi32(0xff), _mm512_set1_epi32(0x4b000000), 0xea);
  return _mm512_sub_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(8388736.0f));
}
using I4Table = F;  // 16 float
inline I4Table make_i4_table(const float* values) { return load(values); }
// The value of the i4 code at k = J of the step.
template <int J> F i4_to_float(Raw raw, I4Table table) {
  return _mm512_permutexvar_ps(_mm512_srli_epi32(raw, 16 * (J % 2) + 4 * (J / 2)), table);
}

#endif
#endif

// i4 codes -> unsigned bytes, half H of the step's 8 k: H = 0 gives 0 4 1 5, H = 1 gives 2 6 3 7.
using I4ByteTable = __m512i;
inline I4ByteTable make_i4_byte_table(const std::uint8_t* values) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
}
template <int H> Raw i4_to_bytes(Raw raw, I4ByteTable table) {
  return _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(raw, 4 * H), _mm512_set1_epi8(0x0f)));
}
// Without a table: the codes themselves. i4_halves gives those at k = 2 T, 2 T + 1 of the step. (On Intel's cores VPERMW takes two uops of
// the only shuffle port.)
template <int H> Raw i4_bytes(Raw raw) { return _mm512_and_si512(H ? _mm512_srli_epi16(raw, 4) : raw, _mm512_set1_epi8(0x0f)); }
template <int T> Raw i4_halves(Raw raw) {
  if constexpr (T == 3) return _mm512_srli_epi16(raw, 12);
  else return _mm512_and_si512(T ? _mm512_srli_epi16(raw, 4 * T) : raw, _mm512_set1_epi16(15));
}
// x * multiple + offset in each half of a word, modulo 2^16; multiple and offset by both_halves, which repeats the lower half.
inline I both_halves(I x) { return _mm512_mask_blend_epi16(0xaaaaaaaa, x, _mm512_slli_epi32(x, 16)); }
inline Raw multiply_halves(Raw x, I multiple, I offset) { return _mm512_add_epi16(_mm512_mullo_epi16(x, multiple), offset); }

// acc += four unsigned bytes of w * four signed bytes of x, exact (no saturation).
inline I dot4(I acc, Raw w, Raw x) {
#if defined(__AVX512VNNI__)
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));  // GCC 12 spills the accumulators of the intrinsic
  return acc;
#else
  const I low = _mm512_set1_epi16(0xff);
  const I even = _mm512_madd_epi16(_mm512_and_si512(w, low), _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8));
  const I odd = _mm512_madd_epi16(_mm512_srli_epi16(w, 8), _mm512_srai_epi16(x, 8));
  return _mm512_add_epi32(acc, _mm512_add_epi32(even, odd));
#endif
}

}  // namespace PENSTOCK_ISA
