// Weights unpacked once for all rows, into a buffer that stays in cache, and multiplied from there. Loop order over one panel:
//
//   as many k-blocks as fit the buffer (or, without scales, k-blocks of a size that fits it)
//     unpack all columns
//     blocks of V column vectors
//       blocks of R rows              the micro-kernels of scaled.h or dense.h
//
// Packed weights are read from memory once, unpacked ones written to and read from L2 or L1. Unpacking costs the same for any number of
// rows, so this is the way for many, where arithmetic binds.
//
// Batch invariance: the buffer holds the very numbers that inregisters.h and dense.h make in registers, and k-blocks are the same.
#pragma once
#include "dense.h"
#include "scaled.h"

namespace PENSTOCK_ISA {

constexpr std::size_t UNPACKED_BYTES = 256 << 10;  // size of the buffer
constexpr std::size_t UNPACK_TARGET_BYTES = BF16_ROWS_AS_FLOAT ? 32 << 10 : UNPACKED_BYTES;  // unpack as many k-blocks as fit this

// Unpacks `count` packed steps of all columns.
template <class Unpack> void unpack_steps(const Unpack& unpack, Bytes from, std::uint8_t* to, int count, int vectors) {
  constexpr int W_BYTES = Unpack::Step::W_BYTES;
  for (int s = 0; s < count; ++s, to += (Unpack::STEPS_OUT - 1) * vectors * W_BYTES)
    for (int v = 0; v < vectors; ++v, from += Unpack::W_BYTES, to += W_BYTES) unpack(from, to, vectors * W_BYTES);
}

// Unpacks k-blocks one after another, `bytes` each.
template <class Unpack> void unpack_k_blocks(const Task& t, const Unpack& unpack, const KBlocks& of, std::size_t bytes) {
  for (int g = 0; g < of.count; ++g)
    unpack_steps(unpack, of.codes + of.stride * g, t.unpacked + bytes * g, of.length / t.matrix.k_per_step(), t.vectors());
}

template <class Unpack> bool fits_buffer(int k_block) {
  using Step = typename Unpack::Step;
  return std::size_t(k_block / Step::K) * (PANEL / LANES) * Step::W_BYTES <= UNPACKED_BYTES;
}

// Codes with scales, for k-blocks that fit the buffer.
template <class Unpack> void multiply_buffered(const Task& t, const Unpack& unpack, const KBlocks& all) {
  using Step = typename Unpack::Step;
  const int w_step = t.w_step(Step::W_BYTES), steps = all.length / Step::K;
  const std::size_t bytes = std::size_t(steps) * w_step;  // of one k-block, unpacked
  const int min_blocks = Step::INTEGER ? std::min<int>(MIN_UNPACKED_INT_BLOCKS, UNPACKED_BYTES / bytes) : 1;
  const int at_once = std::max({1, min_blocks, static_cast<int>(UNPACK_TARGET_BYTES / bytes)});
  all.in_parts(at_once, [&](const KBlocks& part) {
    unpack_k_blocks(t, unpack, part, bytes);
    const PackedWeights read{part.codes, all.stride * part.count, all.stride * std::min(at_once, all.count), steps * part.count};
    multiply_k_blocks<true, MAX_ROWS>(t, Step{}, part.unpacked_at(t.unpacked, bytes, w_step), read);
  });
}

// Without scales: 16-bit weights become floats, or codes the numbers that stand for them.
template <class Unpack> void multiply_dense_buffered(const Task& t, const Unpack& unpack) {
  using Step = typename Unpack::Step;
  const int k = t.matrix.k_padded, packed_k = t.matrix.k_per_step();
  const int fitting_steps = UNPACK_TARGET_BYTES / (PANEL / LANES * Step::W_BYTES * Unpack::STEPS_OUT);
  const int max_length = std::min(DENSE_K_BLOCK / packed_k, fitting_steps) * packed_k;
  const auto packed_bytes = [&](int length) { return std::size_t(length / packed_k) * t.w_step(Unpack::W_BYTES); };
  for (int begin = 0; begin < k; begin += max_length) {
    const int length = std::min(max_length, k - begin);
    const Bytes packed = t.panel + packed_bytes(begin);
    unpack_steps(unpack, packed, t.unpacked, length / packed_k, t.vectors());
    multiply_dense_block<Step>(t, {begin, length, t.unpacked, t.w_step(Step::W_BYTES)},
                               {packed, packed_bytes(length), packed_bytes(std::min(max_length, k)), length / Step::K});
  }
}

}  // namespace PENSTOCK_ISA
