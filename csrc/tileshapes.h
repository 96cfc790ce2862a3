// The shapes of AMX's eight tiles, and the instruction that loads them.
#pragma once
#include <cstdint>

struct alignas(64) TileShapes {
  std::uint8_t palette = 1, start = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t rows[16] = {};
};

// Not by `_tile_loadconfig`: that of GCC before 13.3 says that eight of the 64 bytes are read, and what sets the others is left out.
inline void load_tile_shapes(const TileShapes& shapes) { __asm__ volatile("ldtilecfg %0" : : "m"(shapes)); }
