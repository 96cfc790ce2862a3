// How a matrix [n, k] lies in memory once it is packed: the one layout that the kernels of every instruction set read.
//
// Columns of the product (rows n of the matrix) are taken 64 at a time: a panel, which is one stretch of memory read from its
// beginning to its end. A panel is a sequence of records, one for each group of k that shares a scale (one record where nothing
// is shared). A record holds codes, then scales, then mins. Codes are steps: each has 64 bytes for every 16 columns, a word of
// 32 bits for a column:
//   f32   1 inner index a step      bf16  2      i8  4 (each stored 128 too large)
//   i4    8: the lower half word holds the even indices 0 2 4 6 in its four nibbles, the upper half the odd ones
//   f16   1, in 32 bytes for 16 columns
// (Where rows or kernels are said to be of words, it is of another word: int16 in fixed point, kernels/words.h.)
// So a vector of 64 bytes feeds 16 sums at once, in which nothing is ever added across lanes, and sixteen steps are one AMX tile.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace penstock {

enum class Format : int { f32, f16, bf16, i8, i4 };
constexpr const char* FORMATS[] = {"f32", "f16", "bf16", "i8", "i4"};  // as Python calls them, in the order of Format

constexpr int PANEL = 64, LANES = 16;
constexpr int SUM_LENGTH = 512;  // products of 16-bit fixed point that an int32 holds
constexpr int LAYOUT_VERSION = 1;  // one more whenever packed bytes come to mean something else: files of them are kept

struct Matrix {
  Format format = Format::f32;
  int n = 0, k = 0;
  int k_padded = 0;        // what x must have, filled up with zeros
  int group = 0;           // inner indices of a record; k_padded when there is one
  int scale_bytes = 0;     // 0 (no scales), 2 (f16) or 4 (f32)
  bool has_mins = false;
  int count = 1;           // matrices of this shape, one after another: experts
  std::int8_t values[16] = {};  // i4: what the codes stand for
  std::uint8_t* data = nullptr;

  // What is added to codes so that they are unsigned bytes.
  int offset() const { return format == Format::i8 ? 128 : -std::min<int>(0, *std::min_element(values, values + 16)); }
  // Whether i4 codes stand for consecutive numbers.
  bool in_order() const {
    for (int i = 1; i < 16; ++i) if (values[i] != values[0] + i) return false;
    return true;
  }
  int bits() const { return format == Format::f32 ? 32 : format == Format::i8 ? 8 : format == Format::i4 ? 4 : 16; }
  int per_step() const { return format == Format::bf16 ? 2 : format == Format::i8 ? 4 : format == Format::i4 ? 8 : 1; }
  int num_panels() const { return (n + PANEL - 1) / PANEL; }
  int width(int panel) const { return std::min(PANEL, (n - panel * PANEL + LANES - 1) / LANES * LANES); }
  int num_groups() const { return k_padded / group; }
  // Sums of products in fixed point are shorter than some groups: how many a group has.
  int sums_in_group() const { return (group + SUM_LENGTH - 1) / SUM_LENGTH; }
  std::size_t code_bytes(int width) const { return std::size_t(group) * width * bits() / 8; }
  std::size_t record_bytes(int width) const { return code_bytes(width) + std::size_t(width) * scale_bytes * (has_mins ? 2 : 1); }
  std::size_t panel_bytes(int width) const { return (record_bytes(width) * num_groups() + 63) / 64 * 64; }
  std::size_t matrix_bytes() const {
    return panel_bytes(PANEL) * (num_panels() - 1) + panel_bytes(width(num_panels() - 1));
  }
  std::size_t bytes() const { return matrix_bytes() * count; }
  std::uint8_t* panel(int index, int p) const { return data + matrix_bytes() * index + panel_bytes(PANEL) * p; }
};

// Whether sums of words are made of bytes where tiles make them: long ones, of codes that are bytes. Others of bf16 numbers.
inline bool sums_of_bytes(const Matrix& m) { return m.format == Format::i8 && std::min(m.group, SUM_LENGTH) >= 256; }

// Calls body(index, begin, end) for the inner indices of every sum of products in fixed point.
template <class Body> void each_sum(const Matrix& m, const Body& body) {
  int index = 0;
  for (int group = 0; group < m.k_padded; group += m.group)
    for (int begin = 0; begin < m.group; begin += SUM_LENGTH, ++index) body(index, group + begin, group + std::min(m.group, begin + SUM_LENGTH));
}

// Bytes between rows: those of a width that is a power of two would fall into the same few sets of a cache.
constexpr std::size_t ROW_GAP = 64;

// Rows that a matrix is multiplied with, in the form that its kernel reads: float for f32 and f16, bf16 numbers for the
// others (`Kernels::row_number` bytes each), and for codes int8, or 16-bit fixed point where kernels have `to_words`; or either of these as
// kernels for many rows want them.
struct Operand {
  const std::uint8_t* data = nullptr;
  std::size_t stride = 0;              // bytes from row to row
  const float* scales = nullptr;         // of integers: [rows]
  const std::int32_t* begins = nullptr;  // of integers: [rows, groups] what a sum begins with, since the codes of w are stored too large
  const float* totals = nullptr;         // where the matrix has mins: [rows, groups] of what x holds, integers unscaled
  int groups = 1;                        // of fixed point the sums
  bool int8 = false;
  int split = 0;                       // bytes of a number where integers are kept as kernels for many rows want them

  Operand from(int row) const {
    Operand o = *this;
    o.data += stride * row;
    if (scales) o.scales += row;
    if (begins) o.begins += std::size_t(groups) * row;
    if (totals) o.totals += std::size_t(groups) * row;
    return o;
  }
};

}  // namespace penstock
