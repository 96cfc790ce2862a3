// N-gram index of one sequence: where each run of min_run to max_run tokens occurred last, except at the very end. The specification is
// penstock/compute/decoding/propose/runs.py, against which guesses are tested.
#pragma once
#include <cstdint>
#include <vector>

#include "texts.h"

namespace penstock {

class Runs {
 public:
  Runs(std::uint32_t min_run, std::uint32_t max_run);

  void extend(const std::vector<Token>& tokens);
  // The tokens that followed the last occurrence of the longest known suffix; past the end the copy repeats itself. Empty if no suffix is
  // known, or if only one of max_run tokens will do and that is not.
  std::vector<Token> guess(std::uint32_t max_tokens, bool only_longest);

 private:
  struct Table {  // runs of one size
    std::uint32_t size, num = 0;
    std::uint32_t next;  // end position of the first run that is not in it yet: a table is brought up to date when it is asked
    std::vector<std::uint32_t> ends;  // hash table [power of 2] of end positions; 0: empty
  };
  std::uint64_t hash(std::uint32_t end, std::uint32_t size) const;  // takes as long for any size
  // Entry of the run that ends at `end`, or the empty entry where it belongs.
  std::size_t slot(const Table& table, std::uint32_t end) const;
  // Where the suffix of the table's size occurred last before the end; 0: nowhere.
  std::uint32_t find(Table& table);
  void put(Table& table, std::uint32_t end);
  void grow(Table& table);

  std::vector<Token> tokens_;
  std::vector<std::uint64_t> prefixes_;  // [tokens + 1] hashes of the first 0, 1, .. tokens: polynomials in powers_[1]
  std::vector<std::uint64_t> powers_;    // [max_run + 1] of an odd number that nobody knows
  std::vector<Table> tables_;  // shortest runs first
};

}  // namespace penstock
