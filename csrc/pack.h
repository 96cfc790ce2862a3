// Packing: rows of a matrix as a checkpoint has them -> the layout of layout.h.
#pragma once
#include <cstdint>

#include "layout.h"
#include "pool.h"

namespace penstock {

enum class Source : int { f32, f16, bf16, f64 };

// Row `r` of the source goes to column `first + r` of the product; with `half` 0 or 1 (gate, up) it goes to that half of the panels,
// 32 columns of each in turn.
struct Place {
  int index, first, half;
};

// Rows of codes [rows, k], as penstock/compute/quant/codes.py has them; scales and mins (or nullptr) [rows, groups] of scale_bytes each.
struct Coded {
  const std::int8_t* codes;
  const void *scales, *mins;
  int rows;
};

// Memory that no row reaches is left as it is: zero at first, which is a scale of nothing or a number that meets nothing.
// Rounds [rows, k] numbers to f32, f16 or bf16.
void pack_numbers(Pool& pool, const Matrix& matrix, const Place& place, const void* numbers, Source source, int rows);
void pack_codes(Pool& pool, const Matrix& matrix, const Place& place, const Coded& source);

}  // namespace penstock
