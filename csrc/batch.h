// The rows of one step, as flat arrays in the caller's memory: see Batch of penstock/compute/backends/contract.py.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace penstock {

// One sequence of a step.
struct Sequence {
  int first_row, num_rows;
  int context;                  // tokens in the cache after the step
  const std::int64_t* blocks;   // block table
  std::size_t num_blocks;       // in the table
  const std::int32_t* parents;  // [num_rows] draft tree: the row that precedes each row, -1: the cached tokens; nullptr: a chain
};

struct Batch {
  int rows = 0, logits = 0;
  const std::int64_t *tokens = nullptr, *positions = nullptr, *slots = nullptr;  // [rows]
  const std::int64_t* logit_rows = nullptr;                                      // [logits]
  std::vector<Sequence> sequences;
  std::vector<bool> wanted;                   // optional buffers that are computed
  std::vector<std::pair<int, float*>> given;  // buffers in the caller's memory
};

// Throws std::out_of_range unless 0 <= index < count.
void check_index(const char* what, std::int64_t index, std::int64_t count);

// What the numbers of a batch may refer to.
struct BatchLimits {
  std::optional<int> vocab;          // none: the program looks up no embeddings
  std::optional<std::size_t> slots;  // none: it has no KV cache
  int block_size;
};

// Throws std::out_of_range or std::invalid_argument, which say what is wrong, for a batch that would read or write beyond an array.
void check(const Batch& batch, const BatchLimits& limits);

}  // namespace penstock
