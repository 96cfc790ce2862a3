// A program as it is executed: operations over float buffers [rows, width], packed matrices, vectors and the KV pool.
//
// The list of operations is built once by penstock/compute/backends/cpu/lower.py, which also fuses them. In a step, every thread of the
// pool runs through the whole list with the same control flow; only the tasks of each operation are divided among threads.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "batch.h"
#include "cache.h"
#include "features.h"
#include "kernels.h"
#include "layout.h"
#include "memory.h"
#include "pool.h"

namespace penstock {

enum class Kind : int { embed, norm, linear, heads, kv_write, attention, act_mul, add, gather, softcap, route, experts, split, rope };
constexpr const char* KINDS[] = {"embed",  "norm",    "linear", "heads",   "kv_write", "attention", "act_mul", "add",
                                 "gather", "softcap", "route",  "experts", "split",    "rope"};  // names in Python, in the order of Kind

// Fields that an operation uses; indices are -1 where there is none. What stands in one line is computed in one pass over the rows.
//   embed       tokens -> out: rows of `matrix` times scale
//   norm        RMS norm of in -> out: over each of `heads` vectors of `dim`, times weight + offset
//   linear      in (normed by weight) x matrix^T + bias -> out; then activation(gate) * up, or + residual, or a soft cap
//   heads       in [queries, keys, values] -> out: norms (weight, weight2), rotary embedding (rope_table), KV write to `layer` if
//               `writes`, attention with scale, window, cap and sinks
//   attention   in [queries] -> out, over the keys and values in `layer`
//   kv_write    in [keys], in2 [values] -> `layer`
//   rope        in -> out, with rope_table
//   act_mul     in [gate, up] -> out            add     in + in2 -> out
//   gather      in -> out, of the rows that get logits
//   softcap     in -> out, with cap             split   in -> out, out2, out3
//   route       in [scores] -> out weights, out2 ids of the top `count` experts
//   experts     in, in2 weights, in3 ids -> out; matrix: gate and up, matrix2: down, bias and bias2: theirs, whole panels for each expert
struct Op {
  Kind kind;
  int in = -1, in2 = -1, in3 = -1;           // buffers
  int out = -1, out2 = -1, out3 = -1;
  int matrix = -1, matrix2 = -1;
  int weight = -1, weight2 = -1;             // vectors
  int bias = -1, bias2 = -1;
  int sinks = -1;                            // a vector: for each query head the logit of a key without a value
  int residual = -1;                         // buffer that is added
  int rope_table = -1;
  int layer = -1;                            // KV layer
  Activation activation = Activation::none;
  int heads = 0, kv_heads = 0, dim = 0;
  int count = 0;           // route: experts per row
  int window = 0;          // 0: none
  bool by_logits = false;  // rows are those that get logits, in `in` as well
  bool gathers = false;    // rows are those that get logits, gathered from all rows of `in`
  bool renormalize = false, writes = false, only_if_wanted = false;
  float eps = 0, offset = 0, scale = 1, cap = 0;
  ClampedGate clamp;  // of Activation::clamped

  bool gated() const { return activation != Activation::none; }
  int heads_per_kv() const { return heads / kv_heads; }  // query heads that share a KV head
};

struct Buffer {
  int width = 0;
  bool by_logits = false;
  int arena_slot = -1;    // buffers with disjoint lifetimes share memory
  float* data = nullptr;  // of the current step
  std::size_t size = 0;   // floats, in the current step
};

// An Operand's memory.
struct OperandMemory {
  Memory data, scales, acc_init, group_sums;
  void grow(std::size_t bytes, std::size_t groups) {
    data.grow(bytes + 64), scales.grow(groups * 4), acc_init.grow(groups * 4), group_sums.grow(groups * 4);
  }
};

constexpr std::size_t LEAST_CACHED_RUN_BYTES = 256 << 10;  // of weights that a cache holds: some 3 us of reading
constexpr std::size_t MOST_RUN_BYTES = 512 << 10;  // of weights: from memory 10 to 20 us of reading
// Of the largest operand that each thread converts for itself, row padding included.
constexpr std::size_t PRIVATE_OPERAND_FLOATS = 17 << 10;

template <class Body> Epilogue make_epilogue(const Body& body) {
  return {[](const void* context, int panel, int first, int count, float* sums) {
            (*static_cast<const Body*>(context))(panel, first, count, sums);
          }, &body};
}

struct AttentionScratch;

// Attention of `rows` rows of one sequence over one KV head and the spans span .. last_span.
struct AttentionTask {
  int sequence, head, row, rows;
  int span, last_span;
  int partial;  // index of the AttentionState that receives the result of one span; -1: all spans, normalized to the output
};

struct RopeTable {
  std::vector<float> frequencies;  // [pairs]
  float scale;
  Memory cosines, sines;  // [rows, pairs] of the current step

  int pairs() const { return static_cast<int>(frequencies.size()); }
  float* cosines_of(int row) const { return cosines.floats() + frequencies.size() * row; }
  float* sines_of(int row) const { return sines.floats() + frequencies.size() * row; }
};

class Model {
 public:
  // Models that run alternately (target and draft) share a pool, so that one's idle threads do not spin beside the other's.
  // `dequantize`: i4 weights without units are multiplied as bf16, where kernels have tiles.
  Model(std::shared_ptr<Pool> pool, const Kernels& kernels, bool bf16, bool int8_activations, bool dequantize);
  ~Model() { pool_->drain(); }
  Model(const Model&) = delete;

  int add_buffer(int width, bool by_logits, int arena_slot);
  int add_vector(const float* values, std::size_t count);
  // Memory for all matrices: for each its bytes plus 64, rounded up to 64.
  void reserve(std::size_t bytes);
  int add_matrix(const Matrix& matrix);
  int add_rope_table(const float* frequencies, int count, float scale);
  void add_op(const Op& op);
  void add_cache(int layers, int heads, int dim, std::size_t slots, int block_size);

  Matrix& matrix(int i) { return matrices_[i]; }
  Cache& cache(int layer) { return caches_[layer]; }
  int num_caches() const { return static_cast<int>(caches_.size()); }
  Pool& pool() { return *pool_; }
  void set_int8(bool on) { int8_ = on; }
  const Kernels& kernels() const { return kernels_; }
  int num_matrices() const { return static_cast<int>(matrices_.size()); }
  std::size_t weight_bytes() const;  // of packed matrices and vectors
  std::uint8_t* weights() const { return weights_.data(); }
  std::size_t weights_used() const { return weights_used_; }
  StreamPrefetch stream_prefetch(const Matrix& matrix, int rows) const;
  bool reads_memory() const { return weights_used_ > cached_bytes_; }
  void set_cached_bytes(std::size_t bytes) { cached_bytes_ = bytes; }
  StreamPrefetch cache_prefetch() const { return cache_prefetch_; }
  void set_cache_prefetch(int distance) { cache_prefetch_ = {distance, true}; }
  void tune_for_zen5(bool on) { machine_.zen5 = on; }
  // Runs one step; returns when it is complete. Results are valid until the next step.
  void step(Batch batch);
  // Copies the keys and values of one slot, in all layers.
  void copy_slot(std::int64_t from, std::int64_t to);
  void copy_tile(std::size_t from, std::size_t to);  // of 16 slots
  // One token's key and value, [dim] each, of one KV head.
  void write_token(int layer, int head, std::int64_t slot, const float* key, const float* value);
  void read_token(int layer, int head, std::int64_t slot, float* key, float* value) const;
  int num_buffers() const { return static_cast<int>(buffers_.size()); }
  std::size_t buffer_size(int buffer, const Batch& batch) const;  // floats, in such a step
  const Buffer& result(int buffer) const { return buffers_[buffer]; }
  BatchLimits limits() const;

 private:
  friend class Step;
  std::optional<int> vocab() const;  // rows of the smallest embedding table; none: there is no table
  const Kernels& kernels_;
  bool bf16_, int8_, dequantize_;
  Features machine_;               // whose measured break-evens hold
  StreamPrefetch cache_prefetch_;  // of the KV cache
  std::vector<Op> ops_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<float>> vectors_;
  std::vector<Matrix> matrices_;
  Memory weights_;                // all matrices, one after another
  std::size_t weights_used_ = 0;  // bytes
  std::size_t cached_bytes_ = std::size_t(64) << 20;  // weights of up to this size are taken to stay in a cache (docs/LOG.md)
  std::vector<RopeTable> rope_tables_;
  std::vector<Cache> caches_;
  Memory cache_memory_;
  int block_size_ = 16;

  Memory arena_;                                 // buffers
  OperandMemory shared_operand_;                 // operand of the current matrix, for all threads
  std::vector<OperandMemory> private_operands_;  // [threads] for small operands, which each thread converts for itself
  std::vector<Memory> scratch_;                  // [threads]
  Memory partial_;                               // AttentionState of each partial result
  std::size_t partial_stride_ = 0;               // floats
  int phases_ = 1;                               // upper bound of the phases of a step
  std::size_t row_bytes_ = 0, row_groups_ = 0;   // maxima per operand row
  int max_experts_per_row_ = 1;
  Memory expert_out_, expert_hidden_;            // [pairs, hidden] down projections, [pairs, inner] gated activations
  std::vector<int> expert_rows_, expert_starts_, active_experts_;
  std::shared_ptr<Pool> pool_;
};

// One step of a model. Defined in step.cpp, linear.cpp, heads.cpp and experts.cpp.
class Step : public Work {
 public:
  Step(Model& model, Batch batch);
  void run_phases(int thread) override;

 private:
  float* at(int buffer, int row) const { return model_.buffers_[buffer].data + std::size_t(row) * model_.buffers_[buffer].width; }
  int width(int buffer) const { return model_.buffers_[buffer].width; }
  int rows(const Op& op) const { return op.by_logits ? batch_.logits : batch_.rows; }
  const float* vector(int i) const { return i < 0 ? nullptr : model_.vectors_[i].data(); }
  const float* input_row(const Op& op, int row) const { return at(op.in, op.gathers ? static_cast<int>(batch_.logit_rows[row]) : row); }

  // linear.cpp
  void linear(const Op& op, int thread);
  // Small enough for each thread to convert all rows itself, which saves a phase.
  bool fits_private_operand(int rows, int width) const { return rows * (width + ROW_PADDING / 4) <= PRIVATE_OPERAND_FLOATS; }
  // Panels of products with few rows that one thread takes at once. From memory, short runs cost nothing that was seen (docs/LOG.md).
  RunLength panels_in_run(const Matrix& matrix) const {
    const auto panels = [&](std::size_t bytes) { return static_cast<int>(std::max<std::size_t>(1, bytes / matrix.panel_bytes(PANEL))); };
    return {model_.reads_memory() ? 1 : panels(LEAST_CACHED_RUN_BYTES), panels(MOST_RUN_BYTES)};
  }
  bool wants_fixed16(const Matrix& matrix) const;
  // Call in tasks only: memory may move in the next step.
  Operand operand(const OperandMemory& memory, const Matrix& matrix, int rows) const;
  void prepare_row(const Op& op, const Matrix& matrix, const Operand& to, int row, float* normed) const;
  void convert(const Matrix& matrix, const float* x, const Operand& rows, int row) const;
  void epilogue(const Op& op, int panel, int first, int count, float* sums) const;
  std::uint8_t* scratch(int thread, std::size_t bytes) { model_.scratch_[thread].grow(bytes); return model_.scratch_[thread].data(); }

  // heads.cpp
  void heads(const Op& op, int thread);
  void attention(const Op& op, int thread);
  void prepare_heads(const Op& op, int row, int head) const;
  void attend(const Op& op, const AttentionTask& task, const AttentionTask* next);
  void plan_attention();
  void collect_tiles(const Op& op, const AttentionTask& task, int first, int last, AttentionScratch& t) const;
  void append_prefetch_tiles(const Op& op, const AttentionTask& task, int span, AttentionScratch& t) const;
  std::size_t tile_of(const Sequence& s, int position) const;
  AttentionState partial(int index, int rows, int padded) const;
  void merge(const Op& op, const AttentionTask& task) const;
  void normalize(const Op& op, const AttentionTask& task, const AttentionState& from) const;
  const float* query(const Op& op, int row, int head) const;
  std::int64_t slot(const Sequence& s, int row, int position) const;

  // experts.cpp
  void route(const Op& op, int row);
  void sort_by_expert(const Op& op, int experts);
  template <class RowOf> void convert_pairs(const Matrix& matrix, int pairs, int thread, const RowOf& row_of);
  template <class Take> void multiply_experts(const Matrix& matrix, int bias, int pairs, int thread, const Take& take);
  void sum_experts(const Op& op, int row) const;
  void experts(const Op& op, int thread);

  void row_op(const Op& op, int row);
  void rotate(const Op& op, int row, float* heads, int count) const;  // the rotary embedding of `count` heads, in place
  // Gate and up of `rows` rows -> out.
  void gate(const Op& op, ConstRows gates, ConstRows ups, int rows, int n, Rows out) const {
    if (op.activation == Activation::clamped) return model_.kernels_.clamped_gate(op.clamp, gates, ups, rows, n, out);
    model_.kernels_.act_mul(op.activation, gates, ups, rows, n, out);
  }
  void prologue(int thread);  // embeddings and rotary tables

  Model& model_;
  const Batch batch_;
  const bool int8_;  // rows of products with codes are int8
  std::vector<AttentionTask> tasks_;
  std::vector<AttentionTask> merges_;
  bool fused_heads_ = false;  // one task per KV head of a sequence prepares and attends
};

}  // namespace penstock
