// One panel of a packed matrix times any number of rows: selects the micro-kernel for the weight format and the rows' element type,
// splits k into k-blocks, rows and columns into register blocks.
//
//   weights     rows             path
//   f32         float            dense_panel
//   bf16, f16   bf16, float      dense_panel; where rows are float, unpacked_dense for more than MAX_ROWS_PACKED_F16 rows
//   i8, i4      int8             packed_scaled; i4 unpacked_scaled for more rows than PackedRows says
//   i8, i4      16-bit fixed     packed_scaled; unpacked_scaled for more rows than PackedRows says (PENSTOCK_FIXED16)
//   i8, i4      bf16, float      the same, on other instruction sets; i8 with one scale per column takes unpacked_column_scaled
//   i4, units   integer          multiply_units (multiples.h)
//   i4, units   bf16, float      as other i4, then apply_units
//
// Loop order: k-blocks, then (unpack the k-block), then blocks of columns, then blocks of rows. The weights of a k-block are read from
// memory once and reused from cache by all blocks. `packed` paths unpack codes in registers, once per register block; `unpacked` paths
// unpack once for all rows, into a buffer that stays in cache.
//
// Batch invariance: the number of rows selects only between paths that add the same products in the same order; k-blocks do not depend on
// it.
//
// With AMX, bf16 weights always take tiles, and codes do for more than a few rows (amx.h); the rest comes here.
#pragma once
#include "multiples.h"
#if defined(PENSTOCK_FIXED16)
#include "fixed16.h"
#endif

namespace PENSTOCK_ISA {

constexpr int DENSE_K_BLOCK = 1024;  // k-block of dense formats: its weights stay in L2 across register blocks
constexpr std::size_t PACKED_BYTES = 256 << 10;  // codes that several register blocks read before going on: twice that stays in L2
constexpr std::size_t UNPACKED_BYTES = 256 << 10;  // size of the buffer of unpacked weights
constexpr std::size_t UNPACK_TARGET_BYTES = BF16_ROWS_AS_FLOAT ? 32 << 10 : UNPACKED_BYTES;  // unpack as many k-blocks as fit this
constexpr int MIN_UNPACKED_INT_BLOCKS = 4;  // but for integers at least so many: totals are loaded and stored once for them

template <class Step, int V> void dense_rows(const Step& step, DenseKBlock part, Bytes x, std::size_t stride, const PrefetchPlan& plan) {
  for_row_blocks<block_rows(V)>(plan.rows, [&](auto count, int r) PENSTOCK_INLINED {
    dense_micro_kernel<Step, count, V>(step, part, x + stride * r, stride, plan.for_block(r, count));
    part.out += std::size_t(part.out_stride) * count;
  });
}

template <class Step, int V, bool GROUPED, int MAX = MAX_ROWS>
void scaled_rows(const Step& step, ScaledKBlocks part, const Operand& x, std::size_t x_offset, const PrefetchPlan& plan) {
  for_row_blocks<block_rows(V, GROUPED, MAX)>(plan.rows, [&](auto count, int r) PENSTOCK_INLINED {
    const Operand from = x.at_row(r);
    scaled_micro_kernel<Step, count, V, GROUPED>(step, part, from, from.data + x_offset, plan.for_block(r, count));
    part.out += std::size_t(part.out_stride) * count;
  });
}

// Consecutive k-blocks of packed codes of one panel, and their scales.
struct PackedKBlocks {
  int first, count;   // k-blocks, as indexed by Operand::acc_init
  int begin, length;  // first k; length of each k-block
  Bytes w, scales;
  std::size_t block_stride, scale_stride;  // bytes; scale_stride is 0 within one group
  int scale_bytes = 0;                     // where they are not the matrix's

  PackedKBlocks part(int from, int num) const {
    return {first + from, num, begin + from * length, length, w + block_stride * from, scales + scale_stride * from, block_stride, scale_stride, scale_bytes};
  }
  ScaledKBlocks groups(const Task& t, Bytes codes, int w_step, int steps, std::size_t next_codes) const {
    const Bytes mins = t.matrix.has_mins ? scales + std::size_t(t.width) * t.matrix.scale_bytes : nullptr;
    return {codes, next_codes, w_step, steps, scales, mins, scale_stride, scale_bytes ? scale_bytes : t.matrix.scale_bytes, first, count, t.out, PANEL};
  }
};

// One k-block per quantization group.
inline PackedKBlocks all_groups(const Task& t) {
  const std::size_t record = t.matrix.record_bytes(t.width);
  return {0, t.matrix.num_groups(), 0, t.matrix.group, t.panel, t.scales(0), record, record};
}

inline ScaledKBlocks at_columns(ScaledKBlocks g, int v, int bytes) {  // of the column vectors from v on
  g.w += bytes * v, g.scales += std::size_t(v) * LANES * g.scale_bytes, g.out += LANES * v;
  if (g.mins) g.mins += std::size_t(v) * LANES * g.scale_bytes;
  return g;
}

// Formats without scales.
template <class Step> void dense_panel(const Task& t) {
  const int k_per_step = t.matrix.k_per_step(), steps = t.matrix.k_padded / k_per_step, max_steps = DENSE_K_BLOCK / k_per_step;
  const int w_step = t.w_step(Step::W_BYTES);
  const std::size_t longest = std::size_t(std::min(max_steps, steps)) * w_step;
  for (int s = 0; s < steps; s += max_steps) {
    const int count = std::min(max_steps, steps - s);
    const Bytes w = t.panel + std::size_t(s) * w_step;
    const PrefetchPlan plan = t.prefetch(t.rows_per_block(), w, std::size_t(count) * w_step, longest, count);
    for_column_blocks(t.rows, t.width, [&](auto vecs, int v) {
      const DenseKBlock part{w + Step::W_BYTES * v, w_step, count, s == 0, t.out + LANES * v, PANEL};
      dense_rows<Step, vecs>(Step{}, part, t.x.data + std::size_t(s) * Step::X_BYTES, t.x.stride, plan.for_columns(v, vecs));
    });
  }
}

// Codes with scales, unpacked in registers. GROUPED: more than one k-block, so that totals over k-blocks are kept.
template <bool GROUPED, int MAX = MAX_ROWS, class Step> void packed_scaled(const Task& t, const Step& step, const PackedKBlocks& run) {
  const int steps = run.length / t.matrix.k_per_step(), w_step = t.w_step(Step::W_BYTES);
  const std::size_t parts = t.is_one_block(GROUPED, MAX) ? 1 : (run.block_stride * run.count + PACKED_BYTES - 1) / PACKED_BYTES;
  const int at_once = static_cast<int>((run.count + parts - 1) / parts);
  const std::size_t longest = run.block_stride * at_once;
  for (int from = 0; from < run.count; from += at_once) {
    const PackedKBlocks part = run.part(from, std::min(at_once, run.count - from));
    const ScaledKBlocks groups = part.groups(t, part.w, w_step, steps, part.block_stride);
    const PrefetchPlan plan = t.prefetch(t.rows_per_block(GROUPED, MAX), part.w, part.block_stride * part.count, longest, steps * part.count);
    for_column_blocks<GROUPED, MAX>(t.rows, t.width, [&](auto vecs, int v) {
      scaled_rows<Step, vecs, GROUPED, MAX>(step, at_columns(groups, v, Step::W_BYTES), t.x, std::size_t(part.begin) / Step::K * Step::X_BYTES,
                                            plan.for_columns(v, vecs));
    });
  }
}

// Unpacks `count` packed steps of all columns.
template <class Unpack> void unpack_steps(const Unpack& unpack, Bytes from, std::uint8_t* to, int count, int vectors) {
  constexpr int W_BYTES = Unpack::Step::W_BYTES;
  for (int s = 0; s < count; ++s, to += (Unpack::STEPS_OUT - 1) * vectors * W_BYTES)
    for (int v = 0; v < vectors; ++v, from += Unpack::W_BYTES, to += W_BYTES) unpack(from, to, vectors * W_BYTES);
}

// Whether to unpack once for all rows: more than a few rows, and a k-block that fits the buffer.
template <class Unpack> bool unpacks_once(const Task& t, int max_packed_rows, int length) {
  using Step = typename Unpack::Step;
  return t.rows > max_packed_rows && std::size_t(length / Step::K) * (PANEL / LANES) * Step::W_BYTES <= UNPACKED_BYTES;
}

// Codes with scales, unpacked into the buffer a few k-blocks at a time.
template <class Unpack> void unpacked_scaled(const Task& t, const Unpack& unpack, const PackedKBlocks& run) {
  using Step = typename Unpack::Step;
  const int vectors = t.vectors(), w_step = vectors * Step::W_BYTES, packed_steps = run.length / t.matrix.k_per_step(), steps = run.length / Step::K;
  const std::size_t bytes = std::size_t(steps) * w_step;
  const int min_blocks = Step::INTEGER ? std::min<int>(MIN_UNPACKED_INT_BLOCKS, UNPACKED_BYTES / bytes) : 1;
  const int blocks_at_once = std::max({1, min_blocks, static_cast<int>(UNPACK_TARGET_BYTES / bytes)});
  const std::size_t longest = run.block_stride * std::min(blocks_at_once, run.count);
  for (int from = 0; from < run.count; from += blocks_at_once) {
    const PackedKBlocks part = run.part(from, std::min(blocks_at_once, run.count - from));
    for (int g = 0; g < part.count; ++g) unpack_steps(unpack, part.w + part.block_stride * g, t.unpacked + bytes * g, packed_steps, vectors);
    const ScaledKBlocks groups = part.groups(t, t.unpacked, w_step, steps, bytes);
    const PrefetchPlan plan = t.prefetch(t.rows_per_block(true), part.w, part.block_stride * part.count, longest, steps * part.count);
    for_column_blocks<true>(t.rows, t.width, [&](auto vecs, int v) {
      scaled_rows<Step, vecs, true>(Step{}, at_columns(groups, v, Step::W_BYTES), t.x, std::size_t(part.begin) / Step::K * Step::X_BYTES,
                                    plan.for_columns(v, vecs));
    });
  }
}

// Either of the two above, by the number of rows.
template <class Unpack, class Step>
void scaled_panel(const Task& t, int max_packed_rows, const Unpack& unpack, const Step& step, const PackedKBlocks& run) {
  if (unpacks_once<Unpack>(t, max_packed_rows, run.length)) return unpacked_scaled(t, unpack, run);
  t.packed_rows.with_block_rows(t.rows, [&](auto max) { packed_scaled<true, max>(t, step, run); });
}

// Unpacks a k-block at a time and multiplies it as a dense one, without scales.
template <class Unpack> void unpacked_dense(const Task& t, const Unpack& unpack) {
  using Step = typename Unpack::Step;
  const Matrix& m = t.matrix;
  const int vectors = t.vectors(), w_step = vectors * Step::W_BYTES, packed_step = vectors * Unpack::W_BYTES, times = m.k_per_step() / Step::K;
  const int packed_steps = m.k_padded / m.k_per_step();
  const int max_steps = std::min<int>(DENSE_K_BLOCK / m.k_per_step(), UNPACK_TARGET_BYTES / (times * 4 * Step::W_BYTES));
  const std::size_t longest = std::size_t(std::min(max_steps, packed_steps)) * packed_step;
  for (int s = 0; s < packed_steps; s += max_steps) {
    const int count = std::min(max_steps, packed_steps - s), steps = count * times;
    const Bytes packed = t.panel + std::size_t(s) * packed_step;
    unpack_steps(unpack, packed, t.unpacked, count, vectors);
    const PrefetchPlan plan = t.prefetch(t.rows_per_block(), packed, std::size_t(count) * packed_step, longest, steps);
    for_column_blocks(t.rows, t.width, [&](auto vecs, int v) {
      const DenseKBlock part{t.unpacked + Step::W_BYTES * v, w_step, steps, s == 0, t.out + LANES * v, PANEL};
      dense_rows<Step, vecs>(Step{}, part, t.x.data + std::size_t(s) * times * Step::X_BYTES, t.x.stride, plan.for_columns(v, vecs));
    });
  }
}

// 16-bit formats whose weights are widened to float.
template <class Step> void half_panel(const Task& t) {
  t.rows > MAX_ROWS_PACKED_F16 ? unpacked_dense(t, UnpackToFloat<Step>{}) : dense_panel<Step>(t);
}

// out *= factor(row, vector of columns)
template <class Factor> void multiply_out(const Task& t, const Factor& factor) {
  for (int r = 0; r < t.rows; ++r)
    for (int v = 0; v < t.vectors(); ++v) {
      float* out = t.out + std::size_t(r) * PANEL + LANES * v;
      store(out, load(out) * factor(r, v));
    }
}
inline void apply_row_scales(const Task& t) {  // of integer rows
  multiply_out(t, [&](int r, int) { return set1(t.x.scales[r]); });
}
inline void apply_units(const Task& t) {
  multiply_out(t, [&](int, int v) { return load(t.units() + LANES * v); });
}

inline I4ByteTable i4_byte_table(const Matrix& m) {  // i4 codebook plus zero point, as unsigned bytes
  std::uint8_t bytes[16];
  for (int i = 0; i < 16; ++i) bytes[i] = static_cast<std::uint8_t>(m.codebook[i] + m.zero_point());
  return make_i4_byte_table(bytes);
}

inline void linear_int8(const Task& t) {  // int8 rows
  const Matrix& m = t.matrix;
  const PackedKBlocks all = all_groups(t);
  if (m.has_units()) {
    multiply_units<MultipliedBytes, StepInt8>(t, t.packed_rows.i4_units_int8, StepI4Int8{i4_byte_table(m)});
  } else if (m.format == Format::i8) {
    m.num_groups() == 1 ? packed_scaled<false>(t, StepInt8{}, all) : packed_scaled<true>(t, StepInt8{}, all);
  } else {
    const I4ByteTable table = i4_byte_table(m);
    scaled_panel(t, t.packed_rows.i4_int8, UnpackI4ToInt8{table}, StepI4Int8{table}, all);
  }
  apply_row_scales(t);
}

inline StepI4 step_i4(const Matrix& m) {
  float values[16];
  for (int i = 0; i < 16; ++i) values[i] = m.codebook[i];
  return StepI4{make_i4_table(values)};
}

// Calls body(run) for runs of equally long k-blocks: all groups at once, or each group cut at FIXED_K_BLOCK.
template <class Body> void for_k_block_runs(const Task& t, const Body& body) {
  const Matrix& m = t.matrix;
  if (m.group <= FIXED_K_BLOCK) return body(all_groups(t));
  const std::size_t record = m.record_bytes(t.width), next = std::size_t(FIXED_K_BLOCK) * t.width * m.bits() / 8;
  const int full = m.group / FIXED_K_BLOCK, left = m.group % FIXED_K_BLOCK;
  for (int g = 0, first = 0; g < m.num_groups(); ++g, first += m.k_blocks_in_group()) {
    const Bytes w = t.panel + record * g;
    body(PackedKBlocks{first, full, g * m.group, FIXED_K_BLOCK, w, t.scales(g), next, 0});
    if (left) body(PackedKBlocks{first + full, 1, g * m.group + full * FIXED_K_BLOCK, left, w + next * full, t.scales(g), next, 0});
  }
}

#if defined(PENSTOCK_FIXED16)

inline void linear_fixed16(const Task& t) {  // 16-bit fixed-point rows
  const Matrix& m = t.matrix;
  if (m.format == Format::i8) {
    for_k_block_runs(t, [&](const PackedKBlocks& run) { scaled_panel(t, t.packed_rows.i8, UnpackI8{}, StepI8{}, run); });
  } else if (m.has_units()) {
    multiply_units<MultipliedPairs, StepPairs>(t, t.packed_rows.i4_units, StepI4Pairs<ConsecutiveCodes>{});
  } else if (m.codebook_is_consecutive()) {
    for_k_block_runs(t, [&](const PackedKBlocks& run) {
      scaled_panel(t, t.packed_rows.i4, UnpackI4Pairs<ConsecutiveCodes>{}, StepI4Pairs<ConsecutiveCodes>{}, run);
    });
  } else {
    const StepI4 step = step_i4(m);
    for_k_block_runs(t, [&](const PackedKBlocks& run) { scaled_panel(t, t.packed_rows.i4, UnpackI4{step}, step, run); });
  }
  apply_row_scales(t);
}

#else

// i8 with one scale per column: the scale is applied after the dense product.
inline void unpacked_column_scaled(const Task& t) {
  unpacked_dense(t, UnpackI8{});
  const ScaledKBlocks all = all_groups(t).groups(t, nullptr, 0, 0, 0);
  for (int r = 0; r < t.rows; ++r)
    for (int v = 0; v < t.width / LANES; ++v) {
      float* out = t.out + std::size_t(r) * PANEL + LANES * v;
      F result = fma(load(out), all.load_scale(all.scales, v), zero());
      if (all.mins) result = fma(all.load_scale(all.mins, v), set1(t.x.group_sums[r]), result);
      store(out, result);
    }
}

inline void linear_bf16_rows(const Task& t) {  // i8 and i4 with bf16 or float rows
  const Matrix& m = t.matrix;
  const PackedKBlocks all = all_groups(t);
  if (m.format == Format::i4) {
    const StepI4 step = step_i4(m);
    scaled_panel(t, t.packed_rows.i4, UnpackI4{step}, step, all);
    if (m.has_units()) apply_units(t);
    return;
  }
  if (m.num_groups() > 1) return scaled_panel(t, t.packed_rows.i8, UnpackI8{}, StepI8{}, all);
  t.rows > t.packed_rows.i8 ? unpacked_column_scaled(t) : packed_scaled<false>(t, StepI8{}, all);
}

#endif

// out [rows, PANEL] of one panel. Columns beyond the matrix get what the padding holds.
inline void linear_panel(const Task& t) {
  const Matrix& m = t.matrix;
  if (m.format == Format::f32) return dense_panel<StepF32>(t);
  if (m.format == Format::f16) return half_panel<StepF16>(t);
  if (m.format == Format::bf16) {
    if constexpr (BF16_ROWS_AS_FLOAT) return half_panel<StepBf16>(t);
    else return dense_panel<StepBf16>(t);
  }
  if (t.x.int8) return linear_int8(t);
#if defined(PENSTOCK_FIXED16)
  linear_fixed16(t);
#else
  linear_bf16_rows(t);
#endif
}

}  // namespace PENSTOCK_ISA
