// Execution of a program: the sequence of operations, and those that work row by row.
#include <cmath>
#include <cstring>

#include "model.h"

namespace penstock {

Step::Step(Model& model, Batch batch) : Work(*model.pool_, model.phases_), m(model), b(std::move(batch)), int8_(model.int8_) {
  std::vector<std::size_t> sizes;
  for (int i = 0; i < m.num_buffers(); ++i) {
    Buffer& buffer = m.buffers_[i];
    if (buffer.arena_slot >= static_cast<int>(sizes.size())) sizes.resize(buffer.arena_slot + 1, 0);
    buffer.size = m.buffer_size(i, b);
    sizes[buffer.arena_slot] = std::max(sizes[buffer.arena_slot], (buffer.size + 31) / 16 * 16);
  }
  std::vector<std::size_t> starts(sizes.size() + 1, 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) starts[i + 1] = starts[i] + sizes[i];
  m.arena_.grow(starts.back() * 4);
  for (Buffer& buffer : m.buffers_) buffer.data = m.arena_.floats() + starts[buffer.arena_slot];
  for (const auto& [buffer, at] : b.given) m.buffers_[buffer].data = at;
  const std::size_t max_rows = std::size_t(std::max(b.rows, b.logits)) * m.max_experts_per_row_;
  m.shared_operand_.grow(max_rows * m.row_bytes_, max_rows * m.row_groups_);
  for (RopeTable& a : m.rope_tables_) {
    const std::size_t bytes = std::size_t(b.rows) * a.frequencies.size() * 4;
    a.cosines.grow(bytes), a.sines.grow(bytes);
  }
  plan_attention();
}

// Computes the rotary tables for the rows' positions, and looks up embeddings.
void Step::prologue(int thread) {
  parallel_for_rows(thread, b.rows, [&](int row) {
    for (RopeTable& a : m.rope_tables_) {
      const std::size_t pairs = a.frequencies.size();
      float *cosines = a.cosines.floats() + pairs * row, *sines = a.sines.floats() + pairs * row;
      for (std::size_t i = 0; i < pairs; ++i) {
        const double angle = static_cast<float>(b.positions[row]) * a.frequencies[i];
        cosines[i] = static_cast<float>(std::cos(angle)) * a.scale;
        sines[i] = static_cast<float>(std::sin(angle)) * a.scale;
      }
    }
    for (const Op& op : m.ops_) {
      if (op.kind != Kind::embed) continue;
      const Matrix& table = m.matrices_[op.matrix];
      float* out = at(op.out, row);
      m.kernels_.dequantize_row(table, 0, static_cast<int>(b.tokens[row]), out);
      for (int i = 0; op.scale != 1.0f && i < table.k; ++i) out[i] *= op.scale;
    }
  });
}

void Step::run_phases(int thread) {
  prologue(thread);
  for (const Op& op : m.ops_) {
    if (op.only_if_wanted && !b.wanted[op.out]) continue;
    switch (op.kind) {
      case Kind::embed: break;
      case Kind::linear: linear(op, thread); break;
      case Kind::heads: heads(op, thread); break;
      case Kind::attention: attention(op, thread); break;
      case Kind::experts: experts(op, thread); break;
      default: parallel_for_rows(thread, rows(op), [&](int row) { row_op(op, row); });
    }
  }
  m.kernels_.release_tiles();
}

void Step::row_op(const Op& op, int row) {
  const float* in = input_row(op, row);
  float* out = op.out < 0 ? nullptr : at(op.out, row);
  const Kernels& k = m.kernels_;
  switch (op.kind) {
    case Kind::norm:  // over each of `heads` vectors of `dim`
      for (int h = 0; h < op.heads; ++h) k.rms_norm(in + h * op.dim, vector(op.weight), op.eps, op.offset, op.dim, out + h * op.dim);
      break;
    case Kind::act_mul: gate(op, {in, 0}, {in + width(op.out), 0}, 1, width(op.out), {out, 0}); break;
    case Kind::add: k.add({in, 0}, {at(op.in2, row), 0}, 1, width(op.out), {out, 0}); break;
    case Kind::gather: std::memcpy(out, in, std::size_t(width(op.out)) * 4); break;
    case Kind::softcap: k.softcap(in, op.cap, width(op.out), out); break;
    case Kind::route: route(op, row); break;
    case Kind::split:
      for (const int part : {op.out, op.out2, op.out3}) {
        if (part < 0) break;
        std::memcpy(at(part, row), in, std::size_t(width(part)) * 4);
        in += width(part);
      }
      break;
    case Kind::rope: {
      const RopeTable& a = m.rope_tables_[op.rope_table];
      const std::size_t pairs = a.frequencies.size();
      std::memcpy(out, in, std::size_t(width(op.out)) * 4);
      k.rope({out, std::size_t(op.dim)}, op.heads, a.cosines.floats() + pairs * row, a.sines.floats() + pairs * row, static_cast<int>(pairs));
      break;
    }
    case Kind::kv_write:
      for (int h = 0; h < op.kv_heads; ++h) m.write_token(op.layer, h, b.slots[row], in + h * op.dim, at(op.in2, row) + h * op.dim);
      break;
    default: break;
  }
}

}  // namespace penstock
