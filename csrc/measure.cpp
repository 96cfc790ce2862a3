// Measured machine limits: read bandwidth (bytes/s) of a working set, and arithmetic rate (operations/s) in registers.
//
// All threads start a run together and repeat their part until it takes the given time; a run ends with the last thread. The result is
// that of the median run.
#include "features.h"
#include "memory.h"
#include "rates.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <future>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#define TARGET(isa) __attribute__((target(isa)))
#endif

namespace nb = nanobind;
using namespace penstock;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// A reusable barrier. The last thread to arrive calls last() before all continue.
class Barrier {
 public:
  explicit Barrier(int threads) : threads_(threads) {}

  template <class Last>
  void arrive_and_wait(const Last& last) {
    const unsigned generation = generation_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);
      last();
      generation_.store(generation + 1, std::memory_order_release);
    } else {
      while (generation_.load(std::memory_order_acquire) == generation) std::this_thread::yield();  // the processor may be shared
    }
  }

 private:
  const int threads_;
  std::atomic<int> arrived_{0};
  std::atomic<unsigned> generation_{0};
};

// Calls part(thread) on `threads` threads at once, including the caller. Throws if the system gives fewer.
template <class Part> void run_on_threads(int threads, const Part& part) {
  std::promise<bool> all_started;
  const std::shared_future<bool> go = all_started.get_future().share();
  std::vector<std::thread> workers;
  const auto join_all = [&] {
    for (std::thread& each : workers) each.join();
  };
  try {
    for (int thread = 1; thread < threads; ++thread)
      workers.emplace_back([&part, go, thread] {
        if (go.get()) part(thread);
      });
  } catch (const std::exception&) {
    all_started.set_value(false);
    const std::size_t num_started = workers.size() + 1;
    join_all();
    throw std::runtime_error(std::to_string(threads) + " threads were asked for, but the system gives " + std::to_string(num_started));
  }
  all_started.set_value(true);
  part(0);
  join_all();
}

struct Budget {
  int threads;
  double seconds;  // per run
  int runs;
};

struct SharedTiming {
  explicit SharedTiming(const Budget& budget) : barrier(budget.threads), times(budget.runs) {}

  Barrier barrier;
  long repeats = 1;
  double start = 0;
  bool ready = false;
  std::vector<double> times;  // seconds per run
};

using Work = std::function<void(int thread, long repeats)>;

// One thread: warms up, calibrates the number of repeats together with the others, then runs.
void time_on_thread(const Budget& budget, SharedTiming& timing, const Work& work, int thread) {
  constexpr double MAX_GROWTH = 64;  // limit per calibration step, as the first pass may be too short to be timed
  const auto begin = [&] { timing.start = now(); };
  work(thread, 1);
  while (!timing.ready) {
    timing.barrier.arrive_and_wait(begin);
    work(thread, timing.repeats);
    timing.barrier.arrive_and_wait([&] {
      const double elapsed = now() - timing.start;
      timing.ready = elapsed >= budget.seconds / 2;
      timing.repeats = static_cast<long>(std::ceil(timing.repeats * std::clamp(budget.seconds / elapsed, 1.0, MAX_GROWTH)));
    });
  }
  for (double& time : timing.times) {
    timing.barrier.arrive_and_wait(begin);
    work(thread, timing.repeats);
    timing.barrier.arrive_and_wait([&] { time = now() - timing.start; });
  }
}

// How many times per second all threads together repeat the work.
double repeats_per_second(const Budget& budget, const Work& work) {
  SharedTiming timing(budget);
  run_on_threads(budget.threads, [&](int thread) { time_on_thread(budget, timing, work, thread); });
  std::sort(timing.times.begin(), timing.times.end());
  return timing.repeats / timing.times[timing.times.size() / 2];
}

Budget checked_budget(int threads, double seconds, int runs) {
  if (threads < 1 || runs < 1 || !(seconds > 0)) throw std::invalid_argument("threads, runs and seconds are at least 1, 1 and more than 0");
  return {threads, seconds, runs};
}

// A thread reads its part as one stream, or as several streams side by side. Which is fastest depends on prefetchers, cache sets and
// memory banks (streams at power-of-two distances may collide), so several layouts are tried.
struct Layout {
  int streams;
  std::size_t skew;  // bytes between the end of a stream and the start of the next
};

constexpr Layout LAYOUTS[] = {{1, 0}, {2, 4096}, {4, 4096}, {4, 65536}};
constexpr std::size_t STEP = 256;  // bytes read from each stream in turn
constexpr std::size_t GRANULARITY = 4 * STEP, MAX_SKEW = 4 * 65536;

using Read = std::uint64_t (*)(const char* part, std::size_t stream_bytes, std::size_t stride);

typedef std::uint64_t U2 __attribute__((vector_size(16)));

template <int STREAMS>
std::uint64_t read_generic(const char* part, std::size_t stream_bytes, std::size_t stride) {
  U2 acc[STREAMS] = {};
  for (std::size_t at = 0; at < stream_bytes; at += STEP)
#pragma GCC unroll 4
    for (int s = 0; s < STREAMS; ++s) {
      const U2* from = reinterpret_cast<const U2*>(part + s * stride + at);
#pragma GCC unroll 16
      for (int v = 0; v < 16; ++v) acc[s] ^= from[v];
    }
  for (int s = 1; s < STREAMS; ++s) acc[0] ^= acc[s];
  return acc[0][0] ^ acc[0][1];
}

#if defined(__x86_64__)
template <int STREAMS>
TARGET("avx2") std::uint64_t read_avx2(const char* part, std::size_t stream_bytes, std::size_t stride) {
  __m256i acc[STREAMS] = {};
  for (std::size_t at = 0; at < stream_bytes; at += STEP)
#pragma GCC unroll 4
    for (int s = 0; s < STREAMS; ++s) {
      const __m256i* from = reinterpret_cast<const __m256i*>(part + s * stride + at);
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) acc[s] = _mm256_xor_si256(acc[s], _mm256_load_si256(from + v));
    }
  for (int s = 1; s < STREAMS; ++s) acc[0] = _mm256_xor_si256(acc[0], acc[s]);
  return static_cast<std::uint64_t>(_mm256_extract_epi64(acc[0], 0));
}

template <int STREAMS>
TARGET("avx512f") std::uint64_t read_avx512(const char* part, std::size_t stream_bytes, std::size_t stride) {
  __m512i acc[STREAMS] = {};
  for (std::size_t at = 0; at < stream_bytes; at += STEP)
#pragma GCC unroll 4
    for (int s = 0; s < STREAMS; ++s) {
      const __m512i* from = reinterpret_cast<const __m512i*>(part + s * stride + at);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) acc[s] = _mm512_xor_si512(acc[s], _mm512_load_si512(from + v));
    }
  for (int s = 1; s < STREAMS; ++s) acc[0] = _mm512_xor_si512(acc[0], acc[s]);
  return static_cast<std::uint64_t>(_mm512_reduce_add_epi64(acc[0]));
}
#endif

template <int STREAMS>
Read widest_read() {
#if defined(__x86_64__)
  if (features().avx512f) return read_avx512<STREAMS>;
  if (features().avx2) return read_avx2<STREAMS>;
#endif
  return read_generic<STREAMS>;
}

Read read_function(const Layout& layout) {
  return layout.streams == 1 ? widest_read<1>() : layout.streams == 2 ? widest_read<2>() : widest_read<4>();
}

// Working set of `threads` parts. Each thread reads its own, and commits its pages at first touch.
class WorkingSet {
 public:
  WorkingSet(std::size_t bytes, int threads)
      : part_(bytes / threads / GRANULARITY * GRANULARITY), memory_(std::max(HUGE_PAGE, (part_ + MAX_SKEW) * threads)),
        touched_(threads, 0) {
    if (part_ == 0) throw std::invalid_argument("the working set is smaller than " + std::to_string(GRANULARITY) + " bytes a thread");
  }

  Work reading(const Layout& layout) {
    return [this, layout, read = read_function(layout), stream = part_ / layout.streams](int thread, long repeats) {
      char* part = reinterpret_cast<char*>(memory_.data()) + (part_ + MAX_SKEW) * thread;
      if (!touched_[thread]) std::memset(part, thread + 1, part_ + MAX_SKEW), touched_[thread] = 1;
      std::uint64_t checksum = 0;
      for (long i = 0; i < repeats; ++i) checksum += read(part, stream, stream + layout.skew);
      sink_.fetch_xor(checksum, std::memory_order_relaxed);
    };
  }

  double bytes() const { return static_cast<double>(part_ * touched_.size()); }

 private:
  std::size_t part_;
  Memory memory_;
  std::vector<char> touched_;
  std::atomic<std::uint64_t> sink_{0};
};

// The fastest of the layouts.
double read_bandwidth(std::size_t working_set, int threads, double seconds, int runs) {
  const Budget budget = checked_budget(threads, seconds, runs);
  WorkingSet set(working_set, threads);
  double best = 0;
  for (const Layout& layout : LAYOUTS) best = std::max(best, repeats_per_second(budget, set.reading(layout)));
  return best * set.bytes();
}

// Keeps its memory between reads, so that one read can be timed beside each step of a model: the bandwidth of a shared machine varies
// from second to second.
class Reader {
 public:
  Reader(std::size_t working_set, int threads) : threads_(checked_budget(threads, 1, 1).threads), working_set_(working_set, threads) {
    double best = 0;
    for (const Layout& layout : LAYOUTS) {
      const Work work = working_set_.reading(layout);
      const double rate = repeats_per_second({threads_, TRIAL_SECONDS, TRIALS}, work);
      if (rate > best) best = rate, work_ = work;
    }
  }

  double read() {
    Barrier barrier(threads_);
    double start = 0, elapsed = 0;
    run_on_threads(threads_, [&](int thread) {
      barrier.arrive_and_wait([&] { start = now(); });
      work_(thread, 1);
      barrier.arrive_and_wait([&] { elapsed = now() - start; });
    });
    return elapsed;
  }

  double bytes() const { return working_set_.bytes(); }

 private:
  static constexpr double TRIAL_SECONDS = 0.02;
  static constexpr int TRIALS = 5;
  int threads_;
  WorkingSet working_set_;
  Work work_;
};

std::vector<std::pair<std::string, std::string>> rate_kernels() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const Rate& rate : usable_rates()) names.emplace_back(rate.dtype, rate.isa);
  return names;
}

double operation_rate(const std::string& dtype, const std::string& isa, int threads, double seconds, int runs) {
  const Budget budget = checked_budget(threads, seconds, runs);
  for (const Rate& rate : usable_rates())
    if (dtype == rate.dtype && isa == rate.isa) {
      constexpr long BLOCK = 1024;  // iterations
      const auto work = [&](int, long repeats) { rate.run(BLOCK * repeats); };
      return repeats_per_second(budget, work) * BLOCK * rate.operations * threads;
    }
  throw std::invalid_argument("this process cannot compute " + dtype + " with " + isa);
}

}  // namespace

void bind_measure(nb::module_& module) {
  using namespace nb::literals;
  module.def("read_bandwidth", &read_bandwidth, "working_set"_a, "threads"_a, "seconds"_a, "runs"_a,
             nb::call_guard<nb::gil_scoped_release>(),
             "Bytes a second that `threads` together read from `working_set` bytes: for each of four layouts the median of `runs` of\n"
             "`seconds` each, and of these the best.");
  nb::class_<Reader>(module, "Reader", "Reads a working set with so many threads, each its own part, in the layout that was fastest.")
      .def(nb::init<std::size_t, int>(), "working_set"_a, "threads"_a, nb::call_guard<nb::gil_scoped_release>())
      .def("read", &Reader::read, nb::call_guard<nb::gil_scoped_release>(), "Reads all of it once; seconds, without the start of threads.")
      .def_prop_ro("bytes", &Reader::bytes, "What is read at once.");
  module.def("rate_kernels", &rate_kernels, "(dtype, instruction set) of what operation_rate can measure here, the fastest first.");
  module.def("operation_rate", &operation_rate, "dtype"_a, "isa"_a, "threads"_a, "seconds"_a, "runs"_a,
             nb::call_guard<nb::gil_scoped_release>(),
             "Operations a second computed in registers, a multiply-add counted as two: the median of `runs` of `seconds` each.");
}
