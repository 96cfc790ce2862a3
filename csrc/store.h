// Files of packed weights: the memory of all matrices, in chunks with a checksum each.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "pool.h"

namespace penstock {

constexpr std::size_t FILE_CHUNK_BYTES = 4 << 20;

// One per chunk.
std::vector<std::uint64_t> checksums(Pool& pool, const std::uint8_t* data, std::size_t bytes);
// Reads `bytes` from `offset` of the file, in parallel. False, and all zeros, if the file is too short or a checksum differs.
bool read_packed(Pool& pool, const std::string& path, std::size_t offset, std::uint8_t* data, std::size_t bytes,
                 const std::vector<std::uint64_t>& sums);

}  // namespace penstock
