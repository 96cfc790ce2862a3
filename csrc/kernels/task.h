// What the paths of a matrix product are given: one task of panels, and its division into register blocks of columns.
#pragma once
#include <type_traits>

#include "linear.h"

namespace PENSTOCK_ISA {

// Calls body(V, v) for blocks of V column vectors of a panel beginning at vector v, V as large as a register block of this many rows
// allows.
template <bool GROUPED = false, int MAX = MAX_ROWS, class Body> void for_column_blocks(int rows, int width, const Body& body) {
  const int vectors = width / LANES, vecs = block_vecs(rows, GROUPED, MAX);
  int v = 0;
  if constexpr (block_rows(4, GROUPED, MAX) > 0)
    for (; vecs == 4 && v + 4 <= vectors; v += 4) body(std::integral_constant<int, 4>(), v);
  if constexpr (block_rows(2, GROUPED, MAX) > 0 && block_rows(4, GROUPED, MAX) < MAX)
    for (; vecs >= 2 && v + 2 <= vectors; v += 2) body(std::integral_constant<int, 2>(), v);
  for (; v < vectors; ++v) body(std::integral_constant<int, 1>(), v);
}

// Up to how many rows codes are unpacked in registers, anew for each register block, rather than once for all rows: break-evens, as
// measured (docs/LOG.md). No result depends on them.
struct PackedRows {
  int tall;                    // up to so many rows, register blocks are as tall as MAX_ROWS_UNPACKING, beyond as LOW_ROWS_UNPACKING
  int i8, i4, i4_units;        // with 16-bit or float rows; i4_units: codes with Matrix::has_units
  int i4_int8, i4_units_int8;  // with int8 rows

  // Calls body(MAX): the most rows in a register block.
  template <class Body> void with_block_rows(int rows, const Body& body) const {
    rows <= tall ? body(std::integral_constant<int, MAX_ROWS_UNPACKING>()) : body(std::integral_constant<int, LOW_ROWS_UNPACKING>());
  }
};
inline PackedRows packed_rows([[maybe_unused]] const Features& machine) {
  constexpr int ANY = 1 << 30;
  PackedRows most;
  most.tall = ANY;
  most.i8 = MAX_ROWS_PACKED_I8, most.i4 = most.i4_units = MAX_ROWS_PACKED_I4;
  most.i4_int8 = most.i4_units_int8 = MAX_ROWS_PACKED_I4_INT8;
#if defined(PENSTOCK_FIXED16)
  if (machine.zen5) {
    most.tall = 11;
    most.i8 = most.i4 = most.i4_int8 = ANY;
    most.i4_units = 48, most.i4_units_int8 = 11;
  }
#endif
  return most;
}

// A PanelTask restricted to panels of one width.
struct Task {
  const Matrix& matrix;
  Bytes panel;                         // of first_panel
  int first_panel, num_panels, width;  // all of the same width
  const Operand& x;
  int rows;
  Epilogue epilogue;
  float* out;              // accumulators [num_panels, rows, PANEL]
  std::uint8_t* unpacked;  // [UNPACKED_BYTES]
  StreamPrefetch stream_prefetch;
  PackedRows packed_rows;

  int vectors() const { return width / LANES; }
  int w_step(int step_bytes) const { return vectors() * step_bytes; }
  int rows_per_block(bool grouped = false, int max_rows = MAX_ROWS) const {
    return block_rows(block_vecs(rows, grouped, max_rows), grouped, max_rows);
  }
  // Whether one register block covers all rows and columns.
  bool is_one_block(bool grouped = false, int max_rows = MAX_ROWS) const {
    return rows <= rows_per_block(grouped, max_rows) && vectors() <= block_vecs(rows, grouped, max_rows);
  }
  Task single(int i) const {
    return {matrix, panel + panel_stride() * i, first_panel + i, 1, width, x, rows, epilogue, out + std::size_t(rows) * PANEL * i,
            unpacked, stream_prefetch, packed_rows};
  }
  // Of a k-block: its packed weights, their bytes, those of the longest k-block, and its steps.
  PrefetchPlan prefetch(int rows_per_block, Bytes weights, std::size_t bytes, std::size_t longest, int steps) const {
    return {rows, rows_per_block, weights, bytes, longest, steps, vectors(), stream_prefetch};
  }
  void run_epilogue(int first, int count) const { epilogue.call(epilogue.context, first_panel, first, count, out + std::size_t(first) * PANEL); }
  std::size_t panel_stride() const { return matrix.panel_bytes(PANEL); }
  Bytes scales(int group) const { return panel + matrix.record_bytes(width) * group + matrix.code_bytes(width); }
  const float* units() const { return reinterpret_cast<const float*>(panel + matrix.units_offset(width)); }
};

}  // namespace PENSTOCK_ISA
