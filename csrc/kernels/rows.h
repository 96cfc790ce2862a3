// What is done to one row at a time: norms, the forms that matrices take rows in, rotation, activations.
#pragma once
#include "../layout.h"

namespace PENSTOCK_ISA {

// 16 values, or the `left` that there are: the others are zeros, and are not stored.
inline F load_some(const float* p, int left) {
  if (left >= LANES) return load(p);
  float some[LANES] = {};
  std::memcpy(some, p, left * sizeof(float));
  return load(some);
}
inline void store_some(float* p, F x, int left) {
  if (left >= LANES) return store(p, x);
  float some[LANES];
  store(some, x);
  std::memcpy(p, some, left * sizeof(float));
}

// Calls body(i, left) for 16 numbers at a time: i of them stand before, and `left` are there, 16 or what remains at the end.
template <class Body> PENSTOCK_INLINE void each_vector(int n, const Body& body) {
  int i = 0;
  for (; i + LANES <= n; i += LANES) body(i, LANES);
  if (i < n) body(i, n - i);
}

// x / sqrt(mean(x^2) + eps) * (weight + offset)
inline void rms_norm(const float* x, const float* weight, float eps, float offset, int n, float* out) {
  F squares = zero();
  each_vector(n, [&](int i, int left) PENSTOCK_INLINED {
    const F v = load_some(x + i, left);
    squares = fma(v, v, squares);
  });
  const F scale = set1(1.0f / std::sqrt(sum(squares) / static_cast<float>(n) + eps)), more = set1(offset);
  each_vector(n, [&](int i, int left) PENSTOCK_INLINED {
    store_some(out + i, load_some(x + i, left) * scale * (load_some(weight + i, left) + more), left);
  });
}

inline void to_bf16(const float* x, int n, std::uint16_t* out) {
  for (int i = 0; i < n; i += LANES) {
    std::uint16_t some[LANES];
    store_bf16(some, load_some(x + i, n - i));
    std::memcpy(out + i, some, std::min(LANES, n - i) * sizeof(*out));
  }
}

// n floats -> padded bf16 numbers, in the form that products take them. `totals` (or nullptr): the sums of each group's.
inline void to_row(const float* x, int n, int padded, std::uint8_t* out, int group, float* totals) {
  for (int i = 0; i < padded; i += LANES, out += LANES * NUMBER) {
    const F v = i < n ? load_some(x + i, n - i) : zero();
    std::uint8_t some[LANES * NUMBER];
    store_row(padded - i >= LANES ? out : some, v);
    if (padded - i < LANES) std::memcpy(out, some, (padded - i) * NUMBER);
  }
  out -= (padded + LANES - 1) / LANES * LANES * NUMBER;
  for (int g = 0; totals && g * group < padded; ++g) {
    float total = 0;
    for (int i = g * group; i < (g + 1) * group; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(reinterpret_cast<std::uint8_t*>(&bits) + 4 - NUMBER, out + std::size_t(i) * NUMBER, NUMBER);
      float v;
      std::memcpy(&v, &bits, 4);
      total += v;
    }
    totals[g] = total;
  }
}

// How a row keeps numbers that are int8: as they are; each eight as 0 4 1 5 2 6 3 7; or as bf16 numbers.
enum class Int8 { plain, interleaved, numbers };

// n floats -> int8 with one scale, to nearest, from -127 to 127, as many as the matrix takes. `begins` and `totals` (or nullptr): of each
// group's codes the sum times what weights are stored too large by, less than nothing, and the sum. The scale of a row with a number that
// is none, or infinite, is NaN.
template <Int8 KEPT>
float to_int8_as(const float* x, int n, const Matrix& matrix, std::int8_t* out, std::int32_t* begins, float* totals) {
  const int group = matrix.group, offset = matrix.offset();
  F most = zero();
  unsigned numbers = 0xffff;
  for (int i = 0; i < n; i += LANES) {
    const F v = abs(load_some(x + i, n - i));
    numbers &= at_least(v, zero());
    most = max(most, v);
  }
  const float top = numbers == 0xffff ? largest(most) : NAN;
  const bool finite = top < INFINITY;
  const F inverse = set1(finite && top > 0 ? 127.0f / top : 0.0f);
  for (int g = 0; g * group < matrix.k_padded; ++g) {
    const int end = (g + 1) * group;
    I total = zero_i();
    for (int i = g * group; i < end; i += LANES) {
      const int left = std::min(LANES, end - i);
      F v = i < n && finite ? load_some(x + i, std::min(left, n - i)) : zero();
      if (left < LANES) v = first_lanes(v, left, zero());
      I codes = to_int(round(v * inverse));
      total = add_i(total, codes);
      if constexpr (KEPT == Int8::numbers) {
        store_bf16(reinterpret_cast<std::uint16_t*>(out) + i, to_float(codes));
        continue;
      }
      if constexpr (KEPT == Int8::interleaved) codes = interleave(codes);
      std::int8_t some[LANES];
      store_i8(left < LANES ? some : out + i, codes);
      if (left < LANES) std::memcpy(out + i, some, left);
    }
    const int sum = sum_i(total);
    begins[g] = -offset * sum;
    if (totals) totals[g] = static_cast<float>(sum);
  }
  return finite ? top / 127.0f : NAN;
}

inline float to_int8(const float* x, int n, const Matrix& matrix, std::int8_t* out, std::int32_t* begins, float* totals) {
  const auto to = matrix.format == Format::i4 ? to_int8_as<Int8::interleaved> : to_int8_as<Int8::plain>;
  return to(x, n, matrix, out, begins, totals);
}

// Rotates the pairs (i, i + pairs) of each head by the angles whose cosines and sines are given.
inline void rotate(To heads, int count, const float* cosines, const float* sines, int pairs) {
  each_vector(pairs, [&](int i, int left) PENSTOCK_INLINED {
    const F c = load_some(cosines + i, left), s = load_some(sines + i, left);
    for (int h = 0; h < count; ++h) {
      float *first = heads.row(h) + i, *second = first + pairs;
      const F a = load_some(first, left), b = load_some(second, left);
      store_some(first, a * c - b * s, left);
      store_some(second, b * c + a * s, left);
    }
  });
}

// Calls body(row, i, left) for 16 numbers at a time of each row.
template <class Body> PENSTOCK_INLINE void each_vector_of(int rows, int n, const Body& body) {
  for (int r = 0; r < rows; ++r) each_vector(n, [&](int i, int left) PENSTOCK_INLINED { body(r, i, left); });
}

// activation(gate) * up
template <Activation ACTIVATION> void act_mul_by(From gate, From up, int rows, int n, To out) {
  each_vector_of(rows, n, [&](int r, int i, int left) PENSTOCK_INLINED {
    store_some(out.row(r) + i, activate(ACTIVATION, load_some(gate.row(r) + i, left)) * load_some(up.row(r) + i, left), left);
  });
}
inline void act_mul(Activation activation, From gate, From up, int rows, int n, To out) {
  switch (activation) {
    case Activation::silu: return act_mul_by<Activation::silu>(gate, up, rows, n, out);
    case Activation::gelu: return act_mul_by<Activation::gelu>(gate, up, rows, n, out);
    case Activation::gelu_tanh: return act_mul_by<Activation::gelu_tanh>(gate, up, rows, n, out);
    default: return act_mul_by<Activation::none>(gate, up, rows, n, out);
  }
}

inline void add_rows(From a, From b, int rows, int n, To out) {
  each_vector_of(rows, n, [&](int r, int i, int left) PENSTOCK_INLINED {
    store_some(out.row(r) + i, load_some(a.row(r) + i, left) + load_some(b.row(r) + i, left), left);
  });
}

inline void copy_rows(From from, int rows, int n, To out) {
  each_vector_of(rows, n, [&](int r, int i, int left) PENSTOCK_INLINED { store_some(out.row(r) + i, load_some(from.row(r) + i, left), left); });
}

inline void softcap(const float* x, float cap, int n, float* out) {
  for (int i = 0; i < n; i += LANES) store_some(out + i, set1(cap) * tanh(load_some(x + i, n - i) / set1(cap)), n - i);
}

}  // namespace PENSTOCK_ISA
