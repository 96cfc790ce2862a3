// One panel of a packed matrix times any number of rows: chooses the step for the format, cuts k into stretches and rows into blocks.
//
// What is chosen by the number of rows (unpacking codes once for many rows, or in registers for few) gives the same bits.
#pragma once
#include <type_traits>

#include "linear.h"

namespace PENSTOCK_ISA {

constexpr int STRETCH = 512;                                     // inner indices whose weights stay in the cache while rows pass by
constexpr std::size_t UNPACKED_BYTES = std::size_t(STRETCH) * PANEL * 2;
constexpr int DISTANCE = 2048;                                   // bytes that a single block is fetched ahead

// How many rows there are, and what is fetched meanwhile: `lines` lines a step of the panel after this one, `far` bytes on.
struct Sweep {
  int rows;
  int lines;
  std::size_t far;
  Bytes source;  // where the packed weights of the stretch begin

  Ahead ahead(int block) const {
    const int blocks = (rows + MAX_ROWS - 1) / MAX_ROWS;
    if (blocks == 1) return {source + DISTANCE, lines};
    const int each = (lines + blocks - 1) / blocks;
    if (block * each >= lines) return {};
    return {source + far + std::size_t(block) * each * share, each};
  }
  std::size_t share = 0;  // bytes of one line a step over the whole stretch
};

template <class Step, int V> void dense_rows(const Step& step, Stretch part, Bytes x, std::size_t stride, const Sweep& sweep) {
  for (int r = 0, block = 0; r < sweep.rows; r += MAX_ROWS, ++block) {
    const Ahead ahead = sweep.ahead(block);
    const Bytes at = x + stride * r;
    switch (std::min(sweep.rows - r, MAX_ROWS)) {
      case 1: dense_block<Step, 1, V>(step, part, at, stride, ahead); break;
      case 2: dense_block<Step, 2, V>(step, part, at, stride, ahead); break;
      case 3: dense_block<Step, 3, V>(step, part, at, stride, ahead); break;
      case 4: dense_block<Step, std::min(4, MAX_ROWS), V>(step, part, at, stride, ahead); break;
      case 5: dense_block<Step, std::min(5, MAX_ROWS), V>(step, part, at, stride, ahead); break;
      default: dense_block<Step, MAX_ROWS, V>(step, part, at, stride, ahead);
    }
    part.out += std::size_t(part.out_stride) * MAX_ROWS;
  }
}

template <class Step, int V>
void group_rows(const Step& step, Stretch part, const Operand& x, int g, std::size_t x_offset, const Scales& scales, const Sweep& sweep) {
  for (int r = 0, block = 0; r < sweep.rows; r += MAX_ROWS, ++block) {
    const Ahead ahead = sweep.ahead(block);
    const Operand from = x.from(r);
    const Bytes at = from.data + x_offset;
    switch (std::min(sweep.rows - r, MAX_ROWS)) {
      case 1: group_block<Step, 1, V>(step, part, from, g, at, scales, ahead); break;
      case 2: group_block<Step, 2, V>(step, part, from, g, at, scales, ahead); break;
      case 3: group_block<Step, 3, V>(step, part, from, g, at, scales, ahead); break;
      case 4: group_block<Step, std::min(4, MAX_ROWS), V>(step, part, from, g, at, scales, ahead); break;
      case 5: group_block<Step, std::min(5, MAX_ROWS), V>(step, part, from, g, at, scales, ahead); break;
      default: group_block<Step, MAX_ROWS, V>(step, part, from, g, at, scales, ahead);
    }
    part.out += std::size_t(part.out_stride) * MAX_ROWS;
  }
}

// Calls body.template operator()<V>(v) for the columns of a panel: all at once where the panel is full, else 16 at a time.
template <class Body> void each_vecs(int width, const Body& body) {
  if constexpr (MAX_VECS == 4)
    if (width == PANEL) return body(std::integral_constant<int, 4>(), 0);
  for (int v = 0; v < width / LANES; ++v) body(std::integral_constant<int, 1>(), v);
}

struct Task {
  const Matrix& matrix;
  Bytes panel;
  int width;
  const Operand& x;
  int rows;
  float* out;               // [rows][PANEL]
  std::uint8_t* unpacked;   // UNPACKED_BYTES

  int w_step(int step_bytes) const { return width / LANES * step_bytes; }
  std::size_t far() const { return matrix.panel_bytes(PANEL); }
  Sweep sweep(Bytes source, std::size_t bytes, int steps) const {
    const int lines = static_cast<int>((bytes + std::size_t(steps) * 64 - 1) / (std::size_t(steps) * 64));
    return {rows, lines, far(), source, std::size_t(steps) * 64};
  }
  Scales scales(Bytes record, int offset) const {
    const Bytes at = record + matrix.code_bytes(width);
    return {at, matrix.has_mins ? at + std::size_t(width) * matrix.scale_bytes : nullptr, matrix.scale_bytes, offset};
  }
};

inline Scales shifted(const Scales& scales, int v) {
  Scales s = scales;
  s.scales += std::size_t(v) * LANES * s.bytes;
  if (s.mins) s.mins += std::size_t(v) * LANES * s.bytes;
  return s;
}

// Formats without scales.
template <class Step> void dense_panel(const Task& t) {
  const int per_step = t.matrix.per_step(), steps = t.matrix.k_padded / per_step, most = STRETCH / per_step, w_step = t.w_step(Step::W);
  for (int s = 0; s < steps; s += most) {
    const int count = std::min(most, steps - s);
    const Bytes w = t.panel + std::size_t(s) * w_step;
    const Sweep sweep = t.sweep(w, std::size_t(count) * w_step, count);
    each_vecs(t.width, [&](auto vecs, int v) {
      const Stretch part{w + Step::W * v, w_step, count, s == 0, t.out + LANES * v, PANEL};
      dense_rows<Step, vecs>(Step{}, part, t.x.data + std::size_t(s) * Step::X, t.x.stride, sweep);
    });
  }
}

// Codes with scales by group; Step reads them as they are packed.
template <class Step> void packed_groups(const Task& t, const Step& step, int offset) {
  const int steps = t.matrix.group / t.matrix.per_step(), w_step = t.w_step(Step::W);
  const std::size_t record = t.matrix.record_bytes(t.width);
  for (int g = 0; g < t.matrix.num_groups(); ++g) {
    const Bytes w = t.panel + record * g;
    const Sweep sweep = t.sweep(w, std::size_t(steps) * w_step, steps);
    each_vecs(t.width, [&](auto vecs, int v) {
      const Stretch part{w + Step::W * v, w_step, steps, g == 0, t.out + LANES * v, PANEL};
      group_rows<Step, vecs>(step, part, t.x, g, std::size_t(g) * steps * Step::X, shifted(t.scales(w, offset), v), sweep);
    });
  }
}

// Unpacks `groups` groups and multiplies; Unpack writes the steps of one 64-byte vector `to_step` bytes apart.
template <class Step, class Unpack> void unpacked_groups(const Task& t, const Unpack& unpack, int offset) {
  const Matrix& m = t.matrix;
  const int per_step = Step::X / (t.x.int8 ? 1 : 2);  // inner indices of a step, once unpacked
  const int vecs_all = t.width / LANES, to_step = vecs_all * 64, packed_steps = m.group / m.per_step(), steps = m.group / per_step;
  const std::size_t record = m.record_bytes(t.width), bytes = std::size_t(steps) * to_step;
  const int at_once = std::max(1, STRETCH / m.group);
  for (int first = 0; first < m.num_groups(); first += at_once) {
    const int last = std::min(first + at_once, m.num_groups());
    for (int g = first; g < last; ++g)
      for (int s = 0; s < packed_steps; ++s)
        for (int v = 0; v < vecs_all; ++v)
          unpack(load_raw(t.panel + record * g + (std::size_t(s) * vecs_all + v) * 64),
                 t.unpacked + bytes * (g - first) + std::size_t(s) * (m.per_step() / per_step) * to_step + 64 * v, to_step);
    for (int g = first; g < last; ++g) {
      const Bytes packed = t.panel + record * g, w = t.unpacked + bytes * (g - first);
      const Sweep sweep = t.sweep(packed, record, steps);
      each_vecs(t.width, [&](auto vecs, int v) {
        const Stretch part{w + 64 * v, to_step, steps, g == 0, t.out + LANES * v, PANEL};
        group_rows<Step, vecs>(Step{}, part, t.x, g, std::size_t(g) * steps * Step::X, shifted(t.scales(packed, offset), v), sweep);
      });
    }
  }
}

struct UnpackI8 {
  void operator()(Raw raw, std::uint8_t* to, int step) const {
    store_pair(to, unpack_i8<0>(raw));
    store_pair(to + step, unpack_i8<1>(raw));
  }
};
struct UnpackI4 {
  Table table;
  void operator()(Raw raw, std::uint8_t* to, int step) const {
    store_pair(to, unpack_i4<0>(raw, table));
    store_pair(to + step, unpack_i4<1>(raw, table));
    store_pair(to + 2 * step, unpack_i4<2>(raw, table));
    store_pair(to + 3 * step, unpack_i4<3>(raw, table));
  }
};
struct UnpackNibbles {
  ByteTable table;
  void operator()(Raw raw, std::uint8_t* to, int step) const {
    store_raw(to, bytes_i4<0>(raw, table));
    store_raw(to + step, bytes_i4<1>(raw, table));
  }
};

// int8 weights with one scale a row and bf16 activations: stretches of k are unpacked in turn, and the sums scaled at the end.
inline void unpacked_whole(const Task& t) {
  const Matrix& m = t.matrix;
  const int w_step = t.w_step(64), to_step = w_step, steps = m.k_padded / 4, most = STRETCH / 4;
  for (int s = 0; s < steps; s += most) {
    const int count = std::min(most, steps - s);
    const Bytes packed = t.panel + std::size_t(s) * w_step;
    for (int i = 0; i < count; ++i)
      for (int v = 0; v < t.width / LANES; ++v)
        UnpackI8{}(load_raw(packed + std::size_t(i) * w_step + 64 * v), t.unpacked + std::size_t(2 * i) * to_step + 64 * v, to_step);
    const Sweep sweep = t.sweep(packed, std::size_t(count) * w_step, 2 * count);
    each_vecs(t.width, [&](auto vecs, int v) {
      const Stretch part{t.unpacked + 64 * v, to_step, 2 * count, s == 0, t.out + LANES * v, PANEL};
      dense_rows<StepBf16, vecs>(StepBf16{}, part, t.x.data + std::size_t(s) * 8, t.x.stride, sweep);
    });
  }
  const Scales scales = t.scales(t.panel, 0);
  for (int r = 0; r < t.rows; ++r)
    for (int v = 0; v < t.width / LANES; ++v) {
      float* out = t.out + std::size_t(r) * PANEL + LANES * v;
      F result = load(out) * scales.scale(v);
      if (scales.mins) result = fma(scales.min(v), set1(t.x.totals[r]), result);
      store(out, result);
    }
}

// The bytes that codes of 4 bits stand for, made unsigned, and what they are too large by.
inline int unsigned_values(const Matrix& m, std::uint8_t (&values)[16]) {
  const int least = std::min<int>(0, *std::min_element(m.values, m.values + 16));
  for (int i = 0; i < 16; ++i) values[i] = static_cast<std::uint8_t>(m.values[i] - least);
  return -least;
}

// out[row][column] for all columns of a panel; columns beyond the matrix get zeros or whatever its padding gives.
inline void linear_panel(const Task& t) {
  const Matrix& m = t.matrix;
  const bool many = t.rows > MAX_ROWS;
  if (m.format == Format::f32) return dense_panel<StepF32>(t);
  if (m.format == Format::f16) return dense_panel<StepF16>(t);
  if (m.format == Format::bf16) return dense_panel<StepBf16>(t);
  if (m.format == Format::i8) {
    if (t.x.int8) return packed_groups(t, StepBytes{}, 128);
    if (!many) return packed_groups(t, StepI8{}, 0);
    return m.num_groups() == 1 ? unpacked_whole(t) : unpacked_groups<StepBf16>(t, UnpackI8{}, 0);
  }
  std::uint8_t bytes[16];
  const int offset = unsigned_values(m, bytes);
  if (t.x.int8) {
    const ByteTable table = make_byte_table(bytes);
    return many ? unpacked_groups<StepBytes>(t, UnpackNibbles{table}, offset) : packed_groups(t, StepNibbles{table}, offset);
  }
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = m.values[i];
  const Table table = make_table(values);
  return many ? unpacked_groups<StepBf16>(t, UnpackI4{table}, 0) : packed_groups(t, StepI4{table}, 0);
}

// Row `n` of the matrix as float: the embedding of a token.
inline void matrix_row(const Matrix& m, int index, int n, float* out) {
  const int p = n / PANEL, column = n % PANEL, width = m.width(p), vec = column / LANES, lane = column % LANES;
  const Bytes panel = m.panel(index, p);
  const int per_step = m.per_step(), word = m.format == Format::f16 ? 2 : 4;
  const int w_step = width * word, steps = m.group / per_step;
  const std::size_t record = m.record_bytes(width);
  const auto number = [&](Bytes at, int bytes) {
    if (bytes == 4) return *reinterpret_cast<const float*>(at);
    std::uint16_t wide[16] = {*reinterpret_cast<const std::uint16_t*>(at)};
    float value[16];
    store(value, from_f16(wide));
    return value[0];
  };
  for (int k = 0; k < m.k; ++k) {
    const int g = k / m.group, in_group = k % m.group, s = in_group / per_step, at = in_group % per_step;
    const Bytes codes = panel + record * g, where = codes + std::size_t(s) * w_step + (std::size_t(vec) * LANES + lane) * word;
    float value;
    if (m.format == Format::f32 || m.format == Format::f16) {
      value = number(where, word);
    } else if (m.format == Format::bf16) {
      const std::uint32_t bits = std::uint32_t{reinterpret_cast<const std::uint16_t*>(where)[at]} << 16;
      std::memcpy(&value, &bits, 4);
    } else {
      const int code = m.format == Format::i8
                           ? where[at] - 128
                           : m.values[(reinterpret_cast<const std::uint16_t*>(where)[at % 2] >> (4 * (at / 2))) & 15];
      const Bytes scales = codes + m.code_bytes(width);
      value = static_cast<float>(code) * number(scales + std::size_t(column) * m.scale_bytes, m.scale_bytes);
      if (m.has_mins) value += number(scales + (std::size_t(width) + column) * m.scale_bytes, m.scale_bytes);
    }
    out[k] = value;
  }
  (void)steps;
}

}  // namespace PENSTOCK_ISA
