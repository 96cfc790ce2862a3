// A thread pool that runs work in phases, and steals.
//
// A phase is a number of tasks. It ends when all tasks are done, not when all threads have arrived: a thread that was descheduled delays
// the others only if it was in the middle of a run of them. Each thread starts on a contiguous range of tasks of its own, which reads
// memory in order, and then takes tasks from the end of other threads' ranges. Taking tasks waits for all that the core has begun to load,
// and begins to load anew, so short tasks are taken in runs.
//
// An exception in a task skips the remaining tasks; run() rethrows it after the last phase.
//
// Between runs, threads spin briefly, since a busy engine's next step follows at once, and then sleep.
//
// A child of fork() has none of the pool's threads: there the caller does all work alone.
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

constexpr int MIN_TASKS_PER_THREAD = 4;  // if there are as many rows
constexpr int MAX_ROWS_PER_TASK = 8;

// How many tasks a thread takes at once: half of what its range still has, so that little is left to wait for, within these bounds.
struct RunLength {
  int least = 1, most = 1;
};

// Work in phases. Every thread executes run_phases, with the same phases in the same order. A late thread skips phases that are complete,
// possibly after run() has returned: outside tasks, run_phases must touch nothing but the work itself.
class Work {
 public:
  Work(Pool& pool, int max_phases);
  virtual ~Work() = default;
  virtual void run_phases(int thread) = 0;

 protected:
  // The next phase: tasks 0 .. count - 1, `count` being the same on all threads. A thread calls prepare() before its first task, and
  // run(first, end) for tasks first .. end - 1, as many as `length` says.
  template <class Prepare, class Run>
  void parallel_for_runs(int thread, int count, RunLength length, const Prepare& prepare, const Run& run);
  template <class Task> void parallel_for(int thread, int count, const Task& task) {
    parallel_for_runs(thread, count, {}, [] {}, [&](int first, int) { task(first); });
  }
  // Over rows, several per task where there are many: taking a task costs about as much as a little work on a row.
  template <class Task> void parallel_for_rows(int thread, int count, const Task& task) {
    const int max_rows = threads_ * MAX_ROWS_PER_TASK;
    const int tasks = std::min(count, threads_ * std::max(MIN_TASKS_PER_THREAD, (count + max_rows - 1) / max_rows));
    const auto first = [&](int i) { return static_cast<int>(std::int64_t{count} * i / tasks); };
    parallel_for(thread, tasks, [&](int i) {
      for (int row = first(i); row < first(i + 1); ++row) task(row);
    });
  }

 private:
  friend class Pool;
  struct alignas(64) Phase {
    std::atomic<int> done{0};  // tasks
  };
  static constexpr std::uint64_t UNTOUCHED = ~std::uint64_t{0};  // of a span: all tasks of its thread are left
  struct alignas(64) Range {
    std::atomic<std::uint64_t> span{UNTOUCHED};  // first task << 32 | end
  };
  struct alignas(64) Cursor {
    int phase = 0;  // that its thread enters next
  };
  struct Tasks { int first, end; };
  Tasks next_tasks(Range* ranges, int thread, int count, RunLength length);  // empty: there are none
  void record_exception();  // the current exception

  Pool& pool_;
  int threads_;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // of the first task that failed
  std::vector<Phase> phases_;
  std::vector<Range> ranges_;  // [phase, thread]
  std::vector<Cursor> cursors_;
};

class Pool {
 public:
  // `cpus`: the CPU of each thread, or empty: not pinned. Thread 0 is the caller, pinned during run() only.
  Pool(int threads, const std::vector<int>& cpus);
  ~Pool();
  Pool(const Pool&) = delete;

  int size() const { return static_cast<int>(workers_->threads.size()) + 1; }
  // Returns when the last phase is complete; other threads may still be running through phases then, and share ownership of the work.
  // Rethrows what a task threw.
  void run(const std::shared_ptr<Work>& work);
  // Returns when no thread executes any work: memory that it refers to may be freed then.
  void drain();

 private:
  friend class Work;
  // Threads but the caller, and how they sleep. In a child of fork() they are gone, so that it can only be left as it is: its destructors
  // would wait for them.
  struct Workers {
    std::vector<std::thread> threads;
    std::mutex mutex;
    std::condition_variable wake;
  };
  bool is_forked() const;
  void worker_loop(int thread);
  void join_workers();
  // Spins until ready() for spin_time, then sleeps: a thread that others wait for may need this core.
  template <class Ready> void wait(const Ready& ready, std::chrono::microseconds spin_time);
  void wake();  // wakes sleepers, after the state they wait for was stored
  static void pause();

  const std::vector<int> cpus_;
  const int process_;  // id of the one that made the pool
  std::unique_ptr<Workers> workers_;
  std::shared_ptr<Work> work_;  // guarded by the workers' mutex
  alignas(64) std::atomic<std::uint64_t> run_count_{0};
  alignas(64) std::atomic<int> num_sleeping_{0};
  std::atomic<int> num_active_{0};  // threads executing work, without the caller
  std::atomic<bool> stopping_{false};
};

constexpr std::chrono::microseconds IDLE_SPIN{300};  // before a thread without work sleeps
constexpr std::chrono::microseconds PHASE_SPIN{60};  // before a thread that waits for the end of a phase sleeps

template <class Ready> void Pool::wait(const Ready& ready, std::chrono::microseconds spin_time) {
  if (ready()) return;
  const auto start = std::chrono::steady_clock::now();
  for (int spins = 1; !ready(); ++spins) {
    pause();
    if (spins % 64 || std::chrono::steady_clock::now() - start < spin_time) continue;
    std::unique_lock<std::mutex> lock(workers_->mutex);
    num_sleeping_.fetch_add(1, std::memory_order_seq_cst);
    workers_->wake.wait(lock, ready);
    num_sleeping_.fetch_sub(1, std::memory_order_seq_cst);
    return;
  }
}

template <class Prepare, class Run>
void Work::parallel_for_runs(int thread, int count, RunLength length, const Prepare& prepare, const Run& run) {
  const int at = cursors_[thread].phase++;
  if (count == 0) return;
  Phase& phase = phases_[at];
  if (phase.done.load(std::memory_order_acquire) == count) return;
  Range* ranges = &ranges_[static_cast<std::size_t>(at) * threads_];
  int done = 0;
  for (Tasks next; (next = next_tasks(ranges, thread, count, length)).first < next.end; done += next.end - next.first) {
    if (failed_.load(std::memory_order_relaxed)) continue;
    try {
      if (done == 0) prepare();
      run(next.first, next.end);
    } catch (...) {
      record_exception();
    }
  }
  if (done && phase.done.fetch_add(done, std::memory_order_seq_cst) + done == count) return pool_.wake();
  pool_.wait([&] { return phase.done.load(std::memory_order_seq_cst) == count; }, PHASE_SPIN);
}

}  // namespace penstock
