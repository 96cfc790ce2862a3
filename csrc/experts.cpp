// Mixtures of experts: each row is sent to a few gated blocks, whose products are made expert by expert for all their rows.
#include <algorithm>
#include <cstring>

#include "model.h"

namespace penstock {

// Scores in `in` [experts] -> the heaviest experts' shares in `out` and numbers in `out2`, the lower number first among equals.
void Step::route(const Op& op, int row) {
  const int experts = width(op.in);
  std::vector<float> shares(at(op.in, row), at(op.in, row) + experts);
  m.kernels_.softmax(shares.data(), experts);
  float *out = at(op.out, row), *ids = at(op.out2, row), total = 0;
  for (int i = 0; i < op.count; ++i) {
    int best = -1;
    for (int e = 0; e < experts; ++e)
      if (shares[e] >= 0 && (best < 0 || shares[e] > shares[best])) best = e;
    if (best < 0) best = 0;  // not a number: any expert is as good
    out[i] = shares[best], ids[i] = static_cast<float>(best);
    total += shares[best];
    shares[best] = -1;
  }
  for (int i = 0; op.renormalize && i < op.count; ++i) out[i] /= total;
}

// expert_rows_: (row, place among the row's experts) pairs as row * count + place, those of expert e from expert_starts_[e] on.
// busy_: the experts that have rows, and -1 where fewer have than may.
void Step::sort_by_expert(const Op& op, int experts) {
  const int taken = width(op.in3);
  m.expert_starts_.assign(experts + 1, 0);
  m.expert_rows_.resize(std::size_t(b.rows) * taken);
  for (int r = 0; r < b.rows; ++r)
    for (int i = 0; i < taken; ++i) ++m.expert_starts_[static_cast<int>(at(op.in3, r)[i]) + 1];
  for (int e = 0; e < experts; ++e) m.expert_starts_[e + 1] += m.expert_starts_[e];
  m.busy_.assign(std::min(experts, b.rows * taken), -1);
  for (int e = 0, count = 0; e < experts; ++e)
    if (m.expert_starts_[e + 1] > m.expert_starts_[e]) m.busy_[count++] = e;
  std::vector<int> next(m.expert_starts_.begin(), m.expert_starts_.end() - 1);
  for (int r = 0; r < b.rows; ++r)
    for (int i = 0; i < taken; ++i) m.expert_rows_[next[static_cast<int>(at(op.in3, r)[i])]++] = r * taken + i;
}

// in [hidden], in2 shares, in3 experts -> out: the sum, in the order of the experts' numbers, of share * down(act(gate x) * up x).
void Step::experts(const Op& op, int thread) {
  const Matrix &gate_up = m.matrices_[op.matrix], &down = m.matrices_[op.matrix2];
  const int taken = width(op.in3), pairs = b.rows * taken, inner = down.k, hidden = down.n;
  const int busy = std::max(1, std::min(gate_up.count, pairs)), each = (pairs + busy - 1) / busy;  // rows of an expert, about
  share(thread, 1, [&](int) {
    sort_by_expert(op, gate_up.count);
    m.middle_.grow(std::size_t(pairs) * inner * 4);
    m.routed_.grow(std::size_t(pairs) * hidden * 4);
  });
  share(thread, pairs, [&](int i) { convert(gate_up, at(op.in, m.expert_rows_[i] / taken), operand(m.shared_, gate_up, each), i); });
  const auto product = [&](const Matrix& matrix, auto store) {
    const int panels = matrix.num_panels();
    share(thread, std::min(matrix.count, pairs) * panels, [&](int task) {
      const int expert = m.busy_[task / panels], panel = task % panels;
      if (expert < 0) return;
      const int first = m.expert_starts_[expert], count = m.expert_starts_[expert + 1] - first;
      const std::size_t sums = std::size_t(count) * PANEL * 4;
      std::uint8_t* at = scratch(thread, sums + m.kernels_.unpacked_bytes + 64);
      const auto done = [&](int p, int row, int rows, const float* of) {
        for (int i = 0; i < rows; ++i) store(first + row + i, p, of + std::size_t(i) * PANEL);
      };
      m.kernels_.linear({matrix, expert, panel, 1, operand(m.shared_, matrix, each).from(first), count, finish_by(done),
                         reinterpret_cast<float*>(at), at + sums, m.soon()});
    });
  };
  product(gate_up, [&](int i, int panel, const float* sums) {
    const int column = panel * PANEL / 2, wide = std::min(PANEL / 2, inner - column);
    if (wide > 0) m.kernels_.act_mul(op.activation, {sums, 0}, {sums + PANEL / 2, 0}, 1, wide, {m.middle_.floats() + std::size_t(i) * inner + column, 0});
  });
  share(thread, pairs, [&](int i) { convert(down, m.middle_.floats() + std::size_t(i) * inner, operand(m.shared_, down, each), i); });
  product(down, [&](int i, int panel, const float* sums) {
    const int column = panel * PANEL, wide = std::min(PANEL, hidden - column);
    std::memcpy(m.routed_.floats() + std::size_t(m.expert_rows_[i]) * hidden + column, sums, std::size_t(wide) * 4);
  });
  share_rows(thread, b.rows, [&](int row) {
    float* out = at(op.out, row);
    std::memset(out, 0, std::size_t(hidden) * 4);
    std::vector<int> order(taken);
    for (int i = 0; i < taken; ++i) order[i] = i;
    const float *ids = at(op.in3, row), *shares = at(op.in2, row);
    std::sort(order.begin(), order.end(), [&](int a, int c) { return ids[a] < ids[c]; });
    for (int i : order) {
      const float* from = m.routed_.floats() + (std::size_t(row) * taken + i) * hidden;
      for (int d = 0; d < hidden; ++d) out[d] += from[d] * shares[i];
    }
  });
}

}  // namespace penstock
