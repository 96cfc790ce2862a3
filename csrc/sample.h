// Sampling: rows of logits -> tokens and log-probabilities, without sorting the vocabulary. The specification is
// penstock/compute/decoding/sampler.py, against which results are tested.
//
// Each filter keeps the tokens of the highest scores, the lower id first among equals. So it is a bound on the score, which is found by
// partial selection. A row's result depends on that row alone, not on the batch or the thread.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels.h"
#include "pool.h"

namespace penstock {

// Sampling parameters of one sequence. temperature 0: argmax. Neutral values: top_k 0, top_p 1, min_p 0, typical_p 1.
struct Drawing {
  float temperature = 1;
  std::int64_t top_k = 0;
  double top_p = 1, min_p = 0, typical_p = 1;
  std::uint64_t seed = 0;

  bool is_unfiltered() const { return top_k == 0 && top_p >= 1 && min_p <= 0 && typical_p >= 1; }
};

// Rows of a matrix [.., vocab].
struct Logits {
  const float* data;
  int rows, vocab;
  const std::int64_t* at;  // [rows] indices into the matrix; nullptr: consecutive rows
  const float* row(int i) const { return data + std::size_t(vocab) * (at ? at[i] : i); }
};

class Sampler {
 public:
  Sampler(Pool& pool, const Kernels& kernels);

  // One token per row. indices[row] is the position of the output token, which selects the random number together with the seed. A row
  // whose largest logit is not finite (a NaN is larger than everything) gives the first such token at any temperature.
  void choose(const Logits& logits, const Drawing* const* drawings, const std::int64_t* indices, std::int64_t* tokens);

  struct Scores {
    const std::int64_t* tokens;  // [rows] tokens to score
    int num;                     // most likely tokens to return, at most vocab
    std::int64_t* ranks;         // [rows] from 1
    double* values;              // [rows, 1 + num] log-probabilities: of the token, then of the most likely ones, descending
    std::int64_t* ids;           // [rows, num] the most likely tokens
  };
  void score(const Logits& logits, const Scores& scores);

  // Sets logits to minus infinity where a token's bit is 0. `allowed` [rows, words]: token i is bit i % 32 of word i / 32. `logits` is
  // the matrix that the rows belong to; no row may occur twice.
  void forbid(float* logits, const Logits& rows, const std::uint32_t* allowed, int words);

 private:
  // Tokens with a score above `score`, or equal to it at an index up to `index`.
  struct Bound {
    float score;
    int index;
  };
  struct Scratch {  // of one thread
    int count = 0;    // remaining candidates, by ascending id
    bool all = true;  // the candidates are the whole vocabulary; `ids` is unused
    std::vector<int> ids, indices;
    std::vector<float> values, weights;  // scaled logits minus their maximum; their exponentials
    std::vector<float> scores;           // of the typical_p filter
    std::vector<double> sums;            // [blocks]
    std::vector<std::uint64_t> keys;
    void fit(int vocab);
  };
  template <class Task> void for_each_row(const Logits& logits, const Task& task);
  void score_row(const float* x, int n, int row, const Scores& scores, Scratch& s) const;
  double total(const float* x, float row_max, int n, Scratch& s) const;
  void top_keys(const float* x, int n, int num, Scratch& s) const;

  int draw(const float* x, int n, const Drawing& how, double uniform, Scratch& s) const;
  int draw_unfiltered(int n, double uniform, Scratch& s) const;
  int draw_filtered(double uniform, Scratch& s) const;
  void filter(const Drawing& how, Scratch& s) const;
  void filter_typical(double mass, Scratch& s) const;
  void keep(const float* scores, Bound bound, Scratch& s) const;
  Bound mass_bound(const float* scores, double target, Scratch& s) const;

  Pool& pool_;
  const Kernels& kernels_;
  std::vector<Scratch> scratch_;
};

}  // namespace penstock
