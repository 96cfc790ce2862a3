#include "pool.h"

#include <stdexcept>
#include <string>

#include <unistd.h>
#if defined(__linux__)
#include <sched.h>
#endif
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "arithmetic.h"

namespace penstock {

void Pool::pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

namespace {

// Pins the calling thread to a CPU for its lifetime; -1: not at all.
class ScopedAffinity {
 public:
#if defined(__linux__)
  explicit ScopedAffinity(int cpu) : active_(cpu >= 0 && sched_getaffinity(0, sizeof previous_, &previous_) == 0) {
    if (!active_) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    sched_setaffinity(0, sizeof one, &one);
  }
  ~ScopedAffinity() {
    if (active_) sched_setaffinity(0, sizeof previous_, &previous_);
  }

 private:
  bool active_;
  cpu_set_t previous_;
#else
  explicit ScopedAffinity(int) {}
#endif
};

int cpu_of(const std::vector<int>& cpus, int thread) { return thread < static_cast<int>(cpus.size()) ? cpus[thread] : -1; }

}  // namespace

Pool::Pool(int threads, const std::vector<int>& cpus) : cpus_(cpus), process_(getpid()), workers_(std::make_unique<Workers>()) {
  auto& started = workers_->threads;
  try {
    for (int i = 1; i < threads; ++i) started.emplace_back([this, i] { worker_loop(i); });
  } catch (const std::exception&) {
    const std::size_t num_started = started.size() + 1;
    join_workers();
    throw std::runtime_error(std::to_string(threads) + " threads were asked for, but the system gives " + std::to_string(num_started));
  }
}

Pool::~Pool() {
  if (is_forked()) static_cast<void>(workers_.release());
  else join_workers();
}

bool Pool::is_forked() const { return getpid() != process_; }

void Pool::join_workers() {
  {
    const std::lock_guard<std::mutex> lock(workers_->mutex);
    stopping_ = true;
  }
  workers_->wake.notify_all();
  for (auto& each : workers_->threads) each.join();
}

void Pool::wake() {
  if (num_sleeping_.load(std::memory_order_seq_cst) == 0) return;
  { const std::lock_guard<std::mutex> lock(workers_->mutex); }  // a thread that counts as sleeping has not checked yet, or waits by now
  workers_->wake.notify_all();
}

void Pool::run(const std::shared_ptr<Work>& work) {
  if (is_forked()) {
    num_sleeping_ = 0;  // nobody is there to be woken
  } else if (size() > 1) {
    {
      const std::lock_guard<std::mutex> lock(workers_->mutex);
      work_ = work;
      run_count_.fetch_add(1, std::memory_order_seq_cst);  // under the lock: no thread runs one work twice
    }
    wake();
  }
  const ScopedAffinity affinity(cpu_of(cpus_, 0));
  const DefaultArithmetic arithmetic;
  work->run_phases(0);
  if (work->failed_.load(std::memory_order_relaxed)) std::rethrow_exception(work->error_);
}

void Pool::drain() {
  if (is_forked()) return;
  {
    const std::lock_guard<std::mutex> lock(workers_->mutex);
    work_.reset();
  }
  while (num_active_.load(std::memory_order_acquire) > 0) std::this_thread::yield();
}

void Pool::worker_loop(int thread) {
  const ScopedAffinity affinity(cpu_of(cpus_, thread));
  const DefaultArithmetic arithmetic;
  for (std::uint64_t current = 0;;) {
    wait([&] { return run_count_.load(std::memory_order_seq_cst) != current || stopping_; }, IDLE_SPIN);
    if (stopping_) return;
    std::shared_ptr<Work> work;
    {
      const std::lock_guard<std::mutex> lock(workers_->mutex);
      current = run_count_.load(std::memory_order_seq_cst);
      work = work_;
      if (!work) continue;
      num_active_.fetch_add(1, std::memory_order_relaxed);
    }
    work->run_phases(thread);
    work.reset();
    num_active_.fetch_sub(1, std::memory_order_release);
  }
}

Work::Work(Pool& pool, int max_phases)
    : pool_(pool), threads_(pool.size()), phases_(max_phases), ranges_(std::size_t(max_phases) * threads_), cursors_(threads_) {}

void Work::record_exception() {
  if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();  // published by the phase's `done`
}

Work::Tasks Work::next_tasks(Range* ranges, int thread, int count, RunLength length) {
  const auto first_of = [&](int owner) { return static_cast<int>(std::int64_t{count} * owner / threads_); };
  for (int i = 0; i < threads_; ++i) {
    const int owner = (thread + i) % threads_, least = i == 0 ? length.least : 1;  // of another's range half is enough: it may come yet
    auto& span = ranges[owner].span;
    for (std::uint64_t current = span.load(std::memory_order_relaxed);;) {
      const bool is_untouched = current == UNTOUCHED;
      const int first = is_untouched ? first_of(owner) : static_cast<int>(current >> 32);
      const int end = is_untouched ? first_of(owner + 1) : static_cast<int>(current & 0xffffffffu);
      if (first >= end) break;
      const int taking = std::min(end - first, std::clamp((end - first) / 2, least, length.most));
      const Tasks taken = i == 0 ? Tasks{first, first + taking} : Tasks{end - taking, end};
      const Tasks left = i == 0 ? Tasks{taken.end, end} : Tasks{first, taken.first};
      const std::uint64_t packed = std::uint64_t(left.first) << 32 | std::uint64_t(left.end);
      if (span.compare_exchange_weak(current, packed, std::memory_order_relaxed)) return taken;
    }
  }
  return {0, 0};
}

}  // namespace penstock
