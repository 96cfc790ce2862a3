// The kernel sets that were compiled in and that this process may use, best first.
#include <vector>

#include "features.h"
#include "kernels.h"

namespace generic { extern const penstock::Kernels table; }
namespace avx2 { extern const penstock::Kernels table; }
namespace avx512 { extern const penstock::Kernels table; }
namespace avx512_vnni { extern const penstock::Kernels table; }
namespace avx512_bf16 { extern const penstock::Kernels table; }
namespace amx { extern const penstock::Kernels table; }
namespace amx_emulated { extern const penstock::Kernels table; }

namespace penstock {

namespace {

std::vector<const Kernels*> usable() {
  std::vector<const Kernels*> found;
  const Features& has = features();
  [[maybe_unused]] const bool has_avx512 = has.avx512f && has.avx512bw && has.avx512vl && has.avx512dq;
  [[maybe_unused]] const bool has_avx512_dot = has_avx512 && has.avx512vbmi && has.avx512_vnni && has.avx512_bf16;
#if defined(PENSTOCK_HAS_amx)
  if (has_avx512_dot && has.amx_tile && has.amx_bf16 && has.amx_int8) found.push_back(&amx::table);
#endif
  [[maybe_unused]] const std::size_t next = found.size();
#if defined(PENSTOCK_HAS_avx512_vnni)
  if (has_avx512 && has.avx512_vnni) found.push_back(&avx512_vnni::table);
#endif
#if defined(PENSTOCK_HAS_avx512_bf16)
  if (has_avx512_dot) found.insert(prefers_bf16_pairs() ? found.begin() + next : found.end(), &avx512_bf16::table);
#endif
#if defined(PENSTOCK_HAS_avx512)
  if (has_avx512) found.push_back(&avx512::table);
#endif
#if defined(PENSTOCK_HAS_avx2)
  if (has.avx2 && has.fma && has.f16c) found.push_back(&avx2::table);
#endif
  found.push_back(&generic::table);
#if defined(PENSTOCK_HAS_amx_emulated)
  if (has_avx512_dot) found.push_back(&amx_emulated::table);  // for tests; last, so never the default
#endif
  return found;
}

const std::vector<const Kernels*>& all() {
  static const std::vector<const Kernels*> found = usable();
  return found;
}

}  // namespace

int num_kernels() { return static_cast<int>(all().size()); }
const Kernels& kernels(int i) { return *all()[i]; }

}  // namespace penstock
