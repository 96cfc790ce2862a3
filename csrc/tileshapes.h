// AMX tile configuration: rows and bytes per row of the eight tiles.
#pragma once
#include <cstdint>

struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// Not `_tile_loadconfig`: before 13.3, GCC's declares that it reads 8 of the 64 bytes, and stores to the others are eliminated.
inline void load_tile_shapes(const TileShapes& shapes) { __asm__ volatile("ldtilecfg %0" : : "m"(shapes)); }
