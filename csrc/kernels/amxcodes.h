// Matrix products on AMX tiles of i8 and i4 weights with integer rows.
#pragma once
#include "amxdense.h"

namespace PENSTOCK_ISA {

// i8 and i4 weights with integer rows. 16-bit fixed-point rows are two planes, x = 256 * high byte + low byte. All sums are integers and
// exact, also on bf16 tiles, where float accumulators stay below 2^24 (in units of 256 for a separate high plane).
//   i8, int8 rows, one group           plain int8 rows and packed codes: TDPBSUD, as a dense product
//   i8, fixed-point, long k-blocks     byte planes and packed codes: TDPBSUD and TDPBUUD
//   i4 with units                      the same (int8 rows: one plane), codes times multiples unpacked to bytes
//   i8 otherwise, i4                   codes are unpacked to bf16; rows are bf16, or two bf16 planes

constexpr int MAX_VECTOR_ROWS = 16;              // up to which the vector kernels are used
constexpr int MAX_VECTOR_UNIT_ROWS = 9;          // the same for codes with units
constexpr std::size_t L1_CODE_BYTES = 32 << 10;  // codes processed at once, kept in L1 across row blocks

inline bool takes_plain_int8(const Matrix& m, const Operand& x, int rows) {
  return x.int8 && m.format == Format::i8 && m.num_groups() == 1 && m.k_padded % 32 == 0 && rows > MAX_VECTOR_ROWS;
}

// See Kernels::amx_row_bytes.
inline int amx_row_bytes(const Matrix& m, int rows, bool int8) {
  if (m.has_units()) return rows <= MAX_VECTOR_UNIT_ROWS || !m.divides_into_tiles() ? 0 : int8 ? 1 : 2;
  if (rows <= MAX_VECTOR_ROWS || !m.divides_into_tiles() || (m.num_groups() > 1 && m.group > FIXED_K_BLOCK)) return 0;
  if (!int8) return uses_int8_tiles(m) ? 2 : 4;
  return m.num_groups() > 1 ? 2 : 0;
}

// Accumulators stored from tiles. SEPARATE: [plane, 2] tiles of 16 columns, else [4].
struct alignas(64) AccTiles { std::uint8_t tiles[4][TILE_ROWS][64]; };

// One k-block: weights, and the planes of a block of rows.
struct TileOperands {
  Bytes w, x;
  std::size_t stride, plane_stride;  // bytes between rows, between planes
  int w_step, bytes, tile_bytes;     // bytes: of k per plane
};

// Accumulates PLANES planes of rows times V x 16 columns over a k-block. INT8_TILES: byte planes, else bf16. SEPARATE: accumulators per
// plane.
template <int PLANES, bool INT8_TILES, bool SEPARATE, int V> PENSTOCK_INLINE void accumulate_tiles(const TileOperands& of) {
  constexpr bool STREAM = false, INT8 = INT8_TILES, LOW_PLANE = false;
  const int w_row = of.w_step;
  zero_acc<SEPARATE ? 4 : V>();
  Bytes w = of.w;
  for (int k = 0; k < of.bytes; k += of.tile_bytes, w += std::size_t(of.tile_bytes / 4) * of.w_step) {
    if constexpr (INT8_TILES) TILE_STREAM(4, of.x + k, of.stride);
    else TILE_LOAD(4, of.x + k, of.stride);
    if constexpr (PLANES == 2 && INT8_TILES) TILE_STREAM(5, of.x + of.plane_stride + k, of.stride);
    else if constexpr (PLANES == 2) TILE_LOAD(5, of.x + of.plane_stride + k, of.stride);
    if constexpr (SEPARATE) {
      TILE_COLUMN(0, 6, w);
      TILE_LOW_PLANE(2, 6);
      if constexpr (V > 1) {
        TILE_COLUMN(1, 7, w + 64);
        TILE_LOW_PLANE(3, 7);
      }
    } else {  // weights are loaded twice, so that consecutive products have different accumulators
      accumulate_columns<false, INT8_TILES, V>([&](int v) PENSTOCK_INLINED { return w + 64 * v; }, of.w_step);
      if constexpr (PLANES == 2) accumulate_columns<false, INT8_TILES, V, true>([&](int v) PENSTOCK_INLINED { return w + 64 * v; }, of.w_step);
    }
  }
}

template <bool SEPARATE, int V> PENSTOCK_INLINE void store_acc_tiles(AccTiles& sums) {
  TILE_STORE(0, sums.tiles[0], 64);
  if constexpr (V > 1) TILE_STORE(1, sums.tiles[1], 64);
  if constexpr (V > 2 || SEPARATE) TILE_STORE(2, sums.tiles[2], 64);
  if constexpr (V > 3 || (SEPARATE && V > 1)) TILE_STORE(3, sums.tiles[3], 64);
}

struct RowBlock {  // up to 16 rows and their output
  Operand x;
  int rows;
  float* out;
};

// 16 columns of row r as float. With int8 tiles, `begin` is the zero-point correction (codes are stored plus 128).
template <bool INT8_TILES, bool SEPARATE> PENSTOCK_INLINE F combine_planes(const AccTiles& sums, int v, int r, std::int32_t begin) {
  if constexpr (INT8_TILES) {
    I sum = load_raw(sums.tiles[v][r]);
    if constexpr (SEPARATE) sum = add_i(shift_left_8(sum), load_raw(sums.tiles[2 + v][r]));
    return to_float(add_i(sum, set1_i(begin)));
  } else {
    const F sum = load(reinterpret_cast<const float*>(sums.tiles[v][r]));
    return SEPARATE ? sum + load(reinterpret_cast<const float*>(sums.tiles[2 + v][r])) : sum;
  }
}

// out (+)= accumulators * scale (+ group sum * min), for V x 16 columns.
template <bool INT8_TILES, bool SEPARATE, int V>
PENSTOCK_INLINE void scale_acc_tiles(const ScaledKBlocks& of, const RowBlock& block, const AccTiles& sums) {
  F scale[V], min[V];
  unrolled<V>([&](auto v) PENSTOCK_INLINED { scale[v] = of.load_scale(of.scales, v), min[v] = of.mins ? of.load_scale(of.mins, v) : zero(); });
  float* out = of.out;
  std::size_t at = of.first;
  for (int r = 0; r < block.rows; ++r, at += block.x.groups, out += PANEL)
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      const F previous = of.first == 0 ? zero() : load(out + LANES * v);
      F result = fma(combine_planes<INT8_TILES, SEPARATE>(sums, v, r, INT8_TILES ? block.x.acc_init[at] : 0), scale[v], previous);
      if (of.mins) result = fma(min[v], set1(block.x.group_sums[at]), result);
      store(out + LANES * v, result);
    });
}

// One block of rows times V x 16 columns from vector v on, over the k-blocks of `run`. Software pipeline: block i - 1 is scaled while the
// tiles compute block i.
template <int PLANES, bool INT8_TILES, bool SEPARATE, int V>
void multiply_columns(const Task& t, const PackedKBlocks& run, const RowBlock& block, int v) {
  constexpr int elem_bytes = INT8_TILES ? 1 : 2;
  AccTiles sums;
  const int bytes = run.length * elem_bytes;
  TileOperands of{run.w + 64 * v, block.x.data + std::size_t(run.begin) * elem_bytes, block.x.stride,
                  std::size_t(t.matrix.k_padded) * elem_bytes, t.w_step(64), bytes, bytes % 64 ? 32 : 64};
  const auto scale = [&](int i) PENSTOCK_INLINED {
    ScaledKBlocks groups = run.part(i, 1).groups(t, nullptr, 0, 0, 0);
    groups.out = block.out;
    tile_fence();
    scale_acc_tiles<INT8_TILES, SEPARATE, V>(at_columns(groups, v, 0), block, sums);
    tile_fence();
  };
  tile_fence();
  for (int i = 0; i < run.count; ++i, of.w += run.block_stride, of.x += bytes) {
    accumulate_tiles<PLANES, INT8_TILES, SEPARATE, V>(of);
    if constexpr (!INT8_TILES)  // rows of the next k-block: there is too little work to hide their latency
      for (int r = 0; r < block.rows; ++r)
        for (int part = 0; part < PLANES; ++part) __builtin_prefetch(of.x + bytes + of.stride * r + of.plane_stride * part, 0, 3);
    if (i > 0) scale(i - 1);
    store_acc_tiles<SEPARATE, V>(sums);
  }
  scale(run.count - 1);
}

// All row blocks. Prefetches `lines` cache lines from `next` on, spread over the blocks.
template <int PLANES, bool INT8_TILES, bool SEPARATE> void multiply_rows(const Task& t, const PackedKBlocks& run, Bytes next, int lines) {
  constexpr int MAX_COLUMNS = SEPARATE ? 2 : 4;
  const int lines_per_block = (lines + block_count(t.rows) - 1) / block_count(t.rows), tile_bytes = run.length * (INT8_TILES ? 1 : 2) % 64 ? 32 : 64;
  for (int r = 0; r < t.rows; r += TILE_ROWS, next += 64 * lines_per_block) {
    const RowBlock block{t.x.at_row(r), std::min(TILE_ROWS, t.rows - r), t.out + std::size_t(r) * PANEL};
    for (int i = 0; i < lines_per_block; ++i) __builtin_prefetch(next + 64 * i, 0, 2);
    configure_tiles(block.rows, tile_bytes);
    for (int v = 0; v < t.vectors(); v += MAX_COLUMNS) switch (std::min(MAX_COLUMNS, t.vectors() - v)) {
        case 1: multiply_columns<PLANES, INT8_TILES, SEPARATE, 1>(t, run, block, v); break;
        case 2: multiply_columns<PLANES, INT8_TILES, SEPARATE, 2>(t, run, block, v); break;
        case 3: multiply_columns<PLANES, INT8_TILES, SEPARATE, std::min(3, MAX_COLUMNS)>(t, run, block, v); break;
        default: multiply_columns<PLANES, INT8_TILES, SEPARATE, MAX_COLUMNS>(t, run, block, v);
      }
  }
}

// Packed i8 codes as B tiles, as many k-blocks at a time as fit L1.
inline void tile_codes_int8(const Task& t, const PackedKBlocks& run) {
  const std::size_t bytes = std::size_t(run.length) * t.width;
  const int blocks_at_once = std::max<int>(1, L1_CODE_BYTES / bytes);
  for (int from = 0; from < run.count; from += blocks_at_once) {
    const PackedKBlocks part = run.part(from, std::min(blocks_at_once, run.count - from));
    const std::size_t packed = run.count > 1 ? run.block_stride * part.count : bytes;
    multiply_rows<2, true, true>(t, part, part.w + packed, static_cast<int>(packed / 64));
  }
}

// Codes with units, unpacked to bytes a k-block at a time.
template <int PLANES> void tile_units(const Task& t) {
  for_unit_blocks(t, [&](const UnitBlock& block) {
    unpack_units<MultipliedBytes>(block, t.vectors(), t.unpacked);
    const int group = t.matrix.group;
    const PackedKBlocks run{block.first * group / FIXED_K_BLOCK, 1, block.first * group, block.count * group, t.unpacked,
                            reinterpret_cast<Bytes>(block.units), 0, 0, sizeof(float)};
    const std::size_t packed = block.record * block.count;
    multiply_rows<PLANES, true, PLANES == 2>(t, run, block.w + packed, static_cast<int>(packed / 64));
  });
}

// Codes unpacked to bf16 B tiles, as many k-blocks at a time as fit L1.
template <int PLANES, bool SEPARATE, class Unpack> void tile_codes_bf16(const Task& t, const PackedKBlocks& run, const Unpack& unpack) {
  const std::size_t bytes = std::size_t(run.length) * t.width * 2;
  const int blocks_at_once = std::max<int>(1, L1_CODE_BYTES / bytes), packed_steps = run.length / t.matrix.k_per_step();
  for (int from = 0; from < run.count; from += blocks_at_once) {
    PackedKBlocks part = run.part(from, std::min(blocks_at_once, run.count - from));
    const std::size_t packed = run.count > 1 ? run.block_stride * part.count : bytes / 2;
    const Bytes next = part.w + packed;
    for (int i = 0; i < part.count; ++i) unpack_steps(unpack, part.w + part.block_stride * i, t.unpacked + bytes * i, packed_steps, t.vectors());
    part.w = t.unpacked, part.block_stride = bytes;
    multiply_rows<PLANES, false, SEPARATE>(t, part, next, static_cast<int>(packed / 64));
  }
}

// Whether the sum of both planes stays below 2^24, so that one float accumulator holds it exactly.
inline bool planes_fit_float(const Matrix& m) {
  int max_value = m.format == Format::i8 ? 128 : 0;
  if (m.format == Format::i4)
    for (int i = 0; i < 16; ++i) max_value = std::max(max_value, std::abs(int{m.codebook[i]}));
  return std::min(m.group, FIXED_K_BLOCK) * std::int64_t{32640} * max_value < 1 << 24;
}

template <class Unpack> void tile_unpacked_codes(const Task& t, const Unpack& unpack) {
  if (t.x.int8) return tile_codes_bf16<1, false>(t, all_groups(t), unpack);
  for_k_block_runs(t, [&](const PackedKBlocks& run) {
    planes_fit_float(t.matrix) ? tile_codes_bf16<2, false>(t, run, unpack) : tile_codes_bf16<2, true>(t, run, unpack);
  });
}

// i8 codes with one scale per column, plain int8 rows.
inline void tile_plain_int8(const Task& t) {
  tile_dense<false, true>(t);
  const ScaledKBlocks scales = all_groups(t).groups(t, nullptr, 0, 0, 0);
  for (int r = 0; r < t.rows; ++r)
    for (int v = 0; v < t.vectors(); ++v) {
      float* out = t.out + std::size_t(r) * PANEL + LANES * v;
      F result = fma(to_float(add_i(load_raw(out), set1_i(t.x.acc_init[r]))), scales.load_scale(scales.scales, v), zero());
      if (scales.mins) result = fma(scales.load_scale(scales.mins, v), set1(t.x.group_sums[r]), result);
      store(out, result);
    }
}

inline void tile_codes(const Task& t) {
  if (t.matrix.has_units()) t.x.int8 ? tile_units<1>(t) : tile_units<2>(t);
  else if (!t.x.amx_row_bytes) tile_plain_int8(t);
  else if (t.matrix.format == Format::i4) tile_unpacked_codes(t, UnpackI4{step_i4(t.matrix)});
  else if (t.x.int8 || !uses_int8_tiles(t.matrix)) tile_unpacked_codes(t, UnpackI8{});
  else for_k_block_runs(t, [&](const PackedKBlocks& run) { tile_codes_int8(t, run); });
  apply_row_scales(t);
}

}  // namespace PENSTOCK_ISA
