// Packing: rows of a weight matrix as a checkpoint stores them -> the layout of layout.h.
#pragma once
#include <cstdint>

#include "layout.h"
#include "pool.h"

namespace penstock {

enum class Source : int { f32, f16, bf16, f64 };

// Where rows of the source go in W: row r to row first + r of matrix `index`. For matrices that interleave gate and up, `half` is 0
// (gate) or 1 (up), and rows go to that half of the panels, 32 columns per panel; otherwise it is -1.
struct Destination {
  int index, first, half;
};

// Quantized rows: codes [rows, k] as in penstock/compute/quant/codes.py; scales and mins (or nullptr) [rows, groups] of scale_bytes each;
// units [rows], or factors and those of mins [rows, groups / factor_groups], where the matrix has them.
struct CodedRows {
  const std::int8_t* codes;
  const void *scales, *mins;
  const float* units;
  const std::uint16_t *factors, *min_factors;
  int rows;
};

// Both leave padding as it is, which is zero: a zero scale, or a weight that meets zero padding of x. pack_numbers rounds numbers [rows,
// k] to the matrix's f32, f16 or bf16.
void pack_numbers(Pool& pool, const Matrix& matrix, const Destination& place, const void* numbers, Source source, int rows);
void pack_codes(Pool& pool, const Matrix& matrix, const Destination& place, const CodedRows& source);

}  // namespace penstock
