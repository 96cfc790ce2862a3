// The kernels of one instruction set, as functions. Which sets there are, and the best that this process may use, stands in select.cpp.
#pragma once
#include <cstdint>

#include "cache.h"
#include "layout.h"

namespace penstock {

enum class Activation : int { none, silu, gelu, gelu_tanh };
constexpr const char* ACTIVATIONS[] = {"none", "silu", "gelu", "gelu_tanh"};

constexpr int SUM_BLOCK = 1024;  // numbers that are added up apart when a vocabulary is

// Rows of floats, so many apart.
template <class Number> struct Apart {
  Number* at;
  std::size_t stride;

  Number* row(int i) const { return at + stride * i; }
  Apart<const Number> read() const { return {at, stride}; }
};
using From = Apart<const float>;
using To = Apart<float>;

// What becomes of sums [count][PANEL] of a panel, for the rows from `first` on: called once for every row of every panel. The sums may be
// written to.
struct Finish {
  void (*call)(const void* with, int panel, int first, int count, float* sums);
  const void* with;
};

struct PanelTask {
  const Matrix& matrix;
  int index, panel, panels;  // which of the matrices; the first panel, and how many
  const Operand& x;
  int rows;
  Finish finish;
  float* out;              // [panels][rows][PANEL] of scratch
  std::uint8_t* unpacked;  // Kernels::unpacked_bytes of scratch
  int soon;                // bytes from what a single block of rows reads to what it fetches ahead; 0: nothing
};

// What rows of attention have come to: the running maximum and sum of their powers, and the values that these mix, not divided yet.
struct Mixture {
  float *best, *total;  // [rows]
  float* mixed;         // [rows][padded]

  static std::size_t numbers(int rows, int padded) { return std::size_t(rows) * (padded + 2); }
  Mixture(float* memory, int rows, int padded) : best(memory + std::size_t(rows) * padded), total(best + rows), mixed(memory) {}
};

struct AttendTask {
  const Cache& cache;
  int rows, first_key, last_key;        // keys first_key .. last_key are visited; first_key begins a chunk
  const std::int32_t* positions;        // [rows]
  const float* const* queries;          // [rows] each [dim]
  float scale, cap;                     // cap 0: none
  int window;                           // 0: none
  const std::uint8_t* const* keys;      // a pointer for every tile from first_key on
  const std::uint8_t* const* values;
  int num_tiles;                        // those beyond last_key are visited soon: the first ones are fetched
  std::uint8_t* scratch;                // attend_bytes
  Mixture result;
};

struct Kernels {
  const char* name;
  std::size_t unpacked_bytes;
  int piece_bytes;  // of one inner index, of the bf16 numbers or words that pass one panel before the next is taken
  int (*panels_at_once)(const Matrix&, int rows);  // that one call takes best
  void (*linear)(const PanelTask&);
  void (*release_tiles)();  // at the end of a thread's part of a step
  void (*matrix_row)(const Matrix&, int index, int n, float* out);
  std::size_t (*attend_bytes)(const Cache&, int rows);
  void (*attend)(const AttendTask&);
  void (*merge_span)(const Mixture& to, const Mixture& later, int rows, int padded);
  void (*divide)(const float* mixed, float total, int n, float* out);
  void (*rms_norm)(const float* x, const float* weight, float eps, float offset, int n, float* out);
  int row_number;  // bytes of a bf16 number in the rows that products take: 2, or 4 as float
  void (*to_row)(const float* x, int n, int padded, std::uint8_t* out, int group, float* totals);
  void (*to_bf16)(const float* x, int n, std::uint16_t* out);
  float (*to_int8)(const float* x, int n, const Matrix& matrix, std::int8_t* out, std::int32_t* begins, float* totals);
  // Whether rows for these codes are 16-bit fixed point, and not bf16 numbers.
  bool (*takes_words)(const Matrix& codes);
  // Such rows, [padded], and their scale; nullptr where no codes take them.
  float (*to_words)(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* begins, float* totals);
  // Bytes of a number of so many rows, words or int8, where kernels want them in a form of their own, made by the two after it; else 0.
  int (*split)(const Matrix& matrix, int rows, bool int8);
  float (*words_to_split)(const float* x, int n, const Matrix& matrix, std::uint8_t* out, std::int32_t* begins, float* totals);
  float (*int8_to_split)(const float* x, int n, const Matrix& matrix, std::int8_t* out, std::int32_t* begins, float* totals);
  void (*rotate)(To heads, int count, const float* cosines, const float* sines, int pairs);
  // Of n numbers of each of so many rows.
  void (*act_mul)(Activation activation, From gate, From up, int rows, int n, To out);
  void (*add)(From a, From b, int rows, int n, To out);
  void (*copy)(From from, int rows, int n, To out);
  void (*softcap)(const float* x, float cap, int n, float* out);
  void (*softmax)(float* x, int n);
  // choose.h
  int (*largest_place)(const float* x, int n);
  void (*scale_row)(const float* x, float most, float temperature, int n, float* out);
  void (*exp_row)(const float* x, float most, int n, float* out);
  void (*exp_sums)(const float* x, float most, int n, double* sums);
  double (*mass_from)(const float* scores, const float* weights, int n, float bound, int* count);
  int (*places)(const float* x, int n, float bound, bool or_equal, int first, int* out);
  int (*count_above)(const float* x, int n, float bound, bool or_equal);
  void (*forbid)(float* x, const std::uint32_t* allowed, int n);
};

// All that this process may use, the best first; `generic` is always there.
int num_kernels();
const Kernels& kernels(int i);

}  // namespace penstock
