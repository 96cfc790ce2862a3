// Matrix products on AMX tiles of weights that are bf16, or become so: blocks of 16 rows x 64 columns, 4 accumulator tiles.
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
        const Bytes next = k + max_tiles < end || p + 1 == t.num_panels ? weights.packed(one, k + max_tiles)
                                                                       : weights.packed(t.single(p + 1), from);
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
    const KBlocks scales = all_groups(t).part(group, 1);
    for (int v = 0; v < vectors; ++v) {
      const F scale = plain_nan(scales.scale(v)), min = MINS ? plain_nan(scales.min(v)) : zero();
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

}  // namespace PENSTOCK_ISA
