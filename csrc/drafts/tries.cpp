#include "tries.h"

#include <algorithm>
#include <stdexcept>

namespace penstock {

Tries::Tries(std::uint32_t depth, double likely, double doubt, std::uint64_t remembered)
    : depth_(depth), likely_(likely), doubt_(doubt), remembered_(remembered) {
  if (depth < 2) throw std::invalid_argument("a trie of depth " + std::to_string(depth) + " says nothing of what follows; 2 is the least");
}

void Tries::begin(std::int64_t seq_id, std::uint64_t num_prompt, const std::string& salt) {
  if (live_.count(seq_id)) throw std::invalid_argument("sequence " + std::to_string(seq_id) + " has begun already");
  std::unique_ptr<Shared>& shared = shared_[salt];
  if (!shared) shared = std::make_unique<Shared>(depth_, salt);
  live_[seq_id] = std::make_unique<Live>(depth_, *shared, num_prompt);
  ++shared->num_live;
}

Tries::Live& Tries::live(std::int64_t seq_id) const {
  const auto found = live_.find(seq_id);
  if (found == live_.end()) throw std::out_of_range("sequence " + std::to_string(seq_id) + " has not begun");
  return *found->second;
}

void Tries::learn(std::int64_t seq_id, const std::vector<Token>& tokens) {
  add(live(seq_id), tokens, true);
}

void Tries::add(Live& live, const std::vector<Token>& tokens, bool to_own) {
  try {
    for (const Token token : tokens) {
      if (to_own) live.own.extend(live.text, token);
      if (live.num_known++ >= live.num_prompt) live.shared.outputs.extend(live.output, token);
    }
    std::vector<Token>& recent = live.recent;
    recent.insert(recent.end(), tokens.end() - std::min<std::size_t>(tokens.size(), depth_ - 1), tokens.end());
    if (recent.size() > 4 * std::size_t{depth_}) recent.erase(recent.begin(), recent.end() - (depth_ - 1));
  } catch (...) {
    clear();
    throw;
  }
}

void Tries::clear() {
  live_.clear(), ended_.clear(), shared_.clear();
  num_ended_ = 0;
}

std::vector<Token> Tries::guess(std::int64_t seq_id, std::uint32_t max_tokens) const {
  const Live& live = this->live(seq_id);
  Guess own = live.own.follow(live.own.longest(live.text), live.recent, max_tokens, likely_, doubt_);
  Guess shared_guess = live.shared.outputs.follow(longest(live), live.recent, max_tokens, likely_, doubt_);
  return own.expected >= shared_guess.expected ? std::move(own.tokens) : std::move(shared_guess.tokens);
}

// The longest suffix of the sequence with a known continuation in the shared outputs. The sequence's own output is one of them; suffixes
// that reach into the prompt are looked up from short to long, and end at the first unknown one.
Trie::Position Tries::longest(const Live& live) const {
  Trie::Position longest = live.shared.outputs.longest(live.output);
  const std::uint64_t size = live.num_known - std::min(live.num_known, live.num_prompt);
  if (longest.depth < size) return longest;
  const Token* end = live.recent.data() + live.recent.size();
  const std::uint64_t max_depth = std::min<std::uint64_t>(live.num_known, depth_ - 1);
  for (std::uint32_t count = longest.depth + 1; count <= max_depth; ++count) {
    const Trie::Position place = live.shared.outputs.find(end - count, count);
    if (place.at == Trie::NONE) break;
    longest = place;
  }
  return longest;
}

void Tries::end(std::int64_t seq_id, const std::vector<Token>& tokens) {
  add(live(seq_id), tokens, false);
  forget(seq_id);
}

void Tries::forget(std::int64_t seq_id) {
  const auto found = live_.find(seq_id);
  if (found == live_.end()) return;
  const Live& live = *found->second;
  Shared& shared = live.shared;
  const Ended ended{&shared, live.output, live.num_known - std::min(live.num_known, live.num_prompt)};
  shared.outputs.end(live.output);
  --shared.num_live;
  live_.erase(found);
  if (ended.size == 0) return remove(ended);
  ended_.push_back(ended);
  num_ended_ += ended.size;
  while (num_ended_ > remembered_) {
    const Ended oldest = ended_.front();
    ended_.pop_front();
    num_ended_ -= oldest.size;
    remove(oldest);
  }
}

void Tries::remove(const Ended& ended) {
  ended.shared->outputs.remove(ended.output);
  if (ended.shared->num_live == 0 && ended.shared->outputs.is_empty()) shared_.erase(std::string(ended.shared->salt));
}

}  // namespace penstock
