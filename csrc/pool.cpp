#include "pool.h"

#include <stdexcept>
#include <string>
#include <system_error>

#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace penstock {

void Pool::pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

Pool::Pool(int threads, const std::vector<int>& cpus) {
  try {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i, cpu = i < static_cast<int>(cpus.size()) ? cpus[i] : -1] { serve(i, cpu); });
  } catch (const std::system_error&) {
    const std::size_t most = threads_.size() + 1;
    end();
    throw std::runtime_error(std::to_string(threads) + " threads were asked for, but the system gives " + std::to_string(most));
  }
}

Pool::~Pool() { end(); }

void Pool::end() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (auto& each : threads_) each.join();
}

void Pool::wake() {
  if (asleep_.load(std::memory_order_seq_cst) == 0) return;
  { const std::lock_guard<std::mutex> lock(mutex_); }  // whoever counts as asleep has looked before, or waits by now
  wake_.notify_all();
}

void Pool::run(const std::shared_ptr<Work>& work) {
  if (!threads_.empty()) {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      work_ = work;
      called_.fetch_add(1, std::memory_order_seq_cst);  // under the lock: nobody walks one work twice
    }
    wake();
  }
  work->walk(0);
}

void Pool::settle() {
  std::weak_ptr<Work> last;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    last = work_;
    work_.reset();
  }
  while (!last.expired()) std::this_thread::yield();
}

void Pool::serve(int thread, int cpu) {
#if defined(__linux__)
  if (cpu >= 0) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    sched_setaffinity(0, sizeof set, &set);
  }
#else
  (void)cpu;
#endif
  for (std::uint64_t seen = 0;;) {
    wait([&] { return called_.load(std::memory_order_seq_cst) != seen || ending_; }, IDLE);
    if (ending_) return;
    std::shared_ptr<Work> work;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      seen = called_.load(std::memory_order_seq_cst);
      work = work_;
    }
    if (work) work->walk(thread);
  }
}

Work::Work(Pool& pool, int max_phases)
    : pool_(pool), threads_(pool.size()), phases_(max_phases), ranges_(static_cast<std::size_t>(max_phases) * threads_), cursors_(threads_) {}

void Work::open(Phase& phase, Range* ranges, int count) {
  int fresh = 0;
  if (phase.stage.load(std::memory_order_acquire) == 2) return;
  if (!phase.stage.compare_exchange_strong(fresh, 1, std::memory_order_acq_rel))
    return pool_.wait([&] { return phase.stage.load(std::memory_order_seq_cst) == 2; }, MET);
  for (int i = 0; i < threads_; ++i) {
    const std::uint64_t first = std::uint64_t(count) * i / threads_, end = std::uint64_t(count) * (i + 1) / threads_;
    ranges[i].span.store(first << 32 | end, std::memory_order_relaxed);
  }
  phase.stage.store(2, std::memory_order_seq_cst);
  pool_.wake();
}

int Work::next(Range* ranges, int thread) {
  for (int i = 0; i < threads_; ++i) {
    auto& span = ranges[(thread + i) % threads_].span;
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
