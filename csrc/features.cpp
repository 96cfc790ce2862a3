// What this processor and its operating system let a kernel use.
//
// An instruction set is usable when the processor has it (CPUID) and the system saves its registers when it switches
// threads (XCR0). AMX asks for a third thing on Linux: each process must request its tile registers from the kernel,
// because they enlarge every signal frame. Names are those of /proc/cpuinfo; on other architectures all of x86's are false.
#include <nanobind/nanobind.h>

#include <cstdint>

#if defined(__x86_64__) || defined(_M_X64)
#define PENSTOCK_X86 1
#if defined(_MSC_VER)
#include <intrin.h>
#else
#include <cpuid.h>
#endif
#endif

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace nb = nanobind;

namespace {

constexpr bool bit(std::uint64_t word, int index) { return (word >> index) & 1; }

#if defined(PENSTOCK_X86)
struct Registers {
  std::uint32_t eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// All zero where the processor does not have the leaf.
Registers cpuid(std::uint32_t leaf, std::uint32_t subleaf) {
  Registers r;
#if defined(_MSC_VER)
  int out[4];
  __cpuid(out, 0);
  if (static_cast<std::uint32_t>(out[0]) < leaf) return r;
  __cpuidex(out, static_cast<int>(leaf), static_cast<int>(subleaf));
  r.eax = out[0], r.ebx = out[1], r.ecx = out[2], r.edx = out[3];
#else
  __get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx);
#endif
  return r;
}

// The register sets that the operating system saves. Only defined when CPUID reports OSXSAVE.
std::uint64_t xcr0() {
#if defined(_MSC_VER)
  return _xgetbv(0);
#else
  std::uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (static_cast<std::uint64_t>(high) << 32) | low;
#endif
}

// Asks Linux for the tile data registers of this process (Documentation/arch/x86/xstate.rst). Harmless to repeat.
bool tiles_granted() {
#if defined(__linux__)
  constexpr long arch_req_xcomp_perm = 0x1023, xfeature_xtiledata = 18;
  return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
#else
  return false;
#endif
}
#endif

// Every name is always there; true means that this process may execute it now.
nb::dict cpu_features() {
  nb::dict has;
  bool avx = false, avx512 = false, tiles = false, neon = false;
  std::uint32_t ecx1 = 0, ebx7 = 0, ecx7 = 0, edx7 = 0, eax71 = 0;
#if defined(PENSTOCK_X86)
  const Registers one = cpuid(1, 0), seven = cpuid(7, 0);
  const std::uint64_t saved = bit(one.ecx, 27) ? xcr0() : 0;
  ecx1 = one.ecx, ebx7 = seven.ebx, ecx7 = seven.ecx, edx7 = seven.edx;
  eax71 = seven.eax >= 1 ? cpuid(7, 1).eax : 0;                             // leaf 7 says in eax how many subleaves it has
  avx = bit(ecx1, 28) && (saved & 0x6) == 0x6;                              // XMM and YMM
  avx512 = avx && bit(ebx7, 16) && (saved & 0xe0) == 0xe0;                  // masks, upper ZMM, ZMM 16 to 31
  tiles = bit(edx7, 24) && (saved & 0x60000) == 0x60000 && tiles_granted(); // tile configuration and data
#elif defined(__aarch64__) || defined(_M_ARM64)
  neon = true;  // part of the base architecture
#endif
  has["avx2"] = avx && bit(ebx7, 5);
  has["fma"] = avx && bit(ecx1, 12);
  has["f16c"] = avx && bit(ecx1, 29);
  has["avx512f"] = avx512;
  has["avx512bw"] = avx512 && bit(ebx7, 30);
  has["avx512vl"] = avx512 && bit(ebx7, 31);
  has["avx512_vnni"] = avx512 && bit(ecx7, 11);
  has["avx512_bf16"] = avx512 && bit(eax71, 5);
  has["amx_tile"] = tiles;
  has["amx_int8"] = tiles && bit(edx7, 25);
  has["amx_bf16"] = tiles && bit(edx7, 22);
  has["neon"] = neon;
  return has;
}

}  // namespace

void bind_features(nb::module_& module) {
  module.def("cpu_features", &cpu_features, "The instruction sets that this process may use: name -> bool.");
}
