// A program as it is replayed: operations over float buffers [rows, width], packed matrices, vectors and the KV pool.
//
// The list is made once, by penstock/compute/backends/cpu/lower.py, which also fuses what belongs together. A step walks the whole
// list on every thread of the pool; the control flow is the same on all of them, and only tasks are shared out.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "cache.h"
#include "features.h"
#include "kernels.h"
#include "layout.h"
#include "pool.h"

namespace penstock {

enum class Kind : int { embed, norm, linear, heads, kv_write, attention, act_mul, add, gather, softcap, route, experts, split, rope };
constexpr const char* KINDS[] = {"embed",  "norm",    "linear", "heads",   "kv_write", "attention", "act_mul", "add",
                                 "gather", "softcap", "route",  "experts", "split",    "rope"};  // as Python calls them, in the order of Kind

// What an operation uses; -1: none. Those of one line are made in one pass over the rows.
//   embed       tokens -> out: rows of `matrix` times scale
//   norm        in -> out: each of `heads` stretches of `dim`, times weight + offset
//   linear      in (normed by weight) x matrix + bias -> out; then activation(gate) * up, or + residual, or a soft cap
//   heads       in [queries, keys, values] -> out: norms (weight, weight2), rotation (angles), keys and values to `layer` if it writes,
//               attention by scale, window, cap
//   attention   in [queries] -> out, of what stands in `layer`
//   kv_write    in, in2 -> `layer`
//   rope        in -> out, by angles
//   act_mul     in [gate, up] -> out            add     in + in2 -> out
//   gather      in -> out, of the rows whose logits are wanted
//   softcap     in -> out, by cap               split   in -> out, out2, out3
//   route       in [scores] -> out shares, out2 numbers of `count` experts
//   experts     in, in2 shares, in3 numbers -> out: matrix gate and up, matrix2 down
struct Op {
  Kind kind;
  int in = -1, in2 = -1, in3 = -1;     // buffers
  int out = -1, out2 = -1, out3 = -1;
  int matrix = -1, matrix2 = -1;
  int weight = -1, weight2 = -1, bias = -1;  // vectors
  int residual = -1;                   // buffer that is added
  int angles = -1;                     // rope table
  int layer = -1;                      // KV layer
  Activation activation = Activation::none;
  int heads = 0, kv_heads = 0, dim = 0;
  int count = 0;                       // route: experts a row takes
  int window = 0;                      // 0: none
  bool by_logits = false;              // rows are those whose logits are wanted, of `in` as it has them
  bool gathers = false;                // `in` has all rows; those whose logits are wanted are taken
  bool renormalize = false, writes = false, only_if_wanted = false;
  float eps = 0, offset = 0, scale = 1, cap = 0;

  bool gated() const { return activation != Activation::none; }
};

struct Buffer {
  int width = 0;
  bool by_logits = false;
  int place = -1;          // buffers whose lives do not meet share one
  float* data = nullptr;   // in this step
};

// Aligned memory on huge pages where the system has them; zero at first.
class Memory {
 public:
  Memory() = default;
  explicit Memory(std::size_t bytes);
  ~Memory();
  Memory(Memory&& other) noexcept { swap(other); }
  Memory& operator=(Memory&& other) noexcept { swap(other); return *this; }
  void grow(std::size_t bytes) { if (bytes > bytes_) *this = Memory(bytes + bytes / 4); }  // what it held is lost
  std::uint8_t* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  std::size_t bytes() const { return bytes_; }

 private:
  void swap(Memory& other) { std::swap(data_, other.data_), std::swap(bytes_, other.bytes_), std::swap(mapped_, other.mapped_); }
  std::uint8_t* data_ = nullptr;
  std::size_t bytes_ = 0;
  bool mapped_ = false;
};

// The form that rows are given for a matrix, and memory for it.
struct OperandMemory {
  Memory data, scales, begins, totals;
  void grow(std::size_t bytes, std::size_t groups) { data.grow(bytes + 64), scales.grow(groups * 4), begins.grow(groups * 4), totals.grow(groups * 4); }
};

struct Batch {
  int rows = 0, logits = 0;
  const std::int64_t *tokens = nullptr, *positions = nullptr, *slots = nullptr, *logit_rows = nullptr;
  std::vector<Sequence> sequences;
  std::vector<bool> wanted;  // buffers
  std::vector<std::pair<int, float*>> given;  // buffers that stand in the caller's memory
};

constexpr std::size_t FEW = 17 << 10;  // numbers of 4 bytes, the gaps between rows among them

template <class Done> Finish finish_by(const Done& done) {
  return {[](const void* with, int panel, int first, int count, float* sums) {
            (*static_cast<const Done*>(with))(panel, first, count, sums);
          }, &done};
}

struct AttentionScratch;

// A stretch of rows of one sequence, for one KV head, over the spans span .. last_span.
struct AttentionTask {
  int sequence, head, row, rows;
  int span, last_span;
  int partial;  // first of the rows x spans partial results that it fills, or -1: it goes over all spans and writes the result
};

struct Angles {
  std::vector<float> frequencies;
  float scale;
  Memory cosines, sines;  // [rows, pairs]
};

class Model {
 public:
  static constexpr std::size_t CACHED = std::size_t(64) << 20;  // bytes of weights: beyond, reading slows on all that was measured

  // Models that are run in turn share a pool, so that no idle one's threads spin beside the other's.
  Model(std::shared_ptr<Pool> pool, const Kernels& kernels, bool bf16, bool int8_activations);
  ~Model() { pool_->settle(); }
  Model(const Model&) = delete;

  int add_buffer(int width, bool by_logits, int place);
  int add_vector(const float* values, std::size_t count);
  // Memory for all matrices, each of which takes its bytes and 64 more, filled up to 64.
  void reserve(std::size_t bytes);
  int add_matrix(const Matrix& matrix);
  int add_angles(const float* frequencies, int count, float scale);
  void add_op(const Op& op);
  void add_cache(int layers, int heads, int dim, std::size_t slots, int block_size);

  Matrix& matrix(int i) { return matrices_[i]; }
  Cache& cache(int layer) { return caches_[layer]; }
  int num_caches() const { return static_cast<int>(caches_.size()); }
  Pool& pool() { return *pool_; }
  void set_int8(bool on) { int8_ = on; }
  const Kernels& kernels() const { return kernels_; }
  int width(int buffer) const { return buffers_[buffer].width; }
  std::size_t weight_bytes() const;  // packed matrices, and vectors
  std::uint8_t* weights() const { return weights_.data(); }
  std::size_t weights_taken() const { return taken_; }
  // PanelTask: Intel's cores by themselves fetch too few lines ahead of one stream, which shows where no cache holds the weights.
  int soon() const { return features().intel && taken_ > CACHED ? 4096 : 0; }
  // Everything of one step is computed. Results stay until the next step.
  void step(Batch batch);
  // Keys and values of one slot, in all layers.
  void copy_slot(std::int64_t from, std::int64_t to);
  void copy_tile(std::size_t from, std::size_t to);  // the same of sixteen slots
  // One token's key and value [dim] of one KV head.
  void write_token(int layer, int head, std::int64_t slot, const float* key, const float* value);
  void read_token(int layer, int head, std::int64_t slot, float* key, float* value) const;
  int num_buffers() const { return static_cast<int>(buffers_.size()); }
  const float* result(int buffer) const { return buffers_[buffer].data; }
  int vocab() const;  // tokens that have an embedding

 private:
  friend class Step;
  const Kernels& kernels_;
  bool bf16_, int8_;
  std::vector<Op> ops_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<float>> vectors_;
  std::vector<Matrix> matrices_;
  Memory weights_;          // all matrices, one after another
  std::size_t taken_ = 0;   // of it
  std::vector<Angles> angles_;
  std::vector<Cache> caches_;
  Memory cache_memory_;
  int block_size_ = 16;

  Memory arena_;                            // buffers
  OperandMemory shared_;                    // rows in the form of the matrix at hand, for all threads
  std::vector<OperandMemory> own_;          // the same for each thread, where each makes its own
  std::vector<Memory> scratch_;             // for each thread
  Memory partial_;                          // attention by spans: a Mixture of a task's rows each
  std::size_t partial_stride_ = 0;          // floats
  int phases_ = 1;                          // that the walk over ops_ may have
  std::size_t row_bytes_ = 0, row_groups_ = 0;  // the most that a row takes as an operand
  int most_taken_ = 1;                      // experts of a row
  Memory routed_, middle_;                  // experts: what their rows become
  std::vector<int> expert_rows_, expert_starts_, busy_;
  std::shared_ptr<Pool> pool_;
};

// One step of a model; what the files step.cpp, linear.cpp, heads.cpp and experts.cpp are about.
class Step : public Work {
 public:
  Step(Model& model, Batch batch);
  void walk(int thread) override;

 private:
  float* at(int buffer, int row) const { return m.buffers_[buffer].data + std::size_t(row) * m.buffers_[buffer].width; }
  int width(int buffer) const { return m.buffers_[buffer].width; }
  int rows(const Op& op) const { return op.by_logits ? b.logits : b.rows; }
  const float* vector(int i) const { return i < 0 ? nullptr : m.vectors_[i].data(); }
  const float* source(const Op& op, int row) const { return at(op.in, op.gathers ? static_cast<int>(b.logit_rows[row]) : row); }

  // linear.cpp
  void linear(const Op& op, int thread);
  // So little that every thread makes the operand for itself rather than wait for the others.
  bool few(int rows, int width) const { return rows * (width + ROW_GAP / 4) <= FEW; }
  bool wants_words(const Matrix& matrix) const;  // rows of 16-bit fixed point
  // To be asked for in tasks: the next step may move the memory.
  Operand operand(const OperandMemory& memory, const Matrix& matrix, int rows) const;
  void prepare_row(const Op& op, const Matrix& matrix, const Operand& to, int row, int target, float* normed) const;
  void convert(const Matrix& matrix, const float* x, const Operand& rows, int row) const;
  void finish(const Op& op, int panel, int first, int count, float* sums) const;
  std::uint8_t* scratch(int thread, std::size_t bytes) { m.scratch_[thread].grow(bytes); return m.scratch_[thread].data(); }

  // heads.cpp
  void heads(const Op& op, int thread);
  void attention(const Op& op, int thread);
  void prepare_heads(const Op& op, int row, int head) const;
  void attend(const Op& op, const AttentionTask& task, const AttentionTask* next);
  void plan_attention();
  void tiles(const Op& op, const AttentionTask& task, int first, int last, AttentionScratch& t) const;
  void tiles_after(const Op& op, const AttentionTask& task, int span, AttentionScratch& t) const;
  std::size_t tile_of(const Sequence& s, int position) const;
  Mixture partial(int index, int rows, int padded) const;
  void merge(const Op& op, const AttentionTask& task) const;
  void divide(const Op& op, const AttentionTask& task, const Mixture& from) const;
  const float* query(const Op& op, int row, int head) const;
  std::int64_t slot(const Sequence& s, int row, int position) const;

  // experts.cpp
  void route(const Op& op, int row);
  void sort_by_expert(const Op& op, int experts);
  void experts(const Op& op, int thread);

  void one_row(const Op& op, int row);
  void begin(int thread);  // angles

  Model& m;
  const Batch b;
  const bool int8_;  // rows that meet codes are rounded
  std::vector<AttentionTask> tasks_;
  std::vector<AttentionTask> merges_;
  bool together_ = false;  // each KV head of a sequence is prepared and attended by one task
};

}  // namespace penstock
