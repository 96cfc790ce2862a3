// Execution of a program: the sequence of operations, and those that work row by row.
#include <cmath>
#include <cstring>

#include "model.h"

namespace penstock {

Step::Step(Model& model, Batch batch) : Work(*model.pool_, model.phases_), model_(model), batch_(std::move(batch)), int8_(model.int8_) {
  std::vector<std::size_t> sizes;
  for (int i = 0; i < model_.num_buffers(); ++i) {
    Buffer& buffer = model_.buffers_[i];
    if (buffer.arena_slot >= static_cast<int>(sizes.size())) sizes.resize(buffer.arena_slot + 1, 0);
    buffer.size = model_.buffer_size(i, batch_);
    sizes[buffer.arena_slot] = std::max(sizes[buffer.arena_slot], (buffer.size + 31) / 16 * 16);
  }
  std::vector<std::size_t> starts(sizes.size() + 1, 0);
  for (std::size_t i = 0; i < sizes.size(); ++i) starts[i + 1] = starts[i] + sizes[i];
  model_.arena_.grow(starts.back() * 4);
  for (Buffer& buffer : model_.buffers_) buffer.data = model_.arena_.floats() + starts[buffer.arena_slot];
  for (const auto& [buffer, at] : batch_.given) model_.buffers_[buffer].data = at;
  const std::size_t max_rows = std::size_t(std::max(batch_.rows, batch_.logits)) * model_.max_experts_per_row_;
  model_.shared_operand_.grow(max_rows * model_.row_bytes_, max_rows * model_.row_groups_);
  for (RopeTable& a : model_.rope_tables_) {
    const std::size_t bytes = std::size_t(batch_.rows) * a.frequencies.size() * 4;
    a.cosines.grow(bytes), a.sines.grow(bytes);
  }
  plan_attention();
}

// Computes the rotary tables for the rows' positions, and looks up embeddings.
void Step::prologue(int thread) {
  parallel_for_rows(thread, batch_.rows, [&](int row) {
    for (RopeTable& a : model_.rope_tables_) {
      float *cosines = a.cosines_of(row), *sines = a.sines_of(row);
      for (int i = 0; i < a.pairs(); ++i) {
        const double angle = static_cast<float>(batch_.positions[row]) * a.frequencies[i];
        cosines[i] = static_cast<float>(std::cos(angle)) * a.scale;
        sines[i] = static_cast<float>(std::sin(angle)) * a.scale;
      }
    }
    for (const Op& op : model_.ops_) {
      if (op.kind != Kind::embed) continue;
      const Matrix& table = model_.matrices_[op.matrix];
      float* out = at(op.out, row);
      model_.kernels_.dequantize_row(table, 0, static_cast<int>(batch_.tokens[row]), out);
      for (int i = 0; op.scale != 1.0f && i < table.k; ++i) out[i] *= op.scale;
    }
  });
}

void Step::run_phases(int thread) {
  prologue(thread);
  for (const Op& op : model_.ops_) {
    if (op.only_if_wanted && !batch_.wanted[op.out]) continue;
    switch (op.kind) {
      case Kind::embed: break;
      case Kind::linear: linear(op, thread); break;
      case Kind::heads: heads(op, thread); break;
      case Kind::attention: attention(op, thread); break;
      case Kind::experts: experts(op, thread); break;
      default: parallel_for_rows(thread, rows(op), [&](int row) { row_op(op, row); });
    }
  }
  model_.kernels_.release_tiles();
}

void Step::rotate(const Op& op, int row, float* heads, int count) const {
  const RopeTable& a = model_.rope_tables_[op.rope_table];
  model_.kernels_.rope({heads, std::size_t(op.dim)}, count, a.cosines_of(row), a.sines_of(row), a.pairs());
}

void Step::row_op(const Op& op, int row) {
  const float* in = input_row(op, row);
  float* out = op.out < 0 ? nullptr : at(op.out, row);
  const Kernels& k = model_.kernels_;
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
    case Kind::rope:
      std::memcpy(out, in, std::size_t(width(op.out)) * 4);
      rotate(op, row, out, op.heads);
      break;
    case Kind::kv_write:
      for (int h = 0; h < op.kv_heads; ++h)
        model_.write_token(op.layer, h, batch_.slots[row], in + h * op.dim, at(op.in2, row) + h * op.dim);
      break;
    default: break;
  }
}

}  // namespace penstock
