// Products of rows with one panel of a packed matrix: out[row][column] = sum over k of x[row][k] * w[column][k].
//
// Every output has one accumulator that takes the inner indices in rising order, whatever the number of rows: the bits of a row do
// not depend on its neighbours. A register block is ROWS x VECS accumulators; blocks along k come back to the same sums.
#pragma once
#include "../layout.h"

namespace PENSTOCK_ISA {

using namespace penstock;
using Bytes = const std::uint8_t*;

#define PENSTOCK_UNROLL _Pragma("GCC unroll 8")
#define PENSTOCK_INLINE inline __attribute__((always_inline))

// One step for a block: R rows of x, `stride` bytes apart, with V vectors of columns at w.
struct StepF32 {
  using Sum = F;
  static constexpr bool WHOLE = false;
  static constexpr int W = 64, X = 4;  // bytes that a step takes of w (for 16 columns) and of x
  template <int R, int V> static PENSTOCK_INLINE void run(F (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) {
    F b[V];
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) b[v] = load(reinterpret_cast<const float*>(w) + 16 * v);
    PENSTOCK_UNROLL for (int r = 0; r < R; ++r) {
      const F a = set1(*reinterpret_cast<const float*>(x + stride * r));
      PENSTOCK_UNROLL for (int v = 0; v < V; ++v) sum[r][v] = fma(b[v], a, sum[r][v]);
    }
  }
};

struct StepF16 {
  using Sum = F;
  static constexpr bool WHOLE = false;
  static constexpr int W = 32, X = 4;
  template <int R, int V> static PENSTOCK_INLINE void run(F (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) {
    F b[V];
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) b[v] = from_f16(reinterpret_cast<const std::uint16_t*>(w) + 16 * v);
    PENSTOCK_UNROLL for (int r = 0; r < R; ++r) {
      const F a = set1(*reinterpret_cast<const float*>(x + stride * r));
      PENSTOCK_UNROLL for (int v = 0; v < V; ++v) sum[r][v] = fma(b[v], a, sum[r][v]);
    }
  }
};

template <int R, int V> PENSTOCK_INLINE void add_pairs(F (&sum)[R][V], const Pair (&b)[V], Bytes x, std::size_t stride) {
  PENSTOCK_UNROLL for (int r = 0; r < R; ++r) {
    const Pair a = broadcast_pair(reinterpret_cast<const std::uint16_t*>(x + stride * r));
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) sum[r][v] = dot2(sum[r][v], b[v], a);
  }
}

struct StepBf16 {
  using Sum = F;
  static constexpr bool WHOLE = false;
  static constexpr int W = 64, X = 4;
  template <int R, int V> static PENSTOCK_INLINE void run(F (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) {
    Pair b[V];
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) b[v] = load_pair(w + 64 * v);
    add_pairs<R, V>(sum, b, x, stride);
  }
};

struct StepI8 {
  using Sum = F;
  static constexpr bool WHOLE = false;
  static constexpr int W = 64, X = 8;
  template <int R, int V> static PENSTOCK_INLINE void run(F (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) {
    Raw raw[V];
    Pair b[V];
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) raw[v] = load_raw(w + 64 * v);
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) b[v] = unpack_i8<0>(raw[v]);
    add_pairs<R, V>(sum, b, x, stride);
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) b[v] = unpack_i8<1>(raw[v]);
    add_pairs<R, V>(sum, b, x + 4, stride);
  }
};

struct StepI4 {
  using Sum = F;
  static constexpr bool WHOLE = false;
  static constexpr int W = 64, X = 16;
  Table table;
  template <int T, int R, int V> PENSTOCK_INLINE void quarter(F (&sum)[R][V], const Raw (&raw)[V], Bytes x, std::size_t stride) const {
    Pair b[V];
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) b[v] = unpack_i4<T>(raw[v], table);
    add_pairs<R, V>(sum, b, x + 4 * T, stride);
  }
  template <int R, int V> PENSTOCK_INLINE void run(F (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    Raw raw[V];
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) raw[v] = load_raw(w + 64 * v);
    quarter<0, R, V>(sum, raw, x, stride);
    quarter<1, R, V>(sum, raw, x, stride);
    quarter<2, R, V>(sum, raw, x, stride);
    quarter<3, R, V>(sum, raw, x, stride);
  }
};

template <int R, int V> PENSTOCK_INLINE void add_bytes(I (&sum)[R][V], const Raw (&b)[V], Bytes x, std::size_t stride) {
  PENSTOCK_UNROLL for (int r = 0; r < R; ++r) {
    const Raw a = broadcast_raw(x + stride * r);
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) sum[r][v] = dot4(sum[r][v], b[v], a);
  }
}

struct StepBytes {  // i8, or i4 unpacked, with int8 activations
  using Sum = I;
  static constexpr bool WHOLE = true;
  static constexpr int W = 64, X = 4;
  template <int R, int V> static PENSTOCK_INLINE void run(I (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) {
    Raw b[V];
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) b[v] = load_raw(w + 64 * v);
    add_bytes<R, V>(sum, b, x, stride);
  }
};

struct StepNibbles {  // i4 with int8 activations
  using Sum = I;
  static constexpr bool WHOLE = true;
  static constexpr int W = 64, X = 8;
  ByteTable table;
  template <int R, int V> PENSTOCK_INLINE void run(I (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    Raw raw[V], b[V];
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) raw[v] = load_raw(w + 64 * v);
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) b[v] = bytes_i4<0>(raw[v], table);
    add_bytes<R, V>(sum, b, x, stride);
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) b[v] = bytes_i4<1>(raw[v], table);
    add_bytes<R, V>(sum, b, x + 4, stride);
  }
};

// What a block is fetched ahead for: `lines` cache lines a step, from `at` on.
struct Ahead {
  Bytes at = nullptr;
  int lines = 0;
};

template <class Step, int R, int V>
PENSTOCK_INLINE void accumulate(const Step& step, typename Step::Sum (&sum)[R][V], Bytes w, int w_step, Bytes x, std::size_t stride,
                                int steps, Ahead ahead) {
  for (int s = 0; s < steps; ++s) {
    step.template run<R, V>(sum, w, x, stride);
    for (int i = 0; i < ahead.lines; ++i) __builtin_prefetch(ahead.at + 64 * i, 0, 2);
    ahead.at += 64 * ahead.lines;
    w += w_step;
    x += Step::X;
  }
}

// A stretch of k of one panel, and where its sums stand.
struct Stretch {
  Bytes w;
  int w_step;  // bytes from step to step
  int steps;
  bool first;  // out holds nothing yet
  float* out;
  int out_stride;
};

// out (+)= x w without scales.
template <class Step, int R, int V>
void dense_block(const Step& step, const Stretch& part, Bytes x, std::size_t stride, Ahead ahead) {
  F sum[R][V];
  PENSTOCK_UNROLL for (int r = 0; r < R; ++r)
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) sum[r][v] = part.first ? zero() : load(part.out + r * part.out_stride + 16 * v);
  accumulate<Step, R, V>(step, sum, part.w, part.w_step, x, stride, part.steps, ahead);
  PENSTOCK_UNROLL for (int r = 0; r < R; ++r)
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) store(part.out + r * part.out_stride + 16 * v, sum[r][v]);
}

// A group's scales and mins, for the columns of a block.
struct Scales {
  Bytes scales, mins;  // mins: nullptr when there are none
  int bytes;           // of one, 2 or 4
  int offset;          // what every code of the weights is too large by, for int8 activations
  F scale(int v) const { return read(scales, v); }
  F min(int v) const { return read(mins, v); }
  F read(Bytes p, int v) const {
    return bytes == 2 ? from_f16(reinterpret_cast<const std::uint16_t*>(p) + 16 * v) : load(reinterpret_cast<const float*>(p) + 16 * v);
  }
};

// out (+)= (x w) * scale + total(x) * min over one group.
template <class Step, int R, int V>
void group_block(const Step& step, const Stretch& part, const Operand& x, int g, Bytes x_at, const Scales& scales, Ahead ahead) {
  using Sum = typename Step::Sum;
  constexpr bool whole = Step::WHOLE;  // sums are integers
  Sum sum[R][V];
  PENSTOCK_UNROLL for (int r = 0; r < R; ++r) {
    Sum begin;
    if constexpr (whole) begin = set1_i(-scales.offset * x.sums[r * x.groups + g]);
    else begin = zero();
    PENSTOCK_UNROLL for (int v = 0; v < V; ++v) sum[r][v] = begin;
  }
  accumulate<Step, R, V>(step, sum, part.w, part.w_step, x_at, x.stride, part.steps, ahead);
  PENSTOCK_UNROLL for (int v = 0; v < V; ++v) {
    const F scale = scales.scale(v);
    PENSTOCK_UNROLL for (int r = 0; r < R; ++r) {
      float* out = part.out + r * part.out_stride + 16 * v;
      F value, by;
      if constexpr (whole) value = to_float(sum[r][v]), by = scale * set1(x.scales[r * x.groups + g]);
      else value = sum[r][v], by = scale;
      F result = part.first ? value * by : fma(value, by, load(out));
      if (scales.mins) result = fma(scales.min(v), set1(x.totals[r * x.groups + g]), result);
      store(out, result);
    }
  }
}

}  // namespace PENSTOCK_ISA
