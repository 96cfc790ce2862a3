// Products with packed matrices, and what comes before and after them in the same pass: a norm, the form of the rows; a bias, a
// residual, a gate.
#include "model.h"

#include <cstring>

namespace penstock {

namespace {

bool has_codes(const Matrix& matrix) { return matrix.format == Format::i8 || matrix.format == Format::i4; }
bool wants_float(const Matrix& matrix) { return matrix.format == Format::f32 || matrix.format == Format::f16; }

}  // namespace

bool Step::wants_words(const Matrix& matrix) const { return has_codes(matrix) && !int8_ && m.kernels_.takes_words(matrix); }

// Where rows stand in the form that `matrix` takes; there is room for all that a step may need.
Operand Step::operand(const OperandMemory& memory, const Matrix& matrix, int rows) const {
  Operand o;
  const bool words = wants_words(matrix);
  o.int8 = has_codes(matrix) && int8_;
  o.split = (words || o.int8) && m.kernels_.split ? m.kernels_.split(matrix, rows, o.int8) : 0;
  o.groups = matrix.num_groups() * (words ? matrix.sums_in_group() : 1);
  o.stride = std::size_t(matrix.k_padded) * (o.split ? o.split : o.int8 ? 1 : words ? 2 : wants_float(matrix) ? 4 : m.kernels_.row_number) + ROW_GAP;
  o.data = memory.data.data();
  if (o.int8 || words) o.scales = memory.scales.floats(), o.begins = reinterpret_cast<const std::int32_t*>(memory.begins.data());
  if (matrix.has_mins) o.totals = memory.totals.floats();
  return o;
}

// x [k] -> row `row` of the operand.
void Step::convert(const Matrix& matrix, const float* x, const Operand& rows, int row) const {
  const Operand o = rows.from(row);
  auto* data = const_cast<std::uint8_t*>(o.data);
  auto* totals = const_cast<float*>(o.totals);
  if (o.int8) {
    const auto to = o.split ? m.kernels_.int8_to_split : m.kernels_.to_int8;
    *const_cast<float*>(o.scales) = to(x, matrix.k, matrix, reinterpret_cast<std::int8_t*>(data), const_cast<std::int32_t*>(o.begins), totals);
  } else if (o.scales) {
    const auto to = o.split ? m.kernels_.words_to_split : m.kernels_.to_words;
    *const_cast<float*>(o.scales) = to(x, matrix.k, matrix, data, const_cast<std::int32_t*>(o.begins), totals);
  } else if (wants_float(matrix)) {
    std::memcpy(data, x, std::size_t(matrix.k) * 4);
    std::memset(data + std::size_t(matrix.k) * 4, 0, std::size_t(matrix.k_padded - matrix.k) * 4);
  } else {
    m.kernels_.to_row(x, matrix.k, matrix.k_padded, data, matrix.group, totals);
  }
}

void Step::prepare_row(const Op& op, const Matrix& matrix, const Operand& to, int row, int target, float* normed) const {
  const float* x = source(op, row);
  if (op.weight >= 0) {
    m.kernels_.rms_norm(x, vector(op.weight), op.eps, op.offset, matrix.k, normed);
    x = normed;
  }
  convert(matrix, x, to, target);
}

// Sums of one panel, [count][PANEL] for the rows from `first` on -> the output.
void Step::finish(const Op& op, int panel, int first, int count, float* sums) const {
  const int n = op.gated() ? PANEL / 2 : PANEL, column = panel * n, wide = std::min(n, width(op.out) - column);
  const auto place = [&](int buffer) { return To{at(buffer, first) + column, std::size_t(width(buffer))}; };
  const From from{sums, PANEL};
  const To out = place(op.out);
  if (op.bias >= 0) m.kernels_.add(from, {vector(op.bias) + panel * PANEL, 0}, count, op.gated() ? PANEL : wide, {sums, PANEL});
  if (op.gated()) return m.kernels_.act_mul(op.activation, from, {sums + PANEL / 2, PANEL}, count, wide, out);
  if (op.residual >= 0) return m.kernels_.add(place(op.residual).read(), from, count, wide, out);
  if (op.cap == 0) return m.kernels_.copy(from, count, wide, out);
  for (int r = 0; r < count; ++r) m.kernels_.softcap(from.row(r), op.cap, wide, out.row(r));
}

// in (normed by weight) x matrix (+ bias): then activation(gate) * up of panels that hold both, or + residual, or a soft cap.
void Step::linear(const Op& op, int thread) {
  const Matrix& matrix = m.matrices_[op.matrix];
  const int many = m.kernels_.piece_bytes / (wants_words(matrix) ? 2 : m.kernels_.row_number), all = rows(op), panels = matrix.num_panels();
  const int pieces = (all + many - 1) / many;
  if (all == 0) return;
  const bool own = few(all, matrix.k_padded);
  const auto x = [&] { return operand(own ? m.own_[thread] : m.shared_, matrix, all); };
  const auto normed = [&] { return reinterpret_cast<float*>(scratch(thread, std::size_t(matrix.k) * 4 + 64)); };
  if (!own) share_rows(thread, all, [&](int row) { prepare_row(op, matrix, x(), row, row, normed()); });
  const auto prepare = [&] {
    for (int row = 0; own && row < all; ++row) prepare_row(op, matrix, x(), row, row, normed());
  };
  const int together = std::max(1, std::min(m.kernels_.panels_at_once(matrix, std::min(many, all)), panels / (2 * m.pool_->size())));
  const int groups = (panels + together - 1) / together, most = (all + pieces - 1) / pieces;
  share(thread, groups * pieces, prepare, [&](int task) {
    const int panel = task % groups * together, some = std::min(together, panels - panel);
    const int first = task / groups * most, count = std::min(most, all - first);
    if (count <= 0) return;
    const std::size_t sums = std::size_t(count) * PANEL * 4;
    std::uint8_t* at = scratch(thread, sums * some + m.kernels_.unpacked_bytes + 64);
    const auto done = [&](int p, int row, int rows, float* sums) { finish(op, p, first + row, rows, sums); };
    m.kernels_.linear({matrix, 0, panel, some, x().from(first), count, finish_by(done), reinterpret_cast<float*>(at),
                       at + sums * some, m.soon()});
  });
}

}  // namespace penstock
