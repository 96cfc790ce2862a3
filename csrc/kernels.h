// The table of kernels of one instruction set. kernels/isa.cpp fills it, once per set; select.cpp lists the sets that this process may use.
#pragma once
#include <cstdint>

#include "cache.h"
#include "features.h"
#include "layout.h"

namespace penstock {

// Activation(gate) * up; clamped: as ClampedGate says.
enum class Activation : int { none, silu, gelu, gelu_tanh, clamped };
constexpr const char* ACTIVATIONS[] = {"none", "silu", "gelu", "gelu_tanh", "clamped"};

// (up + 1) * gate * sigmoid(alpha * gate), gate at most `limit`, up between -limit and limit.
struct ClampedGate {
  float alpha = 1, limit = 0;
};

constexpr int VOCAB_BLOCK = 1024;  // logits per partial sum of exponentials

// Rows of floats, `stride` floats apart.
template <class T> struct StridedRows {
  T* data;
  std::size_t stride;

  T* row(int i) const { return data + stride * i; }
  StridedRows<const T> as_const() const { return {data, stride}; }
};
using ConstRows = StridedRows<const float>;
using Rows = StridedRows<float>;

// Receives finished accumulators [count, PANEL] of one panel for rows first .. first + count - 1, which it may overwrite. Called exactly
// once for every row of every panel.
struct Epilogue {
  void (*call)(const void* context, int panel, int first, int count, float* sums);
  const void* context;
};

// How the weights of a panel that are read once, as a stream, are prefetched. distance 0: the hardware prefetcher is relied on.
struct StreamPrefetch {
  int distance = 0;    // bytes ahead
  bool to_l1 = false;  // or to L2
};

// y = x W^T for some consecutive panels of W.
struct PanelTask {
  const Matrix& matrix;
  int matrix_index, first_panel, num_panels;  // matrix_index: expert, 0 for a single matrix
  const Operand& x;
  int rows;
  Epilogue epilogue;
  float* out;              // scratch for accumulators [num_panels, rows, PANEL]
  std::uint8_t* unpacked;  // scratch of Kernels::unpacked_bytes
  bool from_memory;                // whether the weights are: they do not stay in a cache from step to step
  StreamPrefetch stream_prefetch;  // of products whose rows fit one register block
  const Features& machine;         // whose break-evens hold
};

// Partial attention of some rows, not yet normalized: O = acc / running_sum, with running_max and running_sum as in online softmax.
struct AttentionState {
  float *running_max, *running_sum;  // [rows]
  float* acc;                        // [rows, padded]

  static std::size_t num_floats(int rows, int padded) { return std::size_t(rows) * (padded + 2); }
  AttentionState(float* memory, int rows, int padded)
      : running_max(memory + std::size_t(rows) * padded), running_sum(running_max + rows), acc(memory) {}
};

// Rows are (token, query head) pairs that share one KV head.
struct AttendTask {
  const Cache& cache;
  int rows, first_key, last_key;    // keys first_key .. last_key are visited; first_key is a multiple of CHUNK
  const std::int32_t* positions;    // [rows]
  const float* const* queries;      // [rows] each [dim]
  float scale, cap;                 // cap of the scores, 0: none
  int window;                       // sliding window in tokens, 0: none
  const std::uint8_t* const* keys;  // [num_tiles] tiles from first_key on
  const std::uint8_t* const* values;
  int num_tiles;          // tiles beyond last_key are those visited next, and are only prefetched
  StreamPrefetch stream;  // of tiles, where the rows fit one register block of vectors; AMX's tile products fetch half a chunk ahead
  std::uint8_t* scratch;  // attend_bytes
  AttentionState result;
};

// Rounds one activation row x [n] to integers, an operand row [k_padded]. Returns the row's scale, NaN if the row holds a NaN or an
// infinity. acc_init and group_sums as in Operand; group_sums may be nullptr.
using IntegerRow = float (*)(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* acc_init, float* group_sums);

struct Kernels {
  const char* name;

  // Matrix products (panel.h, amx.h)
  std::size_t unpacked_bytes;
  int m_block_bytes;  // the most rows of a task, times the bytes of a number in them
  int (*panels_per_call)(const Matrix&, int rows);
  void (*linear)(const PanelTask&);
  void (*release_tiles)();  // called when a thread has finished its part of a step
  void (*dequantize_row)(const Matrix&, int matrix_index, int n, float* out);  // out [k]

  // Attention (attend.h, attention.h)
  std::size_t (*attend_bytes)(const Cache&, int rows);
  void (*attend)(const AttendTask&);
  void (*merge_spans)(const AttentionState& to, const AttentionState& later, int rows, int padded);
  void (*normalize)(const float* acc, float running_sum, int n, float* out);

  void (*rms_norm)(const float* x, const float* weight, float eps, float offset, int n, float* out);

  // Activation rows x [n] -> operand rows [k_padded] (rows.h, fixed16.h).
  int bf16_elem_bytes;  // of a bf16 element in operand rows: 2, or 4 where it is kept as float
  void (*to_bf16_row)(const float* x, int n, int padded, std::uint8_t* out, int group, float* group_sums);
  void (*to_bf16)(const float* x, int n, std::uint16_t* out);
  int int8_elem_bytes;  // of an element of int8 rows: 1, or 2 where they are held as int16
  IntegerRow to_int8;
  bool (*takes_fixed16)(const Matrix&);  // for codes: rows for these are 16-bit fixed point rather than bf16
  IntegerRow to_fixed16;                 // nullptr: never
  // Whether so many rows are in the form Operand::split (nullptr as to_fixed16), and the conversion to it (nullptr: none ever are).
  bool (*splits_fixed16)(const Matrix&, int rows);
  IntegerRow to_split_fixed16;
  // Bytes per element of integer rows in AMX form, or 0 where so many rows stay plain; the two conversions make that form. nullptr: never.
  int (*amx_row_bytes)(const Matrix& matrix, int rows, bool int8);
  IntegerRow fixed16_to_amx, int8_to_amx;

  // Elementwise (rows.h)
  void (*rope)(Rows heads, int count, const float* cosines, const float* sines, int pairs);
  void (*act_mul)(Activation activation, ConstRows gate, ConstRows up, int rows, int n, Rows out);
  void (*clamped_gate)(const ClampedGate& how, ConstRows gate, ConstRows up, int rows, int n, Rows out);
  void (*add)(ConstRows a, ConstRows b, int rows, int n, Rows out);
  void (*copy)(ConstRows from, int rows, int n, Rows out);
  void (*softcap)(const float* x, float cap, int n, float* out);
  void (*softmax)(float* x, int n);

  // Sampling from one row of logits (choose.h)
  int (*argmax)(const float* x, int n);
  void (*temperature_scale)(const float* x, float row_max, float temperature, int n, float* out);
  void (*exp_row)(const float* x, float row_max, int n, float* out);
  void (*exp_block_sums)(const float* x, float row_max, int n, double* sums);
  double (*mass_at_least)(const float* scores, const float* weights, int n, float bound, int* count);
  int (*indices_above)(const float* x, int n, float bound, bool or_equal, int first, int* out);
  int (*count_above)(const float* x, int n, float bound, bool or_equal);
  void (*mask_logits)(float* x, const std::uint32_t* allowed, int n);
};

// The sets that this process may use, best first; `generic` is always among them.
int num_kernels();
const Kernels& kernels(int i);

}  // namespace penstock
