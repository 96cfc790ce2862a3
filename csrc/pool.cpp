#include "pool.h"

#include <chrono>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace penstock {

namespace {

constexpr auto AWAKE = std::chrono::microseconds(300);  // how long a thread without work spins before it sleeps
constexpr int PATIENCE = 4096;                          // turns of a spin before the core is offered to others

inline void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

}  // namespace

Pool::Pool(int threads, const std::vector<int>& cpus) : ranges_(threads), cpus_(cpus) {
  for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { work(i); });
}

Pool::~Pool() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (auto& each : threads_) each.join();
}

void Pool::pin(int cpu) {
#if defined(__linux__)
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);
#else
  (void)cpu;
#endif
}

void Pool::run(const std::function<void(int)>& body) {
  if (threads_.empty()) return body(0);
  body_ = &body;
  running_.store(static_cast<int>(threads_.size()), std::memory_order_relaxed);
  called_.fetch_add(1, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst) > 0) {
    { const std::lock_guard<std::mutex> lock(mutex_); }
    wake_.notify_all();
  }
  body(0);
  for (int spins = 0; running_.load(std::memory_order_acquire) > 0; pause())
    if (++spins > PATIENCE) std::this_thread::yield();
}

void Pool::work(int thread) {
  if (thread < static_cast<int>(cpus_.size())) pin(cpus_[thread]);
  for (std::uint64_t seen = 0;;) {
    auto since = std::chrono::steady_clock::now();
    for (int spins = 0; called_.load(std::memory_order_acquire) == seen && !ending_; pause())
      if (++spins % 64 == 0 && std::chrono::steady_clock::now() - since > AWAKE) {
        std::unique_lock<std::mutex> lock(mutex_);
        asleep_.fetch_add(1, std::memory_order_seq_cst);
        wake_.wait(lock, [&] { return called_.load(std::memory_order_seq_cst) != seen || ending_; });
        asleep_.fetch_sub(1, std::memory_order_seq_cst);
      }
    if (ending_) return;
    ++seen;
    (*body_)(thread);
    running_.fetch_sub(1, std::memory_order_release);
  }
}

void Pool::meet(int count) {
  const int threads = size();
  const auto fill = [&] {
    for (int i = 0; i < threads; ++i) {
      const std::uint64_t first = std::uint64_t(count) * i / threads, end = std::uint64_t(count) * (i + 1) / threads;
      ranges_[i].span.store(first << 32 | end, std::memory_order_relaxed);
    }
  };
  if (threads == 1) return fill();
  const std::uint32_t turn = turn_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads) {
    fill();
    arrived_.store(0, std::memory_order_relaxed);
    turn_.store(turn + 1, std::memory_order_release);
    return;
  }
  for (int spins = 0; turn_.load(std::memory_order_acquire) == turn; pause())
    if (++spins > PATIENCE) std::this_thread::yield();
}

int Pool::next(int thread) {
  const int threads = size();
  for (int i = 0; i < threads; ++i) {
    auto& span = ranges_[(thread + i) % threads].span;
    for (std::uint64_t seen = span.load(std::memory_order_relaxed);;) {
      const std::uint64_t first = seen >> 32, end = seen & 0xffffffffu;
      if (first >= end) break;
      const std::uint64_t rest = i == 0 ? (first + 1) << 32 | end : first << 32 | (end - 1);
      if (span.compare_exchange_weak(seen, rest, std::memory_order_relaxed)) return static_cast<int>(i == 0 ? first : end - 1);
    }
  }
  return -1;
}

}  // namespace penstock
