#include "pack.h"

#include <cstring>

namespace penstock {

namespace {

struct Spot {
  std::uint8_t* panel;
  int width, vec, lane;
};

Spot spot(const Matrix& m, int index, int n) {
  const int p = n / PANEL, column = n % PANEL;
  return {m.panel(index, p), m.width(p), column / LANES, column % LANES};
}

std::uint16_t bf16_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

float float_of(std::uint16_t half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16, rest = half & 0x7fffu;
  float value;
  std::uint32_t bits = rest << 13;
  std::memcpy(&value, &bits, 4);
  value *= 0x1p112f;
  std::memcpy(&bits, &value, 4);
  if (rest >= 0x7c00) bits = rest << 13 | 0x7f800000;
  bits |= sign;
  std::memcpy(&value, &bits, 4);
  return value;
}

std::uint16_t half_of(float x) {  // to nearest even
  std::uint32_t bits;
  std::memcpy(&bits, &x, 4);
  const std::uint16_t sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  bits &= 0x7fffffff;
  if (bits > 0x7f800000) return sign | 0x7e00;
  if (bits >= 0x477ff000) return sign | 0x7c00;
  if (bits < 0x38800000) {  // a subnormal half: adding 1/2 puts its last bit where a float has one
    float value;
    std::memcpy(&value, &bits, 4);
    value += 0.5f;
    std::memcpy(&bits, &value, 4);
    return static_cast<std::uint16_t>(sign | (bits - 0x3f000000));
  }
  bits += 0xc8000fff + (bits >> 13 & 1);
  return static_cast<std::uint16_t>(sign | bits >> 13);
}

float read(const void* numbers, Source source, std::size_t i) {
  switch (source) {
    case Source::f32: return static_cast<const float*>(numbers)[i];
    case Source::f64: return static_cast<float>(static_cast<const double*>(numbers)[i]);
    case Source::f16: return float_of(static_cast<const std::uint16_t*>(numbers)[i]);
    default: {
      const std::uint32_t bits = std::uint32_t{static_cast<const std::uint16_t*>(numbers)[i]} << 16;
      float value;
      std::memcpy(&value, &bits, 4);
      return value;
    }
  }
}

void pack_row(const Matrix& m, const Spot& at, const void* numbers, Source source, std::size_t from) {
  const int lane = at.vec * LANES + at.lane;
  if (m.format == Format::bf16) {
    auto* out = reinterpret_cast<std::uint16_t*>(at.panel);
    const auto* same = static_cast<const std::uint16_t*>(numbers) + from;
    for (int k = 0; k < m.k; ++k)
      out[(std::size_t(k / 2) * at.width + lane) * 2 + k % 2] = source == Source::bf16 ? same[k] : bf16_of(read(numbers, source, from + k));
  } else if (m.format == Format::f16) {
    auto* out = reinterpret_cast<std::uint16_t*>(at.panel);
    for (int k = 0; k < m.k; ++k) out[std::size_t(k) * at.width + lane] = half_of(read(numbers, source, from + k));
  } else {
    auto* out = reinterpret_cast<float*>(at.panel);
    for (int k = 0; k < m.k; ++k) out[std::size_t(k) * at.width + lane] = read(numbers, source, from + k);
  }
}

void pack_code_row(const Matrix& m, const Spot& at, const std::int8_t* codes, const std::uint8_t* scales, const std::uint8_t* mins) {
  const int lane = at.vec * LANES + at.lane;
  for (int g = 0; g < m.num_groups(); ++g) {
    std::uint8_t* record = at.panel + m.record_bytes(at.width) * g;
    for (int i = 0; i < m.group && g * m.group + i < m.k; ++i) {
      const std::uint8_t code = static_cast<std::uint8_t>(codes[std::size_t(g) * m.group + i]);
      if (m.format == Format::i8) {
        record[(std::size_t(i / 4) * at.width + lane) * 4 + i % 4] = code ^ 0x80;
      } else {
        const int e = i % 8;
        auto& word = reinterpret_cast<std::uint16_t*>(record)[(std::size_t(i / 8) * at.width + lane) * 2 + e % 2];
        const int shift = 4 * (e / 2);
        word = static_cast<std::uint16_t>((word & ~(15u << shift)) | (code & 15u) << shift);
      }
    }
    std::uint8_t* out = record + m.code_bytes(at.width);
    std::memcpy(out + std::size_t(lane) * m.scale_bytes, scales + std::size_t(g) * m.scale_bytes, m.scale_bytes);
    if (m.has_mins) std::memcpy(out + (std::size_t(at.width) + lane) * m.scale_bytes, mins + std::size_t(g) * m.scale_bytes, m.scale_bytes);
  }
}

// Rows that share cache lines of the packed matrix are written by one thread.
template <class Row> class EachRow : public Work {
 public:
  EachRow(Pool& pool, int rows, const Row& row) : Work(pool, 1), rows_(rows), row_(row) {}
  void walk(int thread) override {
    share(thread, (rows_ + PANEL - 1) / PANEL, [this](int piece) {
      for (int r = piece * PANEL; r < std::min(rows_, (piece + 1) * PANEL); ++r) row_(r);
    });
  }

 private:
  int rows_;
  Row row_;
};

template <class Row> void each_row(Pool& pool, int rows, const Row& row) { pool.run(std::make_shared<EachRow<Row>>(pool, rows, row)); }

}  // namespace

void pack_numbers(Pool& pool, const Matrix& m, const Place& place, const void* numbers, Source source, int rows) {
  each_row(pool, rows, [&](int r) { pack_row(m, spot(m, place.index, place(r)), numbers, source, std::size_t(r) * m.k); });
}

void pack_codes(Pool& pool, const Matrix& m, const Place& place, const std::int8_t* codes, const void* scales, const void* mins, int rows) {
  const std::size_t row_scales = std::size_t(m.num_groups()) * m.scale_bytes;
  each_row(pool, rows, [&](int r) {
    pack_code_row(m, spot(m, place.index, place(r)), codes + std::size_t(r) * m.k, static_cast<const std::uint8_t*>(scales) + row_scales * r,
                  mins ? static_cast<const std::uint8_t*>(mins) + row_scales * r : nullptr);
  });
}

void clear(const Matrix& m) {
  std::memset(m.data, 0, m.bytes());
  if (m.format != Format::i8) return;
  for (int index = 0; index < m.count; ++index)
    for (int p = 0; p < m.num_panels(); ++p)
      for (int g = 0; g < m.num_groups(); ++g) std::memset(m.panel(index, p) + m.record_bytes(m.width(p)) * g, 0x80, m.code_bytes(m.width(p)));
}

}  // namespace penstock
