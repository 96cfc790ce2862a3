// Threads that run one function together and meet at barriers. The caller is thread 0.
//
// Between two runs the others spin for a moment, because the next step of a busy engine comes soon, and then sleep: an idle engine
// burns no core. A team's work is tasks numbered from 0: each thread begins with a stretch of its own, which streams memory in
// order, and takes from the end of others' when its own is done, so that a thread whose core is busy elsewhere holds nobody up.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace penstock {

class Pool {
 public:
  // `cpus`: where to pin each thread, or empty.
  Pool(int threads, const std::vector<int>& cpus);
  ~Pool();
  Pool(const Pool&) = delete;

  int size() const { return static_cast<int>(ranges_.size()); }
  // Runs body(thread) on every thread, and returns when all are done. Nothing may be thrown.
  void run(const std::function<void(int)>& body);

  // Within a run, called by all threads with the same count: waits until everyone is here, then does the tasks 0 .. count - 1.
  // `prepare(thread)` is called by each thread first.
  template <class Prepare, class Task> void share(int thread, int count, const Prepare& prepare, const Task& task) {
    meet(count);
    prepare();
    for (int at; (at = next(thread)) >= 0;) task(at);
  }
  template <class Task> void share(int thread, int count, const Task& task) {
    share(thread, count, [] {}, task);
  }
  // Waits for everyone; then `count` tasks are there to be taken.
  void meet(int count);

 private:
  struct alignas(64) Range {
    std::atomic<std::uint64_t> span{0};  // first task in the upper half, the end in the lower one
  };
  int next(int thread);
  void work(int thread);
  void pin(int cpu);

  std::vector<Range> ranges_;
  std::vector<std::thread> threads_;
  std::vector<int> cpus_;
  const std::function<void(int)>* body_ = nullptr;
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> turn_{0};    // counts meetings
  alignas(64) std::atomic<std::uint64_t> called_{0};  // counts runs
  alignas(64) std::atomic<int> running_{0};
  std::atomic<int> asleep_{0};
  std::atomic<bool> ending_{false};
  std::mutex mutex_;
  std::condition_variable wake_;
};

}  // namespace penstock
