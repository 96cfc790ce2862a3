// What is fetched into the second cache while a product is made. The weights of one panel for a stretch of inner indices are walked by
// blocks, each of which takes some rows and some of the panel's vectors of columns:
//
//   one block is all      it reads the stretch once, and fetches what it comes to itself, `soon` bytes further on. 0: nothing, where the
//                         processor follows a single stream well by itself, or the weights lie in a cache anyhow.
//   several blocks        the stretch stays in the first caches while they pass, and memory would be idle. Together they fetch the same
//                         stretch of the next panel, `far` bytes on, each a share as large as its part of all rows x vectors.
//
// Blocks that are not the last fetch the next block's rows of x as well, into the first cache: many rows lie in the third.
#pragma once
#include "steps.h"

namespace PENSTOCK_ISA {

// What one block fetches: `lines` cache lines a step, from `at` on.
struct Ahead {
  Bytes at = nullptr;
  int lines = 0;
  bool rows = false;  // the rows of the next block too
};

struct Sweep {
  int rows, at_once;    // rows, and of a block at most
  Bytes source;         // where the packed weights of the stretch begin
  std::size_t bytes;    // of them
  int steps;            // of the stretch
  std::size_t far;      // bytes to the next panel
  int vectors;          // of a panel's columns
  int soon;             // PanelTask
  int v = 0, vecs = 0;  // the first and the number of those that the blocks take now

  Sweep over(int first, int count) const {
    Sweep s = *this;
    s.v = first, s.vecs = count;
    return s;
  }
  // Of the block that takes `count` rows from `row` on.
  Ahead ahead(int row, int count) const {
    const int lines = static_cast<int>((bytes + std::size_t(steps) * 64 - 1) / (std::size_t(steps) * 64));  // of all columns, a step
    if (rows <= at_once && vecs == vectors) return soon ? Ahead{source + soon, lines, false} : Ahead{};
    const int parts = rows * vectors;
    const auto lines_until = [&](int r) { return (lines * (v * rows + vecs * r) + parts - 1) / parts; };
    const int first = lines_until(row), end = lines_until(row + count);
    return {source + far + std::size_t(first) * steps * 64, end - first, rows > at_once};
  }
};

}  // namespace PENSTOCK_ISA
