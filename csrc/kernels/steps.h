// One step along k of a block of a product: R rows of x, `stride` bytes apart, with V vectors of 16 columns at w.
//
// Steps are named by what w holds. Each tells the inner indices that it takes (K) and the bytes of w, for 16 columns, and of x (W, X).
#pragma once
#include <algorithm>
#include <utility>

#include "../layout.h"
#include "../vec/inline.h"

namespace PENSTOCK_ISA {

using namespace penstock;
using Bytes = const std::uint8_t*;

#define PENSTOCK_INLINED __attribute__((always_inline))

template <class Body, int... I> PENSTOCK_INLINE void unrolled_over(std::integer_sequence<int, I...>, const Body& body) {
  (body(std::integral_constant<int, I>()), ...);
}
// body(0), ..., body(N - 1) with indices that are constants, so that arrays of sums stay in registers.
template <int N, class Body> PENSTOCK_INLINE void unrolled(const Body& body) {
  unrolled_over(std::make_integer_sequence<int, N>(), body);
}

// Steps with rows of float: one inner index after another, whose weights for 16 columns Step::value<J> gives.
template <class Step, int INDICES, int BYTES> struct OverValues {
  using Sum = F;
  static constexpr bool WHOLE = false;
  static constexpr int K = INDICES, W = BYTES, X = 4 * INDICES;
  template <int R, int V> PENSTOCK_INLINE void run(F (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    const Step& step = static_cast<const Step&>(*this);
    unrolled<K>([&](auto j) PENSTOCK_INLINED {
      F b[V];
      unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = step.template value<j>(w + W * v), keep(b[v]); });
      unrolled<R>([&](auto r) PENSTOCK_INLINED {
        const F a = set1(reinterpret_cast<const float*>(x + stride * r)[j]);
        unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = fma(b[v], a, sum[r][v]); });
      });
    });
  }
};

// Values of 16 columns at K inner indices, one vector after another.
template <int INDICES> struct StepValues : OverValues<StepValues<INDICES>, INDICES, 64 * INDICES> {
  template <int J> static PENSTOCK_INLINE F value(Bytes w) { return load(reinterpret_cast<const float*>(w) + 16 * J); }
};
using StepF32 = StepValues<1>;

struct StepF16 : OverValues<StepF16, 1, 32> {
  template <int J> static PENSTOCK_INLINE F value(Bytes w) { return from_f16(reinterpret_cast<const std::uint16_t*>(w)); }
};

template <int R, int V> PENSTOCK_INLINE void add_bytes(I (&sum)[R][V], const Raw (&b)[V], Bytes x, std::size_t stride) {
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    const Raw a = broadcast_raw(x + stride * r);
    unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = dot4(sum[r][v], b[v], a); });
  });
}

struct StepBytes {  // i8, or i4 unpacked, with int8 rows
  using Sum = I;
  static constexpr bool WHOLE = true;
  static constexpr int K = 4, W = 64, X = 4;
  template <int R, int V> static PENSTOCK_INLINE void run(I (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) {
    Raw b[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = load_raw(w + 64 * v), keep(b[v]); });
    add_bytes<R, V>(sum, b, x, stride);
  }
};

struct StepNibbles {  // i4 with int8 rows
  using Sum = I;
  static constexpr bool WHOLE = true;
  static constexpr int K = 8, W = 64, X = 8;
  ByteTable table;
  template <int R, int V> PENSTOCK_INLINE void run(I (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    Raw raw[V], b[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { raw[v] = load_raw(w + 64 * v); });
    unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = bytes_i4<0>(raw[v], table); });
    add_bytes<R, V>(sum, b, x, stride);
    unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = bytes_i4<1>(raw[v], table); });
    add_bytes<R, V>(sum, b, x + 4, stride);
  }
};

// Unpacks a step of 16 columns, W bytes, once for many rows: to TIMES steps of the kind Step, `step` bytes apart.
template <class Packed> struct UnpackValues {
  using Step = StepValues<Packed::K>;
  static constexpr int W = Packed::W, TIMES = 1;
  Packed packed;
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, int) const {
    unrolled<Packed::K>([&](auto j) PENSTOCK_INLINED { store(reinterpret_cast<float*>(to) + 16 * j, packed.template value<j>(from)); });
  }
};
struct UnpackNibbles {
  using Step = StepBytes;
  static constexpr int W = 64, TIMES = 2;
  ByteTable table;
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, int step) const {
    const Raw raw = load_raw(from);
    store_raw(to, bytes_i4<0>(raw, table));
    store_raw(to + step, bytes_i4<1>(raw, table));
  }
};

// A step's tables, in registers for the whole loop.
template <class Step> PENSTOCK_INLINE Step held(Step step) {
  return step;
}

}  // namespace PENSTOCK_ISA

#if defined(__AVX512BF16__)
#include "pairs.h"
namespace PENSTOCK_ISA {
constexpr bool WIDE_ROWS = false;
constexpr int NUMBER = 2;  // bytes of a bf16 number in rows
using StepBf16 = StepPairs;
inline void store_row(std::uint8_t* p, F x) { store_bf16(reinterpret_cast<std::uint16_t*>(p), x); }
}  // namespace PENSTOCK_ISA
#else
#include "values.h"
#if defined(PENSTOCK_WORDS)
#include "pairs.h"
#endif
#endif
