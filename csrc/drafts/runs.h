// Where each run of `least` to `most` tokens of one sequence stood last, its very end left out. The meaning is that of
// penstock/compute/decoding/propose/runs.py, whose guesses are compared with these.
#pragma once
#include <cstdint>
#include <vector>

#include "texts.h"

namespace penstock {

class Runs {
 public:
  Runs(std::uint32_t least, std::uint32_t most);

  void extend(const std::vector<Token>& tokens);
  // What followed the longest known end; beyond the sequence's end the copy goes on with itself. [] if no end is known.
  std::vector<Token> guess(std::uint32_t most) const;

 private:
  struct Table {  // of the runs of one size
    std::uint32_t size, num = 0;
    std::vector<std::uint32_t> ends;  // [power of 2] the place after a run's last token; 0: an empty slot
  };
  std::uint64_t hash(std::uint32_t end, std::uint32_t size) const;
  // The slot of the run of these tokens, or the empty one where it would be.
  std::size_t slot(const Table& table, std::uint32_t end) const;
  void put(Table& table, std::uint32_t end);
  void grow(Table& table);

  std::vector<Token> tokens_;
  std::vector<Table> tables_;  // the shortest runs first
};

}  // namespace penstock
