#include "model.h"

#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <stdexcept>

#include "numbers.h"

namespace penstock {

Model::Model(std::shared_ptr<Pool> pool, const Kernels& kernels, bool bf16, bool int8_activations, bool dequantize)
    : kernels_(kernels), bf16_(bf16), int8_(int8_activations), dequantize_(dequantize),
      machine_(features()), cache_prefetch_(machine_.zen5 ? StreamPrefetch{16384, true} : StreamPrefetch{}),  // slower on Zen 4
      private_operands_(pool->size()), scratch_(pool->size()), pool_(std::move(pool)) {
  for (auto& each : private_operands_) each.grow(PRIVATE_OPERAND_FLOATS * 4, PRIVATE_OPERAND_FLOATS);
}

int Model::add_buffer(int width, bool by_logits, int arena_slot) {
  buffers_.push_back({width, by_logits, arena_slot});
  return static_cast<int>(buffers_.size()) - 1;
}

int Model::add_vector(const float* values, std::size_t count) {
  vectors_.emplace_back(values, values + count);
  vectors_.back().resize(round_up(count, PANEL), 0.0f);  // the epilogue reads whole panels
  return static_cast<int>(vectors_.size()) - 1;
}

void Model::reserve(std::size_t bytes) {
  weights_ = Memory(bytes);
  weights_used_ = 0;
}

int Model::add_matrix(const Matrix& matrix) {
  const std::size_t bytes = round_up(matrix.bytes() + 64, 64);
  if (weights_used_ + bytes > weights_.bytes()) throw std::length_error("more matrices than memory was reserved for");
  matrices_.push_back(matrix);
  matrices_.back().data = weights_.data() + weights_used_;
  matrices_.back().dequantized = dequantize_ && matrix.may_be_dequantized();
  weights_used_ += bytes;
  row_bytes_ = std::max(row_bytes_, std::size_t(matrix.k_padded) * 4 + ROW_PADDING);
  row_groups_ = std::max(row_groups_, std::size_t(matrix.num_groups()) * matrix.k_blocks_in_group());
  return static_cast<int>(matrices_.size()) - 1;
}

// As measured (docs/LOG.md). The hardware prefetcher of Intel's cores stays too close to a single stream from memory, that of Zen 5 where
// there is arithmetic between loads; that of Zen 4 is hindered by more requests.
StreamPrefetch Model::stream_prefetch(const Matrix& matrix, int rows) const {
  if (!reads_memory()) return {};
  if (machine_.intel) return {4096, false};
  const bool only_loads = matrix.bits() >= 16 && rows == 1;
  return machine_.zen5 && !only_loads ? StreamPrefetch{8192, true} : StreamPrefetch{};
}

int Model::add_rope_table(const float* frequencies, int count, float scale) {
  rope_tables_.push_back({std::vector<float>(frequencies, frequencies + count), scale, Memory(), Memory()});
  return static_cast<int>(rope_tables_.size()) - 1;
}

void Model::add_op(const Op& op) {
  const auto check_all = [](const char* what, std::initializer_list<int> indices, std::size_t count) {  // -1: there is none
    for (const int index : indices)
      if (index != -1) check_index(what, index, static_cast<std::int64_t>(count));
  };
  check_all("buffer", {op.in, op.in2, op.in3, op.out, op.out2, op.out3, op.residual}, buffers_.size());
  check_all("matrix", {op.matrix, op.matrix2}, matrices_.size());
  check_all("vector", {op.weight, op.weight2, op.bias, op.bias2, op.sinks}, vectors_.size());
  check_all("rope table", {op.rope_table}, rope_tables_.size());
  check_all("layer", {op.layer}, caches_.size());
  if (op.kind == Kind::embed && !ops_.empty() && ops_.back().kind != Kind::embed)
    throw std::invalid_argument("embeddings are looked up before everything else: they come first in a program");
  if (op.kind == Kind::experts) max_experts_per_row_ = std::max(max_experts_per_row_, buffers_[op.in3].width);
  phases_ += op.kind == Kind::experts ? 7 : 3;
  ops_.push_back(op);
}

void Model::add_cache(int layers, int heads, int dim, std::size_t slots, int block_size) {
  block_size_ = block_size;
  Cache c;
  c.bf16 = bf16_, c.heads = heads, c.dim = dim, c.padded = static_cast<int>(round_up(dim, LANES));
  const std::size_t half = c.chunk_bytes();
  c.slots = slots, c.chunk_stride = 2 * half * layers;
  cache_memory_ = Memory(c.chunk_stride * (round_up(slots, CHUNK) / CHUNK));
  for (int layer = 0; layer < layers; ++layer) {
    c.keys = cache_memory_.data() + 2 * half * layer, c.values = c.keys + half;
    caches_.push_back(c);
  }
}

std::size_t Model::weight_bytes() const {
  std::size_t total = 0;
  for (const Matrix& each : matrices_) total += each.bytes();
  for (const auto& each : vectors_) total += each.size() * 4;
  return total;
}

void Model::write_token(int layer, int head, std::int64_t slot, const float* key, const float* value) {
  const Cache& c = caches_[layer];
  const int lane = static_cast<int>(slot % TILE_SLOTS);
  std::uint8_t *k = c.key_tile(head, slot / TILE_SLOTS), *v = c.value_tile(head, slot / TILE_SLOTS);
  if (!c.bf16) {
    for (int d = 0; d < c.dim; ++d) {
      reinterpret_cast<float*>(k)[c.key_at(lane, d)] = key[d];
      reinterpret_cast<float*>(v)[c.value_at(lane, d)] = value[d];
    }
    return;
  }
  std::uint16_t narrow[2][128];
  for (int from = 0; from < c.dim; from += 128) {
    const int n = std::min(128, c.dim - from);
    kernels_.to_bf16(key + from, n, narrow[0]);
    kernels_.to_bf16(value + from, n, narrow[1]);
    auto* to_k = reinterpret_cast<std::uint16_t*>(k) + c.key_at(lane, from);
    auto* to_v = reinterpret_cast<std::uint16_t*>(v) + c.value_at(lane, from);
    for (int d = 0; d + 2 <= n; d += 2) std::memcpy(to_k + d * TILE_SLOTS, narrow[0] + d, 4);
    if (n % 2) to_k[(n - 1) * TILE_SLOTS] = narrow[0][n - 1];
    for (int d = 0; d < n; ++d) to_v[2 * d] = narrow[1][d];
  }
}

void Model::read_token(int layer, int head, std::int64_t slot, float* key, float* value) const {
  const Cache& c = caches_[layer];
  const int lane = static_cast<int>(slot % TILE_SLOTS);
  const auto read = [&](const std::uint8_t* tile, int at) {
    return c.bf16 ? from_bf16_bits(reinterpret_cast<const std::uint16_t*>(tile)[at]) : reinterpret_cast<const float*>(tile)[at];
  };
  for (int d = 0; d < c.dim; ++d) {
    key[d] = read(c.key_tile(head, slot / TILE_SLOTS), c.key_at(lane, d));
    value[d] = read(c.value_tile(head, slot / TILE_SLOTS), c.value_at(lane, d));
  }
}

void Model::copy_slot(std::int64_t from, std::int64_t to) {
  const int from_lane = static_cast<int>(from % TILE_SLOTS), lane = static_cast<int>(to % TILE_SLOTS);
  for (const Cache& c : caches_)
    for (int head = 0; head < c.heads; ++head)
      c.copy_token(c.pair(head, from / TILE_SLOTS), from_lane, c.pair(head, to / TILE_SLOTS), lane);
}

void Model::copy_tile(std::size_t from, std::size_t to) {
  for (const Cache& c : caches_)
    for (int head = 0; head < c.heads; ++head) {
      std::memcpy(c.key_tile(head, to), c.key_tile(head, from), c.tile_bytes());
      std::memcpy(c.value_tile(head, to), c.value_tile(head, from), c.tile_bytes());
    }
}

std::size_t Model::buffer_size(int buffer, const Batch& batch) const {
  return std::size_t(buffers_[buffer].by_logits ? batch.logits : batch.rows) * buffers_[buffer].width;
}

BatchLimits Model::limits() const {
  return {vocab(), caches_.empty() ? std::nullopt : std::optional(caches_[0].slots), block_size_};
}

std::optional<int> Model::vocab() const {
  std::optional<int> least;
  for (const Op& op : ops_) {
    if (op.kind != Kind::embed) break;  // embeddings come first
    const int rows = matrices_[op.matrix].n;
    least = least ? std::min(*least, rows) : rows;
  }
  return least;
}

void Model::step(Batch batch) { pool_->run(std::make_shared<Step>(*this, std::move(batch))); }

}  // namespace penstock
