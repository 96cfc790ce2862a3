#include "trie.h"

#include <algorithm>
#include <utility>

namespace penstock {

Trie::Trie(std::uint32_t depth) : depth_(depth) { nodes_.make_node(); }

std::uint32_t Trie::begin() {
  std::uint32_t text = static_cast<std::uint32_t>(texts_.size());
  if (free_texts_.empty()) {
    texts_.emplace_back();
  } else {
    text = free_texts_.back();
    free_texts_.pop_back();
  }
  const std::uint32_t first = tokens_.begin(text);
  texts_[text].first = texts_[text].end = first;
  texts_[text].is_growing = true;
  return text;
}

void Trie::extend(std::uint32_t text, Token token) {
  Text& grown = texts_[text];
  grown.end = tokens_.append(grown.end, token);
  std::vector<std::uint32_t>& suffix_nodes = grown.suffix_nodes;
  std::size_t size = 0, num_nodes = 0;
  for (std::uint32_t node = ROOT;; ++size) {
    const std::uint32_t longer = size < suffix_nodes.size() ? suffix_nodes[size] : NONE;
    const std::uint32_t child = visit(node, token, static_cast<std::uint32_t>(size + 1), grown.end);
    if (child != NONE) {
      if (num_nodes == suffix_nodes.size()) suffix_nodes.push_back(child);
      else suffix_nodes[num_nodes] = child;
      ++num_nodes;
    }
    if (longer == NONE) break;
    node = longer;
  }
  suffix_nodes.resize(num_nodes);
}

// Counts one more occurrence of a run of `depth` tokens that ends at `end`; `node` is the node of the run without its last token. Returns
// the run's node, or NONE if it is a leaf.
std::uint32_t Trie::visit(std::uint32_t node, Token token, std::uint32_t depth, std::uint32_t end) {
  Edge* edge = nodes_.find(node, token);
  if (!edge) {
    nodes_.add(node, {token, 1, leaf(end, depth)});
    return NONE;
  }
  ++edge->count;
  const std::uint32_t child = edge->child;
  if (!(child & LEAF)) return child;
  const std::uint32_t made = expand_leaf(child & ~LEAF, depth);
  nodes_.find(node, token)->child = made;
  return made;
}

// Replaces the leaf of a run of `depth` tokens by a node. If the run is the suffix of a growing text, it is that text's longest suffix
// with a node, since shorter suffixes were expanded before.
std::uint32_t Trie::expand_leaf(std::uint32_t place, std::uint32_t depth) {
  const std::uint32_t node = nodes_.make_node();
  const Token token = tokens_.at(place);
  if (token != NO_TOKEN) {
    nodes_.add(node, {token, 1, depth + 1 < depth_ ? LEAF | tokens_.after(place) : NONE});
    return node;
  }
  Text& owner = texts_[tokens_.owner(place)];
  if (owner.is_growing) owner.suffix_nodes.push_back(node);
  return node;
}

void Trie::end(std::uint32_t text) {
  texts_[text].is_growing = false;
  std::vector<std::uint32_t>().swap(texts_[text].suffix_nodes);
}

void Trie::remove(std::uint32_t text) {
  const std::uint32_t first = texts_[text].first;
  for (std::uint32_t start = first; tokens_.at(start) != NO_TOKEN; start = tokens_.after(start)) {
    std::uint32_t node = ROOT;
    for (std::uint32_t place = start; tokens_.at(place) != NO_TOKEN; place = tokens_.after(place)) {
      Edge* edge = nodes_.find(node, tokens_.at(place));
      const std::uint32_t child = edge->child;
      if (--edge->count == 0) {
        nodes_.erase(node, tokens_.at(place));
        free_chain(child);
        break;
      }
      if (child == NONE) break;
      node = child;
    }
  }
  tokens_.remove(first);
  free_texts_.push_back(text);
}

// Frees the descendants of a run that is gone. They form a chain, since the run occurred once.
void Trie::free_chain(std::uint32_t at) {
  while (at != NONE && !(at & LEAF)) {
    const Nodes::Range edges = nodes_.edges(at);
    const std::uint32_t child = edges.first == edges.last ? NONE : edges.first->child;
    nodes_.free(at);
    at = child;
  }
}

Trie::Position Trie::longest(std::uint32_t text) const {
  const std::vector<std::uint32_t>& suffix_nodes = texts_[text].suffix_nodes;
  for (std::size_t size = suffix_nodes.size(); size > 0; --size)
    if (nodes_.has_edges(suffix_nodes[size - 1])) return {suffix_nodes[size - 1], static_cast<std::uint32_t>(size)};
  return {NONE, 0};
}

Trie::Position Trie::find(const Token* tokens, std::uint32_t count) const {
  std::uint32_t at = ROOT;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (at & LEAF) {
      if (tokens_.at(at & ~LEAF) != tokens[i]) return {NONE, 0};
      at = leaf(tokens_.after(at & ~LEAF), i + 1);
      continue;
    }
    const Edge* edge = nodes_.find(at, tokens[i]);
    if (!edge) return {NONE, 0};
    at = edge->child;
  }
  const bool is_continued = at & LEAF ? tokens_.at(at & ~LEAF) != NO_TOKEN : nodes_.has_edges(at);
  return {is_continued ? at : NONE, count};
}

Trie::Position Trie::longest_known_suffix(const std::vector<Token>& run) const {
  for (std::size_t count = std::min<std::size_t>(depth_ - 1, run.size()); count > 0; --count) {
    const Position place = find(run.data() + run.size() - count, static_cast<std::uint32_t>(count));
    if (place.at != NONE) return place;
  }
  return {NONE, 0};
}

Guess Trie::follow(Position place, std::vector<Token> run, std::uint32_t max_tokens, double likely, double doubt) const {
  Guess guess;
  double probability = 1;
  auto [at, depth] = place;
  for (; guess.tokens.size() < max_tokens; ++depth) {
    if (depth == depth_) {
      const Position end = longest_known_suffix(run);
      at = end.at, depth = end.depth;
    }
    if (at == NONE) break;
    Edge best{NO_TOKEN, 0, NONE};
    std::uint64_t total = 0;
    if (at & LEAF) {
      const std::uint32_t here = at & ~LEAF;
      if (tokens_.at(here) == NO_TOKEN) break;
      best = {tokens_.at(here), 1, leaf(tokens_.after(here), depth + 1)}, total = 1;
    } else {
      for (const Edge& edge : nodes_.edges(at)) {
        if (edge.token == NO_TOKEN) continue;
        total += edge.count;
        if (edge.count > best.count || (edge.count == best.count && edge.token < best.token)) best = edge;
      }
      if (total == 0) break;
    }
    probability *= double(best.count) / (double(total) + doubt / double(depth));
    if (probability < likely) break;
    guess.tokens.push_back(best.token);
    run.push_back(best.token);
    guess.expected += probability;
    at = best.child;
  }
  return guess;
}

}  // namespace penstock
