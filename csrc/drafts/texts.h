// The tokens of texts of which many grow at the same time. A place is a number that stays what it is while its text lives; each text
// has places in chunks of its own, and one place more than tokens, at which NO_TOKEN stands.
#pragma once
#include <cstdint>

#include "arena.h"

namespace penstock {

using Token = std::uint32_t;
constexpr Token NO_TOKEN = UINT32_MAX;

class Texts {
 public:
  // The first place of a new text. `owner`: a number of the caller's.
  std::uint32_t begin(std::uint32_t owner) { return make(owner) * CHUNK; }

  Token at(std::uint32_t place) const { return tokens_[place]; }
  std::uint32_t owner(std::uint32_t place) const { return chunks_[place / CHUNK].owner; }
  // Of a place at which a token stands.
  std::uint32_t after(std::uint32_t place) const { return (place + 1) % CHUNK ? place + 1 : chunks_[place / CHUNK].next * CHUNK; }

  // Puts a token at the end of a text; returns its new end.
  std::uint32_t append(std::uint32_t end, Token token) {
    if ((end + 1) % CHUNK == 0) {
      const std::uint32_t next = make(owner(end));
      chunks_[end / CHUNK].next = next;
    }
    tokens_[end] = token;
    return after(end);
  }

  // Of a whole text.
  void remove(std::uint32_t first) {
    for (std::uint32_t chunk = first / CHUNK; chunk != NONE;) {
      const std::uint32_t next = chunks_[chunk].next;
      chunks_[chunk].next = free_, free_ = chunk, chunk = next;
    }
  }

 private:
  static constexpr std::uint32_t CHUNK = 64, NONE = UINT32_MAX;
  struct Chunk {
    std::uint32_t next, owner;
  };

  std::uint32_t make(std::uint32_t owner) {
    std::uint32_t chunk = free_;
    if (chunk != NONE) {
      free_ = chunks_[chunk].next;
    } else {
      tokens_.add(CHUNK);
      chunk = chunks_.add(1);
    }
    chunks_[chunk] = {NONE, owner};
    for (std::uint32_t i = 0; i < CHUNK; ++i) tokens_[chunk * CHUNK + i] = NO_TOKEN;
    return chunk;
  }

  Arena<Token> tokens_;  // [chunks, CHUNK]
  Arena<Chunk> chunks_;
  std::uint32_t free_ = NONE;
};

}  // namespace penstock
