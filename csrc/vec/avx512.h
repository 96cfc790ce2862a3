// Sixteen lanes in one AVX-512 register (F, BW, VL, DQ; faster with VNNI and BF16 where the compiler is told of them).
#pragma once
#include <immintrin.h>

#include <cstdint>

#if defined(__AVX512VNNI__) && !defined(__AVX512BF16__)
#define PENSTOCK_WORDS 1  // rows of 16-bit fixed point (kernels/words.h)
#endif

namespace PENSTOCK_ISA {

using F = __m512;    // 16 float
using I = __m512i;   // 16 int32
using Raw = __m512i; // 64 bytes: one word of 32 bits for each of 16 columns

constexpr int MAX_ROWS = 6, SUMS = 24;  // of a register block
#if defined(PENSTOCK_WORDS)
constexpr int TALL_ROWS = 12;  // of one whose codes are unpacked in registers: unpacking costs more there than another row does
#else
constexpr int TALL_ROWS = MAX_ROWS;
#endif
constexpr bool VECS_IN_TURN = false;
// Rows up to which codes are unpacked in registers, for each block anew, and not once for all rows: where one way was found to be as
// fast as the other (docs/LOG.md).
constexpr int FEW_HALVES = 64;
#if defined(__AVX512BF16__)
constexpr int SUMS_BESIDE_TOTALS = 12, FEW_BYTES = MAX_ROWS, FEW_NIBBLES = 1 << 30, FEW_NIBBLES_OF_BYTES = 1 << 30;
#else
constexpr int SUMS_BESIDE_TOTALS = SUMS;  // totals wait in memory
#if defined(PENSTOCK_WORDS)
constexpr int FEW_BYTES = 48, FEW_NIBBLES = 32, FEW_NIBBLES_OF_BYTES = 24;
#else
constexpr int FEW_BYTES = MAX_ROWS, FEW_NIBBLES = 16, FEW_NIBBLES_OF_BYTES = 1 << 30;
#endif
#endif

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
inline F below(F x, F bound, F then, F otherwise) { return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, bound, _CMP_LT_OQ), otherwise, then); }
// A bit for each lane that is above the bound, or at least at it; none for a NaN.
inline unsigned above(F x, F bound) { return _mm512_cmp_ps_mask(x, bound, _CMP_GT_OQ); }
inline unsigned at_least(F x, F bound) { return _mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ); }
// a / b within 3 units in the last place, of finite b from 1 on: a division takes as long as ten products. The first guess is left to the
// processor, and so are the last bits.
inline F quotient(F a, F b) {
  const F near = _mm512_rcp14_ps(b);
  return a * (near * _mm512_fnmadd_ps(b, near, set1(2.0f)));
}
inline F scale2(F x, F n) { return _mm512_scalef_ps(x, n); }  // x * 2^n
inline F first_lanes(F x, int n, F otherwise) { return _mm512_mask_blend_ps(static_cast<__mmask16>((1u << n) - 1), otherwise, x); }

// Lanes are added in halves: 8 + 8, 4 + 4, 2 + 2, 1 + 1.
inline float sum(F x) {
  const __m256 a = _mm256_add_ps(_mm512_castps512_ps256(x), _mm512_extractf32x8_ps(x, 1));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_shuffle_ps(c, c, 1)));
}
inline float largest(F x) { return _mm512_reduce_max_ps(x); }

inline F from_f16(const std::uint16_t* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
#if defined(__AVX512BF16__)
inline void store_bf16(std::uint16_t* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(x)));
}
#else
inline I rounded(F x) {  // to the nearest bf16, which stands in the upper halves
  const I bits = _mm512_castps_si512(x);
  const I odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const I sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __mmask16 no_number = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_mask_or_epi32(sum, no_number, bits, _mm512_set1_epi32(0x400000));
}
inline void store_bf16(std::uint16_t* p, F x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_srli_epi32(rounded(x), 16)));
}
#endif
inline void store_i8(std::int8_t* p, I x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x)); }
// Lanes of each eight in the order 0 4 1 5 2 6 3 7.
inline I interleave(I x) { return _mm512_permutexvar_epi32(_mm512_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11, 15), x); }
inline I upper_bytes(I x) { return _mm512_srai_epi32(x, 8); }  // of 16 bits
inline I lower_bytes(I x) { return _mm512_and_si512(x, _mm512_set1_epi32(255)); }
inline I subtract_i(I a, I b) { return _mm512_sub_epi32(a, b); }
inline I times_256(I x) { return _mm512_slli_epi32(x, 8); }
inline int sum_i(I x) { return _mm512_reduce_add_epi32(x); }
inline I add_i(I a, I b) { return _mm512_add_epi32(a, b); }

// Compilers short of registers load a value again at each of its uses; this keeps it where it is.
inline void keep(__m512i& x) { __asm__("" : "+v"(x)); }
inline void keep(__m512& x) { __asm__("" : "+v"(x)); }

inline Raw load_raw(const void* p) { return _mm512_loadu_si512(p); }
inline void store_raw(void* p, Raw x) { _mm512_storeu_si512(p, x); }
inline Raw broadcast_raw(const void* p) { return _mm512_set1_epi32(*static_cast<const int*>(p)); }

#if defined(__AVX512BF16__)

// A pair: for each of 16 columns two bf16 that stand at an even and the next inner index.
using Pair = __m512i;
using PairSum = F;
constexpr bool WHOLE_PAIRS = false;
using Table = __m512i;  // 16 bf16, twice: VPERMW looks at five bits
inline F dot2(F acc, Pair w, Pair x) { return _mm512_dpbf16_ps(acc, reinterpret_cast<__m512bh>(w), reinterpret_cast<__m512bh>(x)); }
inline Table make_table(const float* values) {
  alignas(64) std::uint16_t both[32];
  for (int i = 0; i < 2; ++i) store_bf16(both + 16 * i, load(values));
  return _mm512_load_si512(both);
}
template <int T> Pair unpack_i4(Raw raw, Table table) { return _mm512_permutexvar_epi16(_mm512_srli_epi16(raw, 4 * T), table); }

// The two bytes of a bf16 for each size of a code, looked up. Sizes are 0 to 128 and the table has 128 entries: 128 stands at 0, which
// is never looked up for itself.
struct WideTable { __m512i low[2], high[2]; };
inline void keep(WideTable& t) { keep(t.low[0]), keep(t.low[1]), keep(t.high[0]), keep(t.high[1]); }
inline WideTable make_wide_table() {
  alignas(64) std::uint8_t low[128], high[128];
  for (int i = 0; i < 128; i += 16) {
    float values[16];
    for (int j = 0; j < 16; ++j) values[j] = static_cast<float>(i + j ? i + j : 128);
    std::uint16_t narrow[16];
    store_bf16(narrow, load(values));
    for (int j = 0; j < 16; ++j) low[i + j] = narrow[j] & 0xff, high[i + j] = narrow[j] >> 8;
  }
  WideTable t;
  for (int i = 0; i < 2; ++i) t.low[i] = _mm512_load_si512(low + 64 * i), t.high[i] = _mm512_load_si512(high + 64 * i);
  return t;
}
inline const WideTable& wide_table() {
  static const WideTable table = make_wide_table();
  return table;
}
inline void unpack_i8(Raw raw, const WideTable& t, Pair& first, Pair& second) {
  // within 16 bytes: columns 0 to 3 with inner indices 0 and 1 of each, then the same with 2 and 3
  const __m512i order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15));
  const __m512i none = _mm512_set1_epi8(static_cast<char>(0x80));  // 0, stored 128 too large; its bit is clear in those below 0
  const __m512i code = _mm512_shuffle_epi8(raw, order);
  const __mmask64 some = _mm512_cmpneq_epu8_mask(code, none);
  const __m512i size = _mm512_abs_epi8(_mm512_xor_si512(code, none));
  const __m512i low = _mm512_maskz_permutex2var_epi8(some, t.low[0], size, t.low[1]);
  const __m512i high = _mm512_maskz_permutex2var_epi8(some, t.high[0], size, t.high[1]);
  const __m512i with_sign = _mm512_ternarylogic_epi32(high, code, none, 0xf2);  // high | (~code & none)
  first = _mm512_unpacklo_epi8(low, with_sign), second = _mm512_unpackhi_epi8(low, with_sign);
}

#else

// The even (0) or odd (1) bf16 of each word.
template <int ODD> F half(Raw x) {
  return _mm512_castsi512_ps(ODD ? _mm512_and_si512(x, _mm512_set1_epi32(static_cast<int>(0xffff0000u))) : _mm512_slli_epi32(x, 16));
}
inline void store_row(std::uint8_t* p, F x) { store(reinterpret_cast<float*>(p), half<1>(rounded(x))); }
#if defined(PENSTOCK_WORDS)

// A pair: for each of 16 columns two codes, as int16, that stand at an even and the next inner index.
using Pair = __m512i;
using PairSum = I;
constexpr bool WHOLE_PAIRS = true;
inline I dot2(I acc, Pair w, Pair x) {
  __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));  // GCC 12 keeps the intrinsic's sums in memory
  return acc;
}
inline void store_i16(std::int16_t* p, I x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x)); }
using Table = __m512i;  // 16 int16, twice: VPERMW looks at five bits
inline Table make_table(const float* values) {
  alignas(64) std::int16_t both[32];
  for (int i = 0; i < 32; ++i) both[i] = static_cast<std::int16_t>(values[i % 16]);
  return _mm512_load_si512(both);
}
template <int T> Pair unpack_i4(Raw raw, Table table) { return _mm512_permutexvar_epi16(_mm512_srli_epi16(raw, 4 * T), table); }
// Codes as they are. Intel's cores look words up in two steps of the one unit that looks up.
template <int T> Pair nibbles(Raw raw) {
  if constexpr (T == 3) return _mm512_srli_epi16(raw, 12);
  else return _mm512_and_si512(T ? _mm512_srli_epi16(raw, 4 * T) : raw, _mm512_set1_epi16(15));
}
struct WideTable { __m512i first, second; };  // where the bytes of a word go, with zeros between them
inline void keep(WideTable& t) { keep(t.first), keep(t.second); }
inline WideTable wide_table() {
  return {_mm512_broadcast_i32x4(_mm_setr_epi8(0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1)),
          _mm512_broadcast_i32x4(_mm_setr_epi8(2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1))};
}
inline void unpack_i8(Raw raw, const WideTable& t, Pair& first, Pair& second) {  // codes stay 128 too large
  first = _mm512_shuffle_epi8(raw, t.first), second = _mm512_shuffle_epi8(raw, t.second);
}

#else

// Byte J of each word, stored 128 too large, as a float: 2^23 + x has x in its lowest bits.
template <int J> F byte_value(Raw raw) {
  const I bits = _mm512_ternarylogic_epi32(_mm512_srli_epi32(raw, 8 * J), _mm512_set1_epi32(0xff), _mm512_set1_epi32(0x4b000000), 0xea);
  return _mm512_sub_ps(_mm512_castsi512_ps(bits), _mm512_set1_ps(8388736.0f));
}
using Table = F;  // 16 float
inline Table make_table(const float* values) { return load(values); }
// What the 4-bit code of inner index J stands for.
template <int J> F nibble_value(Raw raw, Table table) { return _mm512_permutexvar_ps(_mm512_srli_epi32(raw, 16 * (J % 2) + 4 * (J / 2)), table); }

#endif
#endif

// 4-bit codes -> bytes 0..255, half H of the eight inner indices: H = 0 gives 0 4 1 5, H = 1 gives 2 6 3 7.
using ByteTable = __m512i;
inline ByteTable make_byte_table(const std::uint8_t* values) {
  return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(values)));
}
template <int H> Raw bytes_i4(Raw raw, ByteTable table) {
  return _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(raw, 4 * H), _mm512_set1_epi8(0x0f)));
}
// acc + the products of four unsigned bytes of w and four signed bytes of x, exactly.
inline I dot4(I acc, Raw w, Raw x) {
#if defined(__AVX512VNNI__)
  __asm__("vpdpbusd %2, %1, %0" : "+v"(acc) : "v"(w), "v"(x));  // GCC 12 keeps the intrinsic's sums in memory
  return acc;
#else
  const I low = _mm512_set1_epi16(0xff);
  const I even = _mm512_madd_epi16(_mm512_and_si512(w, low), _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8));
  const I odd = _mm512_madd_epi16(_mm512_srli_epi16(w, 8), _mm512_srai_epi16(x, 8));
  return _mm512_add_epi32(acc, _mm512_add_epi32(even, odd));
#endif
}

}  // namespace PENSTOCK_ISA
