// Trie nodes and their edges. A node with one edge holds it inline (most do); others have a hash table of 2^bits edges with linear
// probing. 16 bytes per node, 12 per table entry.
#pragma once
#include <array>
#include <cstdint>

#include "arena.h"
#include "hash.h"
#include "texts.h"

namespace penstock {

struct Edge {
  Token token;
  std::uint32_t count;  // occurrences of the token sequence that ends with this edge
  std::uint32_t child;  // opaque: defined by the trie
};

class Nodes {
 public:
  Nodes() { free_tables_.fill(NONE); }

  // A node without edges.
  std::uint32_t make_node();
  // Frees a node with at most one edge.
  void free(std::uint32_t node);

  bool has_edges(std::uint32_t node) const { return nodes_[node].num_edges; }
  // nullptr if there is none. Invalidated by insertions.
  Edge* find(std::uint32_t node, Token token);
  const Edge* find(std::uint32_t node, Token token) const { return const_cast<Nodes*>(this)->find(node, token); }
  // The token must not be present.
  void add(std::uint32_t node, const Edge& edge);
  void erase(std::uint32_t node, Token token);

  struct Range {
    const Edge *first, *last;
    const Edge* begin() const { return first; }
    const Edge* end() const { return last; }
  };
  // Edges of a node, unordered; entries of NO_TOKEN are empty.
  Range edges(std::uint32_t node) const;

 private:
  struct Table {
    std::uint32_t first, bits;  // capacity is 2^bits
    std::uint32_t capacity() const { return 1u << bits; }
    // Small tables may be full.
    std::uint32_t max_edges() const { return bits <= 3 ? capacity() : capacity() / 4 * 3; }
    std::uint32_t home_slot(Token token) const { return place_of(token, bits); }
  };
  struct Node {
    std::uint32_t num_edges;
    union {
      Edge single;  // at most one edge; in free nodes `child` is the next free node
      Table table;  // two or more edges
    };
  };

  // Index of the edge, or of the empty entry where it belongs, or the capacity if the table is full.
  std::uint32_t slot(const Table& table, Token token) const;
  Table make_table(std::uint32_t bits);
  void free_table(const Table& table);
  void rehash(Node& node, std::uint32_t bits);  // moves the edges to a table of 2^bits
  void close_gap(const Table& table, std::uint32_t gap);

  static constexpr std::uint32_t NONE = UINT32_MAX;
  Arena<Node> nodes_;
  Arena<Edge> edges_;
  std::uint32_t free_node_ = NONE;
  std::array<std::uint32_t, 32> free_tables_;  // free lists by size
};

}  // namespace penstock
