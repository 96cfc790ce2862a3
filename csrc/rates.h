// Loops that do nothing but multiply and add, in registers: how fast a core computes in a type with an instruction set.
#pragma once

#include "features.h"

#include <vector>

struct Rate {
  const char* dtype;  // "fp32", "bf16", "int16" or "int8"
  const char* isa;
  bool (*usable)(const Features&);
  void (*run)(long iterations);
  double operations;  // of one iteration; a multiply-add counts as two
};

// Those that this process may execute, for each type the fastest first. Every type but int16 has at least one: it tells
// of an instruction for rows of fixed point.
std::vector<Rate> usable_rates();

// Whether this processor multiplies pairs of bf16 faster than the floats that they widen to: AMD's Zen 4 does so at twice the rate,
// Intel's cores of 2023 at half of it. By their maker and not by a measurement, which may come out differently the next time: kernels,
// and so the bits of answers, are chosen by it.
bool bf16_pairs_pay();
