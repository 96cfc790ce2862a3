#include "runs.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "hash.h"

namespace penstock {

Runs::Runs(std::uint32_t min_run, std::uint32_t max_run) : prefixes_{0}, powers_{1} {
  if (min_run < 1 || min_run > max_run)
    throw std::invalid_argument("runs of " + std::to_string(min_run) + " to " + std::to_string(max_run) + " tokens");
  for (std::uint32_t size = 1; size <= max_run; ++size) powers_.push_back(powers_.back() * (HASH_KEY | 1));
  for (std::uint32_t size = min_run; size <= max_run; ++size) tables_.push_back({size, 0, size, std::vector<std::uint32_t>(64)});
}

void Runs::extend(const std::vector<Token>& tokens) {
  if (tokens_.size() + tokens.size() > UINT32_MAX) throw std::length_error("a sequence of more than 4294967295 tokens");
  prefixes_.resize(tokens_.size() + 1);  // one more where memory ran out between the two
  for (const Token token : tokens) {
    prefixes_.push_back(prefixes_.back() * powers_[1] + mixed(HASH_KEY, token));
    tokens_.push_back(token);
  }
}

std::vector<Token> Runs::guess(std::uint32_t max_tokens, bool only_longest) {
  const std::uint32_t end = static_cast<std::uint32_t>(tokens_.size());
  std::uint32_t at = only_longest ? find(tables_.back()) : 0;
  for (std::size_t i = 0; !only_longest && i < tables_.size(); ++i) {
    const std::uint32_t found = find(tables_[i]);
    if (!found) break;  // where a run is unknown, so is every longer one
    at = found;
  }
  std::vector<Token> guess;
  for (std::uint32_t from = at; at && guess.size() < max_tokens; from = from + 1 == end ? at : from + 1) guess.push_back(tokens_[from]);
  return guess;
}

std::uint64_t Runs::hash(std::uint32_t end, std::uint32_t size) const {
  return (prefixes_[end] - prefixes_[end - size] * powers_[size]) * HASH_FACTOR >> 32;
}

std::size_t Runs::slot(const Table& table, std::uint32_t end) const {
  const Token* run = tokens_.data() + (end - table.size);
  const std::size_t mask = table.ends.size() - 1;
  std::size_t i = hash(end, table.size) & mask;
  while (table.ends[i] && !std::equal(run, run + table.size, tokens_.data() + (table.ends[i] - table.size))) i = (i + 1) & mask;
  return i;
}

std::uint32_t Runs::find(Table& table) {
  const std::uint32_t end = static_cast<std::uint32_t>(tokens_.size());
  for (; table.next < end; ++table.next) put(table, table.next);
  return table.size < end ? table.ends[slot(table, end)] : 0;
}

void Runs::put(Table& table, std::uint32_t end) {
  std::uint32_t& here = table.ends[slot(table, end)];
  const bool is_new = !here;
  here = end;
  if (is_new && ++table.num * 2 > table.ends.size()) grow(table);
}

void Runs::grow(Table& table) {
  const std::vector<std::uint32_t> ends = std::exchange(table.ends, std::vector<std::uint32_t>(table.ends.size() * 2));
  for (const std::uint32_t end : ends)
    if (end) table.ends[slot(table, end)] = end;
}

}  // namespace penstock
