// A trie of all runs of up to `depth` tokens in some texts, with their numbers of occurrences.
//
// Runs that occurred once are compressed to a leaf: the place in the text where they continue. A leaf becomes a node when it is visited
// again. If a suffix of a growing text is within a leaf, so are all longer suffixes. So a new token updates only suffixes that have
// occurred before (few, unless text repeats), and n such tokens cost n leaves rather than n * depth nodes.
#pragma once
#include <cstdint>
#include <vector>

#include "nodes.h"
#include "texts.h"

namespace penstock {

struct Guess {
  std::vector<Token> tokens;
  double expected = 0;  // expected number of correct tokens
};

class Trie {
 public:
  // at: a node, or LEAF + the place in a text where the run continues, or NONE.
  struct Position {
    std::uint32_t at, depth;
  };

  explicit Trie(std::uint32_t depth);

  // Starts a growing text; returns its number.
  std::uint32_t begin();
  void extend(std::uint32_t text, Token token);
  // The text is complete.
  void end(std::uint32_t text);
  // Removes a complete text.
  void remove(std::uint32_t text);
  bool is_empty() const { return !nodes_.has_edges(ROOT); }

  // The longest suffix of a growing text that has a known continuation.
  Position longest(std::uint32_t text) const;
  // The run of these tokens, at most depth - 1, if it has a known continuation.
  Position find(const Token* tokens, std::uint32_t count) const;
  // A draft: the most frequent continuations (the lowest id among equals) while the probability of the whole draft is at least `likely`.
  // At full depth, continues from the longest known suffix. A token with count c after a run of n tokens with m occurrences has
  // probability c / (m + doubt / n). `run`: at least the last depth - 1 tokens up to the position.
  Guess follow(Position place, std::vector<Token> run, std::uint32_t max_tokens, double likely, double doubt) const;

  static constexpr std::uint32_t NONE = 0;

 private:
  static constexpr std::uint32_t ROOT = 0, LEAF = 1u << 31;  // no edge leads to the root, so its index serves as NONE
  struct Text {
    std::uint32_t first, end;         // places
    std::vector<std::uint32_t> suffix_nodes;  // nodes of its suffixes of 1, 2, .. tokens
    bool is_growing;
  };

  Position longest_known_suffix(const std::vector<Token>& run) const;
  std::uint32_t visit(std::uint32_t node, Token token, std::uint32_t depth, std::uint32_t end);
  std::uint32_t leaf(std::uint32_t place, std::uint32_t depth) const { return depth < depth_ ? LEAF | place : NONE; }
  std::uint32_t expand_leaf(std::uint32_t place, std::uint32_t depth);
  void free_chain(std::uint32_t at);

  std::uint32_t depth_;
  Nodes nodes_;
  Texts tokens_;
  std::vector<Text> texts_;
  std::vector<std::uint32_t> free_texts_;
};

}  // namespace penstock
