// Single rows of a packed matrix: the embeddings of tokens.
#pragma once
#include "steps.h"

namespace PENSTOCK_ISA {

// Row `n` of the matrix as float.
inline void matrix_row(const Matrix& m, int index, int n, float* out) {
  const int p = n / PANEL, column = n % PANEL, width = m.width(p), vec = column / LANES, lane = column % LANES;
  const Bytes panel = m.panel(index, p);
  const int per_step = m.per_step(), word = m.format == Format::f16 ? 2 : 4;
  const int w_step = width * word;
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
}

}  // namespace PENSTOCK_ISA
