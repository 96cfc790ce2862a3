// AMX's eight tiles: C in 0 to 3, A in 4 and 5, B in 6 and 7. With PENSTOCK_EMULATED_TILES the same in plain C++, so that the kernels
// that use them are tested where no processor has them.
//
// Semantics: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS and TDPBSUD.
#pragma once
#include <cstdint>
#include <cstring>

#include "../tileshapes.h"

#if !defined(PENSTOCK_EMULATED_TILES)
#include <immintrin.h>
#endif

namespace PENSTOCK_ISA {

#if defined(PENSTOCK_EMULATED_TILES)

struct Tiles {
  TileShapes shapes;
  std::uint8_t data[8][16][64];
};
inline thread_local Tiles tiles_now;

inline void tile_shapes(const TileShapes& shapes) {
  tiles_now.shapes = shapes;
  std::memset(tiles_now.data, 0, sizeof tiles_now.data);
}
inline void tile_zero(int t) { std::memset(tiles_now.data[t], 0, sizeof tiles_now.data[t]); }
inline void tile_load(int t, const void* from, std::size_t stride) {
  tile_zero(t);
  for (int r = 0; r < tiles_now.shapes.rows[t]; ++r)
    std::memcpy(tiles_now.data[t][r], static_cast<const std::uint8_t*>(from) + stride * r, tiles_now.shapes.row_bytes[t]);
}
inline void tile_store(int t, void* to, std::size_t stride) {
  for (int r = 0; r < tiles_now.shapes.rows[t]; ++r)
    std::memcpy(static_cast<std::uint8_t*>(to) + stride * r, tiles_now.data[t][r], tiles_now.shapes.row_bytes[t]);
}
inline float wide_bf16(const std::uint8_t* p) {
  std::uint16_t half;
  std::memcpy(&half, p, 2);
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
// Even and odd products are summed apart over the tile and added to C together.
inline void tile_dot_bf16(int c, int a, int b) {
  for (int m = 0; m < tiles_now.shapes.rows[c]; ++m)
    for (int n = 0; n < 16; ++n) {
      float even = 0, odd = 0, sum;
      for (int k = 0; k < tiles_now.shapes.row_bytes[a] / 4; ++k) {
        const std::uint8_t *x = &tiles_now.data[a][m][4 * k], *w = &tiles_now.data[b][k][4 * n];
        even = std::fma(wide_bf16(x), wide_bf16(w), even);
        odd = std::fma(wide_bf16(x + 2), wide_bf16(w + 2), odd);
      }
      std::memcpy(&sum, &tiles_now.data[c][m][4 * n], 4);
      sum += even + odd;
      std::memcpy(&tiles_now.data[c][m][4 * n], &sum, 4);
    }
}
inline void tile_dot_i8(int c, int a, int b) {  // signed A, unsigned B
  for (int m = 0; m < tiles_now.shapes.rows[c]; ++m)
    for (int n = 0; n < 16; ++n) {
      std::int32_t sum;
      std::memcpy(&sum, &tiles_now.data[c][m][4 * n], 4);
      for (int k = 0; k < tiles_now.shapes.row_bytes[a]; ++k)
        sum += static_cast<std::int8_t>(tiles_now.data[a][m][k]) * tiles_now.data[b][k / 4][4 * n + k % 4];
      std::memcpy(&tiles_now.data[c][m][4 * n], &sum, 4);
    }
}
inline void tile_done() {}
inline void tile_fence() {}
#define TILE_LOAD(t, from, stride) tile_load(t, from, stride)
#define TILE_STORE(t, to, stride) tile_store(t, to, stride)
#define TILE_ZERO(t) tile_zero(t)
#define TILE_DOT(c, a, b, whole) ((whole) ? tile_dot_i8(c, a, b) : tile_dot_bf16(c, a, b))

#else

inline void tile_shapes(const TileShapes& shapes) { load_tile_shapes(shapes); }
// What was written before is in memory when a tile is loaded, of which `_tile_loadd` says nothing to the compiler.
inline void tile_fence() { __asm__ volatile("" : : : "memory"); }
inline void tile_done() { _tile_release(); }
#define TILE_LOAD(t, from, stride) _tile_loadd(t, from, stride)
#define TILE_STORE(t, to, stride) _tile_stored(t, to, stride)
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_DOT(c, a, b, whole) \
  do {                           \
    if constexpr (whole) _tile_dpbsud(c, a, b); \
    else _tile_dpbf16ps(c, a, b); \
  } while (0)

#endif

}  // namespace PENSTOCK_ISA
