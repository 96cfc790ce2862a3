// Compiled once for each instruction set, with PENSTOCK_ISA its name and the compiler's flags for it.
#include <cmath>
#include <cstring>

#if defined(__AVX512F__)
#include "../vec/avx512.h"
#else
#include "../vec/lanes.h"
#endif
#include "../kernels.h"
#include "attention.h"
#include "choose.h"
#include "embed.h"
#include "panel.h"
#if defined(PENSTOCK_TILES)
#include "amx.h"
#endif

namespace PENSTOCK_ISA {

static void linear(const PanelTask& t) {
  const Task task{t.matrix, t.matrix.panel(t.index, t.panel), t.matrix.width(t.panel), t.x, t.rows, t.out, t.unpacked, t.soon};
#if defined(PENSTOCK_TILES)
  tile_panel(task);
#else
  linear_panel(task);
#endif
}

static std::size_t attend_bytes(const Cache& cache, int rows) {
  return std::size_t(rows) * (cache.padded * 4 + CHUNK * 8 + 64) + cache.tile_bytes() * CHUNK_TILES + 256;
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
  b.queries = take(std::size_t(t.rows) * c.padded * number);
  b.scores = reinterpret_cast<float*>(take(std::size_t(t.rows) * CHUNK * 4));
  b.powers = take(std::size_t(t.rows) * CHUNK * number);
  b.fade = reinterpret_cast<float*>(take(std::size_t(t.rows) * 4));
  b.copies = take(c.tile_bytes() * CHUNK_TILES);
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

#if !defined(PENSTOCK_WORDS)
constexpr decltype(Kernels::to_words) to_words = nullptr;
#endif

extern const Kernels table;
const Kernels table = {PENSTOCK_TEXT(PENSTOCK_ISA), UNPACKED_BYTES, linear, matrix_row, attend_bytes, attend, merge_span, divide,
                       rms_norm, NUMBER, to_row, to_bf16, to_int8, to_words, rotate, act_mul, add_rows, softcap, softmax, largest_place, scale_row, exp_row, exp_sums,
                       mass_from, places, count_above, forbid};

}  // namespace PENSTOCK_ISA
