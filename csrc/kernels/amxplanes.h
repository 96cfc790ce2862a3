// Integer rows in planes times codes that are B tiles, of one panel and a run of k-blocks. A row of int8 is one plane; a row of 16-bit
// fixed point is two, x = 256 * high byte + low byte, since the matrix unit multiplies bytes or bf16:
//
//   row r:   high bytes, k = 0 .. | low bytes, k = 0 ..      both planes of a row lie side by side: `plane_stride` bytes apart
//
// Loop order: blocks of 16 rows, blocks of columns, k-blocks, tiles of 32 or 64 bytes along k. Software pipeline over the k-blocks of one
// block of rows and columns, as tiles multiply while vectors scale:
//
//   tiles    multiply 0 | multiply 1          | multiply 2          |
//   vectors             |    scale 0, store 1 |    scale 1, store 2 | scale 2         store: accumulator tiles -> AccTiles
//
// Batch invariance: sums of a k-block are integers and exact, in int32 tiles, or in bf16 tiles whose float sums stay below 2^24. They are
// scaled and added to `out` in the order of k-blocks, as in scaled.h, so few rows may take those kernels and get the same bits.
#pragma once
#include "amxdense.h"

namespace PENSTOCK_ISA {

// PLANES: per row. BYTES: tiles of bytes, TDPBSUD for a signed plane and TDPBUUD for low bytes; else of bf16. APART: each plane has
// accumulators of its own, so that the high one is scaled by 256 afterwards (bytes), or stays exact (bf16).
template <int PLANES_, bool BYTES_, bool APART_> struct PlanesOf {
  static constexpr int PLANES = PLANES_, ELEM_BYTES = BYTES_ ? 1 : 2;
  static constexpr bool BYTES = BYTES_, APART = APART_;
  static constexpr int MAX_VECTORS = APART ? 2 : 4;  // column vectors at a time: there are four accumulator tiles
  static int tile_bytes(int k) { return k * ELEM_BYTES % 64 ? 32 : 64; }  // of k per tile, in a k-block of k
};
using BytePlane = PlanesOf<1, true, false>;
using BytePlanes = PlanesOf<2, true, true>;
using Bf16Plane = PlanesOf<1, false, false>;
using Bf16Planes = PlanesOf<2, false, false>;  // the high plane holds 256 * high byte
using Bf16PlanesApart = PlanesOf<2, false, true>;

// Accumulators stored from tiles. APART: [plane, 2] tiles of 16 columns, else [4].
struct alignas(64) AccTiles { std::uint8_t tiles[4][TILE_ROWS][64]; };

// One k-block: codes, and the planes of a block of rows.
struct TileOperands {
  Bytes w, x;
  std::size_t stride, plane_stride;  // bytes between rows, between planes
  int w_step, bytes, tile_bytes;     // bytes: of k per plane
};

// Multiplies one k-block with V x 16 columns.
template <class Planes, int V> PENSTOCK_INLINE void accumulate_tiles(const TileOperands& of) {
  constexpr bool STREAM = false, INT8 = Planes::BYTES, LOW_PLANE = false;
  const int w_row = of.w_step;
  zero_acc<Planes::APART ? 4 : V>();
  Bytes w = of.w;
  for (int k = 0; k < of.bytes; k += of.tile_bytes, w += std::size_t(of.tile_bytes / 4) * of.w_step) {
    if constexpr (INT8) TILE_STREAM(4, of.x + k, of.stride);
    else TILE_LOAD(4, of.x + k, of.stride);
    if constexpr (Planes::PLANES == 2 && INT8) TILE_STREAM(5, of.x + of.plane_stride + k, of.stride);
    else if constexpr (Planes::PLANES == 2) TILE_LOAD(5, of.x + of.plane_stride + k, of.stride);
    if constexpr (Planes::APART) {
      TILE_COLUMN(0, 6, w);
      TILE_LOW_PLANE(2, 6);
      if constexpr (V > 1) {
        TILE_COLUMN(1, 7, w + 64);
        TILE_LOW_PLANE(3, 7);
      }
    } else {  // weights are loaded twice, so that consecutive products have different accumulators
      accumulate_columns<false, INT8, V>([&](int v) PENSTOCK_INLINED { return w + 64 * v; }, of.w_step);
      if constexpr (Planes::PLANES == 2)
        accumulate_columns<false, INT8, V, true>([&](int v) PENSTOCK_INLINED { return w + 64 * v; }, of.w_step);
    }
  }
}

template <class Planes, int V> PENSTOCK_INLINE void store_acc_tiles(AccTiles& sums) {
  TILE_STORE(0, sums.tiles[0], 64);
  if constexpr (V > 1) TILE_STORE(1, sums.tiles[1], 64);
  if constexpr (V > 2 || Planes::APART) TILE_STORE(2, sums.tiles[2], 64);
  if constexpr (V > 3 || (Planes::APART && V > 1)) TILE_STORE(3, sums.tiles[3], 64);
}

// 16 columns of row r as float. Bytes: `begin` is the zero-point correction (codes are stored plus 128).
template <class Planes> PENSTOCK_INLINE F combine_planes(const AccTiles& sums, int v, int r, std::int32_t begin) {
  if constexpr (Planes::BYTES) {
    I sum = load_raw(sums.tiles[v][r]);
    if constexpr (Planes::APART) sum = add_i(shift_left_8(sum), load_raw(sums.tiles[2 + v][r]));
    return to_float(add_i(sum, set1_i(begin)));
  } else {
    const F sum = load(reinterpret_cast<const float*>(sums.tiles[v][r]));
    return Planes::APART ? sum + load(reinterpret_cast<const float*>(sums.tiles[2 + v][r])) : sum;
  }
}

struct RowBlock {  // up to 16 rows and their output
  Operand x;
  int rows;
  float* out;
};

// out (+)= scale * sums (+ min * sum of x), for V x 16 columns of the k-block of.first; `of` and `out` at these columns.
template <class Planes, int V>
PENSTOCK_INLINE void scale_acc_tiles(const KBlocks& of, const RowBlock& block, float* out, const AccTiles& sums) {
  F scale[V], min[V];
  unrolled<V>([&](auto v) PENSTOCK_INLINED { scale[v] = of.scale(v), min[v] = of.mins ? of.min(v) : zero(); });
  std::size_t at = of.first;
  for (int r = 0; r < block.rows; ++r, at += block.x.groups, out += PANEL)
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      const F previous = of.first == 0 ? zero() : load(out + LANES * v);
      F result = fma(combine_planes<Planes>(sums, v, r, Planes::BYTES ? block.x.acc_init[at] : 0), scale[v], previous);
      if (of.mins) result = fma(min[v], set1(block.x.group_sums[at]), result);
      store(out + LANES * v, result);
    });
}

// One block of rows times V x 16 columns from vector v on, over all k-blocks: the software pipeline.
template <class Planes, int V> void multiply_columns(const Task& t, const KBlocks& run, const RowBlock& block, int v) {
  AccTiles sums;
  const int bytes = run.length * Planes::ELEM_BYTES;
  TileOperands of{run.codes + 64 * v, block.x.data + std::size_t(run.begin) * Planes::ELEM_BYTES, block.x.stride,
                  std::size_t(t.matrix.k_padded) * Planes::ELEM_BYTES, run.w_step, bytes, Planes::tile_bytes(run.length)};
  const auto scale = [&](int i) PENSTOCK_INLINED {
    tile_fence();
    scale_acc_tiles<Planes, V>(run.part(i, 1).at_columns(v, 0), block, block.out + LANES * v, sums);
    tile_fence();
  };
  tile_fence();
  for (int i = 0; i < run.count; ++i, of.w += run.stride, of.x += bytes) {
    accumulate_tiles<Planes, V>(of);
    if constexpr (!Planes::BYTES)  // rows of the next k-block: there is too little work to hide their latency
      for (int r = 0; r < block.rows; ++r)
        for (int p = 0; p < Planes::PLANES; ++p) __builtin_prefetch(of.x + bytes + of.stride * r + of.plane_stride * p, 0, 3);
    if (i > 0) scale(i - 1);
    store_acc_tiles<Planes, V>(sums);
  }
  scale(run.count - 1);
}

// All blocks of rows and columns. Meanwhile prefetches `bytes` from `next` on, the packed codes that come then, spread over blocks of rows.
template <class Planes> void multiply_rows(const Task& t, const KBlocks& run, Bytes next, std::size_t bytes) {
  const int lines_per_block = (static_cast<int>(bytes / 64) + block_count(t.rows) - 1) / block_count(t.rows);
  constexpr int MAX = Planes::MAX_VECTORS;
  for (int r = 0; r < t.rows; r += TILE_ROWS, next += 64 * lines_per_block) {
    const RowBlock block{t.x.at_row(r), std::min(TILE_ROWS, t.rows - r), t.out + std::size_t(r) * PANEL};
    for (int i = 0; i < lines_per_block; ++i) __builtin_prefetch(next + 64 * i, 0, 2);
    configure_tiles(block.rows, Planes::tile_bytes(run.length));
    for (int v = 0; v < t.vectors(); v += MAX) switch (std::min(MAX, t.vectors() - v)) {
        case 1: multiply_columns<Planes, 1>(t, run, block, v); break;
        case 2: multiply_columns<Planes, 2>(t, run, block, v); break;
        case 3: multiply_columns<Planes, std::min(3, MAX)>(t, run, block, v); break;
        default: multiply_columns<Planes, MAX>(t, run, block, v);
      }
  }
}

}  // namespace PENSTOCK_ISA
