#include "trie.h"

#include <algorithm>
#include <utility>

namespace penstock {

Trie::Trie(std::uint32_t depth) : depth_(depth) { nodes_.make(); }

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
  texts_[text].grows = true;
  return text;
}

void Trie::extend(std::uint32_t text, Token token) {
  Text& grown = texts_[text];
  grown.end = tokens_.append(grown.end, token);
  std::vector<std::uint32_t>& ends = grown.ends;
  std::size_t size = 0, num_nodes = 0;
  for (std::uint32_t node = ROOT;; ++size) {
    const std::uint32_t longer = size < ends.size() ? ends[size] : NOWHERE;
    const std::uint32_t below = visit(node, token, static_cast<std::uint32_t>(size + 1), grown.end);
    if (below != NOWHERE) {
      if (num_nodes == ends.size()) ends.push_back(below);
      else ends[num_nodes] = below;
      ++num_nodes;
    }
    if (longer == NOWHERE) break;
    node = longer;
  }
  ends.resize(num_nodes);
}

// One more run of `depth` tokens, of which all but the last lead to `node`, in a text that ends there. Returns the run's node, if it has one.
std::uint32_t Trie::visit(std::uint32_t node, Token token, std::uint32_t depth, std::uint32_t end) {
  Edge* edge = nodes_.find(node, token);
  if (!edge) {
    nodes_.add(node, {token, 1, leaf(end, depth)});
    return NOWHERE;
  }
  ++edge->count;
  const std::uint32_t below = edge->below;
  if (!(below & LEAF)) return below;
  const std::uint32_t made = to_node(below & ~LEAF, depth);
  nodes_.find(node, token)->below = made;
  return made;
}

// A node for the leaf of a run of `depth` tokens. If the run is the end of a growing text, then this is its longest end that has a node:
// whoever meets it has met the shorter ones.
std::uint32_t Trie::to_node(std::uint32_t place, std::uint32_t depth) {
  const std::uint32_t node = nodes_.make();
  const Token token = tokens_.at(place);
  if (token != NO_TOKEN) {
    nodes_.add(node, {token, 1, depth + 1 < depth_ ? LEAF | tokens_.after(place) : NOWHERE});
    return node;
  }
  Text& owner = texts_[tokens_.owner(place)];
  if (owner.grows) owner.ends.push_back(node);
  return node;
}

void Trie::end(std::uint32_t text) {
  texts_[text].grows = false;
  std::vector<std::uint32_t>().swap(texts_[text].ends);
}

void Trie::remove(std::uint32_t text) {
  const std::uint32_t first = texts_[text].first;
  for (std::uint32_t start = first; tokens_.at(start) != NO_TOKEN; start = tokens_.after(start)) {
    std::uint32_t node = ROOT;
    for (std::uint32_t place = start; tokens_.at(place) != NO_TOKEN; place = tokens_.after(place)) {
      Edge* edge = nodes_.find(node, tokens_.at(place));
      const std::uint32_t below = edge->below;
      if (--edge->count == 0) {
        nodes_.erase(node, tokens_.at(place));
        free_below(below);
        break;
      }
      if (below == NOWHERE) break;
      node = below;
    }
  }
  tokens_.remove(first);
  free_texts_.push_back(text);
}

// What was below a run that is not there any more: a chain, since the run stood in one place.
void Trie::free_below(std::uint32_t at) {
  while (at != NOWHERE && !(at & LEAF)) {
    const Nodes::Range edges = nodes_.edges(at);
    const std::uint32_t below = edges.first == edges.last ? NOWHERE : edges.first->below;
    nodes_.free(at);
    at = below;
  }
}

Trie::Place Trie::longest(std::uint32_t text) const {
  const std::vector<std::uint32_t>& ends = texts_[text].ends;
  for (std::size_t size = ends.size(); size > 0; --size)
    if (nodes_.has_edges(ends[size - 1])) return {ends[size - 1], static_cast<std::uint32_t>(size)};
  return {NOWHERE, 0};
}

Trie::Place Trie::find(const Token* tokens, std::uint32_t count) const {
  std::uint32_t at = ROOT;
  for (std::uint32_t i = 0; i < count; ++i) {
    if (at & LEAF) {
      if (tokens_.at(at & ~LEAF) != tokens[i]) return {NOWHERE, 0};
      at = leaf(tokens_.after(at & ~LEAF), i + 1);
      continue;
    }
    const Edge* edge = nodes_.find(at, tokens[i]);
    if (!edge) return {NOWHERE, 0};
    at = edge->below;
  }
  const bool goes_on = at & LEAF ? tokens_.at(at & ~LEAF) != NO_TOKEN : nodes_.has_edges(at);
  return {goes_on ? at : NOWHERE, count};
}

Trie::Place Trie::longest_end(const std::vector<Token>& run) const {
  for (std::size_t count = std::min<std::size_t>(depth_ - 1, run.size()); count > 0; --count) {
    const Place place = find(run.data() + run.size() - count, static_cast<std::uint32_t>(count));
    if (place.at != NOWHERE) return place;
  }
  return {NOWHERE, 0};
}

Guess Trie::follow(Place place, std::vector<Token> run, std::uint32_t most, double likely, double doubt) const {
  Guess guess;
  double share = 1;
  auto [at, depth] = place;
  for (; guess.tokens.size() < most; ++depth) {
    if (depth == depth_) {
      const Place end = longest_end(run);
      at = end.at, depth = end.depth;
    }
    if (at == NOWHERE) break;
    Edge best{NO_TOKEN, 0, NOWHERE};
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
    share *= double(best.count) / (double(total) + doubt / double(depth));
    if (share < likely) break;
    guess.tokens.push_back(best.token);
    run.push_back(best.token);
    guess.expected += share;
    at = best.below;
  }
  return guess;
}

}  // namespace penstock
