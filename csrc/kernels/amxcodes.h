// Codes with integer rows on AMX tiles, one panel: how many k-blocks are taken at once, and where their B tiles come from. All
// rows go through those (amxplanes.h) before the next are taken, so that L1 holds the codes.
//
//   weights                  rows           planes              B tiles
//   i8                       int8           plain, no planes    packed codes as they lie: a dense product, scaled at its end
//     with several scales    int8           Bf16Plane           codes unpacked to bf16
//     in long k-blocks       fixed point    BytePlanes          packed codes as they lie
//     in short ones          fixed point    Bf16Planes(Apart)   codes unpacked to bf16
//   i6                       the same as i8 in short k-blocks
//   i4                       the same, by codebook
//   i4 with units            int8           BytePlane           code times multiple plus 128, unpacked to bytes: one scale per 512 k
//                            fixed point    BytePlanes
#pragma once
#include "amxplanes.h"

namespace PENSTOCK_ISA {

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

// i8 codes with one scale per column, plain int8 rows.
inline void tile_plain_int8(const Task& t) {
  tile_dense<false, true>(t);
  scale_columns(t, 0, t.rows, [&](int r, const float* out) PENSTOCK_INLINED {
    return to_float(add_i(load_raw(out), set1_i(t.x.acc_init[r])));
  });
}

// Bytes of packed codes that the k-blocks take.
inline std::size_t packed_bytes(const Task& t, const KBlocks& run, int count) {
  return run.count > 1 ? run.stride * count : std::size_t(run.length) * t.width * t.matrix.bits() / 8;
}

// Packed i8 codes are B tiles.
inline void tile_packed(const Task& t, const KBlocks& run) {
  const int at_once = std::max<int>(1, L1_CODE_BYTES / (std::size_t(run.length) * t.width));
  run.in_parts(at_once, [&](const KBlocks& part) {
    const std::size_t bytes = packed_bytes(t, run, part.count);
    multiply_rows<BytePlanes>(t, part, part.codes + bytes, bytes);
  });
}

// Codes with units, unpacked to bytes a k-block at a time.
template <class Planes> void tile_units(const Task& t) {
  for_unit_blocks(t, [&](const UnitBlock& block) {
    unpack_units<MultipliedBytes>(block, t.vectors(), t.unpacked);
    KBlocks run{};
    run.begin = block.first * block.group, run.length = block.count * block.group;
    run.first = run.begin / FIXED_K_BLOCK, run.count = 1;
    run.codes = t.unpacked, run.w_step = t.w_step(64);
    run.scales = reinterpret_cast<Bytes>(block.units), run.scale_bytes = sizeof(float);
    const std::size_t bytes = block.record * block.count;
    multiply_rows<Planes>(t, run, block.codes + bytes, bytes);
  });
}

// Codes unpacked to bf16.
template <class Planes, class Unpack> void tile_unpacked(const Task& t, const KBlocks& run, const Unpack& unpack) {
  const std::size_t unpacked_bytes = std::size_t(run.length) * t.width * 2;
  run.in_parts(std::max<int>(1, L1_CODE_BYTES / unpacked_bytes), [&](const KBlocks& part) {
    const std::size_t bytes = packed_bytes(t, run, part.count);
    unpack_k_blocks(t, unpack, part, unpacked_bytes);
    multiply_rows<Planes>(t, part.unpacked_at(t.unpacked, unpacked_bytes, t.w_step(64)), part.codes + bytes, bytes);
  });
}

// Whether the sum of both planes stays below 2^24, so that one float accumulator holds it exactly.
inline bool planes_fit_float(const Matrix& m) {
  int max_value = m.format == Format::i8 ? 128 : m.format == Format::i6 ? 32 : 0;
  if (m.format == Format::i4)
    for (int i = 0; i < 16; ++i) max_value = std::max(max_value, std::abs(int{m.codebook[i]}));
  return std::min(m.group, FIXED_K_BLOCK) * std::int64_t{32640} * max_value < 1 << 24;
}

template <class Unpack> void tile_unpacked_codes(const Task& t, const Unpack& unpack) {
  if (t.x.int8) return tile_unpacked<Bf16Plane>(t, all_groups(t), unpack);
  for_k_block_runs(t, [&](const KBlocks& run) {
    planes_fit_float(t.matrix) ? tile_unpacked<Bf16Planes>(t, run, unpack) : tile_unpacked<Bf16PlanesApart>(t, run, unpack);
  });
}

inline void tile_codes(const Task& t) {
  if (t.matrix.has_units()) t.x.int8 ? tile_units<BytePlane>(t) : tile_units<BytePlanes>(t);
  else if (!t.x.amx_row_bytes) tile_plain_int8(t);
  else if (t.matrix.format == Format::i4) tile_unpacked_codes(t, UnpackI4{step_i4(t.matrix)});
  else if (t.matrix.format == Format::i6) tile_unpacked_codes(t, UnpackI6{});
  else if (t.x.int8 || !uses_int8_tiles(t.matrix)) tile_unpacked_codes(t, UnpackI8{});
  else for_k_block_runs(t, [&](const KBlocks& run) { tile_packed(t, run); });
  t.scaled_by(apply_row_scales).finish(0, t.rows);
}

}  // namespace PENSTOCK_ISA
