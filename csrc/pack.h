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
  int operator()(int r) const { return half < 0 ? first + r : (first + r) / (PANEL / 2) * PANEL + half * (PANEL / 2) + (first + r) % (PANEL / 2); }
};

// Rounds [rows, k] numbers to f32, f16 or bf16.
void pack_numbers(Pool& pool, const Matrix& matrix, const Place& place, const void* numbers, Source source, int rows);
// Codes as penstock/compute/quant/codes.py has them; scales and mins [rows, groups] of scale_bytes each.
void pack_codes(Pool& pool, const Matrix& matrix, const Place& place, const std::int8_t* codes, const void* scales, const void* mins, int rows);
// Fills a matrix with codes of zero: what no row of a source reaches.
void clear(const Matrix& matrix);

}  // namespace penstock
