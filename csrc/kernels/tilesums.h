// Products of a few rows as tiles would make them, by vectors, bit for bit (but for what a NaN carries). A tile product takes about as long
// for one row as for sixteen, and on machines that share their tiles with others too long to keep up with memory.
//
// TDPBF16PS adds the products at the even k of a tile, in rising order from 0, likewise those at odd k, and the sum of both to C. Each
// product is added by one fused multiply-add, rounded to nearest, with denormals taken for zero (Intel's manual, volume 2).
#pragma once
#include "amxdense.h"

namespace PENSTOCK_ISA {

constexpr int MAX_TILELESS_ROWS = 4;  // up to which vectors are used: beyond, they take longer than memory; from a cache, tiles are faster

inline bool is_tileless(const Task& t) { return t.rows <= (t.from_memory ? MAX_TILELESS_ROWS : 1); }

// Column vectors beside R rows: even, odd and the weights of both stay in registers.
constexpr int tileless_vectors(int rows) { return rows <= 2 ? 4 : 2; }

// sum += x [R, 2 pairs] * one B tile of 16 V columns. line(p, v): where vector v has k = 2 p and 2 p + 1.
template <int R, int V, class Line>
PENSTOCK_INLINE void add_tile(F (&sum)[R][V], Bytes x, std::size_t stride, int pairs, const Line& line) {
  F even[R][V], odd[R][V];
  fill_block(even, [](auto, auto) PENSTOCK_INLINED { return zero(); });
  fill_block(odd, [](auto, auto) PENSTOCK_INLINED { return zero(); });
  for (int p = 0; p < pairs; ++p) {
    F w_even[V], w_odd[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      const Raw w = load_raw(line(p, v));
      w_even[v] = widen_bf16<0>(w), w_odd[v] = widen_bf16<1>(w);
    });
    unrolled<R>([&](auto r) PENSTOCK_INLINED {
      const Raw a = broadcast_u32(x + stride * r + 4 * p);
      const F a_even = widen_bf16<0>(a), a_odd = widen_bf16<1>(a);
      unrolled<V>([&](auto v) PENSTOCK_INLINED {
        even[r][v] = fma(a_even, w_even[v], even[r][v]), odd[r][v] = fma(a_odd, w_odd[v], odd[r][v]);
      });
    });
  }
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = sum[r][v] + (even[r][v] + odd[r][v]); });
  });
}

// `stride`: floats from row to row.
template <int R, int V> PENSTOCK_INLINE void store_sums(const F (&sum)[R][V], float* out, int stride) {
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    unrolled<V>([&](auto v) PENSTOCK_INLINED { store(out + stride * r + LANES * v, sum[r][v]); });
  });
}

// Calls body(V, v) for blocks of V <= MAX column vectors from vector v on.
template <int VECTORS, int MAX, class Body> PENSTOCK_INLINE void for_vectors(const Body& body) {
  constexpr int V = std::min(MAX, VECTORS), REST = VECTORS % V;
  for (int v = 0; v + V <= VECTORS; v += V) body(std::integral_constant<int, V>(), v);
  if constexpr (REST > 0) body(std::integral_constant<int, REST>(), VECTORS - REST);
}

// One tile of weights for all rows of the task, whose sums stay in L1: weights are read in order, whatever the rows.
template <int VECTORS> [[gnu::noinline]] void add_tile_rows(const Task& t, const TileKBlock& tile, Bytes x, bool resume) {
  for_row_blocks<MAX_TILELESS_ROWS>(t.rows, [&](auto rows, int r) PENSTOCK_INLINED {
    for_vectors<VECTORS, tileless_vectors(rows)>([&](auto vecs, int v) PENSTOCK_INLINED {
      constexpr int R = rows, V = vecs;
      float* out = t.out + std::size_t(r) * PANEL + LANES * v;
      F sum[R][V];
      fill_block(sum, [&](auto i, auto j) PENSTOCK_INLINED { return resume ? load(out + i * PANEL + LANES * j) : zero(); });
      add_tile<R, V>(sum, x + t.x.stride * r, t.x.stride, tile.tile_bytes / 4, [&](int p, int j) PENSTOCK_INLINED {
        const Bytes at = tile.w + std::size_t(p) * tile.w_step + 64 * (v + j);
        if (r == 0 && t.stream_prefetch.distance) fetch_lines(at + t.stream_prefetch.distance, 64, t.stream_prefetch.to_l1);
        return at;
      });
      store_sums(sum, out, PANEL);
    });
  });
}

// bf16 weights and at most MAX_TILELESS_ROWS rows.
inline void dense_tileless(const Task& t) {
  const int bytes = t.matrix.k_padded * 2, tile_bytes = bytes % 64 ? 32 : 64, w_step = t.w_step(64);
  const PackedTiles weights{std::size_t(tile_bytes / 4) * w_step, w_step, tile_bytes};
  with_vectors(t, [&](auto vecs) PENSTOCK_INLINED {
    for (int p = 0; p < t.num_panels; ++p) {
      const Task one = t.single(p);
      {
        const FlushedDenormals flushed;
        for (int k = 0; k < bytes / tile_bytes; ++k)
          add_tile_rows<vecs>(one, weights.block(one, k, 1), t.x.data + std::size_t(k) * tile_bytes, k > 0);
      }
      one.run_epilogue(0, t.rows);
    }
  });
}

}  // namespace PENSTOCK_ISA
