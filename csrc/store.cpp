#include "store.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

namespace penstock {

namespace {

constexpr int NUM_SUMS = 16;  // interleaved checksums

// Fletcher checksums of 16 interleaved sequences of 32-bit words, which vectorize, hashed to one. Detects changed, swapped and zeroed
// words.
std::uint64_t checksum(const std::uint8_t* data, std::size_t bytes) {
  std::uint32_t first[NUM_SUMS] = {}, second[NUM_SUMS] = {};
  const auto add = [&](const std::uint32_t* words) {
    for (int i = 0; i < NUM_SUMS; ++i) first[i] += words[i], second[i] += first[i];
  };
  std::uint32_t words[NUM_SUMS];
  std::size_t at = 0;
  for (; at + sizeof words <= bytes; at += sizeof words) {
    std::memcpy(words, data + at, sizeof words);
    add(words);
  }
  std::memset(words, 0, sizeof words);
  std::memcpy(words, data + at, bytes - at);
  add(words);
  std::uint64_t sum = 14695981039346656037u;  // FNV-1a over words
  for (int i = 0; i < NUM_SUMS; ++i) sum = ((sum ^ first[i]) * 1099511628211u ^ second[i]) * 1099511628211u;
  return sum;
}

int num_chunks(std::size_t bytes) { return static_cast<int>((bytes + FILE_CHUNK_BYTES - 1) / FILE_CHUNK_BYTES); }

// Calls task(chunk, first byte, bytes) for each chunk.
template <class Task> class Chunks : public Work {
 public:
  Chunks(Pool& pool, std::size_t bytes, const Task& task) : Work(pool, 1), bytes_(bytes), task_(task) {}
  void run_phases(int thread) override {
    parallel_for(thread, num_chunks(bytes_), [this](int chunk) {
      const std::size_t first = chunk * FILE_CHUNK_BYTES;
      task_(chunk, first, std::min(FILE_CHUNK_BYTES, bytes_ - first));
    });
  }

 private:
  const std::size_t bytes_;
  const Task task_;
};

template <class Task> void for_each_chunk(Pool& pool, std::size_t bytes, const Task& task) {
  pool.run(std::make_shared<Chunks<Task>>(pool, bytes, task));
}

bool read_all(int file, std::uint8_t* to, std::size_t bytes, std::size_t offset) {
  while (bytes > 0) {
    const ssize_t got = pread(file, to, bytes, static_cast<off_t>(offset));
    if (got <= 0) return false;
    to += got, offset += got, bytes -= got;
  }
  return true;
}

}  // namespace

std::vector<std::uint64_t> checksums(Pool& pool, const std::uint8_t* data, std::size_t bytes) {
  std::vector<std::uint64_t> sums(num_chunks(bytes));
  for_each_chunk(pool, bytes, [&](int chunk, std::size_t first, std::size_t count) { sums[chunk] = checksum(data + first, count); });
  return sums;
}

bool read_packed(Pool& pool, const std::string& path, std::size_t offset, std::uint8_t* data, std::size_t bytes,
                 const std::vector<std::uint64_t>& sums) {
  if (static_cast<int>(sums.size()) != num_chunks(bytes)) return false;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  std::atomic<bool> intact{true};
  for_each_chunk(pool, bytes, [&](int chunk, std::size_t first, std::size_t count) {
    if (!intact) return;
    if (!read_all(file, data + first, count, offset + first) || checksum(data + first, count) != sums[chunk]) intact = false;
  });
  close(file);
  if (!intact) std::memset(data, 0, bytes);
  return intact;
}

}  // namespace penstock
