// Attention of one AttendTask: lays out its scratch, goes through its keys chunk by chunk (attention.h), and computes rows again that a
// masked value has poisoned.
#pragma once
#include "attention.h"

namespace PENSTOCK_ISA {

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
  std::fill_n(b.running_max, b.rows, -INFINITY), std::fill_n(b.running_sum, b.rows, 0.0f);
  std::fill_n(b.acc, std::size_t(b.rows) * b.padded, 0.0f);
}

static int num_visited_tiles(const AttendTask& t) { return (t.last_key - t.first_key) / TILE_SLOTS + 1; }

// The tiles of the chunk that begins at key `begin`, up to tile `end`; returns their number.
static int chunk_tiles(const AttendTask& t, int begin, int end, TilePointers& tiles) {
  const int first = (begin - t.first_key) / TILE_SLOTS, count = std::max(0, std::min(CHUNK_TILES, end - first));
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

}  // namespace PENSTOCK_ISA
