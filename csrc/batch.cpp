#include "batch.h"

#include <stdexcept>
#include <string>

namespace penstock {

void check_index(const char* what, std::int64_t index, std::int64_t count) {
  if (index < 0 || index >= count)
    throw std::out_of_range(std::string(what) + " " + std::to_string(index) + " is not one of the " + std::to_string(count));
}

namespace {

// Rows follow cached tokens or earlier rows, one position further on: whoever walks from a row to its ancestors arrives at the cache.
void check_tree(const Sequence& s, const std::int64_t* positions) {
  for (int r = 0; r < s.num_rows; ++r) {
    const int parent = s.parents[r];
    if (parent < -1 || parent >= r)
      throw std::invalid_argument("row " + std::to_string(r) + " of a draft tree cannot follow row " + std::to_string(parent));
    const std::int64_t next = parent < 0 ? s.context - s.num_rows : positions[parent] + 1;
    if (positions[r] != next)
      throw std::invalid_argument("row " + std::to_string(r) + " of a draft tree is at position " + std::to_string(positions[r]) +
                                  ", not " + std::to_string(next));
  }
}

void check_cached(const Sequence& s, const std::int64_t* positions, const BatchLimits& limits) {
  if (s.context < s.num_rows)
    throw std::invalid_argument("a context of " + std::to_string(s.context) + " tokens is shorter than its " + std::to_string(s.num_rows) +
                                " rows");
  const std::size_t needed = (std::size_t(s.context) + limits.block_size - 1) / limits.block_size;
  if (s.num_blocks < needed)
    throw std::invalid_argument("a context of " + std::to_string(s.context) + " tokens takes " + std::to_string(needed) + " blocks, not " +
                                std::to_string(s.num_blocks));
  const auto all_blocks = static_cast<std::int64_t>(*limits.slots / limits.block_size);
  for (std::size_t i = 0; i < needed; ++i) check_index("block", s.blocks[i], all_blocks);
  for (int r = 0; r < s.num_rows; ++r) check_index("position", positions[r], s.context);
  if (s.parents) check_tree(s, positions);
}

}  // namespace

void check(const Batch& b, const BatchLimits& limits) {
  for (int row = 0; limits.vocab && row < b.rows; ++row) check_index("token", b.tokens[row], *limits.vocab);
  for (int i = 0; i < b.logits; ++i) check_index("row", b.logit_rows[i], b.rows);
  int next = 0;
  for (const Sequence& s : b.sequences) {
    if (s.first_row != next)
      throw std::invalid_argument("the rows of a sequence begin at " + std::to_string(s.first_row) + ", not " + std::to_string(next));
    next += s.num_rows;
  }
  if (next != b.rows)
    throw std::invalid_argument("sequences have " + std::to_string(next) + " rows, and the step " + std::to_string(b.rows));
  if (!limits.slots) return;
  for (int row = 0; row < b.rows; ++row) check_index("slot", b.slots[row], static_cast<std::int64_t>(*limits.slots));
  for (const Sequence& s : b.sequences) check_cached(s, b.positions + s.first_row, limits);
}

}  // namespace penstock
