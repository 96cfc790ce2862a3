// Nodes of a trie and the edges below them. Most nodes have one edge, which they hold themselves; others have a hash table of 2, 4, 8, ..
// edges, open and linear. 16 bytes a node, 12 an edge of a table.
#pragma once
#include <array>
#include <cstdint>

#include "arena.h"
#include "texts.h"

namespace penstock {

struct Edge {
  Token token;
  std::uint32_t count;  // how often the run that ends with it was seen
  std::uint32_t below;  // what the owner of the nodes puts there
};

class Nodes {
 public:
  Nodes() { free_tables_.fill(NONE); }

  // A node without edges.
  std::uint32_t make();
  // Frees a node of one edge or none.
  void free(std::uint32_t node);

  bool has_edges(std::uint32_t node) const { return nodes_[node].num_edges; }
  // nullptr if there is none. Valid until anything is made or added.
  Edge* find(std::uint32_t node, Token token);
  const Edge* find(std::uint32_t node, Token token) const { return const_cast<Nodes*>(this)->find(node, token); }
  // Adds an edge whose token is not there yet.
  void add(std::uint32_t node, const Edge& edge);
  void erase(std::uint32_t node, Token token);

  struct Range {
    const Edge *first, *last;
    const Edge* begin() const { return first; }
    const Edge* end() const { return last; }
  };
  // The edges below a node, in no order; those of NO_TOKEN are none.
  Range edges(std::uint32_t node) const;

 private:
  struct Table {
    std::uint32_t first, bits;  // of its capacity
    std::uint32_t capacity() const { return 1u << bits; }
    // Small ones may be full.
    std::uint32_t most() const { return bits <= 3 ? capacity() : capacity() / 4 * 3; }
    std::uint32_t home(Token token) const { return (token * 0x9E3779B1u) >> (32 - bits); }
  };
  struct Node {
    std::uint32_t num_edges;
    union {
      Edge only;    // with one edge at most; once free, `below` is the next free one
      Table table;  // with more
    };
  };

  // Where an edge is, or the empty slot where it would be, or the capacity if there is neither.
  std::uint32_t slot(const Table& table, Token token) const;
  Table make_table(std::uint32_t bits);
  void free_table(const Table& table);
  void move(Node& node, std::uint32_t bits);  // its edges to a table of another size
  void close(const Table& table, std::uint32_t gap);

  static constexpr std::uint32_t NONE = UINT32_MAX;
  Arena<Node> nodes_;
  Arena<Edge> edges_;
  std::uint32_t free_node_ = NONE;
  std::array<std::uint32_t, 32> free_tables_;  // by bits
};

}  // namespace penstock
