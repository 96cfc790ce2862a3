// The packed layout of a weight matrix W [n, k] (y = x W^T, so n is the output dimension). Every instruction set reads the same layout.
//
// The n output columns are taken 64 at a time: a panel, contiguous in memory and read front to back. A panel is a sequence of records,
// one per quantization group along k (a single record where the format has no scales). A record is
//   codes [steps, width / 16, 64 bytes], scales [width], mins [width]
// where width is the panel's columns rounded up to 16. Behind the last record comes what int8 scales are multiplied with: units [width],
// float, or for each factor_groups records factors [width] and those of mins [width], f16.
// A step holds K consecutive k of every column. For each block of 16 columns it has 64 bytes (32 for f16, 192 for i6), one 32-bit word per
// column, or three, each of all 16 columns:
//   f32   K = 1     bf16  K = 2     f16  K = 1, a 16-bit word per column
//   i8    K = 4, each code stored plus 128 (unsigned)
//   i6    K = 16, each code stored plus 32: byte b of word w has k = 4 w + b in its lower six bits, and in the upper two the bits 2 w and
//         2 w + 1 of k = 12 + b
//   i4    K = 8, nibbles from the lowest: k = 0 2 4 6 in the lower half word, 1 3 5 7 in the upper one
// So one 64-byte vector feeds 16 accumulators, one per column, and a dot product is never reduced across lanes. Sixteen steps of 16
// columns are one AMX B tile.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace penstock {

enum class Format : int { f32, f16, bf16, i8, i6, i4 };
constexpr const char* FORMATS[] = {"f32", "f16", "bf16", "i8", "i6", "i4"};  // names in Python, in the order of Format

constexpr int PANEL = 64, LANES = 16;  // columns of a panel, columns of a vector
constexpr int FIXED_K_BLOCK = 512;     // k-block of 16-bit fixed point: so many products never overflow an int32 accumulator
constexpr int LAYOUT_VERSION = 2;      // increment whenever the meaning of packed bytes changes: they are cached in files

struct Matrix {
  Format format = Format::f32;
  int n = 0, k = 0;
  int k_padded = 0;               // k rounded up; activation rows are zero-padded to it
  int group = 0;                  // k of a record: the quantization group, or k_padded
  int scale_bytes = 0;            // 0 (no scales), 2 (f16), 4 (f32), or 1 (int8, times a factor: GGUF's d; or times the column's unit)
  int factor_groups = 0;          // groups (a super-block) whose scales, and mins, have a factor in common; 0: there are no factors
  bool has_mins = false;          // w = scale * code + min
  int count = 1;                  // matrices of this shape, one after another: experts
  std::int8_t codebook[16] = {};  // i4: the value of each code
  bool dequantized = false;       // i4 without units: multiplied as bf16 weights, on AMX (amxdense.h)
  std::uint8_t* data = nullptr;

  // Added to codes (i8, i6) or codebook values (i4) so that the integer kernels see unsigned bytes.
  int zero_point() const {
    return format == Format::i8 ? 128 : format == Format::i6 ? 32 : -std::min<int>(0, *std::min_element(codebook, codebook + 16));
  }
  // i4: the value is the code plus a constant, so no table lookup is needed.
  bool codebook_is_consecutive() const {
    for (int i = 1; i < 16; ++i) if (codebook[i] != codebook[0] + i) return false;
    return true;
  }
  int bits() const {
    return format == Format::f32 ? 32 : format == Format::i8 ? 8 : format == Format::i6 ? 6 : format == Format::i4 ? 4 : 16;
  }
  bool has_codes() const { return format == Format::i8 || format == Format::i6 || format == Format::i4; }  // else numbers
  bool has_factors() const { return factor_groups > 0; }
  bool has_units() const { return scale_bytes == 1 && !has_factors(); }
  bool divides_into_tiles() const { return group % 32 == 0; }  // of bf16 along k
  bool may_be_dequantized() const { return format == Format::i4 && !has_units() && divides_into_tiles(); }
  int k_per_step() const {
    return format == Format::bf16 ? 2 : format == Format::i8 ? 4 : format == Format::i6 ? 16 : format == Format::i4 ? 8 : 1;
  }
  int code_step_bytes() const { return format == Format::i6 ? 192 : 64; }  // of 16 columns
  int num_panels() const { return (n + PANEL - 1) / PANEL; }
  int width(int panel) const { return std::min(PANEL, (n - panel * PANEL + LANES - 1) / LANES * LANES); }
  int num_groups() const { return k_padded / group; }
  int k_blocks_in_group() const { return (group + FIXED_K_BLOCK - 1) / FIXED_K_BLOCK; }
  std::size_t code_bytes(int width) const { return std::size_t(group) * width * bits() / 8; }
  std::size_t record_bytes(int width) const { return code_bytes(width) + std::size_t(width) * scale_bytes * (has_mins ? 2 : 1); }
  std::size_t units_offset(int width) const { return record_bytes(width) * num_groups(); }  // in a panel; of factors, too
  std::size_t factor_bytes(int width) const { return std::size_t(width) * 2 * (has_mins ? 2 : 1); }  // of one factor of each column
  std::size_t panel_bytes(int width) const {
    const std::size_t multiplied = has_units()     ? std::size_t(width) * 4
                                   : has_factors() ? factor_bytes(width) * (num_groups() / factor_groups)
                                                   : 0;
    return (units_offset(width) + multiplied + 63) / 64 * 64;
  }
  std::size_t matrix_bytes() const {
    return panel_bytes(PANEL) * (num_panels() - 1) + panel_bytes(width(num_panels() - 1));
  }
  std::size_t bytes() const { return matrix_bytes() * count; }
  std::uint8_t* panel(int index, int p) const { return data + matrix_bytes() * index + panel_bytes(PANEL) * p; }
};

// AMX products of fixed-point rows: on int8 tiles for i8 codes in long k-blocks and for multiples of units, otherwise on bf16 tiles.
inline bool uses_int8_tiles(const Matrix& m) {
  return m.has_units() || (m.format == Format::i8 && std::min(m.group, FIXED_K_BLOCK) >= 256);
}

// Calls body(begin, end) for every k-block of fixed point: groups of `length` cut at multiples of FIXED_K_BLOCK.
template <class Body> void each_k_block(const Matrix& m, int length, const Body& body) {
  for (int group = 0; group < m.k_padded; group += length)
    for (int begin = 0; begin < length; begin += FIXED_K_BLOCK)
      body(group + begin, group + std::min(length, begin + FIXED_K_BLOCK));
}

// Bytes between activation rows: rows whose stride is a power of two would map to few cache sets.
constexpr std::size_t ROW_PADDING = 64;

// Activation rows [rows, k_padded], converted to the element type that the matrix's kernel reads:
//   f32, f16   float
//   bf16       bf16, or float rounded to bf16 (Kernels::bf16_elem_bytes)
//   codes      int8 (one scale per row), 16-bit fixed point (Kernels::takes_fixed16; one scale per row), otherwise as for bf16.
//              Integer rows may be stored in the form that AMX kernels read (amx_row_bytes), and 16-bit ones as bytes (split).
// Step::convert writes them, kernels read them.
struct Operand {
  std::uint8_t* data = nullptr;
  std::size_t stride = 0;            // bytes from row to row
  float* scales = nullptr;           // integer rows: [rows]
  std::int32_t* acc_init = nullptr;  // integer rows: [rows, groups] zero-point correction, -zero_point * sum of x over the group;
                                     // integer accumulators start from it. In AMX form, with units: of FIXED_K_BLOCK
  float* group_sums = nullptr;       // matrices with mins, unless they are dequantized: [rows, groups] sum of x over the group, of
                                     // integers without the row's scale
  int groups = 1;                    // quantization groups, of fixed point k-blocks
  bool int8 = false;
  int amx_row_bytes = 0;             // bytes per element in AMX form, 0: plain
  bool split = false;                // fixed point as bytes: of each 8 or 4 along k, the high ones and then the low ones (fixed16.h)

  Operand at_row(int row) const {
    Operand o = *this;
    o.data += stride * row;
    if (scales) o.scales += row;
    if (acc_init) o.acc_init += std::size_t(groups) * row;
    if (group_sums) o.group_sums += std::size_t(groups) * row;
    return o;
  }
};

}  // namespace penstock
