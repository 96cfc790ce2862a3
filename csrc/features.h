// What this process may execute: the processor has it, the operating system saves its registers, and, for AMX, has granted it.
// Names are those of /proc/cpuinfo; on other architectures than x86-64 all of x86's are false.
#pragma once

struct Features {
  bool avx2 = false, fma = false, f16c = false;
  bool avx512f = false, avx512bw = false, avx512dq = false, avx512vl = false, avx512vbmi = false, avx512_vnni = false, avx512_bf16 = false;
  bool amx_tile = false, amx_int8 = false, amx_bf16 = false;
  bool neon = false;
  bool intel = false;  // who made it, which no name of an instruction set tells
};

// Looked up at the first call; the same for the life of the process, and safe to ask from any thread.
const Features& features();
