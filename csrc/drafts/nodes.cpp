#include "nodes.h"

namespace penstock {

std::uint32_t Nodes::make_node() {
  std::uint32_t node = free_node_;
  if (node != NONE) free_node_ = nodes_[node].single.child;
  else node = nodes_.add(1);
  nodes_[node].num_edges = 0;
  return node;
}

void Nodes::free(std::uint32_t node) {
  nodes_[node].single.child = free_node_;
  free_node_ = node;
}

Edge* Nodes::find(std::uint32_t node, Token token) {
  Node& at = nodes_[node];
  if (at.num_edges <= 1) return at.num_edges && at.single.token == token ? &at.single : nullptr;
  const std::uint32_t i = slot(at.table, token);
  if (i == at.table.capacity()) return nullptr;
  Edge& edge = edges_[at.table.first + i];
  return edge.token == token ? &edge : nullptr;
}

std::uint32_t Nodes::slot(const Table& table, Token token) const {
  const std::uint32_t capacity = table.capacity();
  std::uint32_t i = table.home_slot(token);
  for (std::uint32_t tried = 0; tried < capacity; ++tried, i = (i + 1) & (capacity - 1)) {
    const Token here = edges_[table.first + i].token;
    if (here == token || here == NO_TOKEN) return i;
  }
  return capacity;
}

void Nodes::add(std::uint32_t node, const Edge& edge) {
  Node& at = nodes_[node];
  if (at.num_edges == 0) {
    at.num_edges = 1, at.single = edge;
    return;
  }
  if (at.num_edges == 1) rehash(at, 1);
  else if (at.num_edges == at.table.max_edges()) rehash(at, at.table.bits + 1);
  edges_[at.table.first + slot(at.table, edge.token)] = edge;
  ++at.num_edges;
}

void Nodes::erase(std::uint32_t node, Token token) {
  Node& at = nodes_[node];
  if (--at.num_edges == 0) return;
  const Table table = at.table;
  close_gap(table, slot(table, token));
  if (at.num_edges == 1) {
    std::uint32_t i = table.first;
    while (edges_[i].token == NO_TOKEN) ++i;
    at.single = edges_[i];
    free_table(table);
  } else if (at.num_edges <= table.capacity() / 4) {
    rehash(at, table.bits - 1);
  }
}

// Deletion in linear probing: shifts later edges into the gap unless that moves them before their home slot.
void Nodes::close_gap(const Table& table, std::uint32_t gap) {
  Edge* edges = &edges_[table.first];
  const std::uint32_t mask = table.capacity() - 1;
  for (std::uint32_t tried = 0, i = (gap + 1) & mask; tried < mask && edges[i].token != NO_TOKEN; ++tried, i = (i + 1) & mask) {
    if (((i - table.home_slot(edges[i].token)) & mask) < ((i - gap) & mask)) continue;
    edges[gap] = edges[i];
    gap = i;
  }
  edges[gap].token = NO_TOKEN;
}

Nodes::Range Nodes::edges(std::uint32_t node) const {
  const Node& at = nodes_[node];
  if (at.num_edges <= 1) return {&at.single, &at.single + at.num_edges};
  const Edge* first = &edges_[at.table.first];
  return {first, first + at.table.capacity()};
}

Nodes::Table Nodes::make_table(std::uint32_t bits) {
  Table table{free_tables_[bits], bits};
  if (table.first != NONE) free_tables_[bits] = edges_[table.first].child;
  else table.first = edges_.add(table.capacity());
  for (std::uint32_t i = 0; i < table.capacity(); ++i) edges_[table.first + i].token = NO_TOKEN;
  return table;
}

void Nodes::free_table(const Table& table) {
  edges_[table.first].child = free_tables_[table.bits];
  free_tables_[table.bits] = table.first;
}

void Nodes::rehash(Node& node, std::uint32_t bits) {
  const Table larger = make_table(bits);
  if (node.num_edges == 1) {
    edges_[larger.first + slot(larger, node.single.token)] = node.single;
  } else {
    const Table old = node.table;
    for (std::uint32_t i = 0; i < old.capacity(); ++i) {
      const Edge edge = edges_[old.first + i];
      if (edge.token != NO_TOKEN) edges_[larger.first + slot(larger, edge.token)] = edge;
    }
    free_table(old);
  }
  node.table = larger;
}

}  // namespace penstock
