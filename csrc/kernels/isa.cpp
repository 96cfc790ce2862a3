// The kernel table of one instruction set. Compiled once per set, with PENSTOCK_ISA its name and the compiler flags for it.
#include <cmath>
#include <cstring>

#if defined(__AVX512F__)
#include "../vec/avx512.h"
#else
#include "../vec/lanes.h"
#endif
#include "../kernels.h"
#if defined(__AVX512BF16__)
namespace avx512_vnni { extern const penstock::Kernels table; }  // for fixed-point rows
#endif
#include "attention.h"
#include "choose.h"
#include "embed.h"
#include "panel.h"
#if defined(PENSTOCK_TILES)
#include "amx.h"
#include "attendtiles.h"
#endif

namespace PENSTOCK_ISA {

#if !defined(PENSTOCK_TILES)
constexpr int M_BLOCK_BYTES = 1024;  // Kernels::m_block_bytes
static void release_tiles() {}
static void multiply_panels(const Task& t) {
  for (int i = 0; i < t.num_panels; ++i) multiply_panel(t.single(i));
}
static int panels_per_call(const Matrix&, int) { return 1; }
#endif

// See Kernels::takes_fixed16. Where bf16 pairs are multiplied faster than floats, i6 codes and i8 codes with one scale per column still take
// VNNI: a code becomes int16 by one byte shuffle but bf16 by several operations, and so do i4 codes with units, whose sums are scaled once.
// Other i4 codes are one table lookup either way, and integer accumulators need a conversion per group, so that bf16 is as fast or faster on
// Zen 4, as it is for i8 codes with a scale for 32. Zen 5 multiplies all codes faster by VNNI (docs/LOG.md). Bits depend on the answer, so it
// is one for the whole process.
static bool takes_fixed16([[maybe_unused]] const Matrix& matrix) {
#if defined(PENSTOCK_TILES)
  return !matrix.dequantized;
#elif defined(PENSTOCK_FIXED16)
  return true;
#elif defined(__AVX512BF16__)
  const bool one_scale = matrix.format == Format::i8 && matrix.num_groups() == 1;
  return features().zen5 ? matrix.has_codes() : matrix.has_units() || matrix.format == Format::i6 || one_scale;
#else
  return false;
#endif
}

static void linear(const PanelTask& t) {
#if defined(__AVX512BF16__) && !defined(PENSTOCK_TILES)
  if (takes_fixed16(t.matrix)) return avx512_vnni::table.linear(t);  // int8 rows too: the same sums, and many rows find codes unpacked once
#elif defined(PENSTOCK_TILES)
  const bool integer = t.matrix.has_codes() && (t.x.int8 || takes_fixed16(t.matrix));
  if (integer && !t.x.amx_row_bytes && !takes_plain_int8(t.matrix, t.x, t.rows))
    return avx512_vnni::table.linear(t);
#endif
  for (int from = 0; from < t.num_panels;) {
    const Task part = panels_of_one_width(t, from);
    multiply_panels(part);
    from += part.num_panels;
  }
}

static std::size_t attend_bytes(const Cache& cache, int rows) {
  const std::size_t padded_rows = (rows + 15) / 16 * 16;  // whole blocks of 16, as AMX writes them
  return padded_rows * (cache.padded * 4 + CHUNK * 8 + 64) + 2 * cache.tile_bytes() * CHUNK_TILES + 16 * 64 * 4 + 256;
}

// Lays out the scratch and converts queries to the cache's element type.
static AttentionBlock make_block(const AttendTask& t) {
  const Cache& c = t.cache;
  std::uint8_t* at = t.scratch;
  const auto take = [&at](std::size_t bytes) { std::uint8_t* p = at; at += (bytes + 63) / 64 * 64; return p; };
  AttentionBlock b{};
  b.rows = t.rows, b.padded = c.padded, b.positions = t.positions, b.scale = t.scale, b.cap = t.cap, b.window = t.window;
  b.running_max = t.result.running_max, b.running_sum = t.result.running_sum, b.acc = t.result.acc;
  b.streamed = t.stream.distance > 0 && t.rows <= MAX_ROWS;
  b.tiles_ahead = std::max(1, t.stream.distance / static_cast<int>(c.tile_bytes()));
  const int elem_bytes = c.bf16 ? BF16_ELEM_BYTES : 4;
  const std::size_t padded_rows = (t.rows + 15) / 16 * 16;
  b.queries = take(padded_rows * c.padded * elem_bytes);
  b.scores = reinterpret_cast<float*>(take(padded_rows * CHUNK * 4));
  b.probs = take(padded_rows * CHUNK * elem_bytes);
  b.rescale = reinterpret_cast<float*>(take(padded_rows * 4));
  b.masked_values = take(c.tile_bytes() * CHUNK_TILES);
  b.tile_scratch = take(c.tile_bytes() * CHUNK_TILES + 16 * 64 * 4);
  for (int r = 0; r < t.rows; ++r) {
    std::uint8_t* q = b.queries + std::size_t(r) * c.padded * elem_bytes;
    if (c.bf16) {
      to_bf16_row(t.queries[r], c.dim, c.padded, q, 1, nullptr);
    } else {
      std::memcpy(q, t.queries[r], c.dim * 4);
      std::memset(q + c.dim * 4, 0, (c.padded - c.dim) * 4);
    }
  }
  return b;
}

// The state before any key.
static void init_state(const AttentionBlock& b) {
  std::fill_n(b.running_max, b.rows, -INFINITY), std::fill_n(b.running_sum, b.rows, 0.0f), std::fill_n(b.acc, std::size_t(b.rows) * b.padded, 0.0f);
}

static int num_visited_tiles(const AttendTask& t) { return (t.last_key - t.first_key) / TILE + 1; }

// The tiles of the chunk that begins at key `begin`, up to tile `end`; returns their number.
static int chunk_tiles(const AttendTask& t, int begin, int end, TilePointers& tiles) {
  const int first = (begin - t.first_key) / TILE, count = std::max(0, std::min(CHUNK_TILES, end - first));
  for (int i = 0; i < count; ++i) tiles.keys[i] = t.keys[first + i], tiles.values[i] = t.values[first + i];
  return count;
}

// Computes one row again with masked values zeroed.
static void attend_row_masked(const AttendTask& t, const AttentionBlock& b, int row) {
  AttentionBlock one = b;
  one.rows = 1, one.positions += row, one.acc += std::size_t(row) * b.padded, one.running_max += row, one.running_sum += row;
  one.queries += std::size_t(row) * b.padded * (t.cache.bf16 ? BF16_ELEM_BYTES : 4);
  init_state(one);
  for (int begin = t.first_key; begin <= t.last_key; begin += CHUNK) {
    TilePointers tiles;
    const int count = chunk_tiles(t, begin, num_visited_tiles(t), tiles);
    attend_chunk_masked(one, t.cache, tiles, begin, count);
  }
}

static void attend(const AttendTask& t) {
  const AttentionBlock b = make_block(t);
  init_state(b);
  TilePointers tiles[2];
  for (int begin = t.first_key, parity = 0; begin <= t.last_key; begin += CHUNK, parity ^= 1) {
    const int count = chunk_tiles(t, begin, num_visited_tiles(t), tiles[parity]);
    const int next_count = chunk_tiles(t, begin + CHUNK, t.num_tiles, tiles[parity ^ 1]);
    attend_chunk(b, t.cache.bf16, tiles[parity], begin, count, next_count >= count ? &tiles[parity ^ 1] : nullptr);
  }
  for (int row = 0; row < t.rows; ++row)
    if (acc_is_poisoned(b, row)) attend_row_masked(t, b, row);
}

static void softmax(float* x, int n) {
  F lane_max = set1(-INFINITY);
  for (int i = 0; i < n; i += LANES)
    lane_max = max(lane_max, n - i >= LANES ? load(x + i) : blend_first(load_some(x + i, n - i), n - i, set1(-INFINITY)));
  const F top = set1(reduce_max(lane_max));
  F total = zero();
  for (int i = 0; i < n; i += LANES) {
    F p = exp(load_some(x + i, n - i) - top);
    if (n - i < LANES) p = blend_first(p, n - i, zero());
    total = total + p;
    store_some(x + i, p, n - i);
  }
  const F by = set1(reduce_add(total));
  for (int i = 0; i < n; i += LANES) store_some(x + i, load_some(x + i, n - i) / by, n - i);
}

#define PENSTOCK_STRINGIFY_(x) #x
#define PENSTOCK_STRINGIFY(x) PENSTOCK_STRINGIFY_(x)

static float int8_to_amx(const float* x, int n, const Matrix& matrix, std::int8_t* out, std::int32_t* acc_init, float* group_sums) {
  const auto to = matrix.has_units() ? to_int8_as<Int8Layout::multiplied> : to_int8_as<Int8Layout::bf16>;
  return to(x, n, matrix, out, acc_init, group_sums);
}
#if defined(PENSTOCK_FIXED16)
constexpr decltype(Kernels::to_fixed16) to_fixed16 = to_fixed16_as<Fixed16Layout::int16>;
static float to_split_fixed16(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  const auto to = matrix.format == Format::i4 ? to_fixed16_as<Fixed16Layout::split_eights> : to_fixed16_as<Fixed16Layout::split_fours>;
  return to(x, n, matrix, out, acc_init, group_sums);
}
static bool splits_fixed16(const Matrix& m, int rows) {
  const bool is_i4 = m.format == Format::i4 && m.codebook_is_consecutive(), is_i8 = m.format == Format::i8 && !m.has_mins;
  return (is_i4 ? rows <= MAX_SPLIT_ROWS : is_i8 && rows == 1) && m.group % LANES == 0;
}
static float fixed16_to_amx(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  const auto to = matrix.has_units()       ? to_fixed16_as<Fixed16Layout::interleaved>
                  : uses_int8_tiles(matrix) ? to_fixed16_as<Fixed16Layout::byte_planes>
                                            : to_fixed16_as<Fixed16Layout::bf16_planes>;
  return to(x, n, matrix, out, acc_init, group_sums);
}
constexpr decltype(Kernels::amx_row_bytes) amx_row_bytes = nullptr;
#elif defined(__AVX512BF16__)  // the avx512_vnni kernels multiply them
static float to_fixed16(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  return avx512_vnni::table.to_fixed16(x, n, matrix, out, acc_init, group_sums);
}
static float to_split_fixed16(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  return avx512_vnni::table.to_split_fixed16(x, n, matrix, out, acc_init, group_sums);
}
static bool splits_fixed16(const Matrix& m, int rows) { return avx512_vnni::table.splits_fixed16(m, rows); }
static float fixed16_to_amx(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  return avx512_vnni::table.fixed16_to_amx(x, n, matrix, out, acc_init, group_sums);
}
#if !defined(PENSTOCK_TILES)
constexpr decltype(Kernels::amx_row_bytes) amx_row_bytes = nullptr;
#endif
#else
constexpr decltype(Kernels::to_fixed16) to_fixed16 = nullptr, to_split_fixed16 = nullptr, fixed16_to_amx = nullptr;
constexpr decltype(Kernels::splits_fixed16) splits_fixed16 = nullptr;
constexpr decltype(Kernels::amx_row_bytes) amx_row_bytes = nullptr;
#endif

extern const Kernels table;
const Kernels table = {
    PENSTOCK_STRINGIFY(PENSTOCK_ISA),
    UNPACKED_BYTES, M_BLOCK_BYTES, panels_per_call, linear, release_tiles, dequantize_row,
    attend_bytes, attend, merge_spans, normalize,
    rms_norm,
    BF16_ELEM_BYTES, to_bf16_row, to_bf16, to_int8, takes_fixed16, to_fixed16, splits_fixed16, to_split_fixed16, amx_row_bytes, fixed16_to_amx, int8_to_amx,
    rope, act_mul, clamped_gate, add_rows, copy_rows, softcap, softmax,
    argmax, temperature_scale, exp_row, exp_block_sums, mass_at_least, indices_above, count_above, mask_logits};

}  // namespace PENSTOCK_ISA
