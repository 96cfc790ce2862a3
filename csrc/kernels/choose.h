// Sampling kernels over one row of logits: argmax, sums of exponentials, selection by a bound. None sorts the vocabulary. Sums are in
// double and in an order that depends on the row's length alone.
#pragma once
#include "rows.h"

namespace PENSTOCK_ISA {

typedef float FloatX8 __attribute__((vector_size(32)));
typedef double DoubleX8 __attribute__((vector_size(64)));

// 16 accumulators in double.
struct DoubleSums {
  DoubleX8 low{}, high{};
  void add(F x) {
    FloatX8 half[2];
    std::memcpy(half, &x, 64);
    low += __builtin_convertvector(half[0], DoubleX8), high += __builtin_convertvector(half[1], DoubleX8);
  }
  double total() const {  // pairwise
    const DoubleX8 both = low + high;
    double a[8];
    std::memcpy(a, &both, 64);
    for (int half = 4; half; half /= 2)
      for (int i = 0; i < half; ++i) a[i] += a[i + half];
    return a[0];
  }
};

// 16 values from index i on; those at n and beyond are `fill`.
inline F load_or(const float* x, int i, int n, F fill) {
  return n - i >= LANES ? load(x + i) : blend_first(load_some(x + i, n - i), n - i, fill);
}

// The first index of the maximum. A NaN counts as the maximum, as in numpy's argmax. Whoever samples a row begins here, when its logits are
// in the caches of the threads that have computed them: so they are prefetched.
inline int argmax(const float* x, int n) {
  constexpr int AHEAD = 1024;  // values
  const F least = set1(-INFINITY);
  unsigned valid_lanes = 0xffff;
  float most = -INFINITY;
  int first = 0;  // of the block that holds the first maximum
  for (int begin = 0; begin < n; begin += penstock::VOCAB_BLOCK) {
    const int end = std::min(n, begin + penstock::VOCAB_BLOCK);
    F lane_max[4] = {least, least, least, least};
    int i = begin;
    for (; i + 4 * LANES <= end; i += 4 * LANES)
      for (int j = 0; j < 4; ++j) {
        __builtin_prefetch(x + i + LANES * j + AHEAD, 0, 3);
        const F v = load(x + i + LANES * j);
        valid_lanes &= mask_ge(v, least);
        lane_max[j] = max(lane_max[j], v);
      }
    for (; i < end; i += LANES) {
      const F v = load_or(x, i, end, least);
      valid_lanes &= mask_ge(v, least);
      lane_max[0] = max(lane_max[0], v);
    }
    const F block_max = max(max(lane_max[0], lane_max[1]), max(lane_max[2], lane_max[3]));
    if (mask_gt(block_max, set1(most))) most = reduce_max(block_max), first = begin;
  }
  if (valid_lanes != 0xffff)
    for (int i = 0; i < n; ++i)
      if (x[i] != x[i]) return i;
  for (int i = first; i < n; i += LANES)
    if (const unsigned found = mask_ge(load_or(x, i, n, least), set1(most))) return i + __builtin_ctz(found);
  return 0;
}

// (x - row_max) / temperature
inline void temperature_scale(const float* x, float row_max, float temperature, int n, float* out) {
  const F top = set1(row_max), by = set1(temperature);
  for (int i = 0; i < n; i += LANES) store_some(out + i, (load_some(x + i, n - i) - top) / by, n - i);
}

// exp(x - row_max)
inline void exp_row(const float* x, float row_max, int n, float* out) {
  const F top = set1(row_max);
  for (int i = 0; i < n; i += LANES) store_some(out + i, exp(load_some(x + i, n - i) - top), n - i);
}

// The sum of exp(x - row_max) over each block of VOCAB_BLOCK values.
inline void exp_block_sums(const float* x, float row_max, int n, double* sums) {
  const F top = set1(row_max), minus_inf = set1(-INFINITY);
  for (int begin = 0; begin < n; begin += penstock::VOCAB_BLOCK) {
    const int end = std::min(n, begin + penstock::VOCAB_BLOCK);
    DoubleSums even, odd;
    int i = begin;
    for (; i + 2 * LANES <= end; i += 2 * LANES) even.add(exp(load(x + i) - top)), odd.add(exp(load(x + i + LANES) - top));
    for (; i < end; i += LANES) even.add(exp(load_or(x, i, end, minus_inf) - top));
    sums[begin / penstock::VOCAB_BLOCK] = even.total() + odd.total();
  }
}

// The sum of the weights whose scores are at least `bound`; *count is their number.
inline double mass_at_least(const float* scores, const float* weights, int n, float bound, int* count) {
  const F limit = set1(bound), nan = set1(NAN);  // not counted, even where the bound is -inf
  DoubleSums even, odd;
  int found = 0, i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    const F a = load(scores + i), b = load(scores + i + LANES);
    found += __builtin_popcount(mask_ge(a, limit) | mask_ge(b, limit) << LANES);
    even.add(select_lt(a, limit, zero(), load(weights + i)));
    odd.add(select_lt(b, limit, zero(), load(weights + i + LANES)));
  }
  for (; i < n; i += LANES) {
    const F a = load_or(scores, i, n, nan);
    found += __builtin_popcount(mask_ge(a, limit));
    even.add(select_lt(a, limit, zero(), load_some(weights + i, n - i)));
  }
  *count = found;
  return even.total() + odd.total();
}

// Indices of values above `bound` (or equal to it), ascending, plus `first`; returns their number.
inline int indices_above(const float* x, int n, float bound, bool or_equal, int first, int* out) {
  const F limit = set1(bound), pad = set1(NAN);
  int count = 0;
  for (int i = 0; i < n; i += LANES) {
    const F v = load_or(x, i, n, pad);
    for (unsigned found = or_equal ? mask_ge(v, limit) : mask_gt(v, limit); found; found &= found - 1)
      out[count++] = first + i + __builtin_ctz(found);
  }
  return count;
}

inline int count_above(const float* x, int n, float bound, bool or_equal) {
  const F limit = set1(bound), pad = set1(NAN);
  int count = 0;
  for (int i = 0; i < n; i += LANES) {
    const F v = load_or(x, i, n, pad);
    count += __builtin_popcount(or_equal ? mask_ge(v, limit) : mask_gt(v, limit));
  }
  return count;
}

// Sets x[i] to minus infinity where bit i % 32 of allowed[i / 32] is 0.
inline void mask_logits(float* x, const std::uint32_t* allowed, int n) {
  int i = 0;
  for (; i + 32 <= n; i += 32) {
    const std::uint32_t bits = allowed[i / 32];
    if (bits == 0xffffffffu) continue;
    float* at = x + i;
    if (bits == 0)
      for (int j = 0; j < 32; ++j) at[j] = -INFINITY;
    else
      for (int j = 0; j < 32; ++j) at[j] = bits & 1u << j ? at[j] : -INFINITY;
  }
  for (; i < n; ++i)
    if (!(allowed[i / 32] & 1u << i % 32)) x[i] = -INFINITY;
}

}  // namespace PENSTOCK_ISA
