// One panel of a packed matrix times any number of rows: chooses the step for the format, cuts k into stretches and rows into blocks.
//
//   weights     rows               path
//   f32         float              dense_panel
//   bf16, f16   bf16, float        dense_panel; where rows are float, for more than FEW_HALVES unpacked_dense
//   i8, i4      int8               packed_groups; i4 for more than FEW_NIBBLES_OF_BYTES rows unpacked_groups
//   i8, i4      16-bit words       packed_groups, for more than FEW_BYTES or FEW_NIBBLES rows unpacked_groups (PENSTOCK_WORDS)
//   i8, i4      bf16               the same (elsewhere); i8 with one scale a row unpacked_whole instead, or words (avx512_bf16)
//
// `packed` paths unpack codes in registers, again for each block of rows; `unpacked` ones once for all rows, into memory that stays in a
// cache. What is chosen by the number of rows gives the same bits. With AMX, bf16 weights and codes with more than a few rows take tiles
// instead (amx.h); what is left comes here.
#pragma once
#include <type_traits>

#include "linear.h"
#if defined(PENSTOCK_WORDS)
#include "words.h"
#endif

namespace PENSTOCK_ISA {

constexpr int STRETCH = 1024;  // inner indices whose weights stay in the cache while rows pass by
constexpr std::size_t UNPACKED_BYTES = 256 << 10;  // of codes that are unpacked at once, at most
constexpr std::size_t UNPACKED_AT_ONCE = WIDE_ROWS ? 32 << 10 : UNPACKED_BYTES;  // as many as groups allow
constexpr int LONG_SUMS = 4;  // sums of integers that are unpacked at once at least: totals are read and written once for all of them

template <class Step, int V> void dense_rows(const Step& step, Stretch part, Bytes x, std::size_t stride, const Sweep& sweep) {
  each_rows<block_rows(V)>(sweep.rows, [&](auto count, int r) PENSTOCK_INLINED {
    dense_block<Step, count, V>(step, part, x + stride * r, stride, sweep.ahead(r, count));
    part.out += std::size_t(part.out_stride) * count;
  });
}

template <class Step, int V, bool SEVERAL, int MOST = MAX_ROWS>
void group_rows(const Step& step, Groups part, const Operand& x, std::size_t x_offset, const Sweep& sweep) {
  each_rows<block_rows(V, SEVERAL, MOST)>(sweep.rows, [&](auto count, int r) PENSTOCK_INLINED {
    const Operand from = x.from(r);
    group_block<Step, count, V, SEVERAL>(step, part, from, from.data + x_offset, sweep.ahead(r, count));
    part.out += std::size_t(part.out_stride) * count;
  });
}

// Calls body(V, v) for V vectors of 16 columns of a panel at a time, from the v-th on: as many as a block of these rows takes.
template <bool SEVERAL = false, int MOST = MAX_ROWS, class Body> void each_vecs(int rows, int width, const Body& body) {
  const int vectors = width / LANES, vecs = block_vecs(rows, SEVERAL, MOST);
  int v = 0;
  if constexpr (block_rows(4, SEVERAL, MOST) > 0)
    for (; vecs == 4 && v + 4 <= vectors; v += 4) body(std::integral_constant<int, 4>(), v);
  if constexpr (block_rows(2, SEVERAL, MOST) > 0 && block_rows(4, SEVERAL, MOST) < MOST)
    for (; vecs >= 2 && v + 2 <= vectors; v += 2) body(std::integral_constant<int, 2>(), v);
  for (; v < vectors; ++v) body(std::integral_constant<int, 1>(), v);
}

struct Task {
  const Matrix& matrix;
  Bytes panel;              // the first of `panels`, all as wide
  int index, panels, width; // index: of the first
  const Operand& x;
  int rows;
  Finish finish;
  float* out;               // [panels][rows][PANEL]
  std::uint8_t* unpacked;   // UNPACKED_BYTES
  int soon;                 // PanelTask

  int vectors() const { return width / LANES; }
  int w_step(int step_bytes) const { return vectors() * step_bytes; }
  int at_once(bool several = false, int most = MAX_ROWS) const { return block_rows(block_vecs(rows, several, most), several, most); }
  Task only(int i) const {
    return {matrix, panel + far() * i, index + i, 1, width, x, rows, finish, out + std::size_t(rows) * PANEL * i, unpacked, soon};
  }
  void done(int first, int count) const { finish.call(finish.with, index, first, count, out + std::size_t(first) * PANEL); }
  std::size_t far() const { return matrix.panel_bytes(PANEL); }
  Bytes scales(int group) const { return panel + matrix.record_bytes(width) * group + matrix.code_bytes(width); }
};

// Sums of one panel, one after another: where the packed codes of the first begin, and where their scales stand.
struct Run {
  int first, count;  // index of the first among the row's, how many
  int begin, length; // the first inner index, and inner indices of each
  Bytes w, scales;
  std::size_t next, next_scales;  // bytes from sum to sum

  Run part(int from, int many) const {
    return {first + from, many, begin + from * length, length, w + next * from, scales + next_scales * from, next, next_scales};
  }
  Groups groups(const Task& t, Bytes codes, int w_step, int steps, std::size_t next_codes) const {
    const Bytes mins = t.matrix.has_mins ? scales + std::size_t(t.width) * t.matrix.scale_bytes : nullptr;
    return {codes, next_codes, w_step, steps, scales, mins, next_scales, t.matrix.scale_bytes, first, count, t.out, PANEL};
  }
};

// A sum for each group.
inline Run all_groups(const Task& t) {
  const std::size_t record = t.matrix.record_bytes(t.width);
  return {0, t.matrix.num_groups(), 0, t.matrix.group, t.panel, t.scales(0), record, record};
}

inline Groups moved(Groups g, int v, int bytes) {  // to the columns from 16 v on
  g.w += bytes * v, g.scales += std::size_t(v) * LANES * g.scale_bytes, g.out += LANES * v;
  if (g.mins) g.mins += std::size_t(v) * LANES * g.scale_bytes;
  return g;
}

// Formats without scales.
template <class Step> void dense_panel(const Task& t) {
  const int per_step = t.matrix.per_step(), steps = t.matrix.k_padded / per_step, most = STRETCH / per_step, w_step = t.w_step(Step::W);
  for (int s = 0; s < steps; s += most) {
    const int count = std::min(most, steps - s);
    const Bytes w = t.panel + std::size_t(s) * w_step;
    const Sweep sweep{t.rows, t.at_once(), w, std::size_t(count) * w_step, count, t.far(), t.vectors(), t.soon};
    each_vecs(t.rows, t.width, [&](auto vecs, int v) {
      const Stretch part{w + Step::W * v, w_step, count, s == 0, t.out + LANES * v, PANEL};
      dense_rows<Step, vecs>(Step{}, part, t.x.data + std::size_t(s) * Step::X, t.x.stride, sweep.over(v, vecs));
    });
  }
}

// Codes with scales, which Step reads as they are packed: of one group or of several.
template <bool SEVERAL, int MOST = MAX_ROWS, class Step> void packed_groups(const Task& t, const Step& step, const Run& run) {
  const int steps = run.length / t.matrix.per_step(), w_step = t.w_step(Step::W);
  const Groups groups = run.groups(t, run.w, w_step, steps, run.next);
  const Sweep sweep{t.rows, t.at_once(SEVERAL, MOST), run.w, run.next * run.count, steps * run.count, t.far(), t.vectors(), t.soon};
  each_vecs<SEVERAL, MOST>(t.rows, t.width, [&](auto vecs, int v) {
    group_rows<Step, vecs, SEVERAL, MOST>(step, moved(groups, v, Step::W), t.x, std::size_t(run.begin) / Step::K * Step::X, sweep.over(v, vecs));
  });
}

// `count` packed steps of all columns, from `from` on.
template <class Unpack> void unpack_steps(const Unpack& unpack, Bytes from, std::uint8_t* to, int count, int vectors) {
  constexpr int W = Unpack::Step::W;
  for (int s = 0; s < count; ++s, to += (Unpack::TIMES - 1) * vectors * W)
    for (int v = 0; v < vectors; ++v, from += Unpack::W, to += W) unpack(from, to, vectors * W);
}

// Whether codes are unpacked once for all rows, which are more than a few; a sum's have to fit the memory for that.
template <class Unpack> bool unpacks(const Task& t, int few, int length) {
  using Step = typename Unpack::Step;
  return t.rows > few && std::size_t(length / Step::K) * (PANEL / LANES) * Step::W <= UNPACKED_BYTES;
}

// Unpacks a few sums' codes at a time and multiplies.
template <class Unpack> void unpacked_groups(const Task& t, const Unpack& unpack, const Run& run) {
  using Step = typename Unpack::Step;
  const int vectors = t.vectors(), w_step = vectors * Step::W, packed_steps = run.length / t.matrix.per_step(), steps = run.length / Step::K;
  const std::size_t bytes = std::size_t(steps) * w_step;
  const int least = Step::WHOLE ? std::min<int>(LONG_SUMS, UNPACKED_BYTES / bytes) : 1;
  const int at_once = std::max({1, least, static_cast<int>(UNPACKED_AT_ONCE / bytes)});
  for (int from = 0; from < run.count; from += at_once) {
    const Run part = run.part(from, std::min(at_once, run.count - from));
    for (int g = 0; g < part.count; ++g) unpack_steps(unpack, part.w + part.next * g, t.unpacked + bytes * g, packed_steps, vectors);
    const Groups groups = part.groups(t, t.unpacked, w_step, steps, bytes);
    const Sweep sweep{t.rows, t.at_once(true), part.w, part.next * part.count, steps * part.count, t.far(), t.vectors(), t.soon};
    each_vecs<true>(t.rows, t.width, [&](auto vecs, int v) {
      group_rows<Step, vecs, true>(Step{}, moved(groups, v, Step::W), t.x, std::size_t(part.begin) / Step::K * Step::X, sweep.over(v, vecs));
    });
  }
}

// Rows up to `few` read codes as they are packed, for more they are unpacked once.
template <class Unpack, class Step> void several_groups(const Task& t, int few, const Unpack& unpack, const Step& step, const Run& run) {
  unpacks<Unpack>(t, few, run.length) ? unpacked_groups(t, unpack, run) : packed_groups<true, TALL_ROWS>(t, step, run);
}

// Unpacks a stretch of k at a time and multiplies, without scales.
template <class Unpack> void unpacked_dense(const Task& t, const Unpack& unpack) {
  using Step = typename Unpack::Step;
  const Matrix& m = t.matrix;
  const int vectors = t.vectors(), w_step = vectors * Step::W, packed_step = vectors * Unpack::W, times = m.per_step() / Step::K;
  const int packed_steps = m.k_padded / m.per_step(), most = std::min<int>(STRETCH / m.per_step(), UNPACKED_AT_ONCE / (times * 4 * Step::W));
  for (int s = 0; s < packed_steps; s += most) {
    const int count = std::min(most, packed_steps - s), steps = count * times;
    const Bytes packed = t.panel + std::size_t(s) * packed_step;
    unpack_steps(unpack, packed, t.unpacked, count, vectors);
    const Sweep sweep{t.rows, t.at_once(), packed, std::size_t(count) * packed_step, steps, t.far(), vectors, t.soon};
    each_vecs(t.rows, t.width, [&](auto vecs, int v) {
      const Stretch part{t.unpacked + Step::W * v, w_step, steps, s == 0, t.out + LANES * v, PANEL};
      dense_rows<Step, vecs>(Step{}, part, t.x.data + std::size_t(s) * times * Step::X, t.x.stride, sweep.over(v, vecs));
    });
  }
}

// Formats of 16 bits, which become float.
template <class Step> void half_panel(const Task& t) {
  t.rows > FEW_HALVES ? unpacked_dense(t, UnpackValues<Step>{}) : dense_panel<Step>(t);
}

// Sums of integers become what rows and codes stand for.
inline void scale_rows(const Task& t) {
  for (int r = 0; r < t.rows; ++r)
    for (int v = 0; v < t.width / LANES; ++v) {
      float* out = t.out + std::size_t(r) * PANEL + LANES * v;
      store(out, load(out) * set1(t.x.scales[r]));
    }
}

inline ByteTable byte_table(const Matrix& m) {  // i4: what codes stand for, as bytes of at least 0
  std::uint8_t bytes[16];
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<std::uint8_t>(m.values[i] + m.offset());
  return make_byte_table(bytes);
}

inline void linear_bytes(const Task& t) {  // int8 activations
  const Matrix& m = t.matrix;
  const Run all = all_groups(t);
  if (m.format == Format::i8) {
    m.num_groups() == 1 ? packed_groups<false>(t, StepBytes{}, all) : packed_groups<true>(t, StepBytes{}, all);
  } else {
    const ByteTable table = byte_table(m);
    several_groups(t, FEW_NIBBLES_OF_BYTES, UnpackNibbles{table}, StepNibbles{table}, all);
  }
  scale_rows(t);
}

inline StepI4 step_i4(const Matrix& m) {
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = m.values[i];
  return StepI4{make_table(values)};
}

// Calls body(run) for the sums of each_sum, as many as are alike.
template <class Body> void each_run(const Task& t, const Body& body) {
  const Matrix& m = t.matrix;
  if (m.group <= SUM_LENGTH) return body(all_groups(t));
  const std::size_t record = m.record_bytes(t.width), next = std::size_t(SUM_LENGTH) * t.width * m.bits() / 8;
  const int whole = m.group / SUM_LENGTH, left = m.group % SUM_LENGTH;
  for (int g = 0, first = 0; g < m.num_groups(); ++g, first += m.sums_in_group()) {
    const Bytes w = t.panel + record * g;
    body(Run{first, whole, g * m.group, SUM_LENGTH, w, t.scales(g), next, 0});
    if (left) body(Run{first + whole, 1, g * m.group + whole * SUM_LENGTH, left, w + next * whole, t.scales(g), next, 0});
  }
}

#if defined(PENSTOCK_WORDS)

inline void linear_words(const Task& t) {  // 16-bit fixed point
  const Matrix& m = t.matrix;
  if (m.format == Format::i8) {
    each_run(t, [&](const Run& run) { several_groups(t, FEW_BYTES, UnpackI8{}, StepI8{}, run); });
  } else if (m.in_order()) {
    each_run(t, [&](const Run& run) { several_groups(t, FEW_NIBBLES, UnpackNibblePairs<InOrder>{}, StepNibblePairs<InOrder>{}, run); });
  } else {
    const StepI4 step = step_i4(m);
    each_run(t, [&](const Run& run) { several_groups(t, FEW_NIBBLES, UnpackI4{step}, step, run); });
  }
  scale_rows(t);
}

#else

// int8 weights with one scale a row and bf16 activations: the sums are scaled at the end.
inline void unpacked_whole(const Task& t) {
  unpacked_dense(t, UnpackI8{});
  const Groups all = all_groups(t).groups(t, nullptr, 0, 0, 0);
  for (int r = 0; r < t.rows; ++r)
    for (int v = 0; v < t.width / LANES; ++v) {
      float* out = t.out + std::size_t(r) * PANEL + LANES * v;
      F result = fma(load(out), all.read(all.scales, v), zero());
      if (all.mins) result = fma(all.read(all.mins, v), set1(t.x.totals[r]), result);
      store(out, result);
    }
}

inline void linear_values(const Task& t) {  // codes with rows of bf16 numbers
  const Matrix& m = t.matrix;
  const Run all = all_groups(t);
  if (m.format == Format::i4) {
    const StepI4 step = step_i4(m);
    return several_groups(t, FEW_NIBBLES, UnpackI4{step}, step, all);
  }
  if (m.num_groups() > 1) return several_groups(t, FEW_BYTES, UnpackI8{}, StepI8{}, all);
  t.rows > FEW_BYTES ? unpacked_whole(t) : packed_groups<false>(t, StepI8{}, all);
}

#endif

// out[row][column] for all columns of a panel; columns beyond the matrix get whatever its padding gives.
inline void linear_panel(const Task& t) {
  const Matrix& m = t.matrix;
  if (m.format == Format::f32) return dense_panel<StepF32>(t);
  if (m.format == Format::f16) return half_panel<StepF16>(t);
  if (m.format == Format::bf16) {
    if constexpr (WIDE_ROWS) return half_panel<StepBf16>(t);
    else return dense_panel<StepBf16>(t);
  }
  if (t.x.int8) return linear_bytes(t);
#if defined(PENSTOCK_WORDS)
  linear_words(t);
#else
  linear_values(t);
#endif
}

}  // namespace PENSTOCK_ISA
