// Round-to-nearest quantization, bit for bit as penstock/compute/quant/rounding.py: every operation is a single IEEE rounding, as in
// numpy. Loops are written so that compilers vectorize them for any instruction set.
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

enum class Dtype { f32, f16, bf16 };

Dtype dtype_of(const Source& source) {
  const auto type = source.dtype();
  if (type.bits == 32 && type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float)) return Dtype::f32;
  if (type.bits == 16) return type.code == static_cast<std::uint8_t>(nb::dlpack::dtype_code::Float) ? Dtype::f16 : Dtype::bf16;
  throw std::invalid_argument("matrices are float32, float16 or bfloat16");
}

// n elements from index `at` on -> out [n].
void to_float(const void* from, Dtype dtype, std::size_t at, int n, float* out) {
  if (dtype == Dtype::f32) {
    std::memcpy(out, static_cast<const float*>(from) + at, std::size_t(n) * 4);
    return;
  }
  const auto* half = static_cast<const std::uint16_t*>(from) + at;
  if (dtype == Dtype::bf16)
    for (int i = 0; i < n; ++i) out[i] = from_bf16_bits(half[i]);
  else
    for (int i = 0; i < n; ++i) out[i] = from_half_bits(half[i]);
}

// Monotonic map of floats to integers, so that minimum and maximum need no branches.
std::int32_t ordered_int(float x) {
  const auto bits = static_cast<std::int32_t>(bits_of(x));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}
float from_ordered_int(std::int32_t ordered) {
  return float_from_bits(static_cast<std::uint32_t>(ordered ^ ((ordered >> 31) & 0x7fffffff)));
}

struct MinMax { float low, high; };

MinMax min_max(const float* x, int n) {
  std::int32_t low = ordered_int(x[0]), high = low;
  for (int i = 0; i < n; ++i) {
    const std::int32_t ordered = ordered_int(x[i]);
    low = std::min(low, ordered), high = std::max(high, ordered);
  }
  return {from_ordered_int(low), from_ordered_int(high)};
}

// Clamps to [low, high], then rounds to nearest even; |low| and |high| are at most 2^22.
inline float clamp_and_round(float x, float low, float high) {
  x = x < low ? low : x;
  x = x > high ? high : x;
  return (x + 12582912.0f) - 12582912.0f;
}

// Codes of a format: low .. high, stored plus `bias`.
struct CodeRange {
  float low, high;
  int bias;
};
constexpr CodeRange I8_SYMMETRIC{-127.0f, 127.0f, 0}, I4_SYMMETRIC{-8.0f, 7.0f, 8}, I4_UNSIGNED{0.0f, 15.0f, 0};

// codes[i] = round((x[i] - min_value) / scale); code 0 where the scale is 0.
void encode(const float* x, int n, float min_value, float scale, const CodeRange& range, std::uint8_t* codes) {
  const auto [low, high, bias] = range;
  if (scale == 0) {
    std::fill_n(codes, n, static_cast<std::uint8_t>(bias));
    return;
  }
  for (int i = 0; i < n; ++i)
    codes[i] = static_cast<std::uint8_t>(static_cast<int>(clamp_and_round((x[i] - min_value) / scale, low, high)) + bias);
}

// One row, one float scale, which is not finite if the row is not.
void quantize_row(const float* x, int n, std::uint8_t* codes, float& scale) {
  std::uint32_t max_bits = 0;
  for (int i = 0; i < n; ++i) max_bits = std::max(max_bits, bits_of(x[i]) & 0x7fffffffu);
  scale = float_from_bits(max_bits) / 127.0f;
  encode(x, n, 0.0f, scale, I8_SYMMETRIC, codes);
}

// The value of largest magnitude, with its sign; the first one of equal magnitudes.
float signed_max_abs(const float* x, int n, const MinMax& range) {
  if (std::isnan(range.low) || std::isnan(range.high)) return std::nanf("");
  if (range.high > -range.low) return range.high;
  if (range.high < -range.low) return range.low;
  for (int i = 0; i < n; ++i)
    if (std::fabs(x[i]) == range.high) return x[i];
  return std::nanf("");
}

// Sum of (x - value * scale)^2 in 16 lanes, then by halves; n is a multiple of 16.
float squared_error(const float* x, int n, const std::uint8_t* codes, float scale) {
  float lanes[16] = {};
  for (int i = 0; i < n; i += 16)
    for (int j = 0; j < 16; ++j) {
      const float error = x[i + j] - static_cast<float>(codes[i + j] - I4_SYMMETRIC.bias) * scale;
      lanes[j] += error * error;
    }
  for (int half = 8; half; half /= 2)
    for (int j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

// Rounded to 20 significant bits, halves up.
float twenty_bits(float x) { return float_from_bits((bits_of(x) + 8) & 0xfffffff0u); }

constexpr int MAX_GROUP = 128;
constexpr float LARGEST_MULTIPLE = 15;

// One row in groups whose scales are multiples of `unit`, which is not finite if the row is not.
void quantize_multiples(const float* x, int columns, int group, std::uint8_t* codes, std::int8_t* multiples, float& unit) {
  const int groups = columns / group;
  std::vector<float> full(groups);  // scale at which the number of largest magnitude is -8
  float largest = 0;
  bool finite = true;
  for (int g = 0; g < groups; ++g) {
    full[g] = signed_max_abs(x + std::size_t(g) * group, group, min_max(x + std::size_t(g) * group, group)) / -8.0f;
    finite = finite && std::isfinite(full[g]);
    largest = std::max(largest, std::fabs(full[g]));
  }
  unit = finite ? twenty_bits(largest / LARGEST_MULTIPLE) : std::nanf("");
  for (int g = 0; g < groups && finite; ++g, x += group, codes += group) {
    const float size = unit == 0 ? 0 : std::floor(std::fabs(full[g]) / unit), sign = full[g] < 0 ? -1.0f : 1.0f;
    float least = 0;
    bool first = true;
    for (const float step : {0.0f, 1.0f, -1.0f}) {
      const float multiple = sign * std::min(std::max(size + step, 1.0f), LARGEST_MULTIPLE);
      std::uint8_t tried[MAX_GROUP];
      encode(x, group, 0.0f, multiple * unit, I4_SYMMETRIC, tried);
      const float error = squared_error(x, group, tried, multiple * unit);
      if (!first && !(error < least)) continue;
      first = false, least = error, multiples[g] = static_cast<std::int8_t>(multiple);
      std::copy_n(tried, group, codes);
    }
  }
}

void quantize_unsigned(const float* x, int n, std::uint8_t* codes, std::uint16_t& scale, std::uint16_t& min) {
  const MinMax range = min_max(x, n);
  min = to_half_bits(range.low);
  if (min == 0x8000) min = 0;  // no -0
  const float min_value = from_half_bits(min), width = range.high - min_value;
  scale = to_half_bits((width <= 0.0f ? 0.0f : width) / 15.0f);
  encode(x, n, min_value, from_half_bits(scale), I4_UNSIGNED, codes);
}

bool is_finite(std::uint16_t half) { return (half & 0x7c00) != 0x7c00; }

struct Job {
  const void* source;
  Dtype dtype;
  int rows, columns, group;
  std::uint8_t* codes;
  void *scales, *mins;
  float* units;  // or nullptr
};

// Quantizes rows first .. end - 1; returns whether all scales are finite.
bool quantize_rows(const Job& job, int first, int end) {
  std::vector<float> row(job.columns);
  bool all_finite = true;
  const int groups = job.group ? job.columns / job.group : 1;
  for (int r = first; r < end; ++r) {
    const std::size_t at = std::size_t(r) * job.columns, scale = std::size_t(r) * groups;
    to_float(job.source, job.dtype, at, job.columns, row.data());
    if (!job.group) {
      float& to = static_cast<float*>(job.scales)[scale];
      quantize_row(row.data(), job.columns, job.codes + at, to);
      all_finite = all_finite && std::isfinite(to);
      continue;
    }
    if (job.units) {
      quantize_multiples(row.data(), job.columns, job.group, job.codes + at, static_cast<std::int8_t*>(job.scales) + scale, job.units[r]);
      all_finite = all_finite && std::isfinite(job.units[r]);
      continue;
    }
    auto *scales = static_cast<std::uint16_t*>(job.scales) + scale, *mins = static_cast<std::uint16_t*>(job.mins) + scale;
    for (int g = 0; g < groups; ++g) {
      const std::size_t begin = std::size_t(g) * job.group;
      quantize_unsigned(row.data() + begin, job.group, job.codes + at + begin, scales[g], mins[g]);
      all_finite = all_finite && is_finite(scales[g]) && is_finite(mins[g]);
    }
  }
  return all_finite;
}

// Rows divided into one part per thread.
class QuantizeWork : public Work {
 public:
  QuantizeWork(Pool& pool, const Job& job) : Work(pool, 1), job_(job), parts_(pool.size()) {}
  void run_phases(int thread) override {
    parallel_for(thread, parts_, [this](int i) {
      const auto row = [this](int part) { return static_cast<int>(std::int64_t(job_.rows) * part / parts_); };
      if (!quantize_rows(job_, row(i), row(i + 1))) all_finite_ = false;
    });
  }
  bool all_finite() const { return all_finite_; }

 private:
  const Job job_;
  const int parts_;
  std::atomic<bool> all_finite_{true};
};

// By row: float scales. By group: f16 scales and as many mins `beside`, or int8 scales and a float unit for each row.
bool quantize(const Source& source, int group, const Codes& codes, const Scales& scales, const nb::object& beside, Pool& pool) {
  const int rows = static_cast<int>(source.shape(0)), columns = static_cast<int>(source.shape(1));
  if (codes.shape(0) != source.shape(0) || codes.shape(1) != source.shape(1) || (group && columns % group))
    throw std::invalid_argument("codes have the shape of the matrix, and groups divide its columns");
  if (beside.is_none() != !group || group % 16 || group > MAX_GROUP)
    throw std::invalid_argument("groups of 16 to " + std::to_string(MAX_GROUP) + " columns have mins or units beside their scales");
  const bool multiples = scales.itemsize() == 1;
  const std::size_t num_scales = std::size_t(rows) * (group ? columns / group : 1), scale_bytes = !group ? 4 : multiples ? 1 : 2;
  const auto checked = [](const Scales& of, std::size_t count, std::size_t bytes) {
    if (of.size() != count || of.itemsize() != bytes)
      throw std::invalid_argument("scales, mins or units are " + std::to_string(of.size()) + " of " + std::to_string(of.itemsize()) +
                                  " bytes, not " + std::to_string(count) + " of " + std::to_string(bytes));
    return of.data();
  };
  void* other = beside.is_none() ? nullptr : checked(nb::cast<Scales>(beside, false), multiples ? rows : num_scales, multiples ? 4 : 2);
  const Job job{source.data(), dtype_of(source), rows, columns, group, codes.data(), checked(scales, num_scales, scale_bytes),
                multiples ? nullptr : other, multiples ? static_cast<float*>(other) : nullptr};
  const nb::gil_scoped_release free;
  const auto work = std::make_shared<QuantizeWork>(pool, job);
  pool.run(work);
  return work->all_finite();
}

}  // namespace

void bind_quantize(nb::module_& module) {
  module.def("quantize", &quantize, nb::arg(), nb::arg("group"), nb::arg("codes").noconvert(), nb::arg("scales").noconvert(),
             nb::arg("beside").none(), nb::arg("pool"),
             "Rounds rows by group (0: each row by one scale) into codes, scales and mins or units; whether all scales are finite.");
}
