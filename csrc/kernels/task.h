// What the ways of multiplying a panel are given (dense.h, inregisters.h, buffered.h, multiples.h): one task of panels, and its register
// blocks, columns outside and rows inside, so that the weights of a block of columns stay in L1 for all rows.
#pragma once
#include <type_traits>

#include "blocks.h"

namespace PENSTOCK_ISA {

// Up to how many rows codes are unpacked in registers, anew for each register block (inregisters.h), rather than once for all rows
// (buffered.h): break-evens, as measured (docs/LOG.md). No result depends on them.
struct UnpackLimits {
  int i8, i6, i4, i4_units;    // with 16-bit or float rows; i4_units: codes with Matrix::has_units
  int i4_int8, i4_units_int8;  // with int8 rows
  int tall;                    // up to so many rows, register blocks are as tall as MAX_ROWS_UNPACKING, beyond as LOW_ROWS_UNPACKING

  // Calls body(MAX): the most rows in a register block that unpacks.
  template <class Body> void with_block_rows(int rows, const Body& body) const {
    rows <= tall ? body(std::integral_constant<int, MAX_ROWS_UNPACKING>()) : body(std::integral_constant<int, LOW_ROWS_UNPACKING>());
  }
};
inline UnpackLimits unpack_limits([[maybe_unused]] const Features& machine) {
  constexpr int ANY = 1 << 30;
  UnpackLimits most;
  most.tall = ANY;
  most.i8 = UNPACK_LIMIT_I8, most.i6 = UNPACK_LIMIT_I6, most.i4 = most.i4_units = UNPACK_LIMIT_I4;
  most.i4_int8 = most.i4_units_int8 = UNPACK_LIMIT_I4_INT8;
#if defined(PENSTOCK_FIXED16)
  if (machine.zen5) {
    most.tall = 11;
    most.i8 = most.i6 = most.i4 = most.i4_int8 = ANY;
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
  bool from_memory;
  StreamPrefetch stream_prefetch;
  UnpackLimits limits;
  void (*scale_rows)(const Task&, int first, int count) = nullptr;  // what sums over all of k still need; nullptr: nothing

  int vectors() const { return width / LANES; }
  int w_step(int step_bytes) const { return vectors() * step_bytes; }
  // Whether one register block covers all rows and columns.
  bool is_one_block(bool grouped, int max_rows) const {
    const int vecs = block_vecs(rows, grouped, max_rows);
    return rows <= block_rows(vecs, grouped, max_rows) && vectors() <= vecs;
  }
  Task scaled_by(void (*scale)(const Task&, int first, int count)) const {
    Task scaled = *this;
    scaled.scale_rows = scale;
    return scaled;
  }
  Task single(int i) const {
    Task one = *this;
    one.panel += panel_stride() * i, one.first_panel += i, one.num_panels = 1, one.out += std::size_t(rows) * PANEL * i;
    return one;
  }
  void run_epilogue(int first, int count) const {
    epilogue.call(epilogue.context, first_panel, first, count, out + std::size_t(first) * PANEL);
  }
  // Of rows whose sums are complete in all columns of the panel.
  void finish(int first, int count) const {
    if (scale_rows) scale_rows(*this, first, count);
    run_epilogue(first, count);
  }
  std::size_t panel_stride() const { return matrix.panel_bytes(PANEL); }
};

// The panels of `of` from its panel `from` on that have one width: only a matrix's last panel may be narrower.
inline Task panels_of_one_width(const PanelTask& of, int from) {
  const Matrix& m = of.matrix;
  const int first = of.first_panel + from, width = m.width(first), left = of.num_panels - from;
  const int count = m.width(of.first_panel + of.num_panels - 1) == width ? left : std::max(1, left - 1);
  return {m, m.panel(of.matrix_index, first), first, count, width, of.x, of.rows, of.epilogue, of.out + std::size_t(of.rows) * PANEL * from,
          of.unpacked, of.from_memory, of.stream_prefetch, unpack_limits(of.machine)};
}

// Calls body(V, v, plan) for blocks of V column vectors from vector v on; for_rows takes the plan. `read`: what all register blocks
// together read from memory.
template <bool GROUPED, int MAX, class Body> void for_columns(const Task& t, const PackedWeights& read, const Body& body) {
  const int rows_per_block = block_rows(block_vecs(t.rows, GROUPED, MAX), GROUPED, MAX);
  const PrefetchPlan plan{t.rows, rows_per_block, t.vectors(), read, t.stream_prefetch};
  for_column_blocks<GROUPED, MAX>(t.rows, t.width, [&](auto vecs, int v) { body(vecs, v, plan.for_columns(v, vecs)); });
}

// Calls body(R, r, prefetch) for blocks of R rows from row r on, beside V column vectors. `is_last`: the body adds the last of k, so rows
// are finished after the last columns, while L1 holds them.
template <int V, bool GROUPED, int MAX, class Body>
PENSTOCK_INLINE void for_rows(const Task& t, const PrefetchPlan& plan, bool is_last, const Body& body) {
  const bool finishes = is_last && plan.v + V == plan.vectors;
  for_row_blocks<block_rows(V, GROUPED, MAX)>(plan.rows, [&](auto count, int r) PENSTOCK_INLINED {
    body(count, r, plan.for_block(r, count));
    if (finishes) t.finish(r, count);
  });
}

}  // namespace PENSTOCK_ISA
