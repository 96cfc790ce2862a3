// Hashes of tokens and of runs of them, mixed with a key that differs between processes: nobody can write a prompt whose tokens all
// collide.
#pragma once
#include <cstdint>
#include <random>

#include "texts.h"

namespace penstock {

inline const std::uint64_t HASH_KEY = [] {
  std::random_device random;
  return static_cast<std::uint64_t>(random()) << 32 | random();
}();
constexpr std::uint64_t HASH_FACTOR = 0x9E3779B97F4A7C15u;  // 2^64 over the golden ratio

// Begins at HASH_KEY; its low bits are the best.
inline std::uint64_t mixed(std::uint64_t hash, Token token) {
  hash = (hash ^ token) * HASH_FACTOR;
  return hash ^ hash >> 32;
}

// One of 2^bits places for a token, bits > 0.
inline std::uint32_t place_of(Token token, std::uint32_t bits) {
  return static_cast<std::uint32_t>(mixed(HASH_KEY, token) * HASH_FACTOR >> (64 - bits));
}

}  // namespace penstock
