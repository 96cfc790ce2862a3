// Memory of models (weights, caches, buffers) and of what is read to measure the machine.
#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>

namespace penstock {

constexpr std::size_t HUGE_PAGE = std::size_t(2) << 20;

inline std::size_t round_up(std::size_t size, std::size_t unit) { return (size + unit - 1) / unit * unit; }

// Zero-initialized, 64-byte aligned memory; from HUGE_PAGE on, on huge pages where the system has them, committed when first touched.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept { swap(other); return *this; }
  void grow(std::size_t bytes) { if (bytes > bytes_) *this = Memory(bytes + bytes / 4); }  // loses the content
  std::uint8_t* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(Memory& other) { std::swap(data_, other.data_), std::swap(bytes_, other.bytes_), std::swap(mapped_, other.mapped_); }
  std::uint8_t* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool mapped_ = false;
};

}  // namespace penstock
