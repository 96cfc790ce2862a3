// Threads that do one piece of work together, phase by phase.
//
// A phase is a number of tasks; it ends when all are done, not when all threads have come: one that lost its core to another program
// holds nobody up unless it was in the midst of a task. Each thread begins with a stretch of its own, which streams memory in order,
// and takes from the end of others' when its own is done.
//
// What a task throws is kept, the tasks after it are passed over, and the run throws it when all phases have ended.
//
// Between two runs the threads spin for a moment, because the next step of a busy engine comes soon, and then sleep: an idle engine
// burns no core.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock {

class Pool;

constexpr int SHARES = 4;     // tasks for each thread at least, where there are as many rows
constexpr int MOST_ROWS = 8;  // of one task

// Work in phases. Every thread walks the same phases in the same order; one that comes late passes over those that are done, so a walk
// must be free to run, without touching anything but the work itself, after the run has ended. What may have changed by then is looked
// at in tasks alone.
class Work {
 public:
  Work(Pool& pool, int max_phases);
  virtual ~Work() = default;
  virtual void walk(int thread) = 0;

 protected:
  // The next phase: tasks 0 .. count - 1, the same count on all threads. A thread calls prepare() before its first task.
  template <class Prepare, class Task> void share(int thread, int count, const Prepare& prepare, const Task& task);
  template <class Task> void share(int thread, int count, const Task& task) {
    share(thread, count, [] {}, task);
  }
  // The same of rows, some of which are one task where there are many: to take a task costs as much as a little work on a row.
  template <class Task> void share_rows(int thread, int count, const Task& task) {
    const int most = threads_ * MOST_ROWS, tasks = std::min(count, threads_ * std::max(SHARES, (count + most - 1) / most));
    const auto first = [&](int i) { return static_cast<int>(std::int64_t{count} * i / tasks); };
    share(thread, tasks, [&](int i) {
      for (int row = first(i); row < first(i + 1); ++row) task(row);
    });
  }

 private:
  friend class Pool;
  struct alignas(64) Phase {
    std::atomic<int> stage{0};  // 1: somebody fills its ranges, 2: they are filled
    std::atomic<int> done{0};
  };
  struct alignas(64) Range {
    std::atomic<std::uint64_t> span{0};  // first task in the upper half, the end in the lower one
  };
  struct alignas(64) Cursor {
    int phase = 0;
  };
  void open(Phase& phase, Range* ranges, int count);
  int next(Range* ranges, int thread);
  void fail();  // with the exception that is being handled

  Pool& pool_;
  int threads_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // of the first task that failed
  std::vector<Phase> phases_;
  std::vector<Range> ranges_;  // [phase][thread]
  std::vector<Cursor> cursors_;
};

class Pool {
 public:
  // `cpus`: where to pin each thread, or empty. Thread 0 is the caller's, which is pinned for as long as a run takes.
  Pool(int threads, const std::vector<int>& cpus);
  ~Pool();
  Pool(const Pool&) = delete;

  int size() const { return static_cast<int>(threads_.size()) + 1; }
  // Returns when the last phase is done. Others may still walk over the phases then, and keep the work alive. Throws what a task threw.
  void run(const std::shared_ptr<Work>& work);
  // Returns when no thread walks over anything any more, this run or one before it: what they look at may go then.
  void settle();

 private:
  friend class Work;
  void serve(int thread);
  void end();  // of all threads but the caller's
  // Spins until ready() for a moment, then sleeps: a thread that others wait for may have lost its core, and gets one sooner from a
  // system that has an idle one.
  template <class Ready> void wait(const Ready& ready, std::chrono::microseconds awake);
  void wake();  // those that sleep, after what they wait for was stored
  static void pause();

  const std::vector<int> cpus_;
  std::vector<std::thread> threads_;
  std::shared_ptr<Work> work_;  // guarded by mutex_
  alignas(64) std::atomic<std::uint64_t> called_{0};  // counts runs
  alignas(64) std::atomic<int> asleep_{0};
  std::atomic<int> walking_{0};  // threads, the caller's not among them
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

constexpr std::chrono::microseconds IDLE{300};  // how long a thread without work spins before it sleeps
constexpr std::chrono::microseconds MET{60};    // the same of one that waits for others in the midst of a run

template <class Ready> void Pool::wait(const Ready& ready, std::chrono::microseconds awake) {
  if (ready()) return;
  const auto since = std::chrono::steady_clock::now();
  for (int spins = 1; !ready(); ++spins) {
    pause();
    if (spins % 64 || std::chrono::steady_clock::now() - since < awake) continue;
    std::unique_lock<std::mutex> lock(mutex_);
    asleep_.fetch_add(1, std::memory_order_seq_cst);
    wake_.wait(lock, ready);
    asleep_.fetch_sub(1, std::memory_order_seq_cst);
    return;
  }
}

template <class Prepare, class Task> void Work::share(int thread, int count, const Prepare& prepare, const Task& task) {
  const int at = cursors_[thread].phase++;
  if (count == 0) return;
  Phase& phase = phases_[at];
  if (phase.done.load(std::memory_order_acquire) == count) return;
  Range* ranges = &ranges_[static_cast<std::size_t>(at) * threads_];
  open(phase, ranges, count);
  int done = 0;
  for (int i; (i = next(ranges, thread)) >= 0; ++done) {
    if (failed_.load(std::memory_order_relaxed)) continue;
    try {
      if (done == 0) prepare();
      task(i);
    } catch (...) {
      fail();
    }
  }
  if (done && phase.done.fetch_add(done, std::memory_order_seq_cst) + done == count) return pool_.wake();
  pool_.wait([&] { return phase.done.load(std::memory_order_seq_cst) == count; }, MET);
}

}  // namespace penstock
