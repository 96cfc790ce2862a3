// Codes with scales, unpacked in registers: each register block loads packed codes, unpacks them and multiplies. Loop order over one panel:
//
//   as many k-blocks as stay in cache
//     blocks of V column vectors
//       blocks of R rows              scaled_micro_kernel: R x V accumulators, and as many totals
//         k-blocks, steps of k        load, unpack, multiply
//
// Only packed codes are read, so this is the way where the bandwidth of memory binds: few rows. Codes are unpacked anew for each block of
// rows, so with many rows unpacking binds; then see buffered.h. If one register block covers all, codes are a stream, read in one part.
#pragma once
#include "scaled.h"

namespace PENSTOCK_ISA {

constexpr std::size_t CACHED_CODE_BYTES = 256 << 10;  // codes that several register blocks read before going on: twice that stays in L2

// MAX: the most rows in a register block.
template <bool GROUPED, int MAX, class Step> void multiply_in_registers(const Task& t, const Step& step, const KBlocks& all) {
  const std::size_t parts = t.is_one_block(GROUPED, MAX) ? 1 : (all.stride * all.count + CACHED_CODE_BYTES - 1) / CACHED_CODE_BYTES;
  const int at_once = static_cast<int>((all.count + parts - 1) / parts);
  all.in_parts(at_once, [&](const KBlocks& part) {
    const PackedWeights read{part.codes, all.stride * part.count, all.stride * at_once, all.length / Step::K * part.count};
    multiply_k_blocks<GROUPED, MAX>(t, step, part, read);
  });
}

}  // namespace PENSTOCK_ISA
