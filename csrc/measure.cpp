// What the machine can do, measured: bytes a second read from a working set, operations a second computed in registers.
//
// All threads of a measurement start together, each repeats its share until a run takes the time asked for, and a run ends with the
// last thread. The figure is that of the median run.
#include "features.h"
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
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#define TARGET(isa) __attribute__((target(isa)))
#endif
#if defined(__unix__) || defined(__APPLE__)
#include <sys/mman.h>
#define PENSTOCK_MMAP 1
#endif

namespace nb = nanobind;

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Threads that wait for each other. The last one to come does what `last` says before all go on.
class Gate {
 public:
  explicit Gate(int threads) : threads_(threads) {}

  template <class Last>
  void pass(const Last& last) {
    const unsigned turn = turn_.load(std::memory_order_relaxed);
    if (inside_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      inside_.store(0, std::memory_order_relaxed);
      last();
      turn_.store(turn + 1, std::memory_order_release);
    } else {
      while (turn_.load(std::memory_order_acquire) == turn) std::this_thread::yield();  // others may want this processor
    }
  }

 private:
  const int threads_;
  std::atomic<int> inside_{0};
  std::atomic<unsigned> turn_{0};
};

// Calls part(thread) on so many threads at once, the caller's among them. Throws where the system gives fewer.
template <class Part> void together(int threads, const Part& part) {
  std::promise<bool> complete;
  const std::shared_future<bool> go = complete.get_future().share();
  std::vector<std::thread> crew;
  const auto dismiss = [&] {
    for (std::thread& each : crew) each.join();
  };
  try {
    for (int thread = 1; thread < threads; ++thread)
      crew.emplace_back([&part, go, thread] {
        if (go.get()) part(thread);
      });
  } catch (const std::exception&) {
    complete.set_value(false);
    const std::size_t most = crew.size() + 1;
    dismiss();
    throw std::runtime_error(std::to_string(threads) + " threads were asked for, but the system gives " + std::to_string(most));
  }
  complete.set_value(true);
  part(0);
  dismiss();
}

struct Effort {
  int threads;
  double seconds;  // of one run
  int runs;
};

struct Schedule {
  explicit Schedule(const Effort& effort) : gate(effort.threads), times(effort.runs) {}

  Gate gate;
  long repeats = 1;
  double began = 0;
  bool ready = false;
  std::vector<double> times;  // seconds of each run
};

using Work = std::function<void(int thread, long repeats)>;

// One thread's part: warms up, finds out with the others how many repeats fill a run, then runs.
void take_part(const Effort& effort, Schedule& schedule, const Work& work, int thread) {
  constexpr double most_at_once = 64;  // a first pass may be too short to be told from nothing
  const auto begin = [&] { schedule.began = now(); };
  work(thread, 1);
  while (!schedule.ready) {
    schedule.gate.pass(begin);
    work(thread, schedule.repeats);
    schedule.gate.pass([&] {
      const double took = now() - schedule.began;
      schedule.ready = took >= effort.seconds / 2;
      schedule.repeats = static_cast<long>(std::ceil(schedule.repeats * std::clamp(effort.seconds / took, 1.0, most_at_once)));
    });
  }
  for (double& time : schedule.times) {
    schedule.gate.pass(begin);
    work(thread, schedule.repeats);
    schedule.gate.pass([&] { time = now() - schedule.began; });
  }
}

// How often a second the threads together do the work once each.
double repeats_per_second(const Effort& effort, const Work& work) {
  Schedule schedule(effort);
  together(effort.threads, [&](int thread) { take_part(effort, schedule, work, thread); });
  std::sort(schedule.times.begin(), schedule.times.end());
  return schedule.repeats / schedule.times[schedule.times.size() / 2];
}

Effort checked(int threads, double seconds, int runs) {
  if (threads < 1 || runs < 1 || !(seconds > 0)) throw std::invalid_argument("threads, runs and seconds are at least 1, 1 and more than 0");
  return {threads, seconds, runs};
}

// Anonymous memory on huge pages where the system gives them; pages come into being where they are first touched.
class Memory {
 public:
  explicit Memory(std::size_t bytes) : bytes_(bytes) {
#if defined(PENSTOCK_MMAP)
    // room to begin at a huge page, so that a small working set gets one too
    mapped_ = mmap(nullptr, bytes + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped_ == MAP_FAILED) throw std::bad_alloc();
    const auto at = reinterpret_cast<std::uintptr_t>(mapped_);
    data_ = reinterpret_cast<char*>((at + kHugePage - 1) / kHugePage * kHugePage);
#if defined(MADV_HUGEPAGE)
    madvise(data_, (bytes + kHugePage - 1) / kHugePage * kHugePage, MADV_HUGEPAGE);  // may be refused: then the pages are small
#endif
#else
    data_ = static_cast<char*>(::operator new(bytes, std::align_val_t{64}));
#endif
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory() {
#if defined(PENSTOCK_MMAP)
    munmap(mapped_, bytes_ + kHugePage);
#else
    ::operator delete(data_, std::align_val_t{64});
#endif
  }

  char* data() const { return data_; }

 private:
  static constexpr std::size_t kHugePage = 2 << 20;
  std::size_t bytes_;
  void* mapped_ = nullptr;
  char* data_ = nullptr;
};

// A thread reads its part as one stream or several side by side. Which is best depends on the prefetchers, and on how addresses are spread
// over cache sets and memory banks: streams at distances that are powers of two may meet in the same ones. So a few layouts are tried.
struct Layout {
  int streams;
  std::size_t skew;  // bytes between the end of a stream and the beginning of the next
};

constexpr Layout kLayouts[] = {{1, 0}, {2, 4096}, {4, 4096}, {4, 65536}};
constexpr std::size_t kStep = 256;  // bytes of each stream in one turn
constexpr std::size_t kGrain = 4 * kStep, kMostSkew = 4 * 65536;

using Read = std::uint64_t (*)(const char* part, std::size_t stream_bytes, std::size_t stride);

typedef std::uint64_t U2 __attribute__((vector_size(16)));

template <int Streams>
std::uint64_t read_generic(const char* part, std::size_t stream_bytes, std::size_t stride) {
  U2 acc[Streams] = {};
  for (std::size_t at = 0; at < stream_bytes; at += kStep)
#pragma GCC unroll 4
    for (int s = 0; s < Streams; ++s) {
      const U2* from = reinterpret_cast<const U2*>(part + s * stride + at);
#pragma GCC unroll 16
      for (int v = 0; v < 16; ++v) acc[s] ^= from[v];
    }
  for (int s = 1; s < Streams; ++s) acc[0] ^= acc[s];
  return acc[0][0] ^ acc[0][1];
}

#if defined(__x86_64__)
template <int Streams>
TARGET("avx2") std::uint64_t read_avx2(const char* part, std::size_t stream_bytes, std::size_t stride) {
  __m256i acc[Streams] = {};
  for (std::size_t at = 0; at < stream_bytes; at += kStep)
#pragma GCC unroll 4
    for (int s = 0; s < Streams; ++s) {
      const __m256i* from = reinterpret_cast<const __m256i*>(part + s * stride + at);
#pragma GCC unroll 8
      for (int v = 0; v < 8; ++v) acc[s] = _mm256_xor_si256(acc[s], _mm256_load_si256(from + v));
    }
  for (int s = 1; s < Streams; ++s) acc[0] = _mm256_xor_si256(acc[0], acc[s]);
  return static_cast<std::uint64_t>(_mm256_extract_epi64(acc[0], 0));
}

template <int Streams>
TARGET("avx512f") std::uint64_t read_avx512(const char* part, std::size_t stream_bytes, std::size_t stride) {
  __m512i acc[Streams] = {};
  for (std::size_t at = 0; at < stream_bytes; at += kStep)
#pragma GCC unroll 4
    for (int s = 0; s < Streams; ++s) {
      const __m512i* from = reinterpret_cast<const __m512i*>(part + s * stride + at);
#pragma GCC unroll 4
      for (int v = 0; v < 4; ++v) acc[s] = _mm512_xor_si512(acc[s], _mm512_load_si512(from + v));
    }
  for (int s = 1; s < Streams; ++s) acc[0] = _mm512_xor_si512(acc[0], acc[s]);
  return static_cast<std::uint64_t>(_mm512_reduce_add_epi64(acc[0]));
}
#endif

template <int Streams>
Read widest() {
#if defined(__x86_64__)
  if (features().avx512f) return read_avx512<Streams>;
  if (features().avx2) return read_avx2<Streams>;
#endif
  return read_generic<Streams>;
}

Read read_of(const Layout& layout) {
  return layout.streams == 1 ? widest<1>() : layout.streams == 2 ? widest<2>() : widest<4>();
}

// So many bytes for so many threads, each of which reads its own part. The first to read a part brings its pages into being.
class WorkingSet {
 public:
  WorkingSet(std::size_t bytes, int threads)
      : part_(bytes / threads / kGrain * kGrain), memory_((part_ + kMostSkew) * threads), touched_(threads, 0) {
    if (part_ == 0) throw std::invalid_argument("the working set is smaller than " + std::to_string(kGrain) + " bytes a thread");
  }

  Work reading(const Layout& layout) {
    return [this, layout, read = read_of(layout), stream = part_ / layout.streams](int thread, long repeats) {
      char* mine = memory_.data() + (part_ + kMostSkew) * thread;
      if (!touched_[thread]) std::memset(mine, thread + 1, part_ + kMostSkew), touched_[thread] = 1;
      std::uint64_t seen = 0;
      for (long i = 0; i < repeats; ++i) seen += read(mine, stream, stream + layout.skew);
      sink_.fetch_xor(seen, std::memory_order_relaxed);
    };
  }

  double bytes() const { return static_cast<double>(part_ * touched_.size()); }

 private:
  std::size_t part_;
  Memory memory_;
  std::vector<char> touched_;
  std::atomic<std::uint64_t> sink_{0};
};

// Of the layouts, that which reads fastest.
double read_bandwidth(std::size_t working_set, int threads, double seconds, int runs) {
  const Effort effort = checked(threads, seconds, runs);
  WorkingSet set(working_set, threads);
  double best = 0;
  for (const Layout& layout : kLayouts) best = std::max(best, repeats_per_second(effort, set.reading(layout)));
  return best * set.bytes();
}

// Keeps its memory between reads, so that one can stand beside each step of a model: a shared machine's bandwidth moves by the second.
class Reader {
 public:
  Reader(std::size_t working_set, int threads) : threads_(checked(threads, 1, 1).threads), set_(working_set, threads) {
    double best = 0;
    for (const Layout& layout : kLayouts) {
      const Work work = set_.reading(layout);
      const double rate = repeats_per_second({threads_, kTrial, kTrials}, work);
      if (rate > best) best = rate, work_ = work;
    }
  }

  double read() {
    Gate gate(threads_);
    double began = 0, took = 0;
    together(threads_, [&](int thread) {
      gate.pass([&] { began = now(); });
      work_(thread, 1);
      gate.pass([&] { took = now() - began; });
    });
    return took;
  }

  double bytes() const { return set_.bytes(); }

 private:
  static constexpr double kTrial = 0.02;  // seconds
  static constexpr int kTrials = 5;
  int threads_;
  WorkingSet set_;
  Work work_;
};

std::vector<std::pair<std::string, std::string>> rate_kernels() {
  std::vector<std::pair<std::string, std::string>> names;
  for (const Rate& rate : usable_rates()) names.emplace_back(rate.dtype, rate.isa);
  return names;
}

double operation_rate(const std::string& dtype, const std::string& isa, int threads, double seconds, int runs) {
  const Effort effort = checked(threads, seconds, runs);
  for (const Rate& rate : usable_rates())
    if (dtype == rate.dtype && isa == rate.isa) {
      constexpr long block = 1024;  // iterations
      const auto work = [&](int, long repeats) { rate.run(block * repeats); };
      return repeats_per_second(effort, work) * block * rate.operations * threads;
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
