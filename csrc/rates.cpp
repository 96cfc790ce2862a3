#include "rates.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#define TARGET(isa) __attribute__((target(isa)))
#if (defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11)
#define PENSTOCK_AMX 1
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// A register whose value the compiler must take as new: it cannot move arithmetic on it out of a loop, or do it once for several uses.
#if defined(__x86_64__)
#define RENEW(x) __asm__ volatile("" : "+x"(x))
#define RENEW_ZMM(x) __asm__ volatile("" : "+v"(x))
#elif defined(__aarch64__)
#define RENEW(x) __asm__ volatile("" : "+w"(x))
#else
#define RENEW(x) __asm__ volatile("" : "+m"(x))
#endif

namespace {

// Operands that are neither zero nor denormal, and differ from lane to lane: zeros would let the clock rise.
struct Operands {
  alignas(64) float floats[16];
  alignas(64) std::uint16_t bf16[32];
  alignas(64) std::uint8_t bytes[64];

  Operands() {
    for (int i = 0; i < 16; ++i) floats[i] = 0.25f + static_cast<float>(i * 37 % 64) / 128;
    for (int i = 0; i < 32; ++i) {
      std::uint32_t bits;
      std::memcpy(&bits, &floats[i % 16], sizeof bits);
      bf16[i] = static_cast<std::uint16_t>(bits >> 16);
    }
    for (int i = 0; i < 64; ++i) bytes[i] = static_cast<std::uint8_t>((i * 73 + 41) % 128);
  }
};

const Operands operands;

// ---- 128 bits, as every processor of a 64-bit architecture has them; the compiler's own vectors

constexpr int kNarrow = 12;  // accumulators: enough to hide the latency, few enough for 16 registers
typedef float F4 __attribute__((vector_size(16)));
typedef std::int32_t I4 __attribute__((vector_size(16)));

float sum(const F4* acc) {
  F4 total = acc[0];
  for (int j = 1; j < kNarrow; ++j) total += acc[j];
  return total[0] + total[1] + total[2] + total[3];
}

float fp32_generic(long iterations) {
  F4 a, b, acc[kNarrow];
  std::memcpy(&a, operands.floats, sizeof a);
  std::memcpy(&b, operands.floats + 4, sizeof b);
  for (F4& each : acc) each = b;
  for (long i = 0; i < iterations; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < kNarrow; ++j) acc[j] = acc[j] * a + b;
  return sum(acc);
}

// bf16 is the upper half of fp32: the odd values of a register by a mask, the even ones by a shift, once for six rows.
float bf16_generic(long iterations) {
  F4 a, acc[kNarrow];
  I4 pairs;
  std::memcpy(&a, operands.floats, sizeof a);
  std::memcpy(&pairs, operands.bf16, sizeof pairs);
  for (F4& each : acc) each = a;
  for (long i = 0; i < iterations; ++i) {
    RENEW(pairs);
    const F4 even = reinterpret_cast<F4>(pairs << 16), odd = reinterpret_cast<F4>(pairs & static_cast<std::int32_t>(0xffff0000));
#pragma GCC unroll 6
    for (int j = 0; j < kNarrow; j += 2) acc[j] = acc[j] * a + even, acc[j + 1] = acc[j + 1] * a + odd;
  }
  return sum(acc);
}

// Eight products of int8 widened to int16, summed in pairs to int32.
float int8_generic(long iterations) {
#if defined(__x86_64__)
  __m128i a = _mm_unpacklo_epi8(_mm_load_si128(reinterpret_cast<const __m128i*>(operands.bytes)), _mm_setzero_si128()), b = a;
  __m128i acc[kNarrow];
  for (__m128i& each : acc) each = a;
  for (long i = 0; i < iterations; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < kNarrow; ++j) {
      RENEW(b);
      acc[j] = _mm_add_epi32(acc[j], _mm_madd_epi16(a, b));
    }
  __m128i total = acc[0];
  for (int j = 1; j < kNarrow; ++j) total = _mm_add_epi32(total, acc[j]);
  return static_cast<float>(_mm_cvtsi128_si32(total));
#elif defined(__aarch64__)
  int8x8_t a = vld1_s8(reinterpret_cast<const std::int8_t*>(operands.bytes)), b = a;
  int32x4_t acc[kNarrow];
  for (int32x4_t& each : acc) each = vdupq_n_s32(1);
  for (long i = 0; i < iterations; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < kNarrow; ++j) {
      RENEW(b);
      acc[j] = vpadalq_s16(acc[j], vmull_s8(a, b));
    }
  std::int32_t total = 0;
  for (const int32x4_t& each : acc) total += vaddvq_s32(each);
  return static_cast<float>(total);
#else
  I4 acc[2 * kNarrow] = {}, a[2], b;
  for (int k = 0; k < 8; ++k) a[k / 4][k % 4] = operands.bytes[k];
  b = a[1];
  for (long i = 0; i < iterations; ++i)
    for (int j = 0; j < 2 * kNarrow; ++j) {
      RENEW(b);
      acc[j] += a[j % 2] * b;
    }
  std::int32_t total = 0;
  for (const I4& each : acc) total += each[0] + each[1] + each[2] + each[3];
  return static_cast<float>(total);
#endif
}

#if defined(__x86_64__)

// ---- 256 bits

TARGET("avx2,fma") float sum(const __m256* acc) {
  __m256 total = acc[0];
  for (int j = 1; j < kNarrow; ++j) total = _mm256_add_ps(total, acc[j]);
  return _mm256_cvtss_f32(total);
}

TARGET("avx2,fma") float fp32_avx2(long iterations) {
  const __m256 a = _mm256_load_ps(operands.floats), b = _mm256_load_ps(operands.floats + 8);
  __m256 acc[kNarrow];
  for (__m256& each : acc) each = a;
  for (long i = 0; i < iterations; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < kNarrow; ++j) acc[j] = _mm256_fmadd_ps(a, b, acc[j]);
  return sum(acc);
}

TARGET("avx2,fma") float bf16_avx2(long iterations) {
  const __m256 a = _mm256_load_ps(operands.floats);
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000));
  __m256i pairs = _mm256_load_si256(reinterpret_cast<const __m256i*>(operands.bf16));
  __m256 acc[kNarrow];
  for (__m256& each : acc) each = a;
  for (long i = 0; i < iterations; ++i) {
    RENEW(pairs);
    const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)), odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, mask));
#pragma GCC unroll 6
    for (int j = 0; j < kNarrow; j += 2) acc[j] = _mm256_fmadd_ps(a, even, acc[j]), acc[j + 1] = _mm256_fmadd_ps(a, odd, acc[j + 1]);
  }
  return sum(acc);
}

TARGET("avx2") float int8_avx2(long iterations) {
  const __m256i a = _mm256_load_si256(reinterpret_cast<const __m256i*>(operands.bytes)), ones = _mm256_set1_epi16(1);
  __m256i b = a, acc[kNarrow];
  for (__m256i& each : acc) each = a;
  for (long i = 0; i < iterations; ++i)
#pragma GCC unroll 12
    for (int j = 0; j < kNarrow; ++j) {
      RENEW(b);
      acc[j] = _mm256_add_epi32(acc[j], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  __m256i total = acc[0];
  for (int j = 1; j < kNarrow; ++j) total = _mm256_add_epi32(total, acc[j]);
  return static_cast<float>(_mm256_cvtsi256_si32(total));
}

// ---- 512 bits

constexpr int kWide = 24;  // accumulators, of 32 registers

TARGET("avx512f") float sum(const __m512* acc) {
  __m512 total = acc[0];
  for (int j = 1; j < kWide; ++j) total = _mm512_add_ps(total, acc[j]);
  return _mm512_cvtss_f32(total);
}

TARGET("avx512f") float sum(const __m512i* acc) {
  __m512i total = acc[0];
  for (int j = 1; j < kWide; ++j) total = _mm512_add_epi32(total, acc[j]);
  return static_cast<float>(_mm512_cvtsi512_si32(total));
}

TARGET("avx512f") float fp32_avx512(long iterations) {
  const __m512 a = _mm512_load_ps(operands.floats), b = _mm512_set1_ps(operands.floats[1]);
  __m512 acc[kWide];
  for (__m512& each : acc) each = a;
  for (long i = 0; i < iterations; ++i)
#pragma GCC unroll 24
    for (int j = 0; j < kWide; ++j) acc[j] = _mm512_fmadd_ps(a, b, acc[j]);
  return sum(acc);
}

TARGET("avx512f,avx512bw") float bf16_avx512(long iterations) {
  const __m512 a = _mm512_load_ps(operands.floats);
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  __m512i pairs = _mm512_load_si512(operands.bf16);
  __m512 acc[kWide];
  for (__m512& each : acc) each = a;
  for (long i = 0; i < iterations; ++i) {
    RENEW_ZMM(pairs);
    const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, mask));
#pragma GCC unroll 12
    for (int j = 0; j < kWide; j += 2) acc[j] = _mm512_fmadd_ps(a, even, acc[j]), acc[j + 1] = _mm512_fmadd_ps(a, odd, acc[j + 1]);
  }
  return sum(acc);
}

TARGET("avx512f,avx512bf16") float bf16_avx512_bf16(long iterations) {
  __m512bh a;
  std::memcpy(&a, operands.bf16, sizeof a);
  __m512 acc[kWide];
  for (__m512& each : acc) each = _mm512_load_ps(operands.floats);
  for (long i = 0; i < iterations; ++i)
#pragma GCC unroll 24
    for (int j = 0; j < kWide; ++j) acc[j] = _mm512_dpbf16_ps(acc[j], a, a);
  return sum(acc);
}

TARGET("avx512f,avx512bw") float int8_avx512(long iterations) {
  const __m512i a = _mm512_load_si512(operands.bytes), ones = _mm512_set1_epi16(1);
  __m512i b = a, acc[kWide];
  for (__m512i& each : acc) each = a;
  for (long i = 0; i < iterations; ++i)
#pragma GCC unroll 24
    for (int j = 0; j < kWide; ++j) {
      RENEW_ZMM(b);
      acc[j] = _mm512_add_epi32(acc[j], _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), ones));
    }
  return sum(acc);
}

TARGET("avx512f,avx512vnni") float int8_avx512_vnni(long iterations) {
  const __m512i a = _mm512_load_si512(operands.bytes);
  __m512i acc[kWide];
  for (__m512i& each : acc) each = a;
  for (long i = 0; i < iterations; ++i)
#pragma GCC unroll 24
    for (int j = 0; j < kWide; ++j) acc[j] = _mm512_dpbusd_epi32(acc[j], a, a);
  return sum(acc);
}

// ---- tiles of 16 rows of 64 bytes: 0 to 3 accumulate, 4 and 5 hold the left factors, 6 and 7 the right ones

#if defined(PENSTOCK_AMX)
struct alignas(64) TileConfig {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

TARGET("amx-tile") void load_tiles(const void* row) {
  const TileConfig config;
  _tile_loadconfig(&config);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, row, 0);
  _tile_loadd(5, row, 0);
  _tile_loadd(6, row, 0);
  _tile_loadd(7, row, 0);
}

TARGET("amx-tile") float store_tiles() {
  alignas(64) float out[16][16];
  _tile_stored(0, out, 64);
  _tile_release();
  return out[0][0];
}

TARGET("amx-tile,amx-bf16") float bf16_amx(long iterations) {
  load_tiles(operands.bf16);
  for (long i = 0; i < iterations; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  return store_tiles();
}

TARGET("amx-tile,amx-int8") float int8_amx(long iterations) {
  load_tiles(operands.bytes);
  for (long i = 0; i < iterations; ++i) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  return store_tiles();
}
#endif
#endif

bool always(const Features&) { return true; }
bool avx2(const Features& has) { return has.avx2 && has.fma; }
bool avx512(const Features& has) { return has.avx512f && has.avx512bw; }
bool avx512_bf16(const Features& has) { return has.avx512_bf16; }
bool avx512_vnni(const Features& has) { return has.avx512_vnni; }
bool amx_bf16(const Features& has) { return has.amx_bf16; }
bool amx_int8(const Features& has) { return has.amx_int8; }

}  // namespace

std::vector<Rate> usable_rates() {
#if defined(__aarch64__)
  const char* base = "neon";
#else
  const char* base = "generic";
#endif
  const Rate all[] = {
#if defined(__x86_64__)
#if defined(PENSTOCK_AMX)
      {"bf16", "amx", amx_bf16, bf16_amx, 4 * 2 * 16 * 16 * 32},
      {"int8", "amx", amx_int8, int8_amx, 4 * 2 * 16 * 16 * 64},
#endif
      {"bf16", "avx512_bf16", avx512_bf16, bf16_avx512_bf16, kWide * 2 * 32},
      {"int8", "avx512_vnni", avx512_vnni, int8_avx512_vnni, kWide * 2 * 64},
      {"fp32", "avx512", avx512, fp32_avx512, kWide * 2 * 16},
      {"bf16", "avx512", avx512, bf16_avx512, kWide * 2 * 16},
      {"int8", "avx512", avx512, int8_avx512, kWide * 2 * 64},
      {"fp32", "avx2", avx2, fp32_avx2, kNarrow * 2 * 8},
      {"bf16", "avx2", avx2, bf16_avx2, kNarrow * 2 * 8},
      {"int8", "avx2", avx2, int8_avx2, kNarrow * 2 * 32},
#endif
      {"fp32", base, always, fp32_generic, kNarrow * 2 * 4},
      {"bf16", base, always, bf16_generic, kNarrow * 2 * 4},
      {"int8", base, always, int8_generic, kNarrow * 2 * 8},
  };
  std::vector<Rate> usable;
  for (const Rate& rate : all)
    if (rate.usable(features())) usable.push_back(rate);
  return usable;
}
