// A transpose: a row of the source becomes a lane. Sixteen rows are taken at a time, sixteen steps of each, so that a step's words for
// these lanes are written as one cache line.
#include "pack.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "numbers.h"

namespace penstock {

namespace {

constexpr int STEPS = 16;   // of a turn
constexpr int BLOCK = 256;  // steps of sixteen rows that are written before the next sixteen rows are taken

// The rows that become the lanes of one vector: -1 and nullptr where none does.
template <class T> struct Lanes {
  int number[LANES];
  const T* row[LANES];
  bool whole() const { return std::all_of(row, row + LANES, [](const T* each) { return each != nullptr; }); }
};

// `count` numbers of each row from `from` on -> words, one for PER of them, those of the next step `stride` words further.
template <int PER, class Word, class T, class Make>
void transpose(const Lanes<T>& lanes, std::size_t from, int count, Word* out, std::size_t stride, const Make& make) {
  const bool whole = lanes.whole();
  const int steps = (count + PER - 1) / PER, full = count / PER;
  Word tile[STEPS][LANES];
  for (int first = 0; first < steps; first += STEPS) {
    const int n = std::min(STEPS, steps - first);
    for (int lane = 0; lane < LANES; ++lane) {
      if (!lanes.row[lane]) continue;
      const T* row = lanes.row[lane] + from + std::size_t(first) * PER;
      const int wholly = std::min(n, full - first);
      for (int s = 0; s < wholly; ++s) tile[s][lane] = make(row + s * PER);
      if (wholly == n) continue;
      T rest[PER] = {};
      std::memcpy(rest, row + wholly * PER, (count - full * PER) * sizeof(T));
      tile[wholly][lane] = make(rest);
    }
    for (int s = 0; s < n; ++s) {
      Word* at = out + stride * (first + s);
      if (whole) std::memcpy(at, tile[s], sizeof tile[s]);
      for (int lane = 0; !whole && lane < LANES; ++lane)
        if (lanes.row[lane]) at[lane] = tile[s][lane];
    }
  }
}

float float_of(float x) { return x; }
float float_of(double x) { return static_cast<float>(x); }
struct Bf16 { std::uint16_t bits; };
struct Half { std::uint16_t bits; };
float float_of(Bf16 x) { return from_bf16_bits(x.bits); }
float float_of(Half x) { return from_half_bits(x.bits); }

template <class T> std::uint32_t bf16_pair(const T* p) { return to_bf16_bits(float_of(p[0])) | std::uint32_t{to_bf16_bits(float_of(p[1]))} << 16; }
std::uint32_t bf16_pair(const Bf16* p) { return p[0].bits | std::uint32_t{p[1].bits} << 16; }

std::uint32_t bytes_word(const std::int8_t* p) {
  std::uint32_t word;
  std::memcpy(&word, p, 4);
  return word ^ 0x80808080u;
}

// Eight codes below 16: 0 2 4 6 in the nibbles of the lower half, 1 3 5 7 in those of the upper.
std::uint32_t nibbles_word(const std::int8_t* p) {
  std::uint64_t x;
  std::memcpy(&x, p, 8);
  std::uint64_t even = x & 0x000f000f000f000f, odd = x >> 8 & 0x000f000f000f000f;
  even = (even | even >> 12) & 0x000000ff000000ff, odd = (odd | odd >> 12) & 0x000000ff000000ff;
  return static_cast<std::uint32_t>(((even | even >> 24) & 0xffff) | ((odd | odd >> 24) & 0xffff) << 16);
}

// Calls task(panel, rows) for each panel that rows of a source reach; rows(v) are the numbers of the source's rows in the lanes of its
// vector v, -1 where there is none.
template <class Task> class Panels : public Work {
 public:
  Panels(Pool& pool, const Place& place, int rows, const Task& task)
      : Work(pool, 1), place_(place), rows_(rows), task_(task), wide_(place.half < 0 ? PANEL : PANEL / 2),
        first_(place.first / wide_), count_((place.first + rows - 1) / wide_ - first_ + 1) {}
  void run_phases(int thread) override {
    parallel_for(thread, count_, [this](int i) {
      const int panel = first_ + i, shift = place_.half < 0 ? 0 : place_.half * wide_;
      task_(panel, [this, panel, shift](int vec, int lane) {
        const int column = vec * LANES + lane - shift, row = panel * wide_ + column - place_.first;
        return column >= 0 && column < wide_ && row >= 0 && row < rows_ ? row : -1;
      });
    });
  }

 private:
  const Place place_;
  const int rows_;
  const Task task_;
  const int wide_, first_, count_;
};

template <class Task> void each_panel(Pool& pool, const Place& place, int rows, const Task& task) {
  if (rows > 0) pool.run(std::make_shared<Panels<Task>>(pool, place, rows, task));
}

template <class T, class RowOf> bool lanes_of(Lanes<T>& lanes, const T* source, std::size_t stride, int vec, const RowOf& row_of) {
  bool any = false;
  for (int lane = 0; lane < LANES; ++lane) {
    const int row = lanes.number[lane] = row_of(vec, lane);
    lanes.row[lane] = row < 0 ? nullptr : source + stride * row;
    any = any || row >= 0;
  }
  return any;
}

template <int PER, class Word, class T, class Make>
void pack_dense(Pool& pool, const Matrix& m, const Place& place, const T* source, int rows, const Make& make) {
  each_panel(pool, place, rows, [&m, &place, source, make](int panel, const auto& row_of) {
    const int width = m.width(panel);
    auto* out = reinterpret_cast<Word*>(m.panel(place.index, panel));
    for (int from = 0; from < m.k; from += BLOCK * PER)
      for (int vec = 0; vec < width / LANES; ++vec) {
        Lanes<T> lanes;
        if (!lanes_of(lanes, source, m.k, vec, row_of)) continue;
        transpose<PER>(lanes, from, std::min(BLOCK * PER, m.k - from), out + std::size_t(from / PER) * width + vec * LANES, width, make);
      }
  });
}

template <class T> void pack_from(Pool& pool, const Matrix& m, const Place& place, const T* source, int rows) {
  if (m.format == Format::bf16)
    return pack_dense<2, std::uint32_t>(pool, m, place, source, rows, [](const T* p) { return bf16_pair(p); });
  if (m.format == Format::f16)
    return pack_dense<1, std::uint16_t>(pool, m, place, source, rows, [](const T* p) { return to_half_bits(float_of(*p)); });
  pack_dense<1, float>(pool, m, place, source, rows, [](const T* p) { return float_of(*p); });
}

// One number for each lane, of rows that are `stride` numbers apart.
template <class Number> void copy_scales(const Lanes<std::int8_t>& lanes, const Number* from, int stride, Number* to) {
  for (int lane = 0; lane < LANES; ++lane)
    if (lanes.row[lane]) to[lane] = from[std::size_t(lanes.number[lane]) * stride];
}

template <int PER, class Scale, class Make>
void pack_groups(Pool& pool, const Matrix& m, const Place& place, const Coded& source, const Make& make) {
  each_panel(pool, place, source.rows, [&m, &place, source, make](int panel, const auto& row_of) {
    const auto *scales = static_cast<const Scale*>(source.scales), *mins = static_cast<const Scale*>(source.mins);
    const int width = m.width(panel), groups = m.num_groups();
    Lanes<std::int8_t> lanes[PANEL / LANES];
    bool any[PANEL / LANES];
    for (int vec = 0; vec < width / LANES; ++vec) any[vec] = lanes_of(lanes[vec], source.codes, m.k, vec, row_of);
    for (int g = 0; g < groups; ++g) {
      std::uint8_t* record = m.panel(place.index, panel) + m.record_bytes(width) * g;
      auto* to = reinterpret_cast<Scale*>(record + m.code_bytes(width));
      const int begin = g * m.group, end = std::min(m.k, begin + m.group);
      for (int from = begin; from < end; from += BLOCK * PER)
        for (int vec = 0; vec < width / LANES; ++vec)
          if (any[vec])
            transpose<PER>(lanes[vec], from, std::min(BLOCK * PER, end - from),
                           reinterpret_cast<std::uint32_t*>(record) + std::size_t((from - begin) / PER) * width + vec * LANES, width, make);
      for (int vec = 0; vec < width / LANES; ++vec) {
        if (!any[vec]) continue;
        copy_scales(lanes[vec], scales + g, groups, to + vec * LANES);
        if (mins) copy_scales(lanes[vec], mins + g, groups, to + width + vec * LANES);
      }
    }
  });
}

template <class Scale> void pack_coded(Pool& pool, const Matrix& m, const Place& place, const Coded& source) {
  if (m.format == Format::i8) return pack_groups<4, Scale>(pool, m, place, source, bytes_word);
  pack_groups<8, Scale>(pool, m, place, source, nibbles_word);
}

}  // namespace

void pack_numbers(Pool& pool, const Matrix& m, const Place& place, const void* numbers, Source source, int rows) {
  switch (source) {
    case Source::f32: return pack_from(pool, m, place, static_cast<const float*>(numbers), rows);
    case Source::f64: return pack_from(pool, m, place, static_cast<const double*>(numbers), rows);
    case Source::f16: return pack_from(pool, m, place, static_cast<const Half*>(numbers), rows);
    case Source::bf16: return pack_from(pool, m, place, static_cast<const Bf16*>(numbers), rows);
  }
}

void pack_codes(Pool& pool, const Matrix& m, const Place& place, const Coded& source) {
  if (m.scale_bytes == 2) return pack_coded<std::uint16_t>(pool, m, place, source);
  pack_coded<float>(pool, m, place, source);
}

}  // namespace penstock
