// Transcendental functions of 16 lanes.
#pragma once
#include "../kernels.h"
#include "steps.h"

namespace PENSTOCK_ISA {

// Error below 2 ulp. 0 below -87, so that masked scores contribute nothing to a softmax. NaN for NaN, since min returns its second
// operand then. Range reduction after Cody and Waite, polynomial after Cephes.
inline F exp(F x) {
  const F n = round(min(set1(88.0f), x) * set1(1.44269504f));
  F r = fma(n, set1(-0.693145752f), min(set1(88.7f), x));
  r = fma(n, set1(-1.42860677e-6f), r);
  F p = set1(1.98756915e-4f);
  p = fma(p, r, set1(1.39819995e-3f));
  p = fma(p, r, set1(8.33345190e-3f));
  p = fma(p, r, set1(4.16657962e-2f));
  p = fma(p, r, set1(1.66666655e-1f));
  p = fma(p, r, set1(5.00000000e-1f));
  p = fma(p, r * r, r) + set1(1.0f);
  return select_lt(x, set1(-87.0f), zero(), scale_pow2(p, max(n, set1(-126.0f))));
}

// tanh x = 1 - 2 / (e^2x + 1); a Taylor polynomial near 0, where that cancels.
inline F tanh(F x) {
  const F wide = set1(1.0f) - fast_div(set1(2.0f), exp(x + x) + set1(1.0f));
  const F square = x * x;
  F p = set1(2.18694885e-2f);
  p = fma(p, square, set1(-5.39682540e-2f));
  p = fma(p, square, set1(1.33333333e-1f));
  p = fma(p, square, set1(-3.33333333e-1f));
  return select_lt(abs(x), set1(0.25f), fma(p * square, x, x), wide);
}

// gelu calls the C library lane by lane: the usual polynomial for erf (Abramowitz and Stegun 7.1.26) is too coarse for float32.
template <class Function> F each_lane(F x, Function function) {
  float lanes[16];
  store(lanes, x);
  for (float& lane : lanes) lane = function(lane);
  return load(lanes);
}

inline F activate(Activation activation, F x) {
  switch (activation) {
    case Activation::silu: return fast_div(max(set1(-88.0f), x), set1(1.0f) + exp(zero() - x));  // e^-x saturates
    case Activation::gelu: return each_lane(x, [](float v) { return 0.5f * v * (1.0f + std::erf(v * 0.70710678f)); });
    case Activation::gelu_tanh: {
      const F inner = set1(0.79788456f) * fma(set1(0.044715f) * x * x, x, x);
      return set1(0.5f) * x * (set1(1.0f) + tanh(inner));
    }
    default: return x;
  }
}

}  // namespace PENSTOCK_ISA
