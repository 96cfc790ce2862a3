// The kernel table of one instruction set, and what differs between sets. Compiled once per set, with PENSTOCK_ISA its name and the
// compiler flags for it.
#include <cmath>
#include <cstring>

#if defined(__AVX512F__)
#include "../vec/avx512.h"
#else
#include "../vec/lanes.h"
#endif
#include "../kernels.h"
#if defined(__AVX512BF16__)
namespace avx512_vnni { extern const penstock::Kernels table; }  // for fixed-point rows
#endif
#include "attend.h"
#include "choose.h"
#include "embed.h"
#include "panel.h"
#if defined(PENSTOCK_TILES)
#include "amx.h"
#include "attendtiles.h"
#endif

namespace PENSTOCK_ISA {

#if !defined(PENSTOCK_TILES)
constexpr int M_BLOCK_BYTES = 1024;  // Kernels::m_block_bytes
static void release_tiles() {}
static void multiply_panels(const Task& t) {
  for (int i = 0; i < t.num_panels; ++i) multiply_panel(t.single(i));
}
static int panels_per_call(const Matrix&, int) { return 1; }
#endif

// See Kernels::takes_fixed16. Where bf16 pairs are multiplied faster than floats, i6 codes and i8 codes with one scale per column still
// take VNNI: a code becomes int16 by one byte shuffle but bf16 by several operations, and so do i4 codes with units, whose sums are scaled
// once. Other i4 codes are one table lookup either way, and integer accumulators need a conversion per group, so that bf16 is as fast or
// faster on Zen 4, as it is for i8 codes with a scale for 32. Zen 5 multiplies all codes faster by VNNI (docs/LOG.md). Bits depend on the
// answer, so it is one for the whole process.
static bool takes_fixed16([[maybe_unused]] const Matrix& matrix) {
#if defined(PENSTOCK_TILES)
  return !matrix.dequantized;
#elif defined(PENSTOCK_FIXED16)
  return true;
#elif defined(__AVX512BF16__)
  const bool one_scale = matrix.format == Format::i8 && matrix.num_groups() == 1;
  return features().zen5 ? matrix.has_codes() : matrix.has_units() || matrix.format == Format::i6 || one_scale;
#else
  return false;
#endif
}

static void linear(const PanelTask& t) {
#if defined(__AVX512BF16__) && !defined(PENSTOCK_TILES)
  if (takes_fixed16(t.matrix)) return avx512_vnni::table.linear(t);  // int8 rows too: the same sums, and many rows find codes unpacked once
#elif defined(PENSTOCK_TILES)
  const bool integer = t.matrix.has_codes() && (t.x.int8 || takes_fixed16(t.matrix));
  if (integer && !t.x.amx_row_bytes && !takes_plain_int8(t.matrix, t.x, t.rows))
    return avx512_vnni::table.linear(t);
#endif
  for (int from = 0; from < t.num_panels;) {
    const Task part = panels_of_one_width(t, from);
    multiply_panels(part);
    from += part.num_panels;
  }
}

#define PENSTOCK_STRINGIFY_(x) #x
#define PENSTOCK_STRINGIFY(x) PENSTOCK_STRINGIFY_(x)

static float int8_to_amx(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  const auto to = matrix.has_units() ? to_int8_as<Int8Layout::multiplied> : to_int8_as<Int8Layout::bf16>;
  return to(x, n, matrix, out, acc_init, group_sums);
}
#if !defined(PENSTOCK_TILES)
constexpr decltype(Kernels::amx_row_bytes) amx_row_bytes = nullptr;
#endif
#if defined(PENSTOCK_FIXED16)
constexpr IntegerRow to_fixed16 = to_fixed16_as<Fixed16Layout::int16>;
#if defined(PENSTOCK_VNNI)
static float to_split_fixed16(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  const auto to = matrix.format == Format::i4 ? to_fixed16_as<Fixed16Layout::split_eights> : to_fixed16_as<Fixed16Layout::split_fours>;
  return to(x, n, matrix, out, acc_init, group_sums);
}
static bool splits_fixed16(const Matrix& m, int rows) {
  const bool is_i4 = m.format == Format::i4 && m.codebook_is_consecutive(), is_i8 = m.format == Format::i8 && !m.has_mins;
  return (is_i4 ? rows <= MAX_SPLIT_ROWS : is_i8 && rows == 1) && m.group % LANES == 0;
}
static float fixed16_to_amx(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  const auto to = matrix.has_units()       ? to_fixed16_as<Fixed16Layout::interleaved>
                  : uses_int8_tiles(matrix) ? to_fixed16_as<Fixed16Layout::byte_planes>
                                            : to_fixed16_as<Fixed16Layout::bf16_planes>;
  return to(x, n, matrix, out, acc_init, group_sums);
}
#else
constexpr IntegerRow to_split_fixed16 = nullptr, fixed16_to_amx = nullptr;
static bool splits_fixed16(const Matrix&, int) { return false; }
#endif
#elif defined(__AVX512BF16__)  // the avx512_vnni kernels multiply them
static float to_fixed16(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  return avx512_vnni::table.to_fixed16(x, n, matrix, out, acc_init, group_sums);
}
static float to_split_fixed16(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  return avx512_vnni::table.to_split_fixed16(x, n, matrix, out, acc_init, group_sums);
}
static bool splits_fixed16(const Matrix& m, int rows) { return avx512_vnni::table.splits_fixed16(m, rows); }
static float fixed16_to_amx(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums) {
  return avx512_vnni::table.fixed16_to_amx(x, n, matrix, out, acc_init, group_sums);
}
#else
constexpr IntegerRow to_fixed16 = nullptr, to_split_fixed16 = nullptr, fixed16_to_amx = nullptr;
constexpr decltype(Kernels::splits_fixed16) splits_fixed16 = nullptr;
#endif

extern const Kernels table;
const Kernels table = {  // in the order of Kernels
    PENSTOCK_STRINGIFY(PENSTOCK_ISA),
    UNPACKED_BYTES, M_BLOCK_BYTES, panels_per_call, linear, release_tiles, dequantize_row,
    attend_bytes, attend, merge_spans, normalize,
    rms_norm,
    BF16_ELEM_BYTES, to_bf16_row, to_bf16, INT8_ELEM_BYTES, to_int8, takes_fixed16, to_fixed16, splits_fixed16, to_split_fixed16,
    amx_row_bytes, fixed16_to_amx, int8_to_amx,
    rope, act_mul, clamped_gate, add_rows, copy_rows, softcap, softmax,
    argmax, temperature_scale, exp_row, exp_block_sums, mass_at_least, indices_above, count_above, mask_logits};

}  // namespace PENSTOCK_ISA
