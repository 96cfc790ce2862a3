// Products with a panel by AMX tiles, for bf16 and int8 rows. Blocks are 32 rows by 32 columns: two tiles of A, two of B, four of C.
//
// A tile adds up its 16 pairs in an order of its own, so all products of a matrix go through tiles, whatever the number of rows.
// Written after the manual and tested by emulation, which stands in for the instructions themselves; not yet run on a processor that has tiles.
#pragma once
#include "panel.h"
#include "tiles.h"

namespace PENSTOCK_ISA {

constexpr int TILE_ROWS = 16;

// A stretch of one panel in the form that B tiles take: rows of 64 bytes for each 16 columns, `w_step` bytes apart.
struct TileStretch {
  Bytes w;
  int w_step;
  int tiles;       // along k
  int tile_bytes;  // of a row of A that a tile takes: 64, or 32 where groups are shorter
};

// Shapes for `first` rows in the upper tiles and `second` in the lower ones.
inline void shape_tiles(int first, int second, int tile_bytes) {
  TileShapes s;
  const int rows[8] = {first, first, second, second, first, second, tile_bytes / 4, tile_bytes / 4};
  for (int t = 0; t < 8; ++t) {
    s.rows[t] = static_cast<std::uint8_t>(rows[t]);
    s.row_bytes[t] = static_cast<std::uint16_t>(rows[t] == 0 ? 0 : t == 4 || t == 5 ? tile_bytes : 64);
  }
  tile_shapes(s);
}

// C of up to 32 rows and 16 V columns -> sums [32][PANEL]. With Resume they begin with what stands there.
template <bool Whole, bool Resume, int V, bool Lower>
inline void tile_block(const TileStretch& part, Bytes x, std::size_t stride, std::uint8_t* sums) {
  constexpr std::size_t row = PANEL * 4, lower = TILE_ROWS * row;
  tile_fence();
  if constexpr (Resume) {
    TILE_LOAD(0, sums, row);
    if constexpr (V == 2) TILE_LOAD(1, sums + 64, row);
    if constexpr (Lower) TILE_LOAD(2, sums + lower, row);
    if constexpr (Lower && V == 2) TILE_LOAD(3, sums + lower + 64, row);
  } else {
    TILE_ZERO(0);
    if constexpr (V == 2) TILE_ZERO(1);
    if constexpr (Lower) TILE_ZERO(2);
    if constexpr (Lower && V == 2) TILE_ZERO(3);
  }
  const std::size_t w_tile = std::size_t(part.tile_bytes / 4) * part.w_step;
  for (int k = 0; k < part.tiles; ++k) {
    const Bytes a = x + std::size_t(k) * part.tile_bytes, b = part.w + k * w_tile;
    TILE_LOAD(6, b, part.w_step);
    TILE_LOAD(4, a, stride);
    TILE_DOT(0, 4, 6, Whole);
    if constexpr (V == 2) {
      TILE_LOAD(7, b + 64, part.w_step);
      TILE_DOT(1, 4, 7, Whole);
    }
    if constexpr (Lower) {
      TILE_LOAD(5, a + TILE_ROWS * stride, stride);
      TILE_DOT(2, 5, 6, Whole);
      if constexpr (V == 2) TILE_DOT(3, 5, 7, Whole);
    }
  }
  TILE_STORE(0, sums, row);
  if constexpr (V == 2) TILE_STORE(1, sums + 64, row);
  if constexpr (Lower) TILE_STORE(2, sums + lower, row);
  if constexpr (Lower && V == 2) TILE_STORE(3, sums + lower + 64, row);
}

// All rows and columns of a stretch: each(first row, rows, sums) is called when a block's sums [rows][PANEL] are there.
template <bool Whole, bool Resume, class Each>
void tile_rows(const Task& t, const TileStretch& part, std::size_t x_offset, std::uint8_t* sums, bool in_place, const Each& each) {
  int first_before = -1, second_before = -1;
  for (int r = 0; r < t.rows; r += 2 * TILE_ROWS) {
    const int rows = std::min(2 * TILE_ROWS, t.rows - r), first = std::min(rows, TILE_ROWS), second = rows - first;
    if (first != first_before || second != second_before) shape_tiles(first, second, part.tile_bytes);
    first_before = first, second_before = second;
    std::uint8_t* to = in_place ? sums + std::size_t(r) * PANEL * 4 : sums;
    const Bytes x = t.x.data + t.x.stride * r + x_offset;
    for (int v = 0; v < t.width / LANES; v += 2) {
      TileStretch at = part;
      at.w += 64 * v;
      const bool two = v + 1 < t.width / LANES;
      if (two && second) tile_block<Whole, Resume, 2, true>(at, x, t.x.stride, to + 64 * v);
      else if (two) tile_block<Whole, Resume, 2, false>(at, x, t.x.stride, to + 64 * v);
      else if (second) tile_block<Whole, Resume, 1, true>(at, x, t.x.stride, to + 64 * v);
      else tile_block<Whole, Resume, 1, false>(at, x, t.x.stride, to + 64 * v);
    }
    each(r, rows, to);
  }
}

// out (+)= sums * scale (+ total * min) for one group; sums of integers lack what they begin with.
template <bool Whole> void scale_sums(const Task& t, const Groups& scales, int g, int first, int rows, const std::uint8_t* sums) {
  for (int r = 0; r < rows; ++r)
    for (int v = 0; v < t.width / LANES; ++v) {
      float* out = t.out + std::size_t(first + r) * PANEL + LANES * v;
      const void* from = sums + (std::size_t(r) * PANEL + LANES * v) * 4;
      const std::size_t at = std::size_t(first + r) * t.x.groups + g;
      F value;
      if constexpr (Whole) value = to_float(add_i(load_raw(from), set1_i(t.x.begins[at])));
      else value = load(static_cast<const float*>(from));
      F result = fma(value, scales.read(scales.scales, v), g == 0 ? zero() : load(out));
      if (scales.mins) result = fma(scales.read(scales.mins, v), set1(t.x.totals[at]), result);
      store(out, result);
    }
}

inline void tile_dense(const Task& t) {
  const TileStretch part{t.panel, t.w_step(64), t.matrix.k_padded / 32, 64};
  tile_rows<false, false>(t, part, 0, reinterpret_cast<std::uint8_t*>(t.out), true, [](int, int, const std::uint8_t*) {});
}

constexpr int most_unpacked(int bytes) { return static_cast<int>(UNPACKED_BYTES / (PANEL * bytes)) / 64 * 64; }  // inner indices at once

struct alignas(64) TileSums { std::uint8_t bytes[2 * TILE_ROWS * PANEL * 4]; };

// `count` inner indices of group `g` from its `k`-th on, whose weights stand at `w`: multiplied, on top of what those before them came to,
// and scaled when they are the group's last. Meanwhile sums wait in `sums`; those of a matrix of one group in t.out.
template <bool Whole> void tile_stretch(const Task& t, int g, int k, int count, Bytes w, TileSums& sums) {
  const Matrix& m = t.matrix;
  constexpr int number = Whole ? 1 : 2;  // bytes
  const int tile_bytes = std::min(64, m.group * number);
  const TileStretch part{w, t.w_step(64), count * number / tile_bytes, tile_bytes};
  const std::size_t x_offset = (std::size_t(g) * m.group + k) * number;
  const bool in_place = m.num_groups() == 1;
  std::uint8_t* to = in_place ? reinterpret_cast<std::uint8_t*>(t.out) : sums.bytes;
  const Groups scales = all_groups(t).part(g, 1).groups(t, w, 0, 0, 0);
  const auto finish = [&](int first, int rows, const std::uint8_t* at) {
    if (k + count == m.group) scale_sums<Whole>(t, scales, g, first, rows, at);
  };
  k == 0 ? tile_rows<Whole, false>(t, part, x_offset, to, in_place, finish) : tile_rows<Whole, true>(t, part, x_offset, to, in_place, finish);
}

// int8 weights with int8 rows are read as they are packed.
inline void tile_packed(const Task& t) {
  const std::size_t record = t.matrix.record_bytes(t.width);
  TileSums sums;
  for (int g = 0; g < t.matrix.num_groups(); ++g) tile_stretch<true>(t, g, 0, t.matrix.group, t.panel + record * g, sums);
  scale_rows(t);
}

// Other codes are unpacked, as many at a time as there is room for.
template <bool Whole, class Unpack> void tile_unpacked(const Task& t, const Unpack& unpack) {
  const Matrix& m = t.matrix;
  const std::size_t record = m.record_bytes(t.width);
  const int most = most_unpacked(Whole ? 1 : 2), per_step = m.per_step();
  TileSums sums;
  for (int g = 0; g < m.num_groups(); ++g)
    for (int k = 0; k < m.group; k += most) {
      const int count = std::min(most, m.group - k);
      unpack_steps(unpack, t.panel + record * g + std::size_t(k / per_step) * t.w_step(64), t.unpacked, count / per_step, t.vectors());
      tile_stretch<Whole>(t, g, k, count, t.unpacked, sums);
    }
  if (Whole) scale_rows(t);
}

// Whether the matrix's groups are whole tiles, and one of several is unpacked at once; others take the vector kernels, for any number of rows.
inline bool fits_tiles(const Matrix& m, bool int8) {
  if (m.format == Format::f32 || m.format == Format::f16) return false;
  const int number = int8 ? 1 : 2, bytes = m.group * number;
  if (m.num_groups() > 1 && m.group > most_unpacked(number)) return false;
  return bytes % 64 == 0 || bytes == 32;
}

inline void tile_panel(const Task& t) {
  const Matrix& m = t.matrix;
  if (!fits_tiles(m, t.x.int8)) return linear_panel(t);
  if (m.format == Format::bf16) {
    tile_dense(t);
  } else if (m.format == Format::i8) {
    t.x.int8 ? tile_packed(t) : tile_unpacked<false>(t, UnpackI8{});
  } else if (t.x.int8) {
    std::uint8_t bytes[16];
    for (int i = 0; i < 16; ++i) bytes[i] = static_cast<std::uint8_t>(m.values[i] + m.offset());
    tile_unpacked<true>(t, UnpackNibbles{make_byte_table(bytes)});
  } else {
    tile_unpacked<false>(t, UnpackI4{step_i4(m)});
  }
  tile_done();
}

}  // namespace PENSTOCK_ISA
