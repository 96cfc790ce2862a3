// Steps for rows of 16-bit elements with instructions that multiply pairs along k and add both products to a 32-bit accumulator:
// VDPBF16PS (bf16 to float), or VPDPWSSD or VPMADDWD (16-bit fixed point to int32, fixed16.h). Pair, PairSum and dot2 of vec/ select which.
#pragma once

namespace PENSTOCK_ISA {

template <int R, int V> PENSTOCK_INLINE void dot2_rows(PairSum (&acc)[R][V], const Pair (&b)[V], Bytes x, std::size_t stride) {
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    const Pair a = broadcast_u32(x + stride * r);
    unrolled<V>([&](auto v) PENSTOCK_INLINED { acc[r][v] = dot2(acc[r][v], b[v], a); });
  });
}

struct StepPairs {
  using Acc = PairSum;
  static constexpr bool INTEGER = PAIRS_ARE_INTEGER;
  static constexpr int K = 2, W_BYTES = 64, X_BYTES = 4;
  template <int R, int V> static PENSTOCK_INLINE void multiply(PairSum (&acc)[R][V], Bytes w, Bytes x, std::size_t stride) {
    Pair b[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = load_raw(w + 64 * v), pin_register(b[v]); });
    dot2_rows<R, V>(acc, b, x, stride);
  }
};

struct StepI8 {
  using Acc = PairSum;
  static constexpr bool INTEGER = PAIRS_ARE_INTEGER;
  static constexpr int K = 4, W_BYTES = 64, X_BYTES = 8;
  I8Table table = i8_table();
  template <int R, int V>
  PENSTOCK_INLINE void multiply_words(PairSum (&acc)[R][V], const Raw (&raw)[V], Bytes x, std::size_t stride) const {
    Pair first[V], second[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { unpack_i8(raw[v], table, first[v], second[v]); });
    dot2_rows<R, V>(acc, first, x, stride);
    dot2_rows<R, V>(acc, second, x + 4, stride);
  }
  template <int R, int V> PENSTOCK_INLINE void multiply(PairSum (&acc)[R][V], Bytes w, Bytes x, std::size_t stride) const {
#if defined(__AVX512F__)
    Raw raw[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { raw[v] = load_raw(w + 64 * v); });
    multiply_words<R, V>(acc, raw, x, stride);
#else
    unrolled<2>([&](auto half) PENSTOCK_INLINED {
      Pair b[V];
      unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = unpack_i8_half<half>(load_raw(w + 64 * v)); });
      dot2_rows<R, V>(acc, b, x + 4 * half, stride);
      read_anew_after(acc, w);
    });
#endif
  }
};
constexpr int I6_PLUS = PAIRS_ARE_INTEGER ? 32 : 128;  // added to codes that unpack_i8 takes
using StepI6 = StepI6Words<StepI8, I6_PLUS>;
template <> PENSTOCK_INLINE StepI8 in_registers(StepI8 step) {  // GCC 12 would reload the tables for every vector
  pin_register(step.table);
  return step;
}
template <> PENSTOCK_INLINE StepI6 in_registers(StepI6 step) {
  pin_register(step.words.table);
  return step;
}

// i4 codes translated by the codebook.
struct CodebookCodes {
  I4Table table;
  template <int T> PENSTOCK_INLINE Pair k_pair(Raw raw) const { return lookup_i4<T>(raw, table); }
};

template <class Codes> struct StepI4Pairs {
  using Acc = PairSum;
  static constexpr bool INTEGER = PAIRS_ARE_INTEGER;
  static constexpr int K = 8, W_BYTES = 64, X_BYTES = 16;
  Codes codes;
  template <int T, int R, int V>
  PENSTOCK_INLINE void multiply_k_pair(PairSum (&acc)[R][V], const Raw (&raw)[V], Bytes x, std::size_t stride) const {
    Pair b[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { b[v] = codes.template k_pair<T>(raw[v]); });
    dot2_rows<R, V>(acc, b, x + 4 * T, stride);
  }
  template <int R, int V> PENSTOCK_INLINE void multiply(PairSum (&acc)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    Raw raw[V];
#if defined(__AVX512F__)
    unrolled<V>([&](auto v) PENSTOCK_INLINED { raw[v] = load_raw(w + 64 * v); });
    multiply_k_pair<0, R, V>(acc, raw, x, stride);
    multiply_k_pair<1, R, V>(acc, raw, x, stride);
    multiply_k_pair<2, R, V>(acc, raw, x, stride);
    multiply_k_pair<3, R, V>(acc, raw, x, stride);
#else
    unrolled<4>([&](auto t) PENSTOCK_INLINED {
      unrolled<V>([&](auto v) PENSTOCK_INLINED { raw[v] = load_raw(w + 64 * v); });
      multiply_k_pair<t, R, V>(acc, raw, x, stride);
      read_anew_after(acc, w);
    });
#endif
  }
};
using StepI4 = StepI4Pairs<CodebookCodes>;

#if defined(PENSTOCK_VNNI)

// Rows in the form Operand::split: a word of bytes holds twice the k of a pair, so codes take fewer instructions to unpack, which one or
// two rows hardly share. One factor of VPDPBUSD is signed and one is not: high bytes of rows are signed, low ones are not. Sums are those
// of pairs.
constexpr int MAX_SPLIT_ROWS = 2;  // in a register block; some experts have more, as their form goes by the average
struct SplitSum { I high, low; };  // of high bytes, of low ones
PENSTOCK_INLINE void begin_sum(SplitSum& sum, I from) { sum.high = zero_i(), sum.low = from; }
PENSTOCK_INLINE I whole_sum(const SplitSum& sum) { return add_i(shift_left_8(sum.high), sum.low); }

// Codes as bytes, the same ones unsigned and signed, times the high bytes of rows at x and the low ones at x + low_at.
template <int R, int V>
PENSTOCK_INLINE void dot4_split(SplitSum (&acc)[R][V], const Raw (&unsigneds)[V], const Raw (&signeds)[V], Bytes x, int low_at,
                                std::size_t stride) {
  unrolled<R>([&](auto r) PENSTOCK_INLINED {
    const Raw high = broadcast_u32(x + stride * r), low = broadcast_u32(x + stride * r + low_at);
    unrolled<V>([&](auto v) PENSTOCK_INLINED {
      acc[r][v].high = dot4(acc[r][v].high, unsigneds[v], high), acc[r][v].low = dot4(acc[r][v].low, low, signeds[v]);
    });
  });
}

struct StepI8Split {  // plus 128 as they are stored, codes are unsigned, and signed without
  using Acc = SplitSum;
  static constexpr bool INTEGER = true;
  static constexpr int K = 4, W_BYTES = 64, X_BYTES = 8;
  template <int R, int V> PENSTOCK_INLINE void multiply(SplitSum (&acc)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    Raw stored[V], codes[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { stored[v] = load_raw(w + 64 * v), codes[v] = flip_byte_signs(stored[v]); });
    dot4_split<R, V>(acc, stored, codes, x, 4, stride);
  }
};

struct StepI4Split {  // of a consecutive codebook, as they are: 0 to 15 is either
  using Acc = SplitSum;
  static constexpr bool INTEGER = true;
  static constexpr int K = 8, W_BYTES = 64, X_BYTES = 16;
  template <int R, int V> PENSTOCK_INLINE void multiply(SplitSum (&acc)[R][V], Bytes w, Bytes x, std::size_t stride) const {
    Raw raw[V];
    unrolled<V>([&](auto v) PENSTOCK_INLINED { raw[v] = load_raw(w + 64 * v); });
    unrolled<2>([&](auto half) PENSTOCK_INLINED {
      Raw codes[V];
      unrolled<V>([&](auto v) PENSTOCK_INLINED { codes[v] = i4_bytes<half>(raw[v]); });
      dot4_split<R, V>(acc, codes, codes, x + 4 * half, 8, stride);
    });
  }
};

#endif

struct UnpackI8 {
  using Step = StepPairs;
  static constexpr int W_BYTES = 64, STEPS_OUT = 2;
  I8Table table = i8_table();
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, int step) const {
    Pair first, second;
    unpack_i8(load_raw(from), table, first, second);
    store_raw(to, first);
    store_raw(to + step, second);
  }
};
struct UnpackI6 {
  using Step = StepPairs;
  static constexpr int W_BYTES = I6_BYTES, STEPS_OUT = 8;
  I8Table table = i8_table();
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, int step) const {
    unrolled<4>([&](auto s) PENSTOCK_INLINED {
      Pair first, second;
      unpack_i8(i6_word<s, I6_PLUS>(from), table, first, second);
      store_raw(to + 2 * s * step, first);
      store_raw(to + (2 * s + 1) * step, second);
    });
  }
};
template <class Codes> struct UnpackI4Pairs {
  using Step = StepPairs;
  static constexpr int W_BYTES = 64, STEPS_OUT = 4;
  StepI4Pairs<Codes> packed;
  PENSTOCK_INLINE void operator()(Bytes from, std::uint8_t* to, int step) const {
    const Raw raw = load_raw(from);
    unrolled<4>([&](auto t) PENSTOCK_INLINED { store_raw(to + t * step, packed.codes.template k_pair<t>(raw)); });
  }
};
using UnpackI4 = UnpackI4Pairs<CodebookCodes>;

}  // namespace PENSTOCK_ISA
