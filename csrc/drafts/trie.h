// A counted trie: every run of up to `depth` tokens of some texts, with the number of places where it stands.
//
// A run that stands in one place has no nodes: it is a leaf, a place in its text from which it goes on, and becomes a node when it is met
// again. While an end of a growing text is in a leaf, so are all longer ends; so a new token touches only the ends that were met before,
// few where nothing is copied, and n such tokens cost n leaves rather than n * depth nodes.
#pragma once
#include <cstdint>
#include <vector>

#include "nodes.h"
#include "texts.h"

namespace penstock {

struct Guess {
  std::vector<Token> tokens;
  double expected = 0;  // how many of them are right
};

class Trie {
 public:
  // A run: its last node, or LEAF + the place in a text from which it goes on, or NOWHERE.
  struct Place {
    std::uint32_t at, depth;
  };

  explicit Trie(std::uint32_t depth);

  // A text that grows; returns its number.
  std::uint32_t begin();
  void extend(std::uint32_t text, Token token);
  // It grows no more.
  void end(std::uint32_t text);
  // Takes back a whole text that grows no more.
  void remove(std::uint32_t text);
  bool is_empty() const { return !nodes_.has_edges(ROOT); }

  // The longest end of a growing text that something is known to follow.
  Place longest(std::uint32_t text) const;
  // The run of these tokens, at most depth - 1, if something is known to follow it.
  Place find(const Token* tokens, std::uint32_t count) const;
  // Downwards along the commonest tokens, the lowest id among equals, while the whole guess is likely; below the longest runs, on from the
  // longest end that something is known to follow. After a run of n tokens that was followed m times, doubt / n of m + doubt / n are taken
  // to be something else. `run`: tokens up to the place, the last depth - 1 at least.
  Guess follow(Place place, std::vector<Token> run, std::uint32_t most, double likely, double doubt) const;

  static constexpr std::uint32_t NOWHERE = 0;

 private:
  static constexpr std::uint32_t ROOT = 0, LEAF = 1u << 31;  // nothing leads to the root
  struct Text {
    std::uint32_t first, end;         // places
    std::vector<std::uint32_t> ends;  // the nodes of its last 1, 2, .. tokens
    bool grows;
  };

  Place longest_end(const std::vector<Token>& run) const;
  std::uint32_t visit(std::uint32_t node, Token token, std::uint32_t depth, std::uint32_t end);
  std::uint32_t leaf(std::uint32_t place, std::uint32_t depth) const { return depth < depth_ ? LEAF | place : NOWHERE; }
  std::uint32_t to_node(std::uint32_t place, std::uint32_t depth);
  void free_below(std::uint32_t at);

  std::uint32_t depth_;
  Nodes nodes_;
  Texts tokens_;
  std::vector<Text> texts_;
  std::vector<std::uint32_t> free_texts_;
};

}  // namespace penstock
