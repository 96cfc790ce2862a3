// What choosing a token needs of one row of logits: the place of its largest value, sums of exponentials, and the places above a bound.
// Sums are in double, in an order that depends on the row's length alone.
#pragma once
#include "../kernels.h"
#include "rows.h"

namespace PENSTOCK_ISA {

typedef float Eight __attribute__((vector_size(32)));
typedef double Wide __attribute__((vector_size(64)));

// Sixteen sums in double.
struct Sums {
  Wide low{}, high{};
  void add(F x) {
    Eight half[2];
    std::memcpy(half, &x, 64);
    low += __builtin_convertvector(half[0], Wide), high += __builtin_convertvector(half[1], Wide);
  }
  double total() const {  // in halves
    const Wide both = low + high;
    double a[8];
    std::memcpy(a, &both, 64);
    for (int half = 4; half; half /= 2)
      for (int i = 0; i < half; ++i) a[i] += a[i + half];
    return a[0];
  }
};

// Sixteen values from place i on; places from n on have `otherwise`.
inline F load_row(const float* x, int i, int n, F otherwise) {
  return n - i >= LANES ? load(x + i) : first_lanes(load_some(x + i, n - i), n - i, otherwise);
}

// The first place of the largest value. A NaN is larger than everything, as numpy's argmax has it.
inline int largest_place(const float* x, int n) {
  const F least = set1(-INFINITY);
  F most[4] = {least, least, least, least};
  unsigned numbers = 0xffff;
  int i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES)
    for (int j = 0; j < 4; ++j) {
      const F v = load(x + i + LANES * j);
      numbers &= at_least(v, least);
      most[j] = max(most[j], v);
    }
  for (; i < n; i += LANES) {
    const F v = load_row(x, i, n, least);
    numbers &= at_least(v, least);
    most[0] = max(most[0], v);
  }
  if (numbers != 0xffff)
    for (i = 0; i < n; ++i)
      if (x[i] != x[i]) return i;
  const F top = set1(largest(max(max(most[0], most[1]), max(most[2], most[3]))));
  for (i = 0; i < n; i += LANES)
    if (const unsigned found = at_least(load_row(x, i, n, least), top)) return i + __builtin_ctz(found);
  return 0;
}

// (x - most) / temperature
inline void scale_row(const float* x, float most, float temperature, int n, float* out) {
  const F top = set1(most), by = set1(temperature);
  for (int i = 0; i < n; i += LANES) store_some(out + i, (load_some(x + i, n - i) - top) / by, n - i);
}

// e^(x - most)
inline void exp_row(const float* x, float most, int n, float* out) {
  const F top = set1(most);
  for (int i = 0; i < n; i += LANES) store_some(out + i, exp(load_some(x + i, n - i) - top), n - i);
}

// The sums of e^(x - most) over each SUM_BLOCK values.
inline void exp_sums(const float* x, float most, int n, double* sums) {
  const F top = set1(most), never = set1(-INFINITY);
  for (int begin = 0; begin < n; begin += penstock::SUM_BLOCK) {
    const int end = std::min(n, begin + penstock::SUM_BLOCK);
    Sums even, odd;
    int i = begin;
    for (; i + 2 * LANES <= end; i += 2 * LANES) even.add(exp(load(x + i) - top)), odd.add(exp(load(x + i + LANES) - top));
    for (; i < end; i += LANES) even.add(exp(load_row(x, i, end, never) - top));
    sums[begin / penstock::SUM_BLOCK] = even.total() + odd.total();
  }
}

// The sum of the weights whose scores are at least the bound, and how many there are.
inline double mass_from(const float* scores, const float* weights, int n, float bound, int* count) {
  const F limit = set1(bound), never = set1(-INFINITY);
  Sums even, odd;
  int found = 0, i = 0;
  for (; i + 2 * LANES <= n; i += 2 * LANES) {
    const F a = load(scores + i), b = load(scores + i + LANES);
    found += __builtin_popcount(at_least(a, limit) | at_least(b, limit) << LANES);
    even.add(below(a, limit, zero(), load(weights + i)));
    odd.add(below(b, limit, zero(), load(weights + i + LANES)));
  }
  for (; i < n; i += LANES) {
    const F a = load_row(scores, i, n, never);
    found += __builtin_popcount(at_least(a, limit));
    even.add(below(a, limit, zero(), load_some(weights + i, n - i)));
  }
  *count = found;
  return even.total() + odd.total();
}

// The places of what is above the bound, or at least at it, in rising order, counted from `first`; returns how many.
inline int places(const float* x, int n, float bound, bool or_equal, int first, int* out) {
  const F limit = set1(bound), never = set1(NAN);
  int count = 0;
  for (int i = 0; i < n; i += LANES) {
    const F v = load_row(x, i, n, never);
    for (unsigned found = or_equal ? at_least(v, limit) : above(v, limit); found; found &= found - 1)
      out[count++] = first + i + __builtin_ctz(found);
  }
  return count;
}

inline int count_above(const float* x, int n, float bound, bool or_equal) {
  const F limit = set1(bound), never = set1(NAN);
  int count = 0;
  for (int i = 0; i < n; i += LANES) {
    const F v = load_row(x, i, n, never);
    count += __builtin_popcount(or_equal ? at_least(v, limit) : above(v, limit));
  }
  return count;
}

// Minus infinity in place of each value whose bit is 0, the lowest bit the first value's.
inline void forbid(float* x, const std::uint32_t* allowed, int n) {
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
