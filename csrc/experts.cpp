// Mixture of experts: routing, then the products of each expert with all of its rows.
#include <algorithm>
#include <cstring>

#include "model.h"

namespace penstock {

// Scores `in` [experts] -> softmax weights `out` [count] and ids `out2` [count] of the top experts, the lower id first among equals.
void Step::route(const Op& op, int row) {
  const int experts = width(op.in);
  std::vector<float> weights(at(op.in, row), at(op.in, row) + experts);
  model_.kernels_.softmax(weights.data(), experts);
  float *out = at(op.out, row), *ids = at(op.out2, row), total = 0;
  for (int i = 0; i < op.count; ++i) {
    int best = -1;
    for (int e = 0; e < experts; ++e)
      if (weights[e] >= 0 && (best < 0 || weights[e] > weights[best])) best = e;
    if (best < 0) best = 0;  // NaN scores: any expert
    out[i] = weights[best], ids[i] = static_cast<float>(best);
    total += weights[best];
    weights[best] = -1;
  }
  for (int i = 0; op.renormalize && i < op.count; ++i) out[i] /= total;
}

// Counting sort of (row, expert) pairs by expert. expert_rows_: pairs as row * experts_per_row + index, those of expert e from
// expert_starts_[e] on. active_experts_: experts that have rows, padded with -1.
void Step::sort_by_expert(const Op& op, int experts) {
  const int experts_per_row = width(op.in3);
  model_.expert_starts_.assign(experts + 1, 0);
  model_.expert_rows_.resize(std::size_t(batch_.rows) * experts_per_row);
  for (int r = 0; r < batch_.rows; ++r)
    for (int i = 0; i < experts_per_row; ++i) ++model_.expert_starts_[static_cast<int>(at(op.in3, r)[i]) + 1];
  for (int e = 0; e < experts; ++e) model_.expert_starts_[e + 1] += model_.expert_starts_[e];
  model_.active_experts_.assign(std::min(experts, batch_.rows * experts_per_row), -1);
  for (int e = 0, count = 0; e < experts; ++e)
    if (model_.expert_starts_[e + 1] > model_.expert_starts_[e]) model_.active_experts_[count++] = e;
  std::vector<int> next(model_.expert_starts_.begin(), model_.expert_starts_.end() - 1);
  for (int r = 0; r < batch_.rows; ++r)
    for (int i = 0; i < experts_per_row; ++i) model_.expert_rows_[next[static_cast<int>(at(op.in3, r)[i])]++] = r * experts_per_row + i;
}

// Rows of an active expert, on average, rounded up.
static int rows_per_expert(const Matrix& matrix, int pairs) {
  const int num_active = std::max(1, std::min(matrix.count, pairs));
  return (pairs + num_active - 1) / num_active;
}

// What the experts' products with `matrix` are given: row_of(pair) [k] of each pair.
template <class RowOf> void Step::convert_pairs(const Matrix& matrix, int pairs, int thread, const RowOf& row_of) {
  parallel_for(thread, pairs, [&](int i) {
    convert(matrix, row_of(i), operand(model_.shared_operand_, matrix, rows_per_expert(matrix, pairs)), i);
  });
}

// Multiplies each active expert's matrix with its pairs and adds its bias, if any. A task is a panel of an expert. take(pair, panel, sums)
// receives what is finished.
template <class Take> void Step::multiply_experts(const Matrix& matrix, int bias, int pairs, int thread, const Take& take) {
  const int panels = matrix.num_panels(), average = rows_per_expert(matrix, pairs);
  const auto multiply = [&](int expert, int panel, int num_panels) {
    const int first = model_.expert_starts_[expert], count = model_.expert_starts_[expert + 1] - first;
    const std::size_t sums_bytes = std::size_t(count) * PANEL * 4 * num_panels;
    std::uint8_t* at = scratch(thread, sums_bytes + model_.kernels_.unpacked_bytes + 64);
    const auto epilogue = [&](int p, int row, int rows, float* sums) {
      if (bias >= 0)
        model_.kernels_.add({sums, PANEL}, {vector(bias) + (std::size_t(expert) * panels + p) * PANEL, 0}, rows, PANEL, {sums, PANEL});
      for (int i = 0; i < rows; ++i) take(first + row + i, p, sums + std::size_t(i) * PANEL);
    };
    model_.kernels_.linear({matrix, expert, panel, num_panels, operand(model_.shared_operand_, matrix, average).at_row(first), count,
                            make_epilogue(epilogue), reinterpret_cast<float*>(at), at + sums_bytes, model_.reads_memory(),
                            model_.stream_prefetch(matrix, count), model_.machine_});
  };
  const RunLength length = fits_private_operand(average, matrix.k_padded) ? panels_in_run(matrix) : RunLength{};
  parallel_for_runs(thread, std::min(matrix.count, pairs) * panels, length, [] {}, [&](int task, int end) {
    for (int next; task < end; task = next) {  // a run may go from one expert to the next
      next = std::min(end, (task / panels + 1) * panels);
      if (const int expert = model_.active_experts_[task / panels]; expert >= 0) multiply(expert, task % panels, next - task);
    }
  });
}

// The weighted sum of what a row's experts gave, by ascending id.
void Step::sum_experts(const Op& op, int row) const {
  const int experts_per_row = width(op.in3), hidden = width(op.out);
  const float *ids = at(op.in3, row), *weights = at(op.in2, row);
  float* out = at(op.out, row);
  std::memset(out, 0, std::size_t(hidden) * 4);
  std::vector<int> order(experts_per_row);
  for (int i = 0; i < experts_per_row; ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](int a, int c) { return ids[a] < ids[c]; });
  for (int i : order) {
    const float* from = model_.expert_out_.floats() + (std::size_t(row) * experts_per_row + i) * hidden;
    for (int d = 0; d < hidden; ++d) out[d] += from[d] * weights[i];
  }
}

// in [hidden], in2 weights, in3 ids -> out [hidden]: the sum over a row's experts of weight * down(act(gate x) * up x), each with its bias.
void Step::experts(const Op& op, int thread) {
  const Matrix &gate_up = model_.matrices_[op.matrix], &down = model_.matrices_[op.matrix2];
  const int experts_per_row = width(op.in3), pairs = batch_.rows * experts_per_row, inner = down.k, hidden = down.n;
  parallel_for(thread, 1, [&](int) {
    sort_by_expert(op, gate_up.count);
    model_.expert_hidden_.grow(std::size_t(pairs) * inner * 4);
    model_.expert_out_.grow(std::size_t(pairs) * hidden * 4);
  });
  const auto hidden_row = [&](int i) { return model_.expert_hidden_.floats() + std::size_t(i) * inner; };
  convert_pairs(gate_up, pairs, thread, [&](int i) { return at(op.in, model_.expert_rows_[i] / experts_per_row); });
  multiply_experts(gate_up, op.bias, pairs, thread, [&](int i, int panel, const float* sums) {
    const int column = panel * PANEL / 2, columns = std::min(PANEL / 2, inner - column);
    if (columns > 0) gate(op, {sums, 0}, {sums + PANEL / 2, 0}, 1, columns, {hidden_row(i) + column, 0});
  });
  convert_pairs(down, pairs, thread, hidden_row);
  multiply_experts(down, op.bias2, pairs, thread, [&](int i, int panel, const float* sums) {
    const int column = panel * PANEL, columns = std::min(PANEL, hidden - column);
    std::memcpy(model_.expert_out_.floats() + std::size_t(model_.expert_rows_[i]) * hidden + column, sums, std::size_t(columns) * 4);
  });
  parallel_for_rows(thread, batch_.rows, [&](int row) { sum_experts(op, row); });
}

}  // namespace penstock
