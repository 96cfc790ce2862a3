#include "memory.h"

#include <cstdlib>
#include <cstring>
#include <new>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace penstock {

Memory::Memory(std::size_t bytes) {
  if (bytes == 0) return;
#if defined(__linux__)
  if (bytes >= HUGE_PAGE) {  // mmap returns zeros, and munmap returns all of it to the system
    bytes_ = round_up(bytes, HUGE_PAGE);
    void* at = mmap(nullptr, bytes_ + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    auto* begin = static_cast<std::uint8_t*>(at);
    data_ = reinterpret_cast<std::uint8_t*>(round_up(reinterpret_cast<std::uintptr_t>(at), HUGE_PAGE));
    if (data_ != begin) munmap(begin, data_ - begin);
    if (data_ != begin + HUGE_PAGE) munmap(data_ + bytes_, begin + HUGE_PAGE - data_);
    madvise(data_, bytes_, MADV_HUGEPAGE);
    mapped_ = true;
    return;
  }
#endif
  bytes_ = round_up(bytes, 64);
  data_ = static_cast<std::uint8_t*>(std::aligned_alloc(64, bytes_));
  if (!data_) throw std::bad_alloc();
  std::memset(data_, 0, bytes_);
}

Memory::~Memory() {
#if defined(__linux__)
  if (mapped_) {
    munmap(data_, bytes_);
    return;
  }
#endif
  std::free(data_);
}

}  // namespace penstock
