// AMX tile primitives. Tiles 0-3 are accumulators (C), 4-5 activations (A), 6-7 weights (B). PENSTOCK_EMULATED_TILES implements them in
// plain C++, so that the AMX kernels can be tested on any processor.
//
// Reference: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2: TDPBF16PS, TDPBSUD, TDPBUUD.
#pragma once
#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "../tileshapes.h"
#include "../vec/inline.h"

namespace PENSTOCK_ISA {

// While one lives, vector instructions do as tile products always do: denormals are taken for zero and none are made, rounding is to
// nearest, nothing traps. What is to be computed so belongs into a function that is not inlined, which compilers do not move out of its
// life.
class FlushedDenormals {
 public:
  FlushedDenormals() { _mm_setcsr(NO_EXCEPTIONS | FLUSH_TO_ZERO | DENORMALS_ARE_ZERO); }
  ~FlushedDenormals() { _mm_setcsr(before_); }
  FlushedDenormals(const FlushedDenormals&) = delete;

 private:
  static constexpr unsigned NO_EXCEPTIONS = 0x1f80, FLUSH_TO_ZERO = 0x8000, DENORMALS_ARE_ZERO = 0x40;  // rounding to nearest is 0
  const unsigned before_ = _mm_getcsr();
};

#if defined(PENSTOCK_EMULATED_TILES)

struct Tiles {
  TileShapes shapes;
  std::uint8_t data[8][16][64];
};
inline thread_local Tiles emulated_tiles;

inline void tile_configure(const TileShapes& shapes) {
  emulated_tiles.shapes = shapes;
  std::memset(emulated_tiles.data, 0, sizeof emulated_tiles.data);
}
inline void tile_zero(int t) { std::memset(emulated_tiles.data[t], 0, sizeof emulated_tiles.data[t]); }
inline void tile_load(int t, const void* from, std::size_t stride) {
  tile_zero(t);
  for (int r = 0; r < emulated_tiles.shapes.rows[t]; ++r)
    std::memcpy(emulated_tiles.data[t][r], static_cast<const std::uint8_t*>(from) + stride * r, emulated_tiles.shapes.row_bytes[t]);
}
inline void tile_store(int t, void* to, std::size_t stride) {
  for (int r = 0; r < emulated_tiles.shapes.rows[t]; ++r)
    std::memcpy(static_cast<std::uint8_t*>(to) + stride * r, emulated_tiles.data[t][r], emulated_tiles.shapes.row_bytes[t]);
}
inline float wide_bf16(const std::uint8_t* p) {
  std::uint16_t half;
  std::memcpy(&half, p, 2);
  const std::uint32_t bits = std::uint32_t{half} << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}
// As TDPBF16PS: the products at even and at odd k are accumulated separately over the tile, then both sums are added to C.
[[gnu::noinline]] inline void add_bf16_products(int c, int a, int b) {
  for (int m = 0; m < emulated_tiles.shapes.rows[c]; ++m)
    for (int n = 0; n < 16; ++n) {
      float even = 0, odd = 0, sum;
      for (int k = 0; k < emulated_tiles.shapes.row_bytes[a] / 4; ++k) {
        const std::uint8_t *x = &emulated_tiles.data[a][m][4 * k], *w = &emulated_tiles.data[b][k][4 * n];
        even = std::fma(wide_bf16(x), wide_bf16(w), even);
        odd = std::fma(wide_bf16(x + 2), wide_bf16(w + 2), odd);
      }
      std::memcpy(&sum, &emulated_tiles.data[c][m][4 * n], 4);
      sum += even + odd;
      std::memcpy(&emulated_tiles.data[c][m][4 * n], &sum, 4);
    }
}
inline void tile_dot_bf16(int c, int a, int b) {
  const FlushedDenormals flushed;
  add_bf16_products(c, a, b);
}
template <class Number> void tile_dot_bytes(int c, int a, int b) {  // A signed or unsigned, B unsigned
  for (int m = 0; m < emulated_tiles.shapes.rows[c]; ++m)
    for (int n = 0; n < 16; ++n) {
      std::uint32_t sum;  // modulo 2^32
      std::memcpy(&sum, &emulated_tiles.data[c][m][4 * n], 4);
      for (int k = 0; k < emulated_tiles.shapes.row_bytes[a]; ++k)
        sum += static_cast<std::uint32_t>(static_cast<Number>(emulated_tiles.data[a][m][k]) * emulated_tiles.data[b][k / 4][4 * n + k % 4]);
      std::memcpy(&emulated_tiles.data[c][m][4 * n], &sum, 4);
    }
}
inline void tile_fence() {}
inline void tile_release() {}
#define TILE_LOAD(t, from, stride) tile_load(t, from, stride)
#define TILE_STREAM(t, from, stride) tile_load(t, from, stride)
#define TILE_STORE(t, to, stride) tile_store(t, to, stride)
#define TILE_ZERO(t) tile_zero(t)
#define TILE_DOT(c, a, b) tile_dot_bf16(c, a, b)
#define TILE_DOT_SIGNED(c, a, b) tile_dot_bytes<std::int8_t>(c, a, b)
#define TILE_DOT_UNSIGNED(c, a, b) tile_dot_bytes<std::uint8_t>(c, a, b)

#else

inline void tile_configure(const TileShapes& shapes) { load_tile_shapes(shapes); }
// Compiler barrier: the tile intrinsics do not declare the memory that they read and write.
inline void tile_fence() { __asm__ volatile("" : : : "memory"); }
inline void tile_release() { _tile_release(); }
#define TILE_LOAD(t, from, stride) _tile_loadd(t, from, stride)
#define TILE_STREAM(t, from, stride) _tile_stream_loadd(t, from, stride)  // non-temporal hint: does not displace other lines of L1
#define TILE_STORE(t, to, stride) _tile_stored(t, to, stride)
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_DOT(c, a, b) _tile_dpbf16ps(c, a, b)
#define TILE_DOT_SIGNED(c, a, b) _tile_dpbsud(c, a, b)    // A signed, B unsigned
#define TILE_DOT_UNSIGNED(c, a, b) _tile_dpbuud(c, a, b)

#endif

constexpr int TILE_ROWS = 16;
inline int block_count(int rows) { return (rows + TILE_ROWS - 1) / TILE_ROWS; }

inline thread_local int configured_rows, configured_tile_bytes;  // current tile configuration of this thread; 0: unknown

// Configures the tiles for `rows` <= 16 rows and `tile_bytes` of k per tile. LDTILECFG takes as long as about ten tile products.
inline void configure_tiles(int rows, int tile_bytes) {
  if (configured_rows == rows && configured_tile_bytes == tile_bytes) return;
  configured_rows = rows, configured_tile_bytes = tile_bytes;
  TileShapes s;
  for (int t = 0; t < 8; ++t) {
    s.rows[t] = static_cast<std::uint8_t>(t < 6 ? rows : tile_bytes / 4);
    s.row_bytes[t] = static_cast<std::uint16_t>(t == 4 || t == 5 ? tile_bytes : 64);
  }
  tile_configure(s);
}

// Called at the end of a thread's part of a step: live tiles make context switches slower, and other code may reconfigure them.
inline void release_tiles() {
  if (configured_rows == 0) return;
  tile_release();
  configured_rows = 0;
}

// Accumulators of up to 16 rows and V x 16 columns, in tiles 0 .. V - 1; `stride` is the bytes of a row in memory.
template <int V> PENSTOCK_INLINE void zero_acc() {
  TILE_ZERO(0);
  if constexpr (V > 1) TILE_ZERO(1);
  if constexpr (V > 2) TILE_ZERO(2);
  if constexpr (V > 3) TILE_ZERO(3);
}
template <int V> PENSTOCK_INLINE void load_acc(const std::uint8_t* from, std::size_t stride) {
  TILE_LOAD(0, from, stride);
  if constexpr (V > 1) TILE_LOAD(1, from + 64, stride);
  if constexpr (V > 2) TILE_LOAD(2, from + 128, stride);
  if constexpr (V > 3) TILE_LOAD(3, from + 192, stride);
}
template <int V> PENSTOCK_INLINE void store_acc(std::uint8_t* to, std::size_t stride) {
  TILE_STORE(0, to, stride);
  if constexpr (V > 1) TILE_STORE(1, to + 64, stride);
  if constexpr (V > 2) TILE_STORE(2, to + 128, stride);
  if constexpr (V > 3) TILE_STORE(3, to + 192, stride);
}

// C tile c += A tile 4 (or 5 if LOW_PLANE) * B tile b, loaded from `from`. INT8: signed bytes times unsigned bytes, else bf16. The macros
// read STREAM, INT8, LOW_PLANE and w_row of the enclosing function, since tile numbers must be literals.
#define TILE_COLUMN(c, b, from)                        \
  do {                                                 \
    if constexpr (STREAM) TILE_STREAM(b, from, w_row); \
    else TILE_LOAD(b, from, w_row);                    \
    if constexpr (INT8) TILE_DOT_SIGNED(c, 4, b);      \
    else if constexpr (LOW_PLANE) TILE_DOT(c, 5, b);   \
    else TILE_DOT(c, 4, b);                            \
  } while (0)

// C tile c += A tile 5, the low plane, * the B tile that is already loaded.
#define TILE_LOW_PLANE(c, b)                        \
  do {                                              \
    if constexpr (INT8) TILE_DOT_UNSIGNED(c, 5, b); \
    else TILE_DOT(c, 5, b);                         \
  } while (0)

// Accumulators += A tile 4 (or 5) * the B tiles at w(0) .. w(V - 1), `w_row` bytes per row.
template <bool STREAM, bool INT8, int V, bool LOW_PLANE = false, class Where>
PENSTOCK_INLINE void accumulate_columns(const Where& w, std::size_t w_row) {
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
