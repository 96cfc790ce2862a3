// 16 lanes in several narrower registers: two of AVX2, or four of 128 bits (SSE2, NEON, or whatever the compiler makes of vector types).
// The interface is that of avx512.h.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#include "inline.h"

#if defined(__AVX2__)
#define PENSTOCK_FIXED16 1  // activation rows in 16-bit fixed point (kernels/fixed16.h), by VPMADDWD
#endif

namespace PENSTOCK_ISA {

// Constants as in avx512.h.
#if defined(__AVX2__)
constexpr int REG_LANES = 8, MAX_ROWS = 6;
constexpr int INT8_ELEM_BYTES = 2;           // VPMADDWD multiplies int16, and nothing as wide as it exact bytes
constexpr int UNPACK_LIMIT_I8 = 1 << 30;     // a code becomes int16 by one shuffle
constexpr int UNROLLED_K = 8;                // a turn of the loop costs as much as four products
constexpr int MIN_UNPACKED_INT_BLOCKS = 1;   // what is unpacked at once stays in L1
#elif defined(__aarch64__)
constexpr int REG_LANES = 4, MAX_ROWS = 6, INT8_ELEM_BYTES = 1, UNPACK_LIMIT_I8 = 8, UNROLLED_K = 1, MIN_UNPACKED_INT_BLOCKS = 4;
#else
constexpr int REG_LANES = 4, MAX_ROWS = 3, INT8_ELEM_BYTES = 1, UNPACK_LIMIT_I8 = 8, UNROLLED_K = 1, MIN_UNPACKED_INT_BLOCKS = 4;
#endif
constexpr int UNPACK_LIMIT_F16 = 64, UNPACK_LIMIT_I6 = 8, UNPACK_LIMIT_I4 = 8, UNPACK_LIMIT_I4_INT8 = MAX_ROWS;
constexpr int MAX_ROWS_UNPACKING = MAX_ROWS, LOW_ROWS_UNPACKING = MAX_ROWS, ACCUMULATORS = MAX_ROWS, GROUPED_ACCUMULATORS = MAX_ROWS;
constexpr bool ONE_VECTOR_AT_A_TIME = true;  // too few registers for several vectors of weights
constexpr int NUM_REGS = 16 / REG_LANES;
typedef float VF __attribute__((vector_size(4 * REG_LANES)));
typedef std::int32_t VI __attribute__((vector_size(4 * REG_LANES)));
typedef std::uint32_t VU __attribute__((vector_size(4 * REG_LANES)));

struct F { VF v[NUM_REGS]; };
struct I { VI v[NUM_REGS]; };  // sums and products are modulo 2^32: computed as VU
using Raw = I;

#define PENSTOCK_EACH_REG(expression) \
  for (int i = 0; i < NUM_REGS; ++i) { expression; }

PENSTOCK_INLINE F operator+(F a, F b) { PENSTOCK_EACH_REG(a.v[i] += b.v[i]) return a; }
PENSTOCK_INLINE F operator-(F a, F b) { PENSTOCK_EACH_REG(a.v[i] -= b.v[i]) return a; }
PENSTOCK_INLINE F operator*(F a, F b) { PENSTOCK_EACH_REG(a.v[i] *= b.v[i]) return a; }
PENSTOCK_INLINE F operator/(F a, F b) { PENSTOCK_EACH_REG(a.v[i] /= b.v[i]) return a; }
PENSTOCK_INLINE F fast_div(F a, F b) { return a / b; }  // avx512.h: for finite b >= 1
PENSTOCK_INLINE F zero() { return F{}; }
PENSTOCK_INLINE I zero_i() { return I{}; }
#if defined(__AVX2__)
PENSTOCK_INLINE VF splat(float x) { return VF{x, x, x, x, x, x, x, x}; }
#else
PENSTOCK_INLINE VF splat(float x) { return VF{x, x, x, x}; }
#endif
PENSTOCK_INLINE F set1(float x) { F r; PENSTOCK_EACH_REG(r.v[i] = splat(x)) return r; }
PENSTOCK_INLINE I set1_i(int x) { I r; PENSTOCK_EACH_REG(r.v[i] = VI{} + x) return r; }
template <class V> PENSTOCK_INLINE V read(const void* p) { V v; std::memcpy(&v, p, sizeof v); return v; }
PENSTOCK_INLINE F load(const float* p) { F r; PENSTOCK_EACH_REG(r.v[i] = read<VF>(p + REG_LANES * i)) return r; }
// Register by register: copied as a whole, the struct would live in memory and be reloaded in every iteration of a loop.
PENSTOCK_INLINE void store(float* p, F x) { PENSTOCK_EACH_REG(std::memcpy(p + REG_LANES * i, &x.v[i], sizeof(VF))) }
PENSTOCK_INLINE VF fma_reg(VF a, VF b, VF c) {
#if defined(__FMA__)
  return (VF)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__aarch64__)
  return (VF)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b);
#else
  return a * b + c;
#endif
}
PENSTOCK_INLINE F fma(F a, F b, F c) { PENSTOCK_EACH_REG(c.v[i] = fma_reg(a.v[i], b.v[i], c.v[i])) return c; }
PENSTOCK_INLINE VF blend(VI mask, VF then, VF otherwise) { return (VF)((mask & (VI)then) | (~mask & (VI)otherwise)); }
// The second operand where one is NaN.
#if defined(__AVX2__)
PENSTOCK_INLINE F max(F a, F b) { PENSTOCK_EACH_REG(a.v[i] = (VF)_mm256_max_ps((__m256)a.v[i], (__m256)b.v[i])) return a; }
PENSTOCK_INLINE F min(F a, F b) { PENSTOCK_EACH_REG(a.v[i] = (VF)_mm256_min_ps((__m256)a.v[i], (__m256)b.v[i])) return a; }
#else
PENSTOCK_INLINE F max(F a, F b) { PENSTOCK_EACH_REG(a.v[i] = blend(a.v[i] > b.v[i], a.v[i], b.v[i])) return a; }
PENSTOCK_INLINE F min(F a, F b) { PENSTOCK_EACH_REG(a.v[i] = blend(a.v[i] < b.v[i], a.v[i], b.v[i])) return a; }
#endif
PENSTOCK_INLINE F abs(F a) { PENSTOCK_EACH_REG(a.v[i] = (VF)((VI)a.v[i] & 0x7fffffff)) return a; }
PENSTOCK_INLINE F select_lt(F x, F bound, F then, F otherwise) {
  PENSTOCK_EACH_REG(x.v[i] = blend(x.v[i] < bound.v[i], then.v[i], otherwise.v[i])) return x;
}
PENSTOCK_INLINE unsigned lane_bits(VI mask) {  // of lane masks
#if defined(__AVX2__)
  return static_cast<unsigned>(_mm256_movemask_ps((__m256)mask));
#elif defined(__SSE2__)
  return static_cast<unsigned>(_mm_movemask_ps((__m128)mask));
#else
  unsigned bits = 0;
  for (int j = 0; j < REG_LANES; ++j) bits |= (mask[j] & 1u) << j;
  return bits;
#endif
}
// Lane masks, false for NaN.
PENSTOCK_INLINE unsigned mask_gt(F x, F bound) {
  unsigned bits = 0;
  PENSTOCK_EACH_REG(bits |= lane_bits(x.v[i] > bound.v[i]) << (REG_LANES * i)) return bits;
}
PENSTOCK_INLINE unsigned mask_ge(F x, F bound) {
  unsigned bits = 0;
  PENSTOCK_EACH_REG(bits |= lane_bits(x.v[i] >= bound.v[i]) << (REG_LANES * i)) return bits;
}
// To nearest even, for |x| < 2^22: adding and subtracting 1.5 * 2^23 drops the fraction.
PENSTOCK_INLINE F round(F a) { PENSTOCK_EACH_REG(a.v[i] = (a.v[i] + 12582912.0f) - 12582912.0f) return a; }
PENSTOCK_INLINE I to_int(F a) { I r; PENSTOCK_EACH_REG(r.v[i] = __builtin_convertvector(a.v[i], VI)) return r; }  // of integral values
PENSTOCK_INLINE F to_float(I a) { F r; PENSTOCK_EACH_REG(r.v[i] = __builtin_convertvector(a.v[i], VF)) return r; }
PENSTOCK_INLINE F scale_pow2(F x, F n) {  // x * 2^n, -126 <= n <= 127
  const I e = to_int(n);
  PENSTOCK_EACH_REG(x.v[i] *= (VF)((e.v[i] + 127) << 23)) return x;
}
PENSTOCK_INLINE F blend_first(F x, int n, F otherwise) {
  PENSTOCK_EACH_REG(for (int j = 0; j < REG_LANES; ++j) if (REG_LANES * i + j >= n) x.v[i][j] = otherwise.v[i][j]) return x;
}
template <class T, class V> PENSTOCK_INLINE void to_array(const V& x, T* out) { std::memcpy(out, &x, 16 * sizeof(T)); }
PENSTOCK_INLINE float reduce_add(F x) {  // pairwise
  float a[16];
  to_array(x, a);
  for (int half = 8; half; half /= 2)
    for (int i = 0; i < half; ++i) a[i] += a[i + half];
  return a[0];
}
template <class T, class V> PENSTOCK_INLINE T largest(const V& x) {
  T a[16];
  to_array(x, a);
  T result = a[0];
  for (int i = 1; i < 16; ++i) result = a[i] > result ? a[i] : result;
  return result;
}
PENSTOCK_INLINE float reduce_max(F x) { return largest<float>(x); }
PENSTOCK_INLINE int reduce_max_i(I x) { return largest<int>(x); }

PENSTOCK_INLINE I widen(const std::uint16_t* p) {
  I r;
#if defined(__AVX2__)
  PENSTOCK_EACH_REG(r.v[i] = (VI)_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * i))))
#else
  PENSTOCK_EACH_REG(for (int j = 0; j < REG_LANES; ++j) r.v[i][j] = p[REG_LANES * i + j])
#endif
  return r;
}
PENSTOCK_INLINE F from_f16(const std::uint16_t* p) {
  F r;
#if defined(__F16C__)
  PENSTOCK_EACH_REG(r.v[i] = (VF)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * i))))
#else
  const I x = widen(p);
  for (int i = 0; i < NUM_REGS; ++i) {
    const VI sign = (VI)((VU)(x.v[i] & 0x8000) << 16), rest = x.v[i] & 0x7fff;
    const VF scaled = (VF)(rest << 13) * 0x1p112f;  // subnormal halves are normal floats
    r.v[i] = (VF)(sign | (VI)blend(rest >= 0x7c00, (VF)((rest << 13) | 0x7f800000), scaled));
  }
#endif
  return r;
}
PENSTOCK_INLINE VU round_to_bf16(VF x) {  // nearest even; the result is in the upper half words
  const VU bits = (VU)x, number = (VU)(x == x);
  return (number & (bits + 0x7fff + ((bits >> 16) & 1))) | (~number & (bits | 0x400000));  // NaN stays NaN
}
PENSTOCK_INLINE void store_bf16(std::uint16_t* p, F x) {
  for (int i = 0; i < NUM_REGS; ++i) {
    const VU narrow = round_to_bf16(x.v[i]) >> 16;
    for (int j = 0; j < REG_LANES; ++j) p[REG_LANES * i + j] = static_cast<std::uint16_t>(narrow[j]);
  }
}
PENSTOCK_INLINE void store_i8(std::int8_t* p, I x) {
  PENSTOCK_EACH_REG(for (int j = 0; j < REG_LANES; ++j) p[REG_LANES * i + j] = static_cast<std::int8_t>(x.v[i][j]))
}
PENSTOCK_INLINE I interleave_for_i4(I x) {  // lanes of each 8 in the order 0 4 1 5 2 6 3 7
  int from[16], to[16];
  std::memcpy(from, &x, 64);
  for (int i = 0; i < 16; ++i) to[i] = from[i / 8 * 8 + i % 2 * 4 + i % 8 / 2];
  return read<I>(to);
}
PENSTOCK_INLINE int reduce_add_i(I x) {
  unsigned a[16], total = 0;
  to_array(x, a);
  for (unsigned each : a) total += each;
  return static_cast<int>(total);
}
PENSTOCK_INLINE I reduce_add_each(const I (&x)[16]) {  // lane i: the sum of x[i]
  int sums[16];
  for (int i = 0; i < 16; ++i) sums[i] = reduce_add_i(x[i]);
  I r;
  std::memcpy(&r, sums, sizeof sums);
  return r;
}
PENSTOCK_INLINE I max_i(I a, I b) {
  PENSTOCK_EACH_REG(const VI greater = a.v[i] > b.v[i]; a.v[i] = (a.v[i] & greater) | (b.v[i] & ~greater)) return a;
}
PENSTOCK_INLINE I as_int(F x) { I r; PENSTOCK_EACH_REG(r.v[i] = (VI)x.v[i]) return r; }  // the same bits
PENSTOCK_INLINE I multiply_i(I a, I b) { PENSTOCK_EACH_REG(a.v[i] = (VI)((VU)a.v[i] * (VU)b.v[i])) return a; }
PENSTOCK_INLINE I shift_left_8(I x) { PENSTOCK_EACH_REG(x.v[i] = (VI)((VU)x.v[i] << 8)) return x; }
PENSTOCK_INLINE I load_i8(const void* p) {  // 16 int8
  typedef std::int8_t Bytes __attribute__((vector_size(REG_LANES)));
  I r;
  PENSTOCK_EACH_REG(r.v[i] = __builtin_convertvector(read<Bytes>(static_cast<const std::int8_t*>(p) + REG_LANES * i), VI))
  return r;
}
PENSTOCK_INLINE I add_i(I a, I b) { PENSTOCK_EACH_REG(a.v[i] = (VI)((VU)a.v[i] + (VU)b.v[i])) return a; }

template <class T> PENSTOCK_INLINE void pin_register(T&) {}

PENSTOCK_INLINE Raw load_raw(const void* p) {
  Raw r;
  PENSTOCK_EACH_REG(r.v[i] = read<VI>(static_cast<const char*>(p) + 4 * REG_LANES * i)) return r;
}
PENSTOCK_INLINE void store_raw(void* p, Raw x) {
  PENSTOCK_EACH_REG(std::memcpy(static_cast<char*>(p) + sizeof(VI) * i, &x.v[i], sizeof(VI)))
}
PENSTOCK_INLINE Raw broadcast_u32(const void* p) { return set1_i(read<int>(p)); }

// The bf16 at even (0) or odd (1) k of each word, as float.
template <int ODD> PENSTOCK_INLINE F widen_bf16(Raw x) {
  F r;
  PENSTOCK_EACH_REG(r.v[i] = (VF)(ODD ? (VU)x.v[i] & 0xffff0000 : (VU)x.v[i] << 16)) return r;
}
PENSTOCK_INLINE void store_bf16_row(std::uint8_t* p, F x) {
  PENSTOCK_EACH_REG(x.v[i] = (VF)(round_to_bf16(x.v[i]) & 0xffff0000u))
  store(reinterpret_cast<float*>(p), x);
}

PENSTOCK_INLINE Raw shift_right(Raw raw, int bits) { PENSTOCK_EACH_REG(raw.v[i] = (VI)((VU)raw.v[i] >> bits)) return raw; }
PENSTOCK_INLINE Raw select_bits(int mask, Raw a, Raw b) { PENSTOCK_EACH_REG(b.v[i] |= a.v[i] & mask) return b; }  // a & mask | b
PENSTOCK_INLINE I shift_and_mask(Raw raw, int bits, int mask) {
  PENSTOCK_EACH_REG(raw.v[i] = (VI)((VU)raw.v[i] >> bits) & mask) return raw;
}

// i4_to_float: the value of the i4 code at k = J of the step.
#if defined(__AVX2__)
struct I4Table { std::int8_t values[16]; };
PENSTOCK_INLINE I4Table make_i4_table(const float* values) {
  I4Table t;
  for (int i = 0; i < 16; ++i) t.values[i] = static_cast<std::int8_t>(values[i]);
  return t;
}
#else
struct I4Table { float values[16]; };
PENSTOCK_INLINE I4Table make_i4_table(const float* values) { return read<I4Table>(values); }
template <int J> PENSTOCK_INLINE F i4_to_float(Raw raw, const I4Table& table) {
  const I at = shift_and_mask(raw, 16 * (J % 2) + 4 * (J / 2), 15);
  F r;
  PENSTOCK_EACH_REG(for (int j = 0; j < REG_LANES; ++j) r.v[i][j] = table.values[at.v[i][j] & 15])
  return r;
}
#endif

// Byte J of each word, stored plus 128.
template <int J> PENSTOCK_INLINE F i8_to_float(Raw raw) { return to_float(shift_and_mask(raw, 8 * J, 255)) - set1(128); }

// i4 codes -> unsigned bytes, half H of the step's 8 k: H = 0 gives 0 4 1 5, H = 1 gives 2 6 3 7.
struct I4ByteTable { std::uint8_t values[16]; };
PENSTOCK_INLINE I4ByteTable make_i4_byte_table(const std::uint8_t* values) { return read<I4ByteTable>(values); }
template <int H> PENSTOCK_INLINE Raw i4_to_bytes(Raw raw, const I4ByteTable& table) {
  const Raw at = shift_and_mask(raw, 4 * H, 0x0f0f0f0f);
  std::uint8_t b[64];
  std::memcpy(b, &at, 64);
  for (auto& each : b) each = table.values[each & 15];
  return read<Raw>(b);
}
// Without a table: the codes themselves. i4_halves gives those at k = 2 T, 2 T + 1 of the step.
template <int H> PENSTOCK_INLINE Raw i4_bytes(Raw raw) { return shift_and_mask(raw, 4 * H, 0x0f0f0f0f); }
#if defined(__AVX2__)
// GCC 12 would move these constants to registers before a loop, and accumulators to memory. 32 bytes, the same 16 twice.
alignas(32) constexpr std::int8_t I8_FIRST[] = {0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1,
                                                0, -1, 1, -1, 4, -1, 5, -1, 8, -1, 9, -1, 12, -1, 13, -1};
alignas(32) constexpr std::int8_t I8_SECOND[] = {2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1,
                                                 2, -1, 3, -1, 6, -1, 7, -1, 10, -1, 11, -1, 14, -1, 15, -1};
alignas(32) constexpr std::int32_t LOW_NIBBLES[] = {0xf000f, 0xf000f, 0xf000f, 0xf000f, 0xf000f, 0xf000f, 0xf000f, 0xf000f};
template <class T> PENSTOCK_INLINE VI shuffle_by(VI x, const T& order) {
  __asm__("vpshufb %2, %1, %0" : "=x"(x) : "x"(x), "m"(order));
  return x;
}
template <class T> PENSTOCK_INLINE VI and_with(VI x, const T& mask) {
  __asm__("vpand %2, %1, %0" : "=x"(x) : "x"(x), "m"(mask));
  return x;
}
template <int T> PENSTOCK_INLINE Raw i4_halves(Raw raw) {
  PENSTOCK_EACH_REG(raw.v[i] = and_with((VI)((VU)raw.v[i] >> (4 * T)), LOW_NIBBLES)) return raw;
}
#else
template <int T> PENSTOCK_INLINE Raw i4_halves(Raw raw) { return shift_and_mask(raw, 4 * T, 0x000f000f); }
#endif
// x * multiple + offset in each half of a word, modulo 2^16; multiple and offset by both_halves.
#if defined(__AVX2__)
PENSTOCK_INLINE I both_halves(I x) { PENSTOCK_EACH_REG(x.v[i] = (VI)(((VU)x.v[i] & 0xffff) | ((VU)x.v[i] << 16))) return x; }
PENSTOCK_INLINE Raw multiply_halves(Raw x, I multiple, I offset) {
  PENSTOCK_EACH_REG(x.v[i] = (VI)_mm256_add_epi16(_mm256_mullo_epi16((__m256i)x.v[i], (__m256i)multiple.v[i]), (__m256i)offset.v[i]))
  return x;
}
#else
PENSTOCK_INLINE I both_halves(I x) { return x; }
PENSTOCK_INLINE Raw multiply_halves(Raw x, I multiple, I offset) {
  Raw r;
  PENSTOCK_EACH_REG(const VU by = (VU)multiple.v[i]; const VU more = (VU)offset.v[i];
                    const VU upper = (((VU)x.v[i] >> 16) * by + more) << 16;
                    r.v[i] = (VI)(((((VU)x.v[i] & 0xffff) * by + more) & 0xffff) | upper)) return r;
}
#endif
// acc += four unsigned bytes of w * four signed bytes of x, exact (no saturation). AVX2 has int16 instead.
PENSTOCK_INLINE I dot4(I acc, Raw w, Raw x) {
#if defined(__SSE2__) && !defined(__AVX2__)
  for (int i = 0; i < NUM_REGS; ++i) {
    const __m128i u = (__m128i)w.v[i], s = (__m128i)x.v[i];
    const __m128i even = _mm_madd_epi16(_mm_and_si128(u, _mm_set1_epi16(0xff)), _mm_srai_epi16(_mm_slli_epi16(s, 8), 8));
    const __m128i odd = _mm_madd_epi16(_mm_srli_epi16(u, 8), _mm_srai_epi16(s, 8));
    acc.v[i] = (VI)((VU)acc.v[i] + (VU)even + (VU)odd);
  }
#else
  std::uint8_t u[64];
  std::int8_t s[64];
  std::memcpy(u, &w, 64), std::memcpy(s, &x, 64);
  for (int j = 0; j < 16; ++j)
    for (int b = 0; b < 4; ++b) {
      auto& sum = acc.v[j / REG_LANES][j % REG_LANES];
      sum = static_cast<int>(static_cast<unsigned>(sum) + static_cast<unsigned>(int{u[4 * j + b]} * s[4 * j + b]));
    }
#endif
  return acc;
}

#if defined(PENSTOCK_FIXED16)

// 16 columns x 2 consecutive k, int16.
using Pair = Raw;
using PairSum = I;
constexpr bool PAIRS_ARE_INTEGER = true;
PENSTOCK_INLINE I dot2(I acc, Pair w, Pair x) {
  for (int i = 0; i < NUM_REGS; ++i) {
    const __m256i product = _mm256_madd_epi16((__m256i)w.v[i], (__m256i)x.v[i]);
    __asm__("vpaddd %1, %0, %0" : "+x"(acc.v[i]) : "x"(product));  // a sum that GCC 12 knew as one would be added up in another order
  }
  return acc;
}
PENSTOCK_INLINE I low_byte(I x) { PENSTOCK_EACH_REG(x.v[i] &= 255) return x; }
PENSTOCK_INLINE I subtract_i(I a, I b) { PENSTOCK_EACH_REG(a.v[i] = (VI)((VU)a.v[i] - (VU)b.v[i])) return a; }
PENSTOCK_INLINE I round_to_bf16(F x) { I r; PENSTOCK_EACH_REG(r.v[i] = (VI)round_to_bf16(x.v[i])) return r; }
PENSTOCK_INLINE void store_i16(std::int16_t* p, I x) {  // of int16 values
  const __m256i packed = _mm256_packs_epi32((__m256i)x.v[0], (__m256i)x.v[1]);  // within 128 bits
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
// The int16 value of the i4 codes at k = 2 T, 2 T + 1 of the step: looked up in the upper byte, from where it is shifted.
template <int T> PENSTOCK_INLINE Pair lookup_i4(Raw raw, const I4Table& table) {
  const __m256i both = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table.values)));
  Raw at = raw;
  PENSTOCK_EACH_REG(at.v[i] = (T < 2 ? (VI)((VU)raw.v[i] << (8 - 4 * T)) : (VI)((VU)raw.v[i] >> (4 * T - 8))) & 0x0f000f00)
  PENSTOCK_EACH_REG(at.v[i] = (VI)_mm256_srai_epi16(_mm256_shuffle_epi8(both, (__m256i)at.v[i]), 8)) return at;
}
// What follows reads w anew: the compiler is told that w depends on a sum, so that it keeps no weights in registers meanwhile.
template <int R, int V> PENSTOCK_INLINE void read_anew_after(I (&acc)[R][V], const std::uint8_t*& w) {
  __asm__("" : "+r"(w) : "x"(acc[R - 1][V - 1].v[1]));
}
struct I8Table {};
PENSTOCK_INLINE I8Table i8_table() { return {}; }
template <int HALF> PENSTOCK_INLINE Pair unpack_i8_half(Raw raw) {  // k = 2 HALF, 2 HALF + 1 of each word; codes stay plus 128
  PENSTOCK_EACH_REG(raw.v[i] = shuffle_by(raw.v[i], HALF ? I8_SECOND : I8_FIRST)) return raw;
}
PENSTOCK_INLINE void unpack_i8(Raw raw, const I8Table&, Pair& first, Pair& second) {
  first = unpack_i8_half<0>(raw), second = unpack_i8_half<1>(raw);
}

#endif
#undef PENSTOCK_EACH_REG

}  // namespace PENSTOCK_ISA
