// Rounding to nearest, as penstock/compute/quant/rounding.py defines it, bit for bit: every operation below is one rounding of IEEE
// floats, and so is every one of numpy's there. Loops are written so that a compiler makes vectors of them for any instruction set.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "numbers.h"
#include "pool.h"

namespace nb = nanobind;
using namespace penstock;

namespace {

using Source = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu, nb::ndim<2>>;
using Codes = nb::ndarray<std::uint8_t, nb::c_contig, nb::device::cpu, nb::ndim<2>>;
using Scales = nb::ndarray<nb::c_contig, nb::device::cpu, nb::ndim<2>>;

enum class Number { f32, f16, bf16 };

Number number_of(const Source& source) {
  const auto type = source.dtype();
  if (type.bits == 32 && type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float)) return Number::f32;
  if (type.bits == 16) return type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) ? Number::f16 : Number::bf16;
  throw std::invalid_argument("matrices are float32, float16 or bfloat16");
}

// Numbers as floats, in `out`.
void widen(const void* from, Number number, std::size_t at, int n, float* out) {
  if (number == Number::f32) {
    std::memcpy(out, static_cast<const float*>(from) + at, std::size_t(n) * 4);
    return;
  }
  const auto* half = static_cast<const std::uint16_t*>(from) + at;
  if (number == Number::bf16)
    for (int i = 0; i < n; ++i) out[i] = from_bf16_bits(half[i]);
  else
    for (int i = 0; i < n; ++i) out[i] = from_half_bits(half[i]);
}

// Floats in the order of whole numbers: the largest and the smallest are found without branches.
std::int32_t key_of(float x) {
  const auto bits = static_cast<std::int32_t>(bits_of(x));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
float of_key(std::int32_t key) { return float_from_bits(static_cast<std::uint32_t>(key ^ ((key >> 31) & 0x7fffffff))); }

struct Range { float low, high; };

Range range_of(const float* x, int n) {
  std::int32_t low = key_of(x[0]), high = low;
  for (int i = 0; i < n; ++i) {
    const std::int32_t key = key_of(x[i]);
    low = std::min(low, key), high = std::max(high, key);
  }
  return {of_key(low), of_key(high)};
}

// x to nearest even after it was cut to [low, high], which is no more than 2^22: the same as before.
inline float nearest(float x, float low, float high) {
  x = x < low ? low : x;
  x = x > high ? high : x;
  return (x + 12582912.0f) - 12582912.0f;
}

// The codes of a format: from `low` to `high`, stored `plus` larger.
struct Codebook {
  float low, high;
  int plus;
};
constexpr Codebook SIGNED_BYTES{-127.0f, 127.0f, 0}, SIGNED_NIBBLES{-8.0f, 7.0f, 8}, NIBBLES{0.0f, 15.0f, 0};

// Codes of n floats: (x - lowest) / scale; 0 where the scale is nothing.
void encode(const float* x, int n, float lowest, float scale, const Codebook& book, std::uint8_t* codes) {
  const auto [low, high, plus] = book;
  if (scale == 0) {
    std::fill_n(codes, n, static_cast<std::uint8_t>(plus));
    return;
  }
  for (int i = 0; i < n; ++i) codes[i] = static_cast<std::uint8_t>(static_cast<int>(nearest((x[i] - lowest) / scale, low, high)) + plus);
}

// One row with one scale. The scale is not finite where the row is not.
void round_row(const float* x, int n, std::uint8_t* codes, float& scale) {
  std::uint32_t most = 0;
  for (int i = 0; i < n; ++i) most = std::max(most, bits_of(x[i]) & 0x7fffffffu);
  scale = float_from_bits(most) / 127.0f;
  encode(x, n, 0.0f, scale, SIGNED_BYTES, codes);
}

// Of two numbers of one magnitude, the first one found has the code of its own.
float largest(const float* x, int n, const Range& range) {
  if (range.high > -range.low) return range.high;
  if (range.high < -range.low) return range.low;
  for (int i = 0; i < n; ++i)
    if (std::fabs(x[i]) == range.high) return x[i];
  return std::nanf("");
}

void round_symmetric(const float* x, int n, std::uint8_t* codes, std::uint16_t& scale) {
  scale = to_half_bits(largest(x, n, range_of(x, n)) / -8.0f);
  encode(x, n, 0.0f, from_half_bits(scale), SIGNED_NIBBLES, codes);
}

void round_unsigned(const float* x, int n, std::uint8_t* codes, std::uint16_t& scale, std::uint16_t& min) {
  const Range range = range_of(x, n);
  min = to_half_bits(range.low);
  if (min == 0x8000) min = 0;  // no -0
  const float lowest = from_half_bits(min), spread = range.high - lowest;
  scale = to_half_bits((spread <= 0.0f ? 0.0f : spread) / 15.0f);
  encode(x, n, lowest, from_half_bits(scale), NIBBLES, codes);
}

bool finite(std::uint16_t half) { return (half & 0x7c00) != 0x7c00; }

struct Job {
  const void* source;
  Number number;
  int rows, columns, group;
  std::uint8_t* codes;
  void *scales, *mins;
};

// Rows from `first` up to `end`; whether all scales are finite.
bool round_rows(const Job& job, int first, int end) {
  std::vector<float> row(job.columns);
  bool sound = true;
  const int groups = job.group ? job.columns / job.group : 1;
  for (int r = first; r < end; ++r) {
    const std::size_t at = std::size_t(r) * job.columns, scale = std::size_t(r) * groups;
    widen(job.source, job.number, at, job.columns, row.data());
    if (!job.group) {
      float& to = static_cast<float*>(job.scales)[scale];
      round_row(row.data(), job.columns, job.codes + at, to);
      sound = sound && std::isfinite(to);
      continue;
    }
    auto* scales = static_cast<std::uint16_t*>(job.scales) + scale;
    auto* mins = job.mins ? static_cast<std::uint16_t*>(job.mins) + scale : nullptr;
    for (int g = 0; g < groups; ++g) {
      const float* x = row.data() + std::size_t(g) * job.group;
      std::uint8_t* codes = job.codes + at + std::size_t(g) * job.group;
      if (mins) round_unsigned(x, job.group, codes, scales[g], mins[g]);
      else round_symmetric(x, job.group, codes, scales[g]);
      sound = sound && finite(scales[g]) && (!mins || finite(mins[g]));
    }
  }
  return sound;
}

// Rows in as many stretches as there are threads.
class Rounding : public Work {
 public:
  Rounding(Pool& pool, const Job& job) : Work(pool, 1), job_(job), stretches_(pool.size()) {}
  void run_phases(int thread) override {
    parallel_for(thread, stretches_, [this](int i) {
      const auto row = [this](int stretch) { return static_cast<int>(std::int64_t(job_.rows) * stretch / stretches_); };
      if (!round_rows(job_, row(i), row(i + 1))) sound_ = false;
    });
  }
  bool sound() const { return sound_; }

 private:
  const Job job_;
  const int stretches_;
  std::atomic<bool> sound_{true};
};

bool quantize(const Source& source, int group, const Codes& codes, const Scales& scales, const nb::object& mins, Pool& pool) {
  const int rows = static_cast<int>(source.shape(0)), columns = static_cast<int>(source.shape(1));
  if (codes.shape(0) != source.shape(0) || codes.shape(1) != source.shape(1) || (group && columns % group))
    throw std::invalid_argument("codes have the shape of the matrix, and groups divide its columns");
  const std::size_t numbers = std::size_t(rows) * (group ? columns / group : 1), bytes = numbers * (group ? 2 : 4);
  const auto for_groups = [&](const Scales& of) {
    if (of.nbytes() != bytes) throw std::invalid_argument("each group of a row has one scale, and one min or none, of " + std::to_string(group ? 2 : 4) + " bytes");
    return of.data();
  };
  void* lowest = mins.is_none() ? nullptr : for_groups(nb::cast<Scales>(mins, false));
  const Job job{source.data(), number_of(source), rows, columns, group, codes.data(), for_groups(scales), lowest};
  const nb::gil_scoped_release free;
  const auto work = std::make_shared<Rounding>(pool, job);
  pool.run(work);
  return work->sound();
}

}  // namespace

void bind_quantize(nb::module_& module) {
  module.def("quantize", &quantize, nb::arg(), nb::arg("group"), nb::arg("codes").noconvert(), nb::arg("scales").noconvert(), nb::arg("mins").none(), nb::arg("pool"),
             "Rounds rows by group (0: each row by one scale) into codes, scales and mins; whether all scales are finite.");
}
