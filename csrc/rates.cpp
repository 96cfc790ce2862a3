#include "rates.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "tileshapes.h"

#if defined(__x86_64__)
#include <immintrin.h>
#define TARGET(isa) __attribute__((target(isa)))
#define REGISTER "v"
#if (defined(__clang__) && __clang_major__ >= 12) || (!defined(__clang__) && __GNUC__ >= 11)
#define PENSTOCK_AMX 1
#endif
#elif defined(__aarch64__)
#include <arm_neon.h>
#define REGISTER "w"
#else
#define REGISTER "m"
#endif

// Hides a value from the optimizer, so that arithmetic on it is neither hoisted out of a loop nor shared.
#define OPAQUE(x) __asm__ volatile("" : "+" REGISTER(x))
#define CONSUME(x) __asm__ volatile("" : : REGISTER(x))

// Accumulators are separate variables: compilers spill arrays. Each function defines `Vector`, `start` and STEP.
#define EACH_8(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7)
#define EACH_12(X) EACH_8(X) X(8) X(9) X(10) X(11)
#define EACH_24(X) EACH_12(X) X(12) X(13) X(14) X(15) X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23)
#define BEGIN(j) \
  Vector acc##j = start; \
  OPAQUE(acc##j);
#define END(j) CONSUME(acc##j);

namespace penstock {

namespace {

// Neither zero nor denormal, and different in each lane: zeros would draw less power and raise the clock.
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

template <class Vector>
Vector first(const void* values) {
  Vector vector;
  std::memcpy(&vector, values, sizeof vector);
  return vector;
}

// ---- 128 bits: vector types of the compiler, on any 64-bit architecture

#if defined(__aarch64__)
using F4 = float32x4_t;
using I4 = int32x4_t;
#define MULTIPLY_ADD(acc, a, b) vfmaq_f32(b, acc, a)
#else
typedef float F4 __attribute__((vector_size(16)));
typedef std::int32_t I4 __attribute__((vector_size(16)));
#define MULTIPLY_ADD(acc, a, b) (acc) * (a) + (b)
#endif

void fp32_generic(long iterations) {
  using Vector = F4;
  const F4 a = first<F4>(operands.floats), b = first<F4>(operands.floats + 4), start = b;
  EACH_12(BEGIN)
  for (long i = 0; i < iterations; ++i) {
#define STEP(j) acc##j = MULTIPLY_ADD(acc##j, a, b);
    EACH_12(STEP)
#undef STEP
  }
  EACH_12(END)
}

// bf16 is the upper half of fp32: odd elements by a mask, even ones by a shift, shared by six accumulators each.
void bf16_generic(long iterations) {
  using Vector = F4;
  const F4 a = first<F4>(operands.floats), start = a;
  I4 pairs = first<I4>(operands.bf16);
  EACH_12(BEGIN)
  for (long i = 0; i < iterations; ++i) {
    OPAQUE(pairs);
    const F4 value[2] = {reinterpret_cast<F4>(pairs << 16), reinterpret_cast<F4>(pairs & static_cast<std::int32_t>(0xffff0000))};
#define STEP(j) acc##j = MULTIPLY_ADD(acc##j, a, value[j % 2]);
    EACH_12(STEP)
#undef STEP
  }
  EACH_12(END)
}

// Eight int8 products widened to int16, added in pairs to int32.
void int8_generic(long iterations) {
#if defined(__x86_64__)
  using Vector = __m128i;
  const __m128i a = _mm_unpacklo_epi8(first<__m128i>(operands.bytes), _mm_setzero_si128()), start = a;
  __m128i b = a;
#define STEP(j) OPAQUE(b); acc##j = _mm_add_epi32(acc##j, _mm_madd_epi16(a, b));
#elif defined(__aarch64__)
  using Vector = int32x4_t;
  const int8x8_t a = vld1_s8(reinterpret_cast<const std::int8_t*>(operands.bytes));
  const int32x4_t start = vdupq_n_s32(1);
  int8x8_t b = a;
#define STEP(j) OPAQUE(b); acc##j = vpadalq_s16(acc##j, vmull_s8(a, b));
#else
  struct Vector { std::int32_t sum; } start = {1};
  const std::int32_t a = operands.bytes[0];
  std::int32_t b = operands.bytes[1];
#define STEP(j) for (int k = 0; k < 8; ++k) { OPAQUE(b); acc##j.sum += a * b; }
#endif
  EACH_8(BEGIN)
  for (long i = 0; i < iterations; ++i) {
    EACH_8(STEP)
#undef STEP
  }
  EACH_8(END)
}

#if defined(__x86_64__)

// ---- 256 bits

TARGET("avx2,fma") void fp32_avx2(long iterations) {
  using Vector = __m256;
  const __m256 a = _mm256_load_ps(operands.floats), b = _mm256_load_ps(operands.floats + 8), start = a;
  EACH_12(BEGIN)
  for (long i = 0; i < iterations; ++i) {
#define STEP(j) acc##j = _mm256_fmadd_ps(a, b, acc##j);
    EACH_12(STEP)
#undef STEP
  }
  EACH_12(END)
}

TARGET("avx2,fma") void bf16_avx2(long iterations) {
  using Vector = __m256;
  const __m256 a = _mm256_load_ps(operands.floats), start = a;
  const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000));
  __m256i pairs = _mm256_load_si256(reinterpret_cast<const __m256i*>(operands.bf16));
  EACH_12(BEGIN)
  for (long i = 0; i < iterations; ++i) {
    OPAQUE(pairs);
    const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)), odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, mask));
#define STEP(j) acc##j = _mm256_fmadd_ps(a, j % 2 ? odd : even, acc##j);
    EACH_12(STEP)
#undef STEP
  }
  EACH_12(END)
}

TARGET("avx2") void int8_avx2(long iterations) {
  using Vector = __m256i;
  const __m256i a = _mm256_load_si256(reinterpret_cast<const __m256i*>(operands.bytes)), ones = _mm256_set1_epi16(1), start = a;
  __m256i b = a;
  EACH_8(BEGIN)
  for (long i = 0; i < iterations; ++i) {
#define STEP(j) OPAQUE(b); acc##j = _mm256_add_epi32(acc##j, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    EACH_8(STEP)
#undef STEP
  }
  EACH_8(END)
}

TARGET("avx2") void int16_avx2(long iterations) {
  using Vector = __m256i;
  const __m256i a = _mm256_load_si256(reinterpret_cast<const __m256i*>(operands.bytes)), start = a;
  __m256i b = a;
  EACH_8(BEGIN)
  for (long i = 0; i < iterations; ++i) {
#define STEP(j) OPAQUE(b); acc##j = _mm256_add_epi32(acc##j, _mm256_madd_epi16(a, b));
    EACH_8(STEP)
#undef STEP
  }
  EACH_8(END)
}

// ---- 512 bits

TARGET("avx512f") void fp32_avx512(long iterations) {
  using Vector = __m512;
  const __m512 a = _mm512_load_ps(operands.floats), b = _mm512_set1_ps(operands.floats[1]), start = a;
  EACH_24(BEGIN)
  for (long i = 0; i < iterations; ++i) {
#define STEP(j) acc##j = _mm512_fmadd_ps(a, b, acc##j);
    EACH_24(STEP)
#undef STEP
  }
  EACH_24(END)
}

TARGET("avx512f") void bf16_avx512(long iterations) {
  using Vector = __m512;
  const __m512 a = _mm512_load_ps(operands.floats), start = a;
  const __m512i mask = _mm512_set1_epi32(static_cast<int>(0xffff0000));
  __m512i pairs = _mm512_load_si512(operands.bf16);
  EACH_24(BEGIN)
  for (long i = 0; i < iterations; ++i) {
    OPAQUE(pairs);
    const __m512 even = _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)), odd = _mm512_castsi512_ps(_mm512_and_si512(pairs, mask));
#define STEP(j) acc##j = _mm512_fmadd_ps(a, j % 2 ? odd : even, acc##j);
    EACH_24(STEP)
#undef STEP
  }
  EACH_24(END)
}

TARGET("avx512f,avx512bf16") void bf16_avx512_bf16(long iterations) {
  using Vector = __m512;
  const __m512 start = _mm512_load_ps(operands.floats);
  __m512bh a;
  std::memcpy(&a, operands.bf16, sizeof a);
  EACH_24(BEGIN)
  for (long i = 0; i < iterations; ++i) {
#define STEP(j) acc##j = _mm512_dpbf16_ps(acc##j, a, a);
    EACH_24(STEP)
#undef STEP
  }
  EACH_24(END)
}

TARGET("avx512f,avx512bw") void int8_avx512(long iterations) {
  using Vector = __m512i;
  const __m512i a = _mm512_load_si512(operands.bytes), ones = _mm512_set1_epi16(1), start = a;
  __m512i b = a;
  EACH_8(BEGIN)
  for (long i = 0; i < iterations; ++i) {
#define STEP(j) OPAQUE(b); acc##j = _mm512_add_epi32(acc##j, _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), ones));
    EACH_8(STEP)
#undef STEP
  }
  EACH_8(END)
}

TARGET("avx512f,avx512vnni") void int8_avx512_vnni(long iterations) {
  using Vector = __m512i;
  const __m512i a = _mm512_load_si512(operands.bytes), start = a;
  EACH_24(BEGIN)
  for (long i = 0; i < iterations; ++i) {
#define STEP(j) acc##j = _mm512_dpbusd_epi32(acc##j, a, a);
    EACH_24(STEP)
#undef STEP
  }
  EACH_24(END)
}

TARGET("avx512f,avx512vnni") void int16_avx512_vnni(long iterations) {
  using Vector = __m512i;
  const __m512i a = _mm512_load_si512(operands.bytes), start = a;
  EACH_24(BEGIN)
  for (long i = 0; i < iterations; ++i) {
#define STEP(j) acc##j = _mm512_dpwssd_epi32(acc##j, a, a);
    EACH_24(STEP)
#undef STEP
  }
  EACH_24(END)
}

// ---- AMX tiles of 16 rows x 64 bytes: 0-3 accumulators, 4-5 A, 6-7 B

#if defined(PENSTOCK_AMX)
TARGET("amx-tile") void load_tiles(const void* row) {
  TileShapes shapes;
  std::fill_n(shapes.row_bytes, 8, 64), std::fill_n(shapes.rows, 8, 16);
  load_tile_shapes(shapes);
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
  _tile_loadd(4, row, 0);
  _tile_loadd(5, row, 0);
  _tile_loadd(6, row, 0);
  _tile_loadd(7, row, 0);
}

TARGET("amx-tile,amx-bf16") void bf16_amx(long iterations) {
  load_tiles(operands.bf16);
  for (long i = 0; i < iterations; ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

TARGET("amx-tile,amx-int8") void int8_amx(long iterations) {
  load_tiles(operands.bytes);
  for (long i = 0; i < iterations; ++i) {
    _tile_dpbusd(0, 4, 6);
    _tile_dpbusd(1, 4, 7);
    _tile_dpbusd(2, 5, 6);
    _tile_dpbusd(3, 5, 7);
  }
  _tile_release();
}

// int16 as two bytes, the upper one signed: two tile products each.
TARGET("amx-tile,amx-int8") void int16_amx(long iterations) {
  load_tiles(operands.bytes);
  for (long i = 0; i < iterations; ++i) {
    _tile_dpbsud(0, 4, 6);
    _tile_dpbuud(2, 5, 6);
    _tile_dpbsud(1, 4, 7);
    _tile_dpbuud(3, 5, 7);
  }
  _tile_release();
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

#if defined(__aarch64__)
const char* const BASE = "neon";
#else
const char* const BASE = "generic";
#endif

// Operations: accumulators x 2 x products per instruction.
const Rate RATES[] = {
#if defined(__x86_64__)
#if defined(PENSTOCK_AMX)
    {"bf16", "amx", amx_bf16, bf16_amx, 4 * 2 * 16 * 16 * 32},
    {"int8", "amx", amx_int8, int8_amx, 4 * 2 * 16 * 16 * 64},
    {"int16", "amx", amx_int8, int16_amx, 2 * 2 * 16 * 16 * 64},
#endif
    {"bf16", "avx512_bf16", avx512_bf16, bf16_avx512_bf16, 24 * 2 * 32},
    {"int8", "avx512_vnni", avx512_vnni, int8_avx512_vnni, 24 * 2 * 64},
    {"int16", "avx512_vnni", avx512_vnni, int16_avx512_vnni, 24 * 2 * 32},
    {"fp32", "avx512", avx512, fp32_avx512, 24 * 2 * 16},
    {"bf16", "avx512", avx512, bf16_avx512, 24 * 2 * 16},
    {"int8", "avx512", avx512, int8_avx512, 8 * 2 * 64},
    {"fp32", "avx2", avx2, fp32_avx2, 12 * 2 * 8},
    {"bf16", "avx2", avx2, bf16_avx2, 12 * 2 * 8},
    {"int8", "avx2", avx2, int8_avx2, 8 * 2 * 32},
    {"int16", "avx2", avx2, int16_avx2, 8 * 2 * 16},
#endif
    {"fp32", BASE, always, fp32_generic, 12 * 2 * 4},
    {"bf16", BASE, always, bf16_generic, 12 * 2 * 4},
    {"int8", BASE, always, int8_generic, 8 * 2 * 8},
};

}  // namespace

std::vector<Rate> usable_rates() {
  std::vector<Rate> usable;
  for (const Rate& rate : RATES)
    if (rate.usable(features())) usable.push_back(rate);
  const auto bf16_by = [&](const char* isa) {
    return std::find_if(usable.begin(), usable.end(), [&](const Rate& rate) {
      return !std::strcmp(rate.dtype, "bf16") && !std::strcmp(rate.isa, isa);
    });
  };
  const auto pairs = bf16_by("avx512_bf16"), values = bf16_by("avx512");  // values: widened to float
  if (pairs != usable.end() && !prefers_bf16_pairs()) std::iter_swap(pairs, values);
  return usable;
}

}  // namespace penstock
