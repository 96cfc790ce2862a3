// Single rows of a packed matrix: the embeddings of tokens.
#pragma once
#include "steps.h"

namespace PENSTOCK_ISA {

// The number that stands there, of two bytes or four.
inline float number_at(Bytes at, int bytes) {
  if (bytes == 4) return *reinterpret_cast<const float*>(at);
  std::uint16_t wide[LANES] = {*reinterpret_cast<const std::uint16_t*>(at)};
  float value[LANES];
  store(value, from_f16(wide));
  return value[0];
}

// Row `n` of the matrix as float.
inline void matrix_row(const Matrix& m, int index, int n, float* out) {
  const int p = n / PANEL, column = n % PANEL, width = m.width(p), per_step = m.per_step(), word = m.format == Format::f16 ? 2 : 4;
  const bool codes = m.format == Format::i8 || m.format == Format::i4;
  const Bytes panel = m.panel(index, p);
  // read(where, at): the number at place `at` of the step whose word for this column stands at `where`.
  const auto each = [&](const auto& read) PENSTOCK_INLINED {
    for (int g = 0, k = 0; k < m.k; ++g) {
      const Bytes group = panel + m.record_bytes(width) * g, scales = group + m.code_bytes(width);
      const float scale = codes ? number_at(scales + std::size_t(column) * m.scale_bytes, m.scale_bytes) : 0;
      const float min = codes && m.has_mins ? number_at(scales + (std::size_t(width) + column) * m.scale_bytes, m.scale_bytes) : 0;
      const int end = std::min(m.k, k + m.group);
      for (Bytes where = group + std::size_t(column) * word; k < end; where += std::size_t(width) * word)
        for (int at = 0; at < per_step && k < end; ++at, ++k) {
          float value = static_cast<float>(read(where, at));
          if (codes) value *= scale;
          if (codes && m.has_mins) value += min;
          out[k] = value;
        }
    }
  };
  switch (m.format) {
    case Format::bf16:
      return each([](Bytes where, int at) PENSTOCK_INLINED {
        const std::uint32_t bits = std::uint32_t{reinterpret_cast<const std::uint16_t*>(where)[at]} << 16;
        float value;
        std::memcpy(&value, &bits, 4);
        return value;
      });
    case Format::i8: return each([](Bytes where, int at) PENSTOCK_INLINED { return where[at] - 128; });
    case Format::i4:
      return each([&](Bytes where, int at) PENSTOCK_INLINED {
        return int{m.values[(reinterpret_cast<const std::uint16_t*>(where)[at % 2] >> (4 * (at / 2))) & 15]};
      });
    default: return each([&](Bytes where, int) PENSTOCK_INLINED { return number_at(where, word); });
  }
}

}  // namespace PENSTOCK_ISA
