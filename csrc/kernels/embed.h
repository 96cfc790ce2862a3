// Dequantizes single rows of a packed matrix: token embeddings.
#pragma once
#include "steps.h"

namespace PENSTOCK_ISA {

// A scale or weight of 2 bytes (f16) or 4 bytes (float).
inline float scalar_at(Bytes p, int bytes) {
  if (bytes == 4) return *reinterpret_cast<const float*>(p);
  std::uint16_t wide[LANES] = {*reinterpret_cast<const std::uint16_t*>(p)};
  float value[LANES];
  store(value, from_f16(wide));
  return value[0];
}

// Row n of W [n, k] -> out [k].
inline void dequantize_row(const Matrix& m, int index, int n, float* out) {
  const int p = n / PANEL, column = n % PANEL, width = m.width(p), k_per_step = m.k_per_step();
  const int word_bytes = m.format == Format::f16 ? 2 : 4;
  const std::size_t block_bytes = m.format == Format::i6 ? I6_BYTES : std::size_t(LANES) * word_bytes;
  const bool codes = m.has_codes();
  const Bytes panel = m.panel(index, p);
  const auto* units = reinterpret_cast<const float*>(panel + m.units_offset(width));
  // What a group's int8 scales (side 0) or mins (1) are multiplied with.
  const auto factor = [&](int g, int side) PENSTOCK_INLINED {
    return scalar_at(panel + m.units_offset(width) + m.factor_bytes(width) * (g / m.factor_groups) +
                         (std::size_t(width) * side + column) * 2, 2);
  };
  const auto scale_at = [&](Bytes scales, int g, int side) PENSTOCK_INLINED {
    const Bytes at = scales + (std::size_t(width) * side + column) * m.scale_bytes;
    if (m.scale_bytes > 1) return scalar_at(at, m.scale_bytes);
    return static_cast<float>(*reinterpret_cast<const std::int8_t*>(at)) * (m.has_factors() ? factor(g, side) : units[column]);
  };
  // read(step, j): the j-th of the step's k, where `step` points to this column's word.
  const auto for_each_element = [&](const auto& read) PENSTOCK_INLINED {
    for (int g = 0, k = 0; k < m.k; ++g) {
      const Bytes group = panel + m.record_bytes(width) * g, scales = group + m.code_bytes(width);
      const float scale = codes ? scale_at(scales, g, 0) : 0, min = codes && m.has_mins ? scale_at(scales, g, 1) : 0;
      const int end = std::min(m.k, k + m.group);
      const std::size_t first = column / LANES * block_bytes + column % LANES * word_bytes;
      for (Bytes step = group + first; k < end; step += width / LANES * block_bytes)
        for (int j = 0; j < k_per_step && k < end; ++j, ++k) {
          float value = static_cast<float>(read(step, j));
          if (codes) value *= scale;
          if (codes && m.has_mins) value += min;
          out[k] = value;
        }
    }
  };
  switch (m.format) {
    case Format::bf16:
      return for_each_element([](Bytes step, int j) PENSTOCK_INLINED {
        const std::uint32_t bits = std::uint32_t{reinterpret_cast<const std::uint16_t*>(step)[j]} << 16;
        float value;
        std::memcpy(&value, &bits, 4);
        return value;
      });
    case Format::i8: return for_each_element([](Bytes step, int j) PENSTOCK_INLINED { return step[j] - 128; });
    case Format::i6:
      return for_each_element([](Bytes step, int j) PENSTOCK_INLINED {
        const Bytes at = step + j % 4;
        return (j < 12 ? at[64 * (j / 4)] & 63 : at[0] >> 6 | at[64] >> 6 << 2 | at[128] >> 6 << 4) - 32;
      });
    case Format::i4:
      return for_each_element([&](Bytes step, int j) PENSTOCK_INLINED {
        return int{m.codebook[(reinterpret_cast<const std::uint16_t*>(step)[j % 2] >> (4 * (j / 2))) & 15]};
      });
    default: return for_each_element([&](Bytes step, int) PENSTOCK_INLINED { return scalar_at(step, word_bytes); });
  }
}

}  // namespace PENSTOCK_ISA
