// Detection of instruction sets. An instruction set is usable if the CPU has it (CPUID) and the operating system saves its registers in
// context switches (XCR0). On Linux, AMX needs a permission as well, which each process requests, because tile registers enlarge every
// signal frame.
#include "features.h"

#include <nanobind/nanobind.h>

#include <cstdint>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace nb = nanobind;

namespace penstock {

namespace {

constexpr bool bit(std::uint64_t word, int index) { return (word >> index) & 1; }

#if defined(__x86_64__)
struct Registers {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero if the CPU does not have the leaf.
Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  Registers r;
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
  return r;
}

// Register sets that the operating system saves. Valid only if CPUID reports OSXSAVE.
std::uint64_t xcr0() {
  std::uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
}

// Requests permission for AMX tile data (Documentation/arch/x86/xstate.rst). Idempotent.
bool tiles_granted() {
#if defined(__linux__)
  constexpr long arch_req_xcomp_perm = 0x1023, xfeature_xtiledata = 18;
  return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
#else
  return false;
#endif
}
#endif

Features detect() {
  Features has;
#if defined(__x86_64__)
  const Registers one = cpuid(1, 0), seven = cpuid(7, 0);
  const Registers seven1 = seven.eax >= 1 ? cpuid(7, 1) : Registers{};  // eax of leaf 7: its number of subleaves
  const std::uint64_t saved = bit(one.ecx, 27) ? xcr0() : 0;
  const bool avx = bit(one.ecx, 28) && (saved & 0x6) == 0x6;                           // XMM and YMM
  const bool avx512 = avx && bit(seven.ebx, 16) && (saved & 0xe0) == 0xe0;             // masks, upper ZMM, ZMM 16-31
  const bool tiles = bit(seven.edx, 24) && (saved & 0x60000) == 0x60000 && tiles_granted();  // tile configuration and data
  const Registers zero = cpuid(0, 0);
  has.intel = zero.ebx == 0x756e6547 && zero.edx == 0x49656e69 && zero.ecx == 0x6c65746e;  // "GenuineIntel"
  const bool amd = zero.ebx == 0x68747541 && zero.edx == 0x69746e65 && zero.ecx == 0x444d4163;  // "AuthenticAMD"
  has.zen5 = amd && (one.eax >> 8 & 0xf) + (one.eax >> 20 & 0xff) >= 26;
  has.avx2 = avx && bit(seven.ebx, 5);
  has.fma = avx && bit(one.ecx, 12);
  has.f16c = avx && bit(one.ecx, 29);
  has.avx512f = avx512;
  has.avx512bw = avx512 && bit(seven.ebx, 30);
  has.avx512dq = avx512 && bit(seven.ebx, 17);
  has.avx512vl = avx512 && bit(seven.ebx, 31);
  has.avx512vbmi = avx512 && bit(seven.ecx, 1);
  has.avx512_vnni = avx512 && bit(seven.ecx, 11);
  has.avx512_bf16 = avx512 && bit(seven1.eax, 5);
  has.amx_tile = tiles;
  has.amx_int8 = tiles && bit(seven.edx, 25);
  has.amx_bf16 = tiles && bit(seven.edx, 22);
#elif defined(__aarch64__)
  has.neon = true;  // part of the base architecture
#endif
  return has;
}

}  // namespace

const Features& features() {
  static const Features has = detect();
  return has;
}

bool prefers_bf16_pairs() { return features().avx512_bf16 && !features().intel; }

}  // namespace penstock

namespace {

// All names are present on every machine.
nb::dict cpu_features() {
  const penstock::Features& has = penstock::features();
  nb::dict named;
  named["avx2"] = has.avx2;
  named["fma"] = has.fma;
  named["f16c"] = has.f16c;
  named["avx512f"] = has.avx512f;
  named["avx512bw"] = has.avx512bw;
  named["avx512dq"] = has.avx512dq;
  named["avx512vl"] = has.avx512vl;
  named["avx512vbmi"] = has.avx512vbmi;
  named["avx512_vnni"] = has.avx512_vnni;
  named["avx512_bf16"] = has.avx512_bf16;
  named["amx_tile"] = has.amx_tile;
  named["amx_int8"] = has.amx_int8;
  named["amx_bf16"] = has.amx_bf16;
  named["neon"] = has.neon;
  return named;
}

}  // namespace

#if defined(__clang__)
#define PENSTOCK_COMPILER "Clang " __clang_version__
#elif defined(__GNUC__)
#define PENSTOCK_COMPILER "GCC " __VERSION__
#else
#define PENSTOCK_COMPILER "an unknown compiler"
#endif

void bind_features(nb::module_& module) {
  module.attr("compiler") = PENSTOCK_COMPILER;
  module.def("cpu_features", &cpu_features, "The instruction sets that this process may use: name -> bool.");
}
