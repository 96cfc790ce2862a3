// The KV pool of one layer. Slots stand in tiles of 16: slot s is lane s % 16 of tile s / 16, so a tile of keys is a small panel of
// a matrix (k: head dimension, n: 16 tokens), and a tile of values another (k: 16 tokens, n: head dimension). A chunk's tiles stand
// together, one head after another: long enough for a processor to see what comes next. Memory is taken when it is first written, in
// huge pages where the system has them, so that a first short sequence takes up to two of those in each layer.
#pragma once
#include <cstddef>
#include <cstdint>

namespace penstock {

constexpr int TILE = 16;    // slots
constexpr int CHUNK = 128;  // tokens that one turn of the online softmax takes; begins at multiples of itself
constexpr int CHUNK_TILES = CHUNK / TILE;
constexpr int SPAN = 1024;  // tokens whose result is made apart and merged in order; begins at multiples of itself

// The keys and values of 16 slots, of one head.
struct TilePair { std::uint8_t *keys, *values; };

struct Cache {
  bool bf16 = false;
  int heads = 1, dim = 1, padded = 16;  // padded: dim filled up to whole vectors
  std::size_t slots = 0, chunks = 0;  // chunks: whole ones
  std::uint8_t *keys = nullptr, *values = nullptr;

  std::size_t tile_bytes() const { return std::size_t(TILE) * padded * (bf16 ? 2 : 4); }
  std::size_t bytes() const { return tile_bytes() * CHUNK_TILES * heads * chunks; }  // of keys, and of values
  std::size_t tile_at(int head, std::size_t tile) const {
    return tile_bytes() * ((tile / CHUNK_TILES * heads + head) * CHUNK_TILES + tile % CHUNK_TILES);
  }
  std::uint8_t* key_tile(int head, std::size_t tile) const { return keys + tile_at(head, tile); }
  std::uint8_t* value_tile(int head, std::size_t tile) const { return values + tile_at(head, tile); }
  TilePair pair(int head, std::size_t tile) const { return {key_tile(head, tile), value_tile(head, tile)}; }

  // Where one number stands within its tile, in numbers.
  int key_at(int lane, int d) const { return bf16 ? (d / 2 * TILE + lane) * 2 + d % 2 : d * TILE + lane; }
  int value_at(int lane, int d) const { return bf16 ? (lane / 2 * padded + d) * 2 + lane % 2 : lane * padded + d; }

  // One token's key and value -> another place. Number: of as many bytes as the pool's.
  template <class Number> void copy_token(const TilePair& from, int from_lane, const TilePair& to, int lane) const {
    const auto *key = reinterpret_cast<const Number*>(from.keys), *value = reinterpret_cast<const Number*>(from.values);
    auto *to_key = reinterpret_cast<Number*>(to.keys), *to_value = reinterpret_cast<Number*>(to.values);
    for (int d = 0; d < padded; ++d) {
      to_key[key_at(lane, d)] = key[key_at(from_lane, d)];
      to_value[value_at(lane, d)] = value[value_at(from_lane, d)];
    }
  }
};

// What one sequence has in a step.
struct Sequence {
  int first_row, num_rows;
  int context;                  // tokens in the cache after the step
  const std::int64_t* blocks;   // their block ids
  const std::int32_t* parents;  // [num_rows] a draft tree: the row that each row follows, -1 for the cache; nullptr: a chain
};

}  // namespace penstock
