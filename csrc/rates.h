// Peak arithmetic rates: loops of multiply-adds in registers, per data type and instruction set.
#pragma once

#include <vector>

#include "features.h"

namespace penstock {

struct Rate {
  const char* dtype;  // "fp32", "bf16", "int16" or "int8"
  const char* isa;
  bool (*usable)(const Features&);
  void (*run)(long iterations);
  double operations;  // per iteration; a multiply-add counts as two
};

// Rates that this process can measure, fastest first for each type. Every type has at least one, except int16, which is listed only where
// an instruction multiplies 16-bit integers.
std::vector<Rate> usable_rates();

}  // namespace penstock
