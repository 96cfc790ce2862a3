// Matrix products on AMX tiles: register blocks of 16 rows x 64 columns (4 accumulator tiles), or x 32 where the two planes of
// fixed-point rows have accumulators of their own.
//
//   bf16             dense_panels. Loop order: slices of k that fit L2, panels, k-blocks of L1_TILES tiles that fit L1, blocks of 16 rows.
//                    dense_tileless, for a few rows: the same sums by vectors (tilesums.h)
//   i4, dequantized  the same, where each k-block is first unpacked to bf16 with its scales: once for all rows, so sums are not scaled
//   i8, i6, i4       tile_codes, for more than MAX_VECTOR_ROWS rows: k-blocks that fit L1, blocks of 16 rows, columns
//   i4 with units    tile_units, for more than MAX_VECTOR_UNIT_ROWS: each k-block is first unpacked to bytes, code times multiple
//
// Batch invariance: a tile product adds its 16 pairs along k in an order of its own, so bf16 products take tiles at fixed k, or vectors
// that add as tiles do. Integer products are exact in any order, so few rows may take the vector kernels (panel.h) and get the same bits.
#pragma once
#include "amxcodes.h"
#include "tilesums.h"

namespace PENSTOCK_ISA {

// Whether a bf16 matrix divides into tiles; others always take the vector kernels.
inline bool fits_tiles(const Matrix& m) { return m.format == Format::bf16 && (m.k_padded % 32 == 0 || m.k_padded == 16); }

inline void multiply_panels(const Task& t) {
  if (fits_tiles(t.matrix) && is_tileless(t)) return dense_tileless(t);
  if (fits_tiles(t.matrix)) return t.rows <= MAX_STREAMED_ROWS ? tile_dense<true, false>(t) : tile_dense<false, false>(t);
  if (t.matrix.dequantized && !t.x.int8) return t.matrix.has_mins ? tile_dequantized<true>(t) : tile_dequantized<false>(t);
  const bool codes = t.matrix.has_codes();
  for (int i = 0; i < t.num_panels; ++i) {
    const Task one = t.single(i);
    codes ? tile_codes(one) : multiply_panel(one);
  }
}

}  // namespace PENSTOCK_ISA
