// Steps with rows of 16-bit numbers, where the processor multiplies pairs of these and adds both products to a sum: bf16 numbers to a
// float, or numbers in fixed point to an integer (words.h). Which, Pair and dot2 tell.
#pragma once

namespace PENSTOCK_ISA {

template <int R, int V> PENSTOCK_INLINE void add_pairs(PairSum (&sum)[R][V], const Pair (&b)[V], Bytes x, std::size_t stride) {
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    const Pair a = broadcast_raw(x + stride * r);
    unrolled<V>([&](auto v) PENSTOCK_INLINED { sum[r][v] = dot2(sum[r][v], b[v], a); });
  });
}

struct StepPairs {
  using Sum = PairSum;
  static constexpr bool WHOLE = WHOLE_PAIRS;
  static constexpr int K = 2, W = 64, X = 4;
  template <int R, int V> static PENSTOCK_INLINE void run(PairSum (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) {
    Pair b[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = load_raw(w + 64 * v), keep(b[v]); });
    add_pairs<R, V>(sum, b, x, stride);
  }
};

struct StepI8 {
  using Sum = PairSum;
  static constexpr bool WHOLE = WHOLE_PAIRS;
  static constexpr int K = 4, W = 64, X = 8;
  WideTable table = wide_table();
  template <int R, int V> PENSTOCK_INLINE void run(PairSum (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    Pair first[V], second[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { unpack_i8(load_raw(w + 64 * v), table, first[v], second[v]); });
    add_pairs<R, V>(sum, first, x, stride);
    add_pairs<R, V>(sum, second, x + 4, stride);
  }
};
template <> PENSTOCK_INLINE StepI8 held(StepI8 step) {  // GCC 12 would read them again for every vector
  keep(step.table);
  return step;
}

// What 4-bit codes stand for.
struct ByTable {
  Table table;
  template <int T> PENSTOCK_INLINE Pair quarter(Raw raw) const { return unpack_i4<T>(raw, table); }
};

template <class Codes> struct StepNibblePairs {
  using Sum = PairSum;
  static constexpr bool WHOLE = WHOLE_PAIRS;
  static constexpr int K = 8, W = 64, X = 16;
  Codes codes;
  template <int T, int R, int V> PENSTOCK_INLINE void quarter(PairSum (&sum)[R][V], const Raw (&raw)[V], Bytes x, std::size_t stride) const {
    Pair b[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = codes.template quarter<T>(raw[v]); });
    add_pairs<R, V>(sum, b, x + 4 * T, stride);
  }
  template <int R, int V> PENSTOCK_INLINE void run(PairSum (&sum)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    Raw raw[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { raw[v] = load_raw(w + 64 * v); });
    quarter<0, R, V>(sum, raw, x, stride);
    quarter<1, R, V>(sum, raw, x, stride);
    quarter<2, R, V>(sum, raw, x, stride);
    quarter<3, R, V>(sum, raw, x, stride);
  }
};
using StepI4 = StepNibblePairs<ByTable>;

struct UnpackI8 {
  using Step = StepPairs;
  static constexpr int W = 64, TIMES = 2;
  WideTable table = wide_table();
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, int step) const {
    Pair first, second;
    unpack_i8(load_raw(from), table, first, second);
    store_raw(to, first);
    store_raw(to + step, second);
  }
};
template <class Codes> struct UnpackNibblePairs {
  using Step = StepPairs;
  static constexpr int W = 64, TIMES = 4;
  StepNibblePairs<Codes> packed;
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, int step) const {
    const Raw raw = load_raw(from);
    unrolled<4>([&](auto t) PENSTOCK_INLINED { store_raw(to + t * step, packed.codes.template quarter<t>(raw)); });
  }
};
using UnpackI4 = UnpackNibblePairs<ByTable>;

}  // namespace PENSTOCK_ISA
