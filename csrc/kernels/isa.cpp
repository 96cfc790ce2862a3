// Compiled once for each instruction set, with PENSTOCK_ISA its name and the compiler's flags for it.
#include <cmath>
#include <cstring>

#if defined(__AVX512F__)
#include "../vec/avx512.h"
#else
#include "../vec/lanes.h"
#endif
#include "../kernels.h"
#if defined(__AVX512BF16__)
namespace avx512_vnni { extern const penstock::Kernels table; }  // whose kernels some rows of integers take
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
constexpr int PIECE_BYTES = 1024;  // Kernels::piece_bytes
static void release_tiles() {}
static void linear_panels(const Task& t) {
  for (int i = 0; i < t.panels; ++i) {
    const Task one = t.only(i);
    linear_panel(one);
    one.done(0, one.rows);
  }
}
static int panels_at_once(const Matrix&, int) { return 1; }
#endif

// Bytes become words by one look-up, and bf16 numbers by several operations, which few rows have to wait for. 4-bit codes are looked up
// either way, and sums of integers have to become floats for each group: there bf16 numbers are as fast or faster (docs/LOG.md).
static bool takes_words([[maybe_unused]] const Matrix& codes) {
#if defined(PENSTOCK_WORDS) || defined(PENSTOCK_TILES)
  return true;
#elif defined(__AVX512BF16__)
  return codes.format == Format::i8 && codes.num_groups() == 1;
#else
  return false;
#endif
}

static void linear(const PanelTask& t) {
#if defined(__AVX512BF16__) && !defined(PENSTOCK_TILES)
  if (!t.x.int8 && takes_words(t.matrix)) return avx512_vnni::table.linear(t);
#elif defined(PENSTOCK_TILES)
  if ((t.matrix.format == Format::i8 || t.matrix.format == Format::i4) && !t.x.split && !whole_rows(t.matrix, t.x, t.rows))
    return avx512_vnni::table.linear(t);
#endif
  for (int from = 0; from < t.panels;) {  // the last may be narrower
    const int first = t.panel + from, wide = t.matrix.width(first);
    const int count = t.matrix.width(t.panel + t.panels - 1) == wide ? t.panels - from : std::max(1, t.panels - from - 1);
    linear_panels({t.matrix, t.matrix.panel(t.index, first), first, count, wide, t.x, t.rows, t.finish,
                   t.out + std::size_t(t.rows) * PANEL * from, t.unpacked, t.soon});
    from += count;
  }
}

static std::size_t attend_bytes(const Cache& cache, int rows) {
  const std::size_t filled = (rows + 15) / 16 * 16;  // rows that kernels may fill a last block up with
  return filled * (cache.padded * 4 + CHUNK * 8 + 64) + 2 * cache.tile_bytes() * CHUNK_TILES + 16 * 64 * 4 + 256;
}

// Memory of a task, and queries as the pool keeps numbers.
static Block block_of(const AttendTask& t) {
  const Cache& c = t.cache;
  std::uint8_t* at = t.scratch;
  const auto take = [&at](std::size_t bytes) { std::uint8_t* p = at; at += (bytes + 63) / 64 * 64; return p; };
  Block b{};
  b.rows = t.rows, b.padded = c.padded, b.positions = t.positions, b.scale = t.scale, b.cap = t.cap, b.window = t.window;
  b.best = t.result.best, b.total = t.result.total, b.mixed = t.result.mixed;
  const int number = c.bf16 ? NUMBER : 4;
  const std::size_t filled = (t.rows + 15) / 16 * 16;
  b.queries = take(filled * c.padded * number);
  b.scores = reinterpret_cast<float*>(take(filled * CHUNK * 4));
  b.powers = take(filled * CHUNK * number);
  b.fade = reinterpret_cast<float*>(take(filled * 4));
  b.copies = take(c.tile_bytes() * CHUNK_TILES);
  b.spare = take(c.tile_bytes() * CHUNK_TILES + 16 * 64 * 4);
  for (int r = 0; r < t.rows; ++r) {
    std::uint8_t* q = b.queries + std::size_t(r) * c.padded * number;
    if (c.bf16) {
      to_row(t.queries[r], c.dim, c.padded, q, 1, nullptr);
    } else {
      std::memcpy(q, t.queries[r], c.dim * 4);
      std::memset(q + c.dim * 4, 0, (c.padded - c.dim) * 4);
    }
  }
  return b;
}

// The rows of a block before they have seen any key.
static void begin_rows(const Block& b) {
  std::fill_n(b.best, b.rows, -INFINITY), std::fill_n(b.total, b.rows, 0.0f), std::fill_n(b.mixed, std::size_t(b.rows) * b.padded, 0.0f);
}

static int visited(const AttendTask& t) { return (t.last_key - t.first_key) / TILE + 1; }  // tiles

// The tiles of the chunk that begins at `begin`; returns how many. `end`: of the tiles that may be taken.
static int tiles_of(const AttendTask& t, int begin, int end, TilePointers& tiles) {
  const int first = (begin - t.first_key) / TILE, count = std::max(0, std::min(CHUNK_TILES, end - first));
  for (int i = 0; i < count; ++i) tiles.keys[i] = t.keys[first + i], tiles.values[i] = t.values[first + i];
  return count;
}

// One row again, by itself.
static void attend_alone(const AttendTask& t, const Block& b, int row) {
  Block one = b;
  one.rows = 1, one.positions += row, one.mixed += std::size_t(row) * b.padded, one.best += row, one.total += row;
  one.queries += std::size_t(row) * b.padded * (t.cache.bf16 ? NUMBER : 4);
  begin_rows(one);
  for (int begin = t.first_key; begin <= t.last_key; begin += CHUNK) {
    TilePointers tiles;
    const int count = tiles_of(t, begin, visited(t), tiles);
    attend_seen(one, t.cache, tiles, begin, count);
  }
}

static void attend(const AttendTask& t) {
  const Block b = block_of(t);
  begin_rows(b);
  TilePointers tiles[2];
  for (int begin = t.first_key, turn = 0; begin <= t.last_key; begin += CHUNK, turn ^= 1) {
    const int count = tiles_of(t, begin, visited(t), tiles[turn]), later = tiles_of(t, begin + CHUNK, t.num_tiles, tiles[turn ^ 1]);
    attend_chunk(b, t.cache.bf16, tiles[turn], begin, count, later >= count ? &tiles[turn ^ 1] : nullptr);
  }
  for (int row = 0; row < t.rows; ++row)
    if (poisoned(b, row)) attend_alone(t, b, row);
}

static void softmax(float* x, int n) {
  F most = set1(-INFINITY);
  for (int i = 0; i < n; i += LANES) most = max(most, n - i >= LANES ? load(x + i) : first_lanes(load_some(x + i, n - i), n - i, set1(-INFINITY)));
  const F top = set1(largest(most));
  F total = zero();
  for (int i = 0; i < n; i += LANES) {
    F p = exp(load_some(x + i, n - i) - top);
    if (n - i < LANES) p = first_lanes(p, n - i, zero());
    total = total + p;
    store_some(x + i, p, n - i);
  }
  const F by = set1(sum(total));
  for (int i = 0; i < n; i += LANES) store_some(x + i, load_some(x + i, n - i) / by, n - i);
}

#define PENSTOCK_TEXT_OF(x) #x
#define PENSTOCK_TEXT(x) PENSTOCK_TEXT_OF(x)

constexpr decltype(Kernels::int8_to_split) int8_to_split = to_int8_as<Int8::numbers>;
#if defined(PENSTOCK_WORDS)
constexpr decltype(Kernels::to_words) to_words = to_words_as<Kept::whole>;
static float words_to_split(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* begins, float* totals) {
  return (sums_of_bytes(matrix) ? to_words_as<Kept::bytes> : to_words_as<Kept::numbers>)(x, n, matrix, out, begins, totals);
}
constexpr decltype(Kernels::split) split = nullptr;
#elif defined(__AVX512BF16__)  // words are made by the kernels that few rows of them take
static float to_words(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* begins, float* totals) {
  return avx512_vnni::table.to_words(x, n, matrix, out, begins, totals);
}
static float words_to_split(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* begins, float* totals) {
  return avx512_vnni::table.words_to_split(x, n, matrix, out, begins, totals);
}
#if !defined(PENSTOCK_TILES)
constexpr decltype(Kernels::split) split = nullptr;
#endif
#else
constexpr decltype(Kernels::to_words) to_words = nullptr, words_to_split = nullptr;
constexpr decltype(Kernels::split) split = nullptr;
#endif

extern const Kernels table;
const Kernels table = {PENSTOCK_TEXT(PENSTOCK_ISA), UNPACKED_BYTES, PIECE_BYTES, panels_at_once, linear, release_tiles, matrix_row, attend_bytes, attend, merge_span, divide,
                       rms_norm, NUMBER, to_row, to_bf16, to_int8, takes_words, to_words, split, words_to_split, int8_to_split, rotate, act_mul, add_rows, copy_rows, softcap, softmax, largest_place, scale_row, exp_row, exp_sums,
                       mass_from, places, count_above, forbid};

}  // namespace PENSTOCK_ISA
