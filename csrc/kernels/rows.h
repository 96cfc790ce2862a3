// Row kernels: normalization, conversion to operand rows, rotary embedding, activations. Each works on 16 lanes along the row and reduces
// lanes in a fixed order, so a row's result depends on its length alone.
#pragma once
#include "math.h"

namespace PENSTOCK_ISA {

// Load and store of 16 values, or of the `left` < 16 at the end of a row: then the rest is zero, and is not stored.
inline F load_some(const float* p, int left) {
  if (left >= LANES) return load(p);
  float tail[LANES] = {};
  std::memcpy(tail, p, left * sizeof(float));
  return load(tail);
}
inline void store_some(float* p, F x, int left) {
  if (left >= LANES) return store(p, x);
  float tail[LANES];
  store(tail, x);
  std::memcpy(p, tail, left * sizeof(float));
}

// Calls body(i, left) for each vector of a row of n: its first index, and the values left from there (16, or fewer for the last).
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
  const F scale = set1(1.0f / std::sqrt(reduce_add(squares) / static_cast<float>(n) + eps)), weight_offset = set1(offset);
  each_vector(n, [&](int i, int left) PENSTOCK_INLINED {
    store_some(out + i, load_some(x + i, left) * scale * (load_some(weight + i, left) + weight_offset), left);
  });
}

inline void to_bf16(const float* x, int n, std::uint16_t* out) {
  for (int i = 0; i < n; i += LANES) {
    std::uint16_t tail[LANES];
    store_bf16(tail, load_some(x + i, n - i));
    std::memcpy(out + i, tail, std::min(LANES, n - i) * sizeof(*out));
  }
}

// x [n] -> out [padded] bf16, each element in BF16_ELEM_BYTES. group_sums (or nullptr): the sum of each group.
inline void to_bf16_row(const float* x, int n, int padded, std::uint8_t* out, int group, float* group_sums) {
  for (int i = 0; i < padded; i += LANES, out += LANES * BF16_ELEM_BYTES) {
    const F v = i < n ? load_some(x + i, n - i) : zero();
    std::uint8_t tail[LANES * BF16_ELEM_BYTES];
    store_bf16_row(padded - i >= LANES ? out : tail, v);
    if (padded - i < LANES) std::memcpy(out, tail, (padded - i) * BF16_ELEM_BYTES);
  }
  out -= (padded + LANES - 1) / LANES * LANES * BF16_ELEM_BYTES;
  for (int g = 0; group_sums && g * group < padded; ++g) {
    float total = 0;
    for (int i = g * group; i < (g + 1) * group; ++i) {
      std::uint32_t bits = 0;
      std::memcpy(reinterpret_cast<std::uint8_t*>(&bits) + 4 - BF16_ELEM_BYTES, out + std::size_t(i) * BF16_ELEM_BYTES, BF16_ELEM_BYTES);
      float v;
      std::memcpy(&v, &bits, 4);
      total += v;
    }
    group_sums[g] = total;
  }
}

// max |x|, NaN if there is one. Magnitudes rise as their bits do, and NaN's are above infinity's.
inline float max_magnitude(const float* x, int n) {
  I most[4] = {zero_i(), zero_i(), zero_i(), zero_i()};
  int i = 0;
  for (; i + 4 * LANES <= n; i += 4 * LANES)
    for (int j = 0; j < 4; ++j) most[j] = max_i(most[j], as_int(abs(load(x + i + LANES * j))));
  for (; i < n; i += LANES) most[0] = max_i(most[0], as_int(abs(load_some(x + i, n - i))));
  const int bits = reduce_max_i(max_i(max_i(most[0], most[1]), max_i(most[2], most[3])));
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}

// Calls body(i, left, v) for each vector of x[begin, end), of which those from n on are zero.
template <class Body> PENSTOCK_INLINE void each_vector_until(const float* x, int n, int begin, int end, const Body& body) {
  int i = begin;
  for (const int whole = std::min(n, end); i + LANES <= whole; i += LANES) body(i, LANES, load(x + i));
  for (; i < end; i += LANES) {
    const int left = std::min(LANES, end - i);
    body(i, left, i < n ? load_some(x + i, std::min(left, n - i)) : zero());
  }
}

// Sums of the integers of a row, one k-block after another: what its accumulators begin with, and `group_sums` (or nullptr).
class RowSums {
 public:
  RowSums(int zero_point, std::int32_t* acc_init, float* group_sums)
      : factor_(-static_cast<std::uint32_t>(zero_point)), acc_init_(acc_init), group_sums_(group_sums) {}
  // `total`: the sums of 16 parts of the k-block.
  PENSTOCK_INLINE void add(I total) {
    totals_[count_++] = total;
    if (count_ == LANES) flush();
  }
  void flush() {
    std::int32_t sums[LANES];
    if (count_ == LANES) {
      const I all = reduce_add_each(totals_);
      std::memcpy(sums, &all, sizeof sums);
    } else {
      for (int i = 0; i < count_; ++i) sums[i] = reduce_add_i(totals_[i]);
    }
    for (int i = 0; i < count_; ++i)
      *acc_init_++ = static_cast<std::int32_t>(factor_ * static_cast<std::uint32_t>(sums[i]));  // modulo 2^32
    for (int i = 0; group_sums_ && i < count_; ++i) *group_sums_++ = static_cast<float>(sums[i]);
    count_ = 0;
  }

 private:
  I totals_[LANES];
  int count_ = 0;
  std::uint32_t factor_;
  std::int32_t* acc_init_;
  float* group_sums_;
};

#if defined(PENSTOCK_FIXED16)
inline void store_some_i16(std::int16_t* p, I x, int left) {
  std::int16_t tail[LANES];
  store_i16(left < LANES ? tail : p, x);
  if (left < LANES) std::memcpy(p, tail, left * sizeof(*p));
}
#endif

// Matrix::zero_point of codes that become int16 (pairs.h): i4 codes of a consecutive codebook are used as they are, others looked up.
inline int pairs_zero_point(const Matrix& m) {
  return m.format != Format::i4 ? m.zero_point() : m.codebook_is_consecutive() ? -m.codebook[0] : 0;
}

// Storage of int8 rows. interleaved: each 8 along k as 0 4 1 5 2 6 3 7, the order in which i4 codes are unpacked. int16: for products of
// pairs (pairs.h). AMX forms: bf16, and multiplied: interleaved, for codes times their multiples plus 128 (multiples.h).
enum class Int8Layout { plain, interleaved, int16, bf16, multiplied };

constexpr float MIN_INT8_SCALE = 0x1p-126f;  // the least float whose inverse is finite and which has all its bits

// x [n] -> out [k_padded], symmetric int8 in [-127, 127], rounded to nearest; returns the row's scale. See Kernels::to_int8.
template <Int8Layout LAYOUT>
float to_int8_as(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  constexpr bool MULTIPLIED = LAYOUT == Int8Layout::multiplied;
  constexpr bool INT16 = LAYOUT == Int8Layout::int16;
  const int group = MULTIPLIED ? FIXED_K_BLOCK : matrix.group;
  const int zero_point = MULTIPLIED ? 128 : INT16 ? pairs_zero_point(matrix) : matrix.zero_point();
  const float row_max = max_magnitude(x, n);
  const bool finite = row_max < INFINITY;
  const float scale = std::max(row_max / 127.0f, MIN_INT8_SCALE);
  const F inverse = set1(!finite ? 0.0f : scale > MIN_INT8_SCALE ? 127.0f / row_max : 1 / MIN_INT8_SCALE);
  RowSums sums(zero_point, acc_init, group_sums);
  for (int begin = 0; begin < matrix.k_padded; begin += group) {
    I total = zero_i();
    each_vector_until(x, finite ? n : 0, begin, std::min(matrix.k_padded, begin + group), [&](int i, int left, F v) PENSTOCK_INLINED {
      I codes = to_int(round(v * inverse));
      total = add_i(total, codes);
      if constexpr (LAYOUT == Int8Layout::bf16) return store_bf16(reinterpret_cast<std::uint16_t*>(out) + i, to_float(codes));
#if defined(PENSTOCK_FIXED16)
      if constexpr (INT16) return store_some_i16(reinterpret_cast<std::int16_t*>(out) + i, codes, left);
#endif
      if constexpr (LAYOUT == Int8Layout::interleaved || MULTIPLIED) codes = interleave_for_i4(codes);
      std::int8_t tail[LANES];
      store_i8(left < LANES ? tail : reinterpret_cast<std::int8_t*>(out) + i, codes);
      if (left < LANES) std::memcpy(out + i, tail, left);
    });
    sums.add(total);
  }
  sums.flush();
  return finite ? scale : NAN;
}

inline float to_int8(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  const auto to_bytes = matrix.format == Format::i4 ? to_int8_as<Int8Layout::interleaved> : to_int8_as<Int8Layout::plain>;
  const auto to = INT8_ELEM_BYTES == 2 ? to_int8_as<Int8Layout::int16> : to_bytes;
  return to(x, n, matrix, out, acc_init, group_sums);
}

// Rotary embedding in place: rotates the pairs (i, i + pairs) of each head.
inline void rope(Rows heads, int count, const float* cosines, const float* sines, int pairs) {
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

// Calls body(row, i, left) for each vector of each row.
template <class Body> PENSTOCK_INLINE void each_vector_of(int rows, int n, const Body& body) {
  for (int r = 0; r < rows; ++r) each_vector(n, [&](int i, int left) PENSTOCK_INLINED { body(r, i, left); });
}

// activation(gate) * up
template <Activation ACTIVATION> void act_mul_by(ConstRows gate, ConstRows up, int rows, int n, Rows out) {
  each_vector_of(rows, n, [&](int r, int i, int left) PENSTOCK_INLINED {
    store_some(out.row(r) + i, activate(ACTIVATION, load_some(gate.row(r) + i, left)) * load_some(up.row(r) + i, left), left);
  });
}
inline void act_mul(Activation activation, ConstRows gate, ConstRows up, int rows, int n, Rows out) {
  switch (activation) {
    case Activation::silu: return act_mul_by<Activation::silu>(gate, up, rows, n, out);
    case Activation::gelu: return act_mul_by<Activation::gelu>(gate, up, rows, n, out);
    case Activation::gelu_tanh: return act_mul_by<Activation::gelu_tanh>(gate, up, rows, n, out);
    default: return act_mul_by<Activation::none>(gate, up, rows, n, out);
  }
}

inline void clamped_gate(const ClampedGate& how, ConstRows gate, ConstRows up, int rows, int n, Rows out) {
  const F one = set1(1.0f), most = set1(how.limit), least = set1(-how.limit), by = set1(-how.alpha), lowest = set1(-88.0f / how.alpha);
  each_vector_of(rows, n, [&](int r, int i, int left) PENSTOCK_INLINED {
    // min and max return their second operand where one is NaN
    const F g = min(most, load_some(gate.row(r) + i, left)), u = max(least, min(most, load_some(up.row(r) + i, left)));
    store_some(out.row(r) + i, (u + one) * fast_div(max(lowest, g), one + exp(by * g)), left);  // the power saturates
  });
}

inline void add_rows(ConstRows a, ConstRows b, int rows, int n, Rows out) {
  each_vector_of(rows, n, [&](int r, int i, int left) PENSTOCK_INLINED {
    store_some(out.row(r) + i, load_some(a.row(r) + i, left) + load_some(b.row(r) + i, left), left);
  });
}

inline void copy_rows(ConstRows from, int rows, int n, Rows out) {
  each_vector_of(rows, n, [&](int r, int i, int left) PENSTOCK_INLINED {
    store_some(out.row(r) + i, load_some(from.row(r) + i, left), left);
  });
}

inline void softcap(const float* x, float cap, int n, float* out) {
  for (int i = 0; i < n; i += LANES) store_some(out + i, set1(cap) * tanh(load_some(x + i, n - i) / set1(cap)), n - i);
}

// x -> exp(x - max x) / their sum, in place.
inline void softmax(float* x, int n) {
  F lane_max = set1(-INFINITY);
  for (int i = 0; i < n; i += LANES)
    lane_max = max(lane_max, n - i >= LANES ? load(x + i) : blend_first(load_some(x + i, n - i), n - i, set1(-INFINITY)));
  const F top = set1(reduce_max(lane_max));
  F total = zero();
  for (int i = 0; i < n; i += LANES) {
    F p = exp(load_some(x + i, n - i) - top);
    if (n - i < LANES) p = blend_first(p, n - i, zero());
    total = total + p;
    store_some(x + i, p, n - i);
  }
  const F by = set1(reduce_add(total));
  for (int i = 0; i < n; i += LANES) store_some(x + i, load_some(x + i, n - i) / by, n - i);
}

}  // namespace PENSTOCK_ISA
