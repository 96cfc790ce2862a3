// The store of the `suffix` proposer: a trie of each live sequence, and for each salt one of all outputs. The specification is
// penstock/compute/decoding/propose/tries.py, against which guesses are tested.
#pragma once
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "trie.h"

namespace penstock {

class Tries {
 public:
  Tries(std::uint32_t depth, double likely, double doubt, std::uint64_t remembered);
  Tries(const Tries&) = delete;

  // A new sequence.
  void begin(std::int64_t seq_id, std::uint64_t num_prompt, const std::string& salt);
  // Its tokens since the last call. Where memory runs out, here or in `end`, everything is forgotten: a run that some of the tries have
  // counted could not be taken back.
  void learn(std::int64_t seq_id, const std::vector<Token>& tokens);
  std::vector<Token> guess(std::int64_t seq_id, std::uint32_t max_tokens) const;
  // The sequence has ended with these tokens after those that it is known by. They are counted for others alone.
  void end(std::int64_t seq_id, const std::vector<Token>& tokens);
  // The sequence has ended; unknown ones are ignored.
  void forget(std::int64_t seq_id);

 private:
  struct Shared {  // by the sequences of one salt
    Shared(std::uint32_t depth, const std::string& salt) : outputs(depth), salt(salt) {}
    Trie outputs;
    std::string salt;
    std::uint32_t num_live = 0;
  };
  struct Live {
    Live(std::uint32_t depth, Shared& shared, std::uint64_t num_prompt)
        : own(depth), text(own.begin()), shared(shared), output(shared.outputs.begin()), num_prompt(num_prompt) {}
    Trie own;
    std::uint32_t text;
    Shared& shared;
    std::uint32_t output;
    std::uint64_t num_prompt, num_known = 0;
    std::vector<Token> recent;  // at least the last depth - 1 tokens
  };
  struct Ended {
    Shared* shared;
    std::uint32_t output;
    std::uint64_t size;
  };

  Live& live(std::int64_t seq_id) const;
  void add(Live& live, const std::vector<Token>& tokens, bool to_own);
  void clear();
  Trie::Position longest(const Live& live) const;
  void remove(const Ended& ended);

  std::uint32_t depth_;
  double likely_, doubt_;
  std::uint64_t remembered_;
  std::unordered_map<std::string, std::unique_ptr<Shared>> shared_;
  std::unordered_map<std::int64_t, std::unique_ptr<Live>> live_;
  std::deque<Ended> ended_;
  std::uint64_t num_ended_ = 0;  // tokens
};

}  // namespace penstock
