// The linear operation: optional RMS norm and conversion of the rows, the product with a packed matrix, and the epilogue (bias, gated
// activation, residual, soft cap).
//
// Two phases: rows are converted to the operand (by each thread for itself if they are few), then tasks of [some rows x a few panels] are
// distributed. The size of a task affects no result: see panel.h and amx.h.
#include "model.h"

#include <cstring>

namespace penstock {

namespace {

bool takes_float(const Matrix& matrix) { return matrix.format == Format::f32 || matrix.format == Format::f16; }

}  // namespace

bool Step::wants_fixed16(const Matrix& matrix) const { return matrix.has_codes() && !int8_ && model_.kernels_.takes_fixed16(matrix); }

// The operand for `rows` rows of products with `matrix`, in memory that is large enough for any of the step.
Operand Step::operand(const OperandMemory& memory, const Matrix& matrix, int rows) const {
  Operand o;
  const bool fixed16 = wants_fixed16(matrix);
  o.int8 = matrix.has_codes() && int8_;
  o.amx_row_bytes = (fixed16 || o.int8) && model_.kernels_.amx_row_bytes ? model_.kernels_.amx_row_bytes(matrix, rows, o.int8) : 0;
  o.split = fixed16 && !o.amx_row_bytes && model_.kernels_.splits_fixed16(matrix, rows);
  o.groups = matrix.num_groups() * (fixed16 ? matrix.k_blocks_in_group() : 1);
  const Kernels& k = model_.kernels_;
  const int plain_bytes = o.int8 ? k.int8_elem_bytes : fixed16 ? 2 : takes_float(matrix) ? 4 : k.bf16_elem_bytes;  // of an element
  o.stride = std::size_t(matrix.k_padded) * (o.amx_row_bytes ? o.amx_row_bytes : plain_bytes) + ROW_PADDING;
  o.data = memory.data.data();
  if (o.int8 || fixed16) o.scales = memory.scales.floats(), o.acc_init = reinterpret_cast<std::int32_t*>(memory.acc_init.data());
  if (matrix.has_mins && !matrix.dequantized) o.group_sums = memory.group_sums.floats();
  return o;
}

// x [k] -> row `row` of the operand.
void Step::convert(const Matrix& matrix, const float* x, const Operand& rows, int row) const {
  const Operand o = rows.at_row(row);
  const Kernels& k = model_.kernels_;
  if (o.scales) {
    const IntegerRow to_int8 = o.amx_row_bytes ? k.int8_to_amx : k.to_int8;
    const IntegerRow to_fixed16 = o.amx_row_bytes ? k.fixed16_to_amx : o.split ? k.to_split_fixed16 : k.to_fixed16;
    *o.scales = (o.int8 ? to_int8 : to_fixed16)(x, matrix.k, matrix, o.data, o.acc_init, o.group_sums);
  } else if (takes_float(matrix)) {
    std::memcpy(o.data, x, std::size_t(matrix.k) * 4);
    std::memset(o.data + std::size_t(matrix.k) * 4, 0, std::size_t(matrix.k_padded - matrix.k) * 4);
  } else {
    k.to_bf16_row(x, matrix.k, matrix.k_padded, o.data, matrix.group, o.group_sums);
  }
}

// Row `row` of the input, normed if the operation has a weight -> the operand.
void Step::prepare_row(const Op& op, const Matrix& matrix, const Operand& to, int row, float* normed) const {
  const float* x = input_row(op, row);
  for (int i = 0; row + 1 < rows(op) && i < matrix.k; i += 16) __builtin_prefetch(input_row(op, row + 1) + i);  // many rows are in L3 only
  if (op.weight >= 0) {
    model_.kernels_.rms_norm(x, vector(op.weight), op.eps, op.offset, matrix.k, normed);
    x = normed;
  }
  convert(matrix, x, to, row);
}

// Finished accumulators [count, PANEL] of rows first .. first + count - 1 -> the output. Panels of gated products hold 32 columns of
// gate, then the same 32 of up.
void Step::epilogue(const Op& op, int panel, int first, int count, float* sums) const {
  const int n = op.gated() ? PANEL / 2 : PANEL, column = panel * n, columns = std::min(n, width(op.out) - column);
  const auto rows_of = [&](int buffer) { return Rows{at(buffer, first) + column, std::size_t(width(buffer))}; };
  const ConstRows from{sums, PANEL};
  const Rows out = rows_of(op.out);
  if (op.bias >= 0) model_.kernels_.add(from, {vector(op.bias) + panel * PANEL, 0}, count, op.gated() ? PANEL : columns, {sums, PANEL});
  if (op.gated()) return gate(op, from, {sums + PANEL / 2, PANEL}, count, columns, out);
  // What the next block of rows will be added to is far apart in memory.
  for (int r = first + count; op.residual >= 0 && r < std::min(first + 2 * count, rows(op)); ++r)
    for (int c = column; c < column + columns; c += 16) __builtin_prefetch(at(op.residual, r) + c);
  if (op.residual >= 0) return model_.kernels_.add(rows_of(op.residual).as_const(), from, count, columns, out);
  if (op.cap == 0) return model_.kernels_.copy(from, count, columns, out);
  for (int r = 0; r < count; ++r) model_.kernels_.softcap(from.row(r), op.cap, columns, out.row(r));
}

void Step::linear(const Op& op, int thread) {
  const Matrix& matrix = model_.matrices_[op.matrix];
  const Kernels& k = model_.kernels_;
  const int num_rows = rows(op), panels = matrix.num_panels();
  if (num_rows == 0) return;
  const int max_rows = k.m_block_bytes / (wants_fixed16(matrix) ? 2 : k.bf16_elem_bytes);  // of a task
  const int m_blocks = (num_rows + max_rows - 1) / max_rows, rows_per_block = (num_rows + m_blocks - 1) / m_blocks;
  const bool is_private = fits_private_operand(num_rows, matrix.k_padded);
  const auto x = [&] { return operand(is_private ? model_.private_operands_[thread] : model_.shared_operand_, matrix, num_rows); };
  const auto normed = [&] { return reinterpret_cast<float*>(scratch(thread, std::size_t(matrix.k) * 4 + 64)); };
  if (!is_private) parallel_for_rows(thread, num_rows, [&](int row) { prepare_row(op, matrix, x(), row, normed()); });
  const auto prepare = [&] {
    for (int row = 0; is_private && row < num_rows; ++row) prepare_row(op, matrix, x(), row, normed());
  };
  const int panels_per_call = k.panels_per_call(matrix, std::min(max_rows, num_rows));
  const int panels_per_task = std::max(1, std::min(panels_per_call, panels / (2 * model_.pool_->size())));
  const int panel_groups = (panels + panels_per_task - 1) / panels_per_task;
  const RunLength length = is_private && m_blocks == 1 ? panels_in_run(matrix) : RunLength{};  // a run has one block of rows
  parallel_for_runs(thread, panel_groups * m_blocks, length, prepare, [&](int task, int end) {
    const int panel = task % panel_groups * panels_per_task, num_panels = std::min((end - task) * panels_per_task, panels - panel);
    const int first = task / panel_groups * rows_per_block, count = std::min(rows_per_block, num_rows - first);
    if (count <= 0) return;
    const std::size_t panel_bytes = std::size_t(count) * PANEL * 4;
    std::uint8_t* at = scratch(thread, panel_bytes * num_panels + k.unpacked_bytes + 64);
    const auto run = [&](int p, int row, int rows, float* sums) { epilogue(op, p, first + row, rows, sums); };
    k.linear({matrix, 0, panel, num_panels, x().at_row(first), count, make_epilogue(run), reinterpret_cast<float*>(at),
              at + panel_bytes * num_panels, model_.reads_memory(), model_.stream_prefetch(matrix, count), model_.machine_});
  });
}

}  // namespace penstock
