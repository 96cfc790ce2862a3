// AMX's eight tiles: C in 0 to 3, A in 4 and 5, B in 6 and 7. With PENSTOCK_EMULATED_TILES the same in plain C++, so that the kernels
// that use them are tested where no processor has them.
//
// Semantics: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS, TDPBSUD and TDPBUUD.
#pragma once
#include <cstdint>
#include <cstring>

#include "../tileshapes.h"
#include "../vec/inline.h"

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
template <class Number> void tile_dot_bytes(int c, int a, int b) {  // A of Number, unsigned B
  for (int m = 0; m < tiles_now.shapes.rows[c]; ++m)
    for (int n = 0; n < 16; ++n) {
      std::int32_t sum;
      std::memcpy(&sum, &tiles_now.data[c][m][4 * n], 4);
      for (int k = 0; k < tiles_now.shapes.row_bytes[a]; ++k)
        sum += static_cast<Number>(tiles_now.data[a][m][k]) * tiles_now.data[b][k / 4][4 * n + k % 4];
      std::memcpy(&tiles_now.data[c][m][4 * n], &sum, 4);
    }
}
inline void tile_fence() {}
inline void tile_done() {}
#define TILE_LOAD(t, from, stride) tile_load(t, from, stride)
#define TILE_STREAM(t, from, stride) tile_load(t, from, stride)
#define TILE_STORE(t, to, stride) tile_store(t, to, stride)
#define TILE_ZERO(t) tile_zero(t)
#define TILE_DOT(c, a, b) tile_dot_bf16(c, a, b)
#define TILE_DOT_SIGNED(c, a, b) tile_dot_bytes<std::int8_t>(c, a, b)
#define TILE_DOT_UNSIGNED(c, a, b) tile_dot_bytes<std::uint8_t>(c, a, b)

#else

inline void tile_shapes(const TileShapes& shapes) { load_tile_shapes(shapes); }
// What was written before is in memory when a tile is loaded, of which `_tile_loadd` says nothing to the compiler.
inline void tile_fence() { __asm__ volatile("" : : : "memory"); }
inline void tile_done() { _tile_release(); }
#define TILE_LOAD(t, from, stride) _tile_loadd(t, from, stride)
#define TILE_STREAM(t, from, stride) _tile_stream_loadd(t, from, stride)  // leaves the first cache to others
#define TILE_STORE(t, to, stride) _tile_stored(t, to, stride)
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#define TILE_DOT_SIGNED(c, a, b) _tile_dpbsud(c, a, b)    // rows signed, weights not
#define TILE_DOT_UNSIGNED(c, a, b) _tile_dpbuud(c, a, b)

#endif

constexpr int TILE_ROWS = 16;
inline int block_count(int rows) { return (rows + TILE_ROWS - 1) / TILE_ROWS; }

inline thread_local int rows_now, bytes_now;  // of this thread's tiles; 0: unknown

// Shapes for products of up to 16 rows, of which a tile takes `tile_bytes` each. Shaping takes as long as ten products.
inline void shape_tiles(int rows, int tile_bytes) {
  if (rows_now == rows && bytes_now == tile_bytes) return;
  rows_now = rows, bytes_now = tile_bytes;
  TileShapes s;
  for (int t = 0; t < 8; ++t) {
    s.rows[t] = static_cast<std::uint8_t>(t < 6 ? rows : tile_bytes / 4);
    s.row_bytes[t] = static_cast<std::uint16_t>(t == 4 || t == 5 ? tile_bytes : 64);
  }
  tile_shapes(s);
}

// When a thread's part of a step ends: tiles cost at every switch of threads, and others may shape them before the next step.
inline void release_tiles() {
  if (rows_now == 0) return;
  tile_done();
  rows_now = 0;
}

// Sums of one block of rows and V tiles of columns, in tiles 0 .. V - 1: a row is `stride` bytes long.
template <int V> PENSTOCK_INLINE void zero_sums() {
  TILE_ZERO(0);
  if constexpr (V > 1) TILE_ZERO(1);
  if constexpr (V > 2) TILE_ZERO(2);
  if constexpr (V > 3) TILE_ZERO(3);
}
template <int V> PENSTOCK_INLINE void load_sums(const std::uint8_t* from, std::size_t stride) {
  TILE_LOAD(0, from, stride);
  if constexpr (V > 1) TILE_LOAD(1, from + 64, stride);
  if constexpr (V > 2) TILE_LOAD(2, from + 128, stride);
  if constexpr (V > 3) TILE_LOAD(3, from + 192, stride);
}
template <int V> PENSTOCK_INLINE void store_sums(std::uint8_t* to, std::size_t stride) {
  TILE_STORE(0, to, stride);
  if constexpr (V > 1) TILE_STORE(1, to + 64, stride);
  if constexpr (V > 2) TILE_STORE(2, to + 128, stride);
  if constexpr (V > 3) TILE_STORE(3, to + 192, stride);
}
// One sum += tile 4, of rows, or 5, LOWER, times tile 6 or 7, of weights that stand at `from`: bf16 numbers or, WHOLE, bytes.
#define TILE_COLUMN(c, b, from)                        \
  do {                                                 \
    if constexpr (STREAM) TILE_STREAM(b, from, w_row); \
    else TILE_LOAD(b, from, w_row);                    \
    if constexpr (WHOLE) TILE_DOT_SIGNED(c, 4, b);     \
    else if constexpr (LOWER) TILE_DOT(c, 5, b);       \
    else TILE_DOT(c, 4, b);                            \
  } while (0)

// The same of tile 5 with the weights that are there.
#define TILE_LOWER(c, b)                            \
  do {                                              \
    if constexpr (WHOLE) TILE_DOT_UNSIGNED(c, 5, b); \
    else TILE_DOT(c, 5, b);                         \
  } while (0)

// The sums += tile 4 (or 5) times the tiles at w(0) .. w(V - 1).
template <bool STREAM, bool WHOLE, int V, bool LOWER = false, class Where> PENSTOCK_INLINE void dot_columns(const Where& w, std::size_t w_row) {
  TILE_COLUMN(0, 6, w(0));
  if constexpr (V > 1) {
    TILE_COLUMN(1, 7, w(1));
  }
  if constexpr (V > 2) {
    TILE_COLUMN(2, 6, w(2));
  }
  if constexpr (V > 3) {
    TILE_COLUMN(3, 7, w(3));
  }
}

}  // namespace PENSTOCK_ISA
