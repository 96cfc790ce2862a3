// Products with panels by AMX tiles: 16 rows by 64 columns at a time, or by 32 where both parts of a row have sums of their own.
//
// A tile adds up its 16 pairs of bf16 numbers in an order of its own, so all products of such a matrix go through tiles, whatever the number
// of rows. Sums of integers are exact: few rows leave them to the vector kernels.
#pragma once
#include "panel.h"
#include "tiles.h"

namespace PENSTOCK_ISA {

// A stretch of one panel in the form that B tiles take: rows of 64 bytes for each 16 columns, `w_step` bytes apart.
struct TileStretch {
  Bytes w;
  int w_step;
  int tiles;       // along k
  int tile_bytes;  // of a row of A that a tile takes: 64, or 32 where groups are shorter
};

constexpr int DENSE_TILES = 8;     // along k, of 64 columns: 32 KB, which the first cache keeps while rows pass by
constexpr int FEW_TILE_ROWS = 16;  // that weights stream past, with nothing fetched ahead: the processor follows such loads by itself

// C of up to 16 rows and 16 V columns -> sums [16][PANEL], of bf16 numbers, or of bytes (WHOLE). STREAM: the weights leave the first cache to
// others, as rows always do.
template <bool STREAM, bool WHOLE, bool RESUME, int V>
inline void dense_tiles(const TileStretch& part, Bytes x, std::size_t stride, std::uint8_t* sums, Ahead ahead) {
  constexpr std::size_t row = PANEL * 4;
  tile_fence();
  if constexpr (RESUME) load_sums<V>(sums, row);
  else zero_sums<V>();
  const std::size_t w_tile = std::size_t(part.tile_bytes / 4) * part.w_step;
  Bytes b = part.w;
  for (int k = 0; k < part.tiles; ++k, b += w_tile) {
    TILE_STREAM(4, x + std::size_t(k) * part.tile_bytes, stride);
    dot_columns<STREAM, WHOLE, V>([&](int v) PENSTOCK_INLINED { return b + 64 * v; }, part.w_step);
    for (int i = 0; i < ahead.lines; ++i) __builtin_prefetch(ahead.at + 64 * i, 0, 2);
    ahead.at += 64 * ahead.lines;
  }
  store_sums<V>(sums, row);
}

// All rows over one stretch of one panel; `next`: where the weights stand that come after it. `last`: of the panel.
template <bool STREAM, bool WHOLE, bool RESUME, int V>
void dense_tile_rows(const Task& t, const TileStretch& part, std::size_t x_offset, Bytes next, bool last) {
  const std::size_t bytes = std::size_t(part.tiles) * part.tile_bytes / 4 * part.w_step;
  const int lines = static_cast<int>((bytes + 63) / 64), each = block_count(t.rows) * part.tiles;
  Ahead ahead{next, STREAM ? 0 : (lines + each - 1) / each, false};
  for (int r = 0; r < t.rows; r += TILE_ROWS, ahead.at += std::size_t(64) * ahead.lines * part.tiles) {
    shape_tiles(std::min(TILE_ROWS, t.rows - r), part.tile_bytes);
    auto* sums = reinterpret_cast<std::uint8_t*>(t.out + std::size_t(r) * PANEL);
    dense_tiles<STREAM, WHOLE, RESUME, V>(part, t.x.data + t.x.stride * r + x_offset, t.x.stride, sums, ahead);
    tile_fence();
    if (!WHOLE && last) t.done(r, std::min(TILE_ROWS, t.rows - r));
  }
}

constexpr int PIECE_BYTES = 512;  // Kernels::piece_bytes: with half as many rows as elsewhere the second cache keeps them beside their sums

// Rows by inner indices that a core's second cache keeps while panels pass by, with sums of a few panels beside them.
constexpr std::size_t SLICE_BYTES = 1 << 20;
constexpr int MOST_PANELS = 8;

inline int panels_at_once(const Matrix& m, int rows) {
  return m.format == Format::bf16 && std::size_t(rows) * m.k_padded * 2 > SLICE_BYTES ? MOST_PANELS : 1;
}

template <bool STREAM, bool WHOLE, int V> void dense_panels(const Task& t) {
  const int bytes = t.matrix.k_padded * (WHOLE ? 1 : 2), tile_bytes = bytes % 64 ? 32 : 64, all = bytes / tile_bytes, w_step = t.w_step(64);
  const int most = t.rows <= TILE_ROWS ? all : DENSE_TILES;
  const int slice = t.panels == 1 ? all : std::max<int>(1, SLICE_BYTES / (std::size_t(t.rows) * 64) / most) * most;
  const std::size_t tile = std::size_t(tile_bytes) / 4 * w_step;
  for (int from = 0; from < all; from += slice)
    for (int p = 0, end = std::min(all, from + slice); p < t.panels; ++p) {
      const Task one = t.only(p);
      for (int k = from; k < end; k += most) {
        const TileStretch part{one.panel + tile * k, w_step, std::min(most, end - k), tile_bytes};
        const Bytes next = k + most < end || p + 1 == t.panels ? part.w + tile * most : one.panel + t.far() + tile * from;
        const bool last = k + most >= all;
        k == 0 ? dense_tile_rows<STREAM, WHOLE, false, V>(one, part, 0, next, last)
               : dense_tile_rows<STREAM, WHOLE, true, V>(one, part, std::size_t(k) * tile_bytes, next, last);
      }
    }
}

template <bool STREAM, bool WHOLE> void tile_dense(const Task& t) {
  switch (t.vectors()) {
    case 1: return dense_panels<STREAM, WHOLE, 1>(t);
    case 2: return dense_panels<STREAM, WHOLE, 2>(t);
    case 3: return dense_panels<STREAM, WHOLE, 3>(t);
    default: return dense_panels<STREAM, WHOLE, 4>(t);
  }
}

// Codes with rows of integers: int8, or words, which become two parts, 256 times the upper byte and the lower one. Their sums are whole
// numbers, and exact, also in float: the vector kernels, which few rows take, give the same bits.
//   i8, long sums     words are kept as two bytes; int8 rows as they are where there is one sum, multiplied as if they were dense
//   i8, other sums    codes and parts, or int8 rows, become bf16 numbers, of which sums are floats at once
//   i4                the same

constexpr int FEW_ROWS_OF_INTEGERS = 16;  // that these kernels leave to the vector ones
constexpr std::size_t CODES_AT_ONCE = 32 << 10;  // bytes that the first cache keeps while rows pass by

inline bool whole_rows(const Matrix& m, const Operand& x, int rows) {
  return x.int8 && m.format == Format::i8 && m.num_groups() == 1 && m.k_padded % 32 == 0 && rows > FEW_ROWS_OF_INTEGERS;
}

// Kernels::split
inline int split(const Matrix& m, int rows, bool int8) {
  if (rows <= FEW_ROWS_OF_INTEGERS || m.group % 32 || (m.num_groups() > 1 && m.group > SUM_LENGTH)) return 0;
  if (!int8) return sums_of_bytes(m) ? 2 : 4;
  return m.num_groups() > 1 ? 2 : 0;
}

// Sums of a block of rows, as the tiles hold them. APART: two tiles of columns, upper parts before lower ones; else four.
struct alignas(64) TileSums { std::uint8_t tiles[4][TILE_ROWS][64]; };

// One sum: its codes, `w_step` apart, and where the parts of its rows stand.
struct TileSum {
  Bytes w, x;
  std::size_t stride, lower;   // from row to row; from upper parts to lower ones
  int w_step, bytes, tile_bytes;  // bytes: of a part
};

// Rows in `PARTS` parts times V tiles of columns. BYTES: of bytes, else of bf16 numbers. APART: each part has sums of its own.
template <int PARTS, bool BYTES, bool APART, int V> PENSTOCK_INLINE void sum_tiles(const TileSum& of) {
  constexpr bool STREAM = false, WHOLE = BYTES, LOWER = false;
  const int w_row = of.w_step;
  zero_sums<APART ? 4 : V>();
  Bytes w = of.w;
  for (int k = 0; k < of.bytes; k += of.tile_bytes, w += std::size_t(of.tile_bytes / 4) * of.w_step) {
    if constexpr (BYTES) TILE_STREAM(4, of.x + k, of.stride);
    else TILE_LOAD(4, of.x + k, of.stride);
    if constexpr (PARTS == 2 && BYTES) TILE_STREAM(5, of.x + of.lower + k, of.stride);
    else if constexpr (PARTS == 2) TILE_LOAD(5, of.x + of.lower + k, of.stride);
    if constexpr (APART) {
      TILE_COLUMN(0, 6, w);
      TILE_LOWER(2, 6);
      if constexpr (V > 1) {
        TILE_COLUMN(1, 7, w + 64);
        TILE_LOWER(3, 7);
      }
    } else {  // weights are loaded again for lower parts, so that no sum waits for its upper one
      dot_columns<false, BYTES, V>([&](int v) PENSTOCK_INLINED { return w + 64 * v; }, of.w_step);
      if constexpr (PARTS == 2) dot_columns<false, BYTES, V, true>([&](int v) PENSTOCK_INLINED { return w + 64 * v; }, of.w_step);
    }
  }
}

template <bool APART, int V> PENSTOCK_INLINE void store_sum_tiles(TileSums& sums) {
  TILE_STORE(0, sums.tiles[0], 64);
  if constexpr (V > 1) TILE_STORE(1, sums.tiles[1], 64);
  if constexpr (V > 2 || APART) TILE_STORE(2, sums.tiles[2], 64);
  if constexpr (V > 3 || (APART && V > 1)) TILE_STORE(3, sums.tiles[3], 64);
}

struct SumRows {  // a block of rows, and what is made of it
  Operand x;
  int rows;
  float* out;
};

// What the tiles say of 16 sums: codes as bytes are too large, by which is told where sums begin.
template <bool BYTES, bool APART> PENSTOCK_INLINE F sum_of(const TileSums& sums, int v, int r, std::int32_t begin) {
  if constexpr (BYTES) {
    return to_float(add_i(add_i(times_256(load_raw(sums.tiles[v][r])), load_raw(sums.tiles[2 + v][r])), set1_i(begin)));
  } else {
    const F sum = load(reinterpret_cast<const float*>(sums.tiles[v][r]));
    return APART ? sum + load(reinterpret_cast<const float*>(sums.tiles[2 + v][r])) : sum;
  }
}

// out (+)= sums * scale (+ total * min), of V tiles of columns.
template <bool BYTES, bool APART, int V> PENSTOCK_INLINE void scale_tiles(const Groups& of, const SumRows& block, const TileSums& sums) {
  F scale[V], min[V];
  unrolled<V>([&](auto v) PENSTOCK_INLINED { scale[v] = of.read(of.scales, v), min[v] = of.mins ? of.read(of.mins, v) : zero(); });
  float* out = of.out;
  std::size_t at = of.first;
  for (int r = 0; r < block.rows; ++r, at += block.x.groups, out += PANEL)
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      const F before = of.first == 0 ? zero() : load(out + LANES * v);
      F result = fma(sum_of<BYTES, APART>(sums, v, r, BYTES ? block.x.begins[at] : 0), scale[v], before);
      if (of.mins) result = fma(min[v], set1(block.x.totals[at]), result);
      store(out + LANES * v, result);
    });
}

// The sums of `run`, whose codes stand at run.w as tiles take them, of one block of rows. While tiles make one, the one before is scaled.
template <int PARTS, bool BYTES, bool APART, int V> void sum_columns(const Task& t, const Run& run, const SumRows& block, int v) {
  constexpr int number = BYTES ? 1 : 2;
  TileSums sums;
  const int bytes = run.length * number;
  TileSum of{run.w + 64 * v, block.x.data + std::size_t(run.begin) * number, block.x.stride, std::size_t(t.matrix.k_padded) * number,
             t.w_step(64), bytes, bytes % 64 ? 32 : 64};
  const auto scale = [&](int i) PENSTOCK_INLINED {
    Groups groups = run.part(i, 1).groups(t, nullptr, 0, 0, 0);
    groups.out = block.out;
    tile_fence();
    scale_tiles<BYTES, APART, V>(moved(groups, v, 0), block, sums);
    tile_fence();
  };
  tile_fence();
  for (int i = 0; i < run.count; ++i, of.w += run.next, of.x += bytes) {
    sum_tiles<PARTS, BYTES, APART, V>(of);
    if constexpr (!BYTES)  // the next sum's rows, which the short work on this one would wait for
      for (int r = 0; r < block.rows; ++r)
        for (int part = 0; part < PARTS; ++part) __builtin_prefetch(of.x + bytes + of.stride * r + of.lower * part, 0, 3);
    if (i > 0) scale(i - 1);
    store_sum_tiles<APART, V>(sums);
  }
  scale(run.count - 1);
}

// All rows; `next` and `lines`: what comes after these codes, fetched meanwhile.
template <int PARTS, bool BYTES, bool APART> void sum_rows(const Task& t, const Run& run, Bytes next, int lines) {
  constexpr int MOST = APART ? 2 : 4;
  const int each = (lines + block_count(t.rows) - 1) / block_count(t.rows), tile_bytes = run.length * (BYTES ? 1 : 2) % 64 ? 32 : 64;
  for (int r = 0; r < t.rows; r += TILE_ROWS, next += 64 * each) {
    const SumRows block{t.x.from(r), std::min(TILE_ROWS, t.rows - r), t.out + std::size_t(r) * PANEL};
    for (int i = 0; i < each; ++i) __builtin_prefetch(next + 64 * i, 0, 2);
    shape_tiles(block.rows, tile_bytes);
    for (int v = 0; v < t.vectors(); v += MOST) switch (std::min(MOST, t.vectors() - v)) {
        case 1: sum_columns<PARTS, BYTES, APART, 1>(t, run, block, v); break;
        case 2: sum_columns<PARTS, BYTES, APART, 2>(t, run, block, v); break;
        case 3: sum_columns<PARTS, BYTES, APART, std::min(3, MOST)>(t, run, block, v); break;
        default: sum_columns<PARTS, BYTES, APART, MOST>(t, run, block, v);
      }
  }
}

// Bytes as they are packed, a few sums at a time, as many as the first cache keeps.
inline void sum_bytes(const Task& t, const Run& run) {
  const std::size_t bytes = std::size_t(run.length) * t.width;
  const int at_once = std::max<int>(1, CODES_AT_ONCE / bytes);
  for (int from = 0; from < run.count; from += at_once) {
    const Run part = run.part(from, std::min(at_once, run.count - from));
    const std::size_t packed = run.count > 1 ? run.next * part.count : bytes;
    sum_rows<2, true, true>(t, part, part.w + packed, static_cast<int>(packed / 64));
  }
}

// Codes that become bf16 numbers first.
template <int PARTS, bool APART, class Unpack> void sum_numbers(const Task& t, const Run& run, const Unpack& unpack) {
  const std::size_t bytes = std::size_t(run.length) * t.width * 2;
  const int at_once = std::max<int>(1, CODES_AT_ONCE / bytes), packed_steps = run.length / t.matrix.per_step();
  for (int from = 0; from < run.count; from += at_once) {
    Run part = run.part(from, std::min(at_once, run.count - from));
    const std::size_t packed = run.count > 1 ? run.next * part.count : bytes / 2;
    const Bytes next = part.w + packed;
    for (int i = 0; i < part.count; ++i) unpack_steps(unpack, part.w + part.next * i, t.unpacked + bytes * i, packed_steps, t.vectors());
    part.w = t.unpacked, part.next = bytes;
    sum_rows<PARTS, false, APART>(t, part, next, static_cast<int>(packed / 64));
  }
}

// Whether a sum of both parts is below 2^24, and so exact in one float.
inline bool exact_together(const Matrix& m) {
  int most = m.format == Format::i8 ? 128 : 0;
  if (m.format == Format::i4)
    for (int i = 0; i < 16; ++i) most = std::max(most, std::abs(int{m.values[i]}));
  return std::min(m.group, SUM_LENGTH) * std::int64_t{32640} * most < 1 << 24;
}

template <class Unpack> void tile_numbers(const Task& t, const Unpack& unpack) {
  if (t.x.int8) return sum_numbers<1, false>(t, all_groups(t), unpack);
  each_run(t, [&](const Run& run) { exact_together(t.matrix) ? sum_numbers<2, false>(t, run, unpack) : sum_numbers<2, true>(t, run, unpack); });
}

// int8 rows and codes of 8 bits with one scale a column.
inline void tile_whole_rows(const Task& t) {
  tile_dense<false, true>(t);
  const Groups scales = all_groups(t).groups(t, nullptr, 0, 0, 0);
  for (int r = 0; r < t.rows; ++r)
    for (int v = 0; v < t.vectors(); ++v) {
      float* out = t.out + std::size_t(r) * PANEL + LANES * v;
      F result = fma(to_float(add_i(load_raw(out), set1_i(t.x.begins[r]))), scales.read(scales.scales, v), zero());
      if (scales.mins) result = fma(scales.read(scales.mins, v), set1(t.x.totals[r]), result);
      store(out, result);
    }
}

inline void tile_codes(const Task& t) {
  if (!t.x.split) tile_whole_rows(t);
  else if (t.matrix.format == Format::i4) tile_numbers(t, UnpackI4{step_i4(t.matrix)});
  else if (t.x.int8 || !sums_of_bytes(t.matrix)) tile_numbers(t, UnpackI8{});
  else each_run(t, [&](const Run& run) { sum_bytes(t, run); });
  scale_rows(t);
}

// Whether a matrix of bf16 numbers is whole tiles; others take the vector kernels, for any number of rows.
inline bool fits_tiles(const Matrix& m) { return m.format == Format::bf16 && (m.k_padded % 32 == 0 || m.k_padded == 16); }

inline void linear_panels(const Task& t) {
  if (fits_tiles(t.matrix)) return t.rows <= FEW_TILE_ROWS ? tile_dense<true, false>(t) : tile_dense<false, false>(t);
  const bool codes = t.matrix.format == Format::i8 || t.matrix.format == Format::i4;
  for (int i = 0; i < t.panels; ++i) {
    const Task one = t.only(i);
    codes ? tile_codes(one) : linear_panel(one);
    one.done(0, one.rows);
  }
}

}  // namespace PENSTOCK_ISA
