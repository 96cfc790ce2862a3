#include "pool.h"

#include <stdexcept>
#include <string>

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

namespace {

// Keeps the thread that made it on one processor, as long as it lives. cpu -1: anywhere.
class Pinned {
 public:
#if defined(__linux__)
  explicit Pinned(int cpu) : pinned_(cpu >= 0 && sched_getaffinity(0, sizeof before_, &before_) == 0) {
    if (!pinned_) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~Pinned() {
    if (pinned_) sched_setaffinity(0, sizeof before_, &before_);
  }

 private:
  bool pinned_;
  cpu_set_t before_;
#else
  explicit Pinned(int) {}
#endif
};

int cpu_of(const std::vector<int>& cpus, int thread) { return thread < static_cast<int>(cpus.size()) ? cpus[thread] : -1; }

}  // namespace

Pool::Pool(int threads, const std::vector<int>& cpus) : cpus_(cpus) {
  try {
    for (int i = 1; i < threads; ++i) threads_.emplace_back([this, i] { serve(i); });
  } catch (const std::exception&) {
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
  const Pinned pinned(cpu_of(cpus_, 0));
  work->walk(0);
  if (work->failed_.load(std::memory_order_relaxed)) std::rethrow_exception(work->error_);
}

void Pool::settle() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    work_.reset();
  }
  while (walking_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
}

void Pool::serve(int thread) {
  const Pinned pinned(cpu_of(cpus_, thread));
  for (std::uint64_t seen = 0;;) {
    wait([&] { return called_.load(std::memory_order_seq_cst) != seen || ending_; }, IDLE);
    if (ending_) return;
    std::shared_ptr<Work> work;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      seen = called_.load(std::memory_order_seq_cst);
      work = work_;
      if (!work) continue;
      walking_.fetch_add(1, std::memory_order_relaxed);
    }
    work->walk(thread);
    work.reset();
    walking_.fetch_sub(1, std::memory_order_release);
  }
}

Work::Work(Pool& pool, int max_phases)
    : pool_(pool), threads_(pool.size()), phases_(max_phases), ranges_(static_cast<std::size_t>(max_phases) * threads_), cursors_(threads_) {}

void Work::fail() {
  if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();  // seen by whoever sees the phase done
}

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
