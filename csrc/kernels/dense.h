// Weights without scales (f32, f16, bf16), read as they are stored. Loop order over one panel:
//
//   k-blocks of DENSE_K_BLOCK         small enough for their weights to stay in L2 across register blocks
//     blocks of V column vectors
//       blocks of R rows              dense_micro_kernel: R x V accumulators
//         steps of k                  one load of w for R rows, one broadcast of x for V vectors
//
// Weights are read from memory once, by the first block of rows, and from L2 or L1 by the others. Sums go from k-block to k-block through
// `out`, as floats, unrounded.
//
// Batch invariance: the accumulator of an output takes all of k in rising order; k-blocks begin at fixed k, and leave and resume it.
#pragma once
#include "task.h"

namespace PENSTOCK_ISA {

constexpr int DENSE_K_BLOCK = 1024;

// The weights of k = begin .. begin + length - 1 of one panel, in steps that a class Step reads.
struct DenseKBlock {
  int begin, length;
  Bytes w;
  int w_step;  // bytes between steps
};

// out (+)= x W^T over the k-block; `x` and `out` at the block's first row.
template <class Step, int R, int V>
void dense_micro_kernel(const DenseKBlock& of, Bytes x, std::size_t stride, float* out, Prefetch prefetch) {
  F acc[R][V];
  fill_block(acc, [&](auto r, auto v) PENSTOCK_INLINED { return of.begin == 0 ? zero() : load(out + r * PANEL + LANES * v); });
  accumulate<Step, R, V>(Step{}, acc,
                         {of.w, of.w_step, x + std::size_t(of.begin / Step::K) * Step::X_BYTES, stride, of.length / Step::K}, prefetch);
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    unrolled<V>([&](auto v) PENSTOCK_INLINED { store(out + r * PANEL + LANES * v, acc[r][v]); });
  });
}

// All columns and rows over one k-block. `read`: the memory that its weights are in, or were unpacked from.
template <class Step> void multiply_dense_block(const Task& t, const DenseKBlock& of, const PackedWeights& read) {
  for_columns<false, MAX_ROWS>(t, read, [&](auto vecs, int v, const PrefetchPlan& plan) {
    const DenseKBlock columns{of.begin, of.length, of.w + Step::W_BYTES * v, of.w_step};
    for_rows<vecs, false, MAX_ROWS>(t, plan, of.begin + of.length == t.matrix.k_padded,
                                    [&](auto count, int r, const Prefetch& prefetch) PENSTOCK_INLINED {
      dense_micro_kernel<Step, count, vecs>(columns, t.x.data + t.x.stride * r, t.x.stride,
                                            t.out + std::size_t(PANEL) * r + LANES * v, prefetch);
    });
  });
}

template <class Step> void multiply_dense(const Task& t) {
  const int k = t.matrix.k_padded, w_step = t.w_step(Step::W_BYTES);
  const auto bytes = [&](int length) { return std::size_t(length / Step::K) * w_step; };
  for (int begin = 0; begin < k; begin += DENSE_K_BLOCK) {
    const int length = std::min(DENSE_K_BLOCK, k - begin);
    const Bytes w = t.panel + bytes(begin);
    multiply_dense_block<Step>(t, {begin, length, w, w_step}, {w, bytes(length), bytes(std::min(DENSE_K_BLOCK, k)), length / Step::K});
  }
}

}  // namespace PENSTOCK_ISA
