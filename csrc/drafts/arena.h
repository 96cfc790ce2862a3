// A growing array of trivially copyable values with 31-bit indices, which leaves the highest bit to its users.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace penstock {

template <class T> class Arena {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  static constexpr std::uint32_t MOST = 1u << 31;

  Arena() = default;
  ~Arena() { std::free(data_); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  T& operator[](std::uint32_t at) { return data_[at]; }
  const T& operator[](std::uint32_t at) const { return data_[at]; }
  std::uint32_t size() const { return size_; }

  // Appends `count` uninitialized values and returns the index of the first. Invalidates pointers.
  std::uint32_t add(std::uint32_t count) {
    const std::uint64_t wanted = std::uint64_t{size_} + count;
    if (wanted > MOST)
      throw std::length_error(std::to_string(wanted) + " entries are too many for a store of drafts, which holds " + std::to_string(MOST));
    if (wanted > capacity_) grow(wanted);
    const std::uint32_t at = size_;
    size_ = static_cast<std::uint32_t>(wanted);
    return at;
  }

 private:
  void grow(std::uint64_t wanted) {
    const std::uint64_t larger = std::uint64_t{capacity_} + capacity_ / 2, capacity = wanted > larger ? wanted : larger;
    T* data = static_cast<T*>(std::realloc(data_, capacity * sizeof(T)));
    if (!data) throw std::bad_alloc();
    data_ = data, capacity_ = static_cast<std::uint32_t>(capacity);
  }

  T* data_ = nullptr;
  std::uint32_t size_ = 0, capacity_ = 0;
};

}  // namespace penstock
