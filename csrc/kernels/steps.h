// A step advances a register block of R rows x V column vectors along k by the K indices that one packed step of W holds: acc[r][v] += x
// * w. This file has the steps of float weights and of int8 rows; pairs.h and values.h have the others.
//
// A step class gives K, W_BYTES and X_BYTES (bytes of 16 columns of W and of one row of x that a step reads), the accumulator type Acc,
// INTEGER (accumulators are int32) and multiply(). Within a step, k rises in an order fixed by the format, the same for every R and V.
#pragma once
#include <algorithm>
#include <utility>

#include "../layout.h"
#include "../vec/inline.h"

namespace PENSTOCK_ISA {

using namespace penstock;
using Bytes = const std::uint8_t*;

template <class Body, int... I> PENSTOCK_INLINE void unrolled_over(std::integer_sequence<int, I...>, const Body& body) {
  (body(std::integral_constant<int, I>()), ...);
}
// body(0) ... body(N - 1) with compile-time indices, so that arrays of accumulators stay in registers.
template <int N, class Body> PENSTOCK_INLINE void unrolled(const Body& body) {
  unrolled_over(std::make_integer_sequence<int, N>(), body);
}

// Float rows: one fma per k. Derived classes give the weights of 16 columns at index J of the step as value<J>(w).
template <class Step, int INDICES, int BYTES> struct FloatStep {
  using Acc = F;
  static constexpr bool INTEGER = false;
  static constexpr int K = INDICES, W_BYTES = BYTES, X_BYTES = 4 * INDICES;
  template <int R, int V> PENSTOCK_INLINE void multiply(F (&acc)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    const Step& step = static_cast<const Step&>(*this);
    unrolled<K>([&](auto j) PENSTOCK_INLINED {
      F b[V];
      unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = step.template value<j>(w + W_BYTES * v), pin_register(b[v]); });
      unrolled<R>([&](auto r) PENSTOCK_INLINED {
        const F a = set1(reinterpret_cast<const float*>(x + stride * r)[j]);
        unrolled<V>([&](auto v) PENSTOCK_INLINED { acc[r][v] = fma(b[v], a, acc[r][v]); });
      });
    });
  }
};

// Float weights [K, 16].
template <int INDICES> struct StepFloats : FloatStep<StepFloats<INDICES>, INDICES, 64 * INDICES> {
  template <int J> static PENSTOCK_INLINE F value(Bytes w) { return load(reinterpret_cast<const float*>(w) + 16 * J); }
};
using StepF32 = StepFloats<1>;

struct StepF16 : FloatStep<StepF16, 1, 32> {
  template <int J> static PENSTOCK_INLINE F value(Bytes w) { return from_f16(reinterpret_cast<const std::uint16_t*>(w)); }
};

// An integer accumulator may be one number or, as with SplitSum, several.
PENSTOCK_INLINE void begin_sum(I& sum, I from) { sum = from; }
PENSTOCK_INLINE I whole_sum(I sum) { return sum; }

template <int R, int V> PENSTOCK_INLINE void dot4_rows(I (&acc)[R][V], const Raw (&b)[V], Bytes x, std::size_t stride) {
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    const Raw a = broadcast_u32(x + stride * r);
    unrolled<V>([&](auto v) PENSTOCK_INLINED { acc[r][v] = dot4(acc[r][v], b[v], a); });
  });
}

struct StepInt8 {  // i8 weights, or unpacked i6 or i4, with int8 rows
  using Acc = I;
  static constexpr bool INTEGER = true;
  static constexpr int K = 4, W_BYTES = 64, X_BYTES = 4;
  template <int R, int V> static PENSTOCK_INLINE void multiply_words(I (&acc)[R][V], const Raw (&b)[V], Bytes x, std::size_t stride) {
    dot4_rows<R, V>(acc, b, x, stride);
  }
  template <int R, int V> static PENSTOCK_INLINE void multiply(I (&acc)[R][V], Bytes w, Bytes x, std::size_t stride) {
    Raw b[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = load_raw(w + 64 * v), pin_register(b[v]); });
    multiply_words<R, V>(acc, b, x, stride);
  }
};

constexpr int I6_BYTES = 192;  // of a packed step of 16 columns

// k = 4 S .. 4 S + 3 of a packed i6 step as bytes, plus 32 as they are stored, or plus 128 like those of i8.
template <int S, int PLUS> PENSTOCK_INLINE Raw i6_word(Bytes w) {
  Raw codes;
  if constexpr (S < 3) codes = shift_and_mask(load_raw(w + 64 * S), 0, 0x3f3f3f3f);
  else codes = select_bits(0x30303030, shift_right(load_raw(w + 128), 2),
                           select_bits(0x0c0c0c0c, shift_right(load_raw(w + 64), 4), shift_and_mask(load_raw(w), 6, 0x03030303)));
  static_assert(PLUS == 32 || PLUS == 128);
  return PLUS == 32 ? codes : add_i(codes, set1_i(0x60606060));
}

// i6 weights, a word at a time by the step of i8 weights.
template <class Words, int PLUS> struct StepI6Words {
  using Acc = typename Words::Acc;
  static constexpr bool INTEGER = Words::INTEGER;
  static constexpr int K = 16, W_BYTES = I6_BYTES, X_BYTES = 4 * Words::X_BYTES;
  Words words;
  template <int R, int V> PENSTOCK_INLINE void multiply(Acc (&acc)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    unrolled<4>([&](auto s) PENSTOCK_INLINED {
      Raw b[V];
      unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = i6_word<s, PLUS>(w + I6_BYTES * v); });
      words.template multiply_words<R, V>(acc, b, x + s * Words::X_BYTES, stride);
    });
  }
};
using StepI6Int8 = StepI6Words<StepInt8, 32>;

struct StepI4Int8 {  // i4 weights with int8 rows
  using Acc = I;
  static constexpr bool INTEGER = true;
  static constexpr int K = 8, W_BYTES = 64, X_BYTES = 8;
  I4ByteTable table;
  template <int R, int V> PENSTOCK_INLINE void multiply(I (&acc)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    Raw raw[V], b[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { raw[v] = load_raw(w + 64 * v); });
    unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = i4_to_bytes<0>(raw[v], table); });
    dot4_rows<R, V>(acc, b, x, stride);
    unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = i4_to_bytes<1>(raw[v], table); });
    dot4_rows<R, V>(acc, b, x + 4, stride);
  }
};

// Unpacking steps, used once per panel where many rows share the result: one packed step of 16 columns (W_BYTES) becomes STEPS_OUT steps
// of the class Step, `step` bytes apart.
template <class Packed> struct UnpackToFloat {
  using Step = StepFloats<Packed::K>;
  static constexpr int W_BYTES = Packed::W_BYTES, STEPS_OUT = 1;
  Packed packed;
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, int) const {
    unrolled<Packed::K>([&](auto j) PENSTOCK_INLINED { store(reinterpret_cast<float*>(to) + 16 * j, packed.template value<j>(from)); });
  }
};
struct UnpackI6ToInt8 {
  using Step = StepInt8;
  static constexpr int W_BYTES = I6_BYTES, STEPS_OUT = 4;
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, int step) const {
    unrolled<4>([&](auto s) PENSTOCK_INLINED { store_raw(to + s * step, i6_word<s, 32>(from)); });
  }
};
struct UnpackI4ToInt8 {
  using Step = StepInt8;
  static constexpr int W_BYTES = 64, STEPS_OUT = 2;
  I4ByteTable table;
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, int step) const {
    const Raw raw = load_raw(from);
    store_raw(to, i4_to_bytes<0>(raw, table));
    store_raw(to + step, i4_to_bytes<1>(raw, table));
  }
};

// Overloaded for steps with lookup tables that must be kept in registers over the k loop.
template <class Step> PENSTOCK_INLINE Step in_registers(Step step) {
  return step;
}

}  // namespace PENSTOCK_ISA

#if defined(__AVX512BF16__)
#include "pairs.h"
namespace PENSTOCK_ISA {
constexpr bool BF16_ROWS_AS_FLOAT = false;
constexpr int BF16_ELEM_BYTES = 2;  // of a bf16 element in operand rows
using StepBf16 = StepPairs;
inline void store_bf16_row(std::uint8_t* p, F x) { store_bf16(reinterpret_cast<std::uint16_t*>(p), x); }
}  // namespace PENSTOCK_ISA
#else
#include "values.h"
#if defined(PENSTOCK_FIXED16)
#include "pairs.h"
#endif
#endif
