// Packing is a transpose: a source row becomes a lane (column) of a vector. 16 rows x 16 steps are transposed at a time, so that each
// step of 16 columns is written as one cache line.
#include "pack.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "numbers.h"

namespace penstock {

namespace {

constexpr int TRANSPOSE_STEPS = 16;  // steps per transposed block
constexpr int STEPS_PER_PASS = 256;  // steps written for 16 rows before the next 16 rows

// The source rows of the 16 lanes of one vector, by index and pointer; -1 and nullptr: none.
template <class T> struct LaneRows {
  int index[LANES];
  const T* row[LANES];
  bool all_lanes() const { return std::all_of(row, row + LANES, [](const T* each) { return each != nullptr; }); }
};

// Packs k = from .. from + count - 1 of the lanes' rows: encode() makes a word of K elements; words of consecutive steps are `stride`
// words apart.
template <int K, class Word, class T, class Encode>
void transpose(const LaneRows<T>& lanes, std::size_t from, int count, Word* out, std::size_t stride, const Encode& encode) {
  const bool all_lanes = lanes.all_lanes();
  const int steps = (count + K - 1) / K, full_steps = count / K;
  Word tile[TRANSPOSE_STEPS][LANES];
  for (int first = 0; first < steps; first += TRANSPOSE_STEPS) {
    const int n = std::min(TRANSPOSE_STEPS, steps - first);
    for (int lane = 0; lane < LANES; ++lane) {
      if (!lanes.row[lane]) continue;
      const T* row = lanes.row[lane] + from + std::size_t(first) * K;
      const int num_full = std::min(n, full_steps - first);
      for (int s = 0; s < num_full; ++s) tile[s][lane] = encode(row + s * K);
      if (num_full == n) continue;
      T tail[K] = {};
      std::memcpy(tail, row + num_full * K, (count - full_steps * K) * sizeof(T));
      tile[num_full][lane] = encode(tail);
    }
    for (int s = 0; s < n; ++s) {
      Word* at = out + stride * (first + s);
      if (all_lanes) std::memcpy(at, tile[s], sizeof tile[s]);
      for (int lane = 0; !all_lanes && lane < LANES; ++lane)
        if (lanes.row[lane]) at[lane] = tile[s][lane];
    }
  }
}

float float_of(float x) { return x; }
float float_of(double x) { return static_cast<float>(x); }
struct Bf16 { std::uint16_t bits; };
struct F16 { std::uint16_t bits; };
float float_of(Bf16 x) { return from_bf16_bits(x.bits); }
float float_of(F16 x) { return from_half_bits(x.bits); }

template <class T> std::uint32_t bf16_pair(const T* p) {
  return to_bf16_bits(float_of(p[0])) | std::uint32_t{to_bf16_bits(float_of(p[1]))} << 16;
}
std::uint32_t bf16_pair(const Bf16* p) { return p[0].bits | std::uint32_t{p[1].bits} << 16; }

std::uint32_t i8_word(const std::int8_t* p) {
  std::uint32_t word;
  std::memcpy(&word, p, 4);
  return word ^ 0x80808080u;
}

// Eight codes 0-15: k = 0 2 4 6 in the nibbles of the lower half word, 1 3 5 7 in those of the upper one.
std::uint32_t i4_word(const std::int8_t* p) {
  std::uint64_t x;
  std::memcpy(&x, p, 8);
  std::uint64_t even = x & 0x000f000f000f000f, odd = x >> 8 & 0x000f000f000f000f;
  even = (even | even >> 12) & 0x000000ff000000ff, odd = (odd | odd >> 12) & 0x000000ff000000ff;
  return static_cast<std::uint32_t>(((even | even >> 24) & 0xffff) | ((odd | odd >> 24) & 0xffff) << 16);
}

// Word W of sixteen codes -32 to 31.
template <int W> std::uint32_t i6_word(const std::int8_t* p) {
  std::uint32_t word, last;
  std::memcpy(&word, p + 4 * W, 4), std::memcpy(&last, p + 12, 4);
  const auto plus_32 = [](std::uint32_t codes) { return (codes & 0x3f3f3f3fu) ^ 0x20202020u; };
  return plus_32(word) | (plus_32(last) >> 2 * W & 0x03030303u) << 6;
}

// Calls task(panel, row_of) for each panel that the source reaches; row_of(vec, lane) is the source row of that column, or -1.
template <class Task> class Panels : public Work {
 public:
  Panels(Pool& pool, const Destination& to, int rows, const Task& task)
      : Work(pool, 1), to_(to), rows_(rows), task_(task), panel_rows_(to.half < 0 ? PANEL : PANEL / 2),
        first_(to.first / panel_rows_), count_((to.first + rows - 1) / panel_rows_ - first_ + 1) {}
  void run_phases(int thread) override {
    parallel_for(thread, count_, [this](int i) {
      const int panel = first_ + i, shift = to_.half < 0 ? 0 : to_.half * panel_rows_;
      task_(panel, [this, panel, shift](int vec, int lane) {
        const int column = vec * LANES + lane - shift, row = panel * panel_rows_ + column - to_.first;
        return column >= 0 && column < panel_rows_ && row >= 0 && row < rows_ ? row : -1;
      });
    });
  }

 private:
  const Destination to_;
  const int rows_;
  const Task task_;
  const int panel_rows_, first_, count_;
};

template <class Task> void for_each_panel(Pool& pool, const Destination& to, int rows, const Task& task) {
  if (rows > 0) pool.run(std::make_shared<Panels<Task>>(pool, to, rows, task));
}

template <class T, class RowOf> bool set_lanes(LaneRows<T>& lanes, const T* source, std::size_t stride, int vec, const RowOf& row_of) {
  bool any = false;
  for (int lane = 0; lane < LANES; ++lane) {
    const int row = lanes.index[lane] = row_of(vec, lane);
    lanes.row[lane] = row < 0 ? nullptr : source + stride * row;
    any = any || row >= 0;
  }
  return any;
}

template <int K, class Word, class T, class Encode>
void pack_dense(Pool& pool, const Matrix& m, const Destination& to, const T* source, int rows, const Encode& encode) {
  for_each_panel(pool, to, rows, [&m, &to, source, encode](int panel, const auto& row_of) {
    const int width = m.width(panel);
    auto* out = reinterpret_cast<Word*>(m.panel(to.index, panel));
    for (int from = 0; from < m.k; from += STEPS_PER_PASS * K)
      for (int vec = 0; vec < width / LANES; ++vec) {
        LaneRows<T> lanes;
        if (!set_lanes(lanes, source, m.k, vec, row_of)) continue;
        Word* to_words = out + std::size_t(from / K) * width + vec * LANES;
        transpose<K>(lanes, from, std::min(STEPS_PER_PASS * K, m.k - from), to_words, width, encode);
      }
  });
}

template <class T> void pack_from(Pool& pool, const Matrix& m, const Destination& to, const T* source, int rows) {
  if (m.format == Format::bf16)
    return pack_dense<2, std::uint32_t>(pool, m, to, source, rows, [](const T* p) { return bf16_pair(p); });
  if (m.format == Format::f16)
    return pack_dense<1, std::uint16_t>(pool, m, to, source, rows, [](const T* p) { return to_half_bits(float_of(*p)); });
  pack_dense<1, float>(pool, m, to, source, rows, [](const T* p) { return float_of(*p); });
}

// One value per lane; rows are `stride` values apart.
template <class Number> void copy_scales(const LaneRows<std::int8_t>& lanes, const Number* from, int stride, Number* to) {
  for (int lane = 0; lane < LANES; ++lane)
    if (lanes.row[lane]) to[lane] = from[std::size_t(lanes.index[lane]) * stride];
}

// write(lanes, from, count, to, stride): k = from .. from + count - 1 as steps, `stride` words apart.
template <int K, class Scale, class Write>
void pack_groups(Pool& pool, const Matrix& m, const Destination& to, const CodedRows& source, const Write& write) {
  for_each_panel(pool, to, source.rows, [&m, &to, source, write](int panel, const auto& row_of) {
    const auto *scales = static_cast<const Scale*>(source.scales), *mins = static_cast<const Scale*>(source.mins);
    const int width = m.width(panel), groups = m.num_groups();
    LaneRows<std::int8_t> lanes[PANEL / LANES];
    bool any[PANEL / LANES];
    for (int vec = 0; vec < width / LANES; ++vec) any[vec] = set_lanes(lanes[vec], source.codes, m.k, vec, row_of);
    for (int g = 0; g < groups; ++g) {
      std::uint8_t* record = m.panel(to.index, panel) + m.record_bytes(width) * g;
      auto* out_scales = reinterpret_cast<Scale*>(record + m.code_bytes(width));
      const int begin = g * m.group, end = std::min(m.k, begin + m.group), words = m.code_step_bytes() / 4, stride = width / LANES * words;
      for (int from = begin; from < end; from += STEPS_PER_PASS * K)
        for (int vec = 0; vec < width / LANES; ++vec)
          if (any[vec])
            write(lanes[vec], from, std::min(STEPS_PER_PASS * K, end - from),
                  reinterpret_cast<std::uint32_t*>(record) + std::size_t((from - begin) / K) * stride + vec * words, stride);
      for (int vec = 0; vec < width / LANES; ++vec) {
        if (!any[vec]) continue;
        copy_scales(lanes[vec], scales + g, groups, out_scales + vec * LANES);
        if (mins) copy_scales(lanes[vec], mins + g, groups, out_scales + width + vec * LANES);
      }
    }
    auto* units = reinterpret_cast<float*>(m.panel(to.index, panel) + m.units_offset(width));
    for (int vec = 0; source.units && vec < width / LANES; ++vec)
      if (any[vec]) copy_scales(lanes[vec], source.units, 1, units + vec * LANES);
    for (int f = 0, factors = m.has_factors() ? groups / m.factor_groups : 0; f < factors; ++f) {
      auto* out = reinterpret_cast<std::uint16_t*>(m.panel(to.index, panel) + m.units_offset(width) + m.factor_bytes(width) * f);
      for (int vec = 0; vec < width / LANES; ++vec) {
        if (!any[vec]) continue;
        copy_scales(lanes[vec], source.factors + f, factors, out + vec * LANES);
        if (mins) copy_scales(lanes[vec], source.min_factors + f, factors, out + width + vec * LANES);
      }
    }
  });
}

template <class Scale> void pack_coded(Pool& pool, const Matrix& m, const Destination& to, const CodedRows& source) {
  using Lanes = LaneRows<std::int8_t>;
  const auto i8 = [](const Lanes& lanes, int from, int count, std::uint32_t* out, int stride) {
    transpose<4>(lanes, from, count, out, stride, i8_word);
  };
  const auto i4 = [](const Lanes& lanes, int from, int count, std::uint32_t* out, int stride) {
    transpose<8>(lanes, from, count, out, stride, i4_word);
  };
  const auto i6 = [](const Lanes& lanes, int from, int count, std::uint32_t* out, int stride) {
    transpose<16>(lanes, from, count, out, stride, i6_word<0>);
    transpose<16>(lanes, from, count, out + LANES, stride, i6_word<1>);
    transpose<16>(lanes, from, count, out + 2 * LANES, stride, i6_word<2>);
  };
  if (m.format == Format::i8) return pack_groups<4, Scale>(pool, m, to, source, i8);
  if (m.format == Format::i6) return pack_groups<16, Scale>(pool, m, to, source, i6);
  pack_groups<8, Scale>(pool, m, to, source, i4);
}

}  // namespace

void pack_numbers(Pool& pool, const Matrix& m, const Destination& to, const void* numbers, Source source, int rows) {
  switch (source) {
    case Source::f32: return pack_from(pool, m, to, static_cast<const float*>(numbers), rows);
    case Source::f64: return pack_from(pool, m, to, static_cast<const double*>(numbers), rows);
    case Source::f16: return pack_from(pool, m, to, static_cast<const F16*>(numbers), rows);
    case Source::bf16: return pack_from(pool, m, to, static_cast<const Bf16*>(numbers), rows);
  }
}

void pack_codes(Pool& pool, const Matrix& m, const Destination& to, const CodedRows& source) {
  if (m.scale_bytes == 1) return pack_coded<std::int8_t>(pool, m, to, source);
  if (m.scale_bytes == 2) return pack_coded<std::uint16_t>(pool, m, to, source);
  pack_coded<float>(pool, m, to, source);
}

}  // namespace penstock
