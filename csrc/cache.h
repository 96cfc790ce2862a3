// The KV pool: [chunks, layers, keys and values, heads, CHUNK_TILES] tiles of 16 slots. Slot s is lane s % 16 of tile s / 16. A tile of
// keys is a small packed panel (k: head dimension, n: 16 tokens), and so is a tile of values (k: 16 tokens, n: head dimension); see
// layout.h for the order within. A chunk's tiles of one head are contiguous, long enough for the hardware prefetcher.
//
// Pages are committed when first written, as huge pages where the system has them. All layers of a chunk lie side by side, so that a short
// sequence does not take two of those per layer.
#pragma once
#include <cstddef>
#include <cstdint>

namespace penstock {

constexpr int TILE_SLOTS = 16;
constexpr int CHUNK = 128;  // keys per iteration of the online softmax; chunks begin at multiples
constexpr int CHUNK_TILES = CHUNK / TILE_SLOTS;
constexpr int SPAN = 1024;  // keys per partial result; spans begin at multiples, and are merged in order

// The keys and values of 16 slots of one head.
struct TilePair { std::uint8_t *keys, *values; };

struct Cache {
  bool bf16 = false;
  int heads = 1, dim = 1, padded = 16;  // padded: dim rounded up to 16
  std::size_t slots = 0;
  std::size_t chunk_stride = 0;  // bytes from a chunk to the next
  std::uint8_t *keys = nullptr, *values = nullptr;  // of this layer's first chunk

  std::size_t tile_bytes() const { return std::size_t(TILE_SLOTS) * padded * (bf16 ? 2 : 4); }
  std::size_t chunk_bytes() const { return tile_bytes() * CHUNK_TILES * heads; }  // of keys; as many of values
  std::size_t tile_at(int head, std::size_t tile) const {
    return chunk_stride * (tile / CHUNK_TILES) + tile_bytes() * (std::size_t(head) * CHUNK_TILES + tile % CHUNK_TILES);
  }
  std::uint8_t* key_tile(int head, std::size_t tile) const { return keys + tile_at(head, tile); }
  std::uint8_t* value_tile(int head, std::size_t tile) const { return values + tile_at(head, tile); }
  TilePair pair(int head, std::size_t tile) const { return {key_tile(head, tile), value_tile(head, tile)}; }

  // Index of one element within its tile, in elements.
  int key_at(int lane, int d) const { return bf16 ? (d / 2 * TILE_SLOTS + lane) * 2 + d % 2 : d * TILE_SLOTS + lane; }
  int value_at(int lane, int d) const { return bf16 ? (lane / 2 * padded + d) * 2 + lane % 2 : lane * padded + d; }

  // Copies one token's key and value to another tile and lane.
  void copy_token(const TilePair& from, int from_lane, const TilePair& to, int lane) const {
    bf16 ? copy_numbers<std::uint16_t>(from, from_lane, to, lane) : copy_numbers<float>(from, from_lane, to, lane);
  }

 private:
  template <class Number> void copy_numbers(const TilePair& from, int from_lane, const TilePair& to, int lane) const {
    const auto *key = reinterpret_cast<const Number*>(from.keys), *value = reinterpret_cast<const Number*>(from.values);
    auto *to_key = reinterpret_cast<Number*>(to.keys), *to_value = reinterpret_cast<Number*>(to.values);
    for (int d = 0; d < padded; ++d) {
      to_key[key_at(lane, d)] = key[key_at(from_lane, d)];
      to_value[value_at(lane, d)] = value[value_at(from_lane, d)];
    }
  }
};

}  // namespace penstock
