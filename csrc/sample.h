// From rows of logits to tokens and log-probabilities, without sorting the vocabulary. The meaning is that of
// penstock/compute/decoding/sampler.py, whose results are compared with these.
//
// What a filter keeps are the tokens of the highest scores, the lower id first among equals, so a bound on scores says it all, and
// bounds are found by partial selection. A row's result depends on that row alone, whatever is beside it and whoever computes it.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels.h"
#include "pool.h"

namespace penstock {

// How the tokens of one sequence are chosen: at temperature 0 the likeliest, otherwise drawn. Values that change nothing: top_k 0,
// top_p 1, min_p 0, typical_p 1.
struct Drawing {
  float temperature = 1;
  std::int64_t top_k = 0;
  double top_p = 1, min_p = 0, typical_p = 1;
  std::uint64_t seed = 0;

  bool keeps_all() const { return top_k == 0 && top_p >= 1 && min_p <= 0 && typical_p >= 1; }
};

// Some rows of a matrix [.., vocab].
struct Logits {
  const float* data;
  int rows, vocab;
  const std::int64_t* at;  // [rows] where each stands, or nullptr: one after another
  const float* row(int i) const { return data + std::size_t(vocab) * (at ? at[i] : i); }
};

class Sampler {
 public:
  Sampler(Pool& pool, const Kernels& kernels);

  // A token for each row; indices[row] says which output token it is, and so the random number that it is drawn with.
  // A row without any finite logit gives token 0, one that holds a NaN or an infinity its first.
  void choose(const Logits& logits, const Drawing* const* drawings, const std::int64_t* indices, std::int64_t* tokens);

  struct Scores {
    const std::int64_t* tokens;  // [rows] whose rank and log-probability are asked for
    int num;                     // likeliest tokens that are asked for, at most vocab
    std::int64_t* ranks;         // [rows] 1: the likeliest
    double* values;              // [rows, 1 + num] log-probabilities: of the token, then of the likeliest, in falling order
    std::int64_t* ids;           // [rows, num] the likeliest
  };
  void score(const Logits& logits, const Scores& scores);

  // Minus infinity for each token whose bit is 0. `allowed` [rows, words]: 32 tokens each, the lowest bit the first; `logits` are those
  // that the rows stand in, and no row stands there twice.
  void forbid(float* logits, const Logits& rows, const std::uint32_t* allowed, int words);

 private:
  // Places whose score is above `score`, and of those that equal it the ones up to `place`.
  struct Bound {
    float score;
    int place;
  };
  struct Scratch {  // of one thread
    int count = 0;                        // tokens that may still be drawn, in the order of ids
    bool all = true;                      // they are the whole vocabulary, and `ids` says nothing
    std::vector<int> ids, places;
    std::vector<float> values, weights;   // scaled logits, at most 0, and e to their power
    std::vector<float> scores;            // what typical_p goes by
    std::vector<double> sums;             // of blocks
    std::vector<std::uint64_t> keys;
    void fit(int vocab);
  };
  template <class Task> void each_row(const Logits& logits, const Task& task);
  void score_row(const float* x, int n, int row, const Scores& scores, Scratch& s) const;
  double total(const float* x, float most, int n, Scratch& s) const;
  void top_keys(const float* x, int n, int num, Scratch& s) const;

  int draw(const float* x, int n, const Drawing& how, double uniform, Scratch& s) const;
  int draw_of_all(int n, double uniform, Scratch& s) const;
  int draw_of_kept(double uniform, Scratch& s) const;
  void filter(const Drawing& how, Scratch& s) const;
  void keep_typical(double share, Scratch& s) const;
  void keep(const float* scores, Bound bound, Scratch& s) const;
  Bound share_bound(const float* scores, double target, Scratch& s) const;

  Pool& pool_;
  const Kernels& kernels_;
  std::vector<Scratch> scratch_;
};

}  // namespace penstock
