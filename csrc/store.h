// Packed weights as a file holds them: the memory of all matrices from its beginning, in chunks of which each has a checksum.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pool.h"

namespace penstock {

constexpr std::size_t CHUNK_BYTES = 4 << 20;

// Of each chunk of memory.
std::vector<std::uint64_t> checksums(Pool& pool, const std::uint8_t* data, std::size_t bytes);
// Reads `bytes` of a file from `offset` on, in parallel. False where it has fewer, or where a checksum differs: then all is zero.
bool read_packed(Pool& pool, const std::string& path, std::size_t offset, std::uint8_t* data, std::size_t bytes, const std::vector<std::uint64_t>& sums);

}  // namespace penstock
