// Matrix products on AMX tiles: register blocks of 16 rows x 64 columns (4 accumulator tiles), or x 32 where the two planes of
// fixed-point rows have accumulators of their own.
//
//   bf16             dense_panels. Loop order: slices of k that fit L2, panels, k-blocks of L1_TILES tiles that fit L1, blocks of 16 rows
//   i4, dequantized  the same, where each k-block is first unpacked to bf16 with its scales: once for all rows, so sums are not scaled
//   i8, i4           tile_codes, for more than MAX_VECTOR_ROWS rows: k-blocks that fit L1, blocks of 16 rows, columns
//   i4 with units    tile_units, likewise: each k-block is first unpacked to bytes, code times multiple, once for all rows
//
// Batch invariance: a tile product adds its 16 pairs along k in an order of its own, so bf16 products take tiles for any number of rows,
// with tiles at fixed k. Integer products are exact in any order, so few rows may take the vector kernels (panel.h) and get the same
// bits.
#pragma once
#include "panel.h"
#include "tiles.h"

namespace PENSTOCK_ISA {

// A k-block of one panel as B tiles: rows of 64 bytes (16 columns), `w_step` bytes apart.
struct TileKBlock {
  Bytes w;
  int w_step;
  int tiles;       // along k
  int tile_bytes;  // bytes of k per tile: 64, or 32 where k is not a multiple of 64 bytes
};

constexpr int L1_TILES = 8;            // k-block in tiles: 32 KB of weights for 64 columns, kept in L1 across row blocks
constexpr int MAX_STREAMED_ROWS = 16;  // up to which weights are streamed past L1, without software prefetch

// One block of 16 rows x 16 V columns over a k-block -> sums [16, PANEL]. RESUME: continues from `sums`. STREAM: weights bypass L1.
template <bool STREAM, bool INT8, bool RESUME, int V>
inline void dense_tiles(const TileKBlock& part, Bytes x, std::size_t stride, std::uint8_t* sums, Prefetch prefetch) {
  constexpr std::size_t row = PANEL * 4;
  tile_fence();
  if constexpr (RESUME) load_acc<V>(sums, row);
  else zero_acc<V>();
  const std::size_t w_tile = std::size_t(part.tile_bytes / 4) * part.w_step;
  Bytes b = part.w;
  for (int k = 0; k < part.tiles; ++k, b += w_tile) {
    TILE_STREAM(4, x + std::size_t(k) * part.tile_bytes, stride);
    accumulate_columns<STREAM, INT8, V>([&](int v) PENSTOCK_INLINED { return b + 64 * v; }, part.w_step);
    for (int i = 0; i < prefetch.lines_per_step; ++i) __builtin_prefetch(prefetch.at + 64 * i, 0, 2);
    prefetch.at += 64 * prefetch.lines_per_step;
  }
  store_acc<V>(sums, row);
}

// All row blocks over one k-block of a panel. Meanwhile prefetches `lines` cache lines from `next` on. `last`: the panel's last k-block.
template <bool STREAM, bool INT8, bool RESUME, int V>
void dense_tile_rows(const Task& t, const TileKBlock& part, std::size_t x_offset, Bytes next, int lines, bool last) {
  const int num_tile_steps = block_count(t.rows) * part.tiles;
  Prefetch prefetch{next, STREAM ? 0 : (lines + num_tile_steps - 1) / num_tile_steps, false};
  for (int r = 0; r < t.rows; r += TILE_ROWS, prefetch.at += std::size_t(64) * prefetch.lines_per_step * part.tiles) {
    configure_tiles(std::min(TILE_ROWS, t.rows - r), part.tile_bytes);
    auto* sums = reinterpret_cast<std::uint8_t*>(t.out + std::size_t(r) * PANEL);
    dense_tiles<STREAM, INT8, RESUME, V>(part, t.x.data + t.x.stride * r + x_offset, t.x.stride, sums, prefetch);
    tile_fence();
    if (!INT8 && last) t.run_epilogue(r, std::min(TILE_ROWS, t.rows - r));
  }
}

constexpr int M_BLOCK_BYTES = 512;  // half of the other sets' value: the rows of a block stay in L2 beside their accumulators

// A slice of the operand (rows x k) that stays in L2 while several panels use it, beside the accumulators of those panels.
constexpr std::size_t L2_SLICE_BYTES = 1 << 20;
constexpr int MAX_PANELS_PER_CALL = 8;

inline int panels_per_call(const Matrix& m, int rows) {
  return (m.format == Format::bf16 || m.dequantized) && std::size_t(rows) * m.k_padded * 2 > L2_SLICE_BYTES ? MAX_PANELS_PER_CALL : 1;
}

// Where the k-blocks of a matrix come from: block() gives tiles [from, from + count) along k of a panel, packed() their place in memory.
struct PackedTiles {  // bf16 weights and plain int8 codes are stored as tiles
  std::size_t tile;  // bytes
  int w_step, tile_bytes;

  TileKBlock block(const Task& t, int from, int count) const { return {packed(t, from), w_step, count, tile_bytes}; }
  Bytes packed(const Task& t, int from) const { return t.panel + tile * from; }
  int packed_lines(int count) const { return static_cast<int>((tile * count + 63) / 64); }
};

template <bool STREAM, bool INT8, int V, class Weights> void dense_panels(const Task& t, const Weights& weights, int num_tiles) {
  const int max_tiles = t.rows <= TILE_ROWS ? num_tiles : L1_TILES;
  const int slice = t.num_panels == 1 ? num_tiles : std::max<int>(1, L2_SLICE_BYTES / (std::size_t(t.rows) * 64) / max_tiles) * max_tiles;
  for (int from = 0; from < num_tiles; from += slice)
    for (int p = 0, end = std::min(num_tiles, from + slice); p < t.num_panels; ++p) {
      const Task one = t.single(p);
      for (int k = from; k < end; k += max_tiles) {
        const TileKBlock part = weights.block(one, k, std::min(max_tiles, end - k));
        const bool last = k + max_tiles >= num_tiles;
        const Bytes next = k + max_tiles < end || p + 1 == t.num_panels ? weights.packed(one, k + max_tiles) : weights.packed(t.single(p + 1), from);
        const int lines = weights.packed_lines(part.tiles);
        const std::size_t x_offset = std::size_t(k) * part.tile_bytes;
        k == 0 ? dense_tile_rows<STREAM, INT8, false, V>(one, part, x_offset, next, lines, last)
               : dense_tile_rows<STREAM, INT8, true, V>(one, part, x_offset, next, lines, last);
      }
    }
}

// Calls body(V) with the column vectors of the task's panels, 1 to 4.
template <class Body> void with_vectors(const Task& t, const Body& body) {
  switch (t.vectors()) {
    case 1: return body(std::integral_constant<int, 1>());
    case 2: return body(std::integral_constant<int, 2>());
    case 3: return body(std::integral_constant<int, 3>());
    default: return body(std::integral_constant<int, 4>());
  }
}

template <bool STREAM, bool INT8> void tile_dense(const Task& t) {
  const int bytes = t.matrix.k_padded * (INT8 ? 1 : 2), tile_bytes = bytes % 64 ? 32 : 64, w_step = t.w_step(64);
  const PackedTiles weights{std::size_t(tile_bytes / 4) * w_step, w_step, tile_bytes};
  with_vectors(t, [&](auto vecs) PENSTOCK_INLINED { dense_panels<STREAM, INT8, vecs>(t, weights, bytes / tile_bytes); });
}

// Matrix::dequantized. Codes become bf16 B tiles in t.unpacked: scale * value (+ min), rounded. That takes as long as the products of four
// to six blocks of rows with them. Fixed-point rows pay for their two planes and for scaling sums in every block, but few of them need
// neither tiles nor unpacked codes. Weights of one matrix are multiplied in one way for any number of rows, which a step's bits depend on.
constexpr int TILE_K = 32;  // of a bf16 tile

template <bool MINS> struct ScaledCodes {
  F table;  // value of each code

  // `count` tiles along k from tile `from` on, which lie in one group, as rows of 16 columns x 2 k.
  void dequantize(const Task& t, int from, int count, std::uint8_t* to) const {
    const int vectors = t.vectors(), group = from * TILE_K / t.matrix.group, steps = count * TILE_K / 8;
    const Bytes codes = t.panel + t.matrix.record_bytes(t.width) * group + std::size_t(from * TILE_K % t.matrix.group) / 8 * t.w_step(64);
    const ScaledKBlocks scales = all_groups(t).part(group, 1).groups(t, nullptr, 0, 0, 0);
    for (int v = 0; v < vectors; ++v) {
      const F scale = scales.load_scale(scales.scales, v), min = MINS ? scales.load_scale(scales.mins, v) : zero();
      std::uint8_t* out = to + 64 * v;
      for (int s = 0; s < steps; ++s) {
        const Raw raw = load_raw(codes + std::size_t(s * vectors + v) * 64);
        unrolled<4>([&](auto j) PENSTOCK_INLINED {
          const F even = i4_value<4 * j>(raw, table), odd = i4_value<16 + 4 * j>(raw, table);
          store_raw(out, MINS ? bf16_pairs(fma(even, scale, min), fma(odd, scale, min)) : bf16_pairs(even * scale, odd * scale));
          out += 64 * vectors;
        });
      }
    }
  }

  TileKBlock block(const Task& t, int from, int count) const {
    const std::size_t tile = std::size_t(TILE_K / 2) * t.w_step(64);
    const int tiles_per_group = t.matrix.group / TILE_K;
    for (int k = from, n; k < from + count; k += n) {
      n = std::min(from + count - k, tiles_per_group - k % tiles_per_group);
      dequantize(t, k, n, t.unpacked + tile * (k - from));
    }
    return {t.unpacked, t.w_step(64), count, 2 * TILE_K};
  }
  Bytes packed(const Task& t, int from) const { return t.panel + t.matrix.panel_bytes(t.width) * from / (t.matrix.k_padded / TILE_K); }
  int packed_lines(int count) const { return count * TILE_K * PANEL / 2 / 64 + count; }
};

// Up to 16 rows: accumulators stay in tiles along k, and each tile of weights is dequantized while the one before it is multiplied.
template <int V, class Weights> void dequantized_rows(const Task& t, const Weights& weights) {
  constexpr bool STREAM = false, INT8 = false;
  const int num_tiles = t.matrix.k_padded / TILE_K;
  const std::size_t tile = std::size_t(TILE_K / 2) * t.w_step(64);
  configure_tiles(t.rows, 2 * TILE_K);
  zero_acc<V>();
  weights.dequantize(t, 0, 1, t.unpacked);
  for (int k = 0; k < num_tiles; ++k) {
    tile_fence();
    const Bytes w = t.unpacked + tile * (k % 2);
    TILE_LOAD(4, t.x.data + std::size_t(k) * 2 * TILE_K, t.x.stride);
    accumulate_columns<STREAM, INT8, V>([&](int v) PENSTOCK_INLINED { return w + 64 * v; }, t.w_step(64));
    tile_fence();
    if (k + 1 < num_tiles) weights.dequantize(t, k + 1, 1, t.unpacked + tile * ((k + 1) % 2));
  }
  store_acc<V>(reinterpret_cast<std::uint8_t*>(t.out), PANEL * 4);
  tile_fence();
  t.run_epilogue(0, t.rows);
}

template <bool MINS> void tile_dequantized(const Task& t) {
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = t.matrix.codebook[i];
  const ScaledCodes<MINS> weights{load(values)};
  with_vectors(t, [&](auto vecs) PENSTOCK_INLINED {
    if (t.rows > TILE_ROWS) return dense_panels<false, false, vecs>(t, weights, t.matrix.k_padded / TILE_K);
    for (int p = 0; p < t.num_panels; ++p) dequantized_rows<vecs>(t.single(p), weights);
  });
}

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

// Whether a bf16 matrix divides into tiles; others always take the vector kernels.
inline bool fits_tiles(const Matrix& m) { return m.format == Format::bf16 && (m.k_padded % 32 == 0 || m.k_padded == 16); }

inline void linear_panels(const Task& t) {
  if (fits_tiles(t.matrix)) return t.rows <= MAX_STREAMED_ROWS ? tile_dense<true, false>(t) : tile_dense<false, false>(t);
  if (t.matrix.dequantized && !t.x.int8) return t.matrix.has_mins ? tile_dequantized<true>(t) : tile_dequantized<false>(t);
  const bool codes = t.matrix.format == Format::i8 || t.matrix.format == Format::i4;
  for (int i = 0; i < t.num_panels; ++i) {
    const Task one = t.single(i);
    codes ? tile_codes(one) : linear_panel(one);
    one.run_epilogue(0, one.rows);
  }
}

}  // namespace PENSTOCK_ISA
