// Instruction sets that this process may execute: the CPU has it, the operating system saves its registers, and, for AMX, has granted it.
// Names are those of /proc/cpuinfo; all of x86's are false on other architectures.
#pragma once

namespace penstock {

struct Features {
  bool avx2 = false, fma = false, f16c = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false, avx512vbmi = false, avx512_vnni = false, avx512_bf16 = false;
  bool amx_tile = false, amx_int8 = false, amx_bf16 = false;
  bool neon = false;
  bool intel = false;  // the vendor
  bool zen5 = false;   // AMD's family 26, or a later one
};

// Detected at the first call, then constant. Thread-safe.
const Features& features();

// Whether bf16 dot products are faster than float fmas on widened bf16: on AMD's Zen 4 twice as fast, on Intel's cores of 2023 half as
// fast. Decided by vendor rather than measured, since the choice of kernels determines the bits of results and must be reproducible.
bool prefers_bf16_pairs();

}  // namespace penstock
