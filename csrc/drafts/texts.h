// Token storage of many texts that grow concurrently. A text is a linked list of chunks, so a place (index of a token) is stable while
// the text lives. The place after the last token holds NO_TOKEN.
#pragma once
#include <cstdint>

#include "arena.h"

namespace penstock {

using Token = std::uint32_t;
constexpr Token NO_TOKEN = UINT32_MAX;

class Texts {
 public:
  // First place of a new text. `owner`: any number of the caller.
  std::uint32_t begin(std::uint32_t owner) { return make(owner) * CHUNK; }

  Token at(std::uint32_t place) const { return tokens_[place]; }
  std::uint32_t owner(std::uint32_t place) const { return chunks_[place / CHUNK].owner; }
  // The next place; a token must be stored at `place`.
  std::uint32_t after(std::uint32_t place) const { return (place + 1) % CHUNK ? place + 1 : chunks_[place / CHUNK].next * CHUNK; }

  // Appends a token; returns the new end.
  std::uint32_t append(std::uint32_t end, Token token) {
    if ((end + 1) % CHUNK == 0) {
      const std::uint32_t next = make(owner(end));
      chunks_[end / CHUNK].next = next;
    }
    tokens_[end] = token;
    return after(end);
  }

  // Frees a whole text.
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
