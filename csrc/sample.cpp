#include "sample.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>

#include "arithmetic.h"
#include "numbers.h"

namespace penstock {

namespace {

constexpr std::size_t MIN_PARALLEL_LOGITS = std::size_t(1) << 17;  // logits from which on rows are distributed over threads
constexpr float INF = std::numeric_limits<float>::infinity();

std::uint64_t splitmix64(std::uint64_t x) {  // Steele, Lea, Flood 2014
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// Uniform in [0, 1), a function of (seed, index) alone; see penstock/compute/decoding/draw.py.
double uniform_of(std::uint64_t seed, std::int64_t index) {
  return static_cast<double>(splitmix64(splitmix64(seed) + static_cast<std::uint64_t>(index) * 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
}

// A sort key: larger for a larger value, then for a lower index. The float's bits are mapped to an unsigned integer of the same order,
// followed by the complement of the index.
std::uint64_t key_of(float value, int index) {
  std::uint32_t bits = bits_of(value + 0.0f);  // -0 becomes 0
  bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
  return std::uint64_t{bits} << 32 | (0xffffffffu - static_cast<std::uint32_t>(index));
}

float value_of_key(std::uint64_t key) {
  std::uint32_t bits = static_cast<std::uint32_t>(key >> 32);
  bits ^= bits >> 31 ? 0x80000000u : 0xffffffffu;
  return float_from_bits(bits);
}

int index_of_key(std::uint64_t key) { return static_cast<int>(0xffffffffu - static_cast<std::uint32_t>(key)); }

struct Weighted {
  std::uint64_t key;
  double weight;
};

// Quickselect: the key at which the weights, summed by descending key, first reach the target.
std::uint64_t key_at_mass(std::vector<Weighted>& items, double target) {
  const auto before = [](const Weighted& a, const Weighted& b) { return a.key > b.key; };
  auto from = items.begin(), to = items.end();
  while (to - from > 32) {
    const auto middle = from + (to - from) / 2;
    std::nth_element(from, middle, to, before);
    const double upper = std::accumulate(from, middle, 0.0, [](double sum, const Weighted& each) { return sum + each.weight; });
    if (upper >= target) to = middle;
    else target -= upper, from = middle;
  }
  std::sort(from, to, before);
  auto last = from;
  for (auto at = from; at != to && at->weight > 0; ++at) {
    last = at;
    if ((target -= at->weight) <= 0) break;
  }
  return last->key;
}

// The first index at which the running sum of weights exceeds `target`, or else the last one with a weight.
int index_at(const float* weights, int n, double target) {
  int last = 0;
  for (int i = 0; i < n; ++i) {
    if (weights[i] <= 0) continue;
    last = i;
    if ((target -= weights[i]) < 0) break;
  }
  return last;
}

// Rows distributed over the pool's threads.
template <class Task> class RowTasks : public Work {
 public:
  RowTasks(Pool& pool, int count, const Task& task) : Work(pool, 1), count_(count), task_(task) {}
  void run_phases(int thread) override {
    parallel_for(thread, count_, [&](int row) { task_(row, thread); });
  }

 private:
  int count_;
  Task task_;
};

template <class Task> void run_rows(Pool& pool, int count, const Task& task) {
  pool.run(std::make_shared<RowTasks<Task>>(pool, count, task));
}

}  // namespace

Sampler::Sampler(Pool& pool, const Kernels& kernels) : pool_(pool), kernels_(kernels), scratch_(pool.size()) {}

// Allocated for threads that draw or score only.
void Sampler::Scratch::fit(int vocab) {
  const std::size_t size = std::max(vocab, VOCAB_BLOCK);
  ids.resize(size), indices.resize(size), values.resize(size), weights.resize(size), scores.resize(size);
  sums.resize((size + VOCAB_BLOCK - 1) / VOCAB_BLOCK);
}

template <class Task> void Sampler::for_each_row(const Logits& logits, const Task& task) {
  if (logits.rows < 2 || std::size_t(logits.rows) * logits.vocab < MIN_PARALLEL_LOGITS) {
    const DefaultArithmetic arithmetic;  // as in Pool::run
    for (int row = 0; row < logits.rows; ++row) task(row, scratch_[0]);
    return;
  }
  run_rows(pool_, logits.rows, [&](int row, int thread) { task(row, scratch_[thread]); });
}

void Sampler::choose(const Logits& logits, const Drawing* const* drawings, const std::int64_t* indices, std::int64_t* tokens) {
  for_each_row(logits, [&](int row, Scratch& s) {
    const float* x = logits.row(row);
    const Drawing& how = *drawings[row];
    tokens[row] = how.temperature == 0 ? kernels_.argmax(x, logits.vocab)
                                       : draw(x, logits.vocab, how, uniform_of(how.seed, indices[row]), s);
  });
}

int Sampler::draw(const float* x, int n, const Drawing& how, double uniform, Scratch& s) const {
  const int best = kernels_.argmax(x, n);
  if (!std::isfinite(x[best])) return best;
  s.fit(n);
  kernels_.temperature_scale(x, x[best], how.temperature, n, s.values.data());
  if (how.is_unfiltered()) return draw_unfiltered(n, uniform, s);
  s.count = n, s.all = true;
  filter(how, s);
  return draw_filtered(uniform, s);
}

// Inverse transform sampling: the first token at which the running sum of weights exceeds uniform * total, found by block, then within
// it.
int Sampler::draw_unfiltered(int n, double uniform, Scratch& s) const {
  double target = total(s.values.data(), 0, n, s) * uniform;
  int block = 0, last_block = (n - 1) / VOCAB_BLOCK;
  while (s.sums[last_block] == 0) --last_block;
  while (block < last_block && s.sums[block] <= target) target -= s.sums[block++];
  const int begin = block * VOCAB_BLOCK, count = std::min(VOCAB_BLOCK, n - begin);
  kernels_.exp_row(s.values.data() + begin, 0, count, s.weights.data());
  return begin + index_at(s.weights.data(), count, target);
}

int Sampler::draw_filtered(double uniform, Scratch& s) const {
  const float row_max = s.values[kernels_.argmax(s.values.data(), s.count)];
  kernels_.exp_row(s.values.data(), row_max, s.count, s.weights.data());
  const double target = std::accumulate(s.weights.begin(), s.weights.begin() + s.count, 0.0) * uniform;
  const int index = index_at(s.weights.data(), s.count, target);
  return s.all ? index : s.ids[index];
}

// Applies the filters in order. Weights are computed of the remaining candidates where they are first needed.
void Sampler::filter(const Drawing& how, Scratch& s) const {
  constexpr int ANY_INDEX = std::numeric_limits<int>::max();
  const float* values = s.values.data();
  if (how.top_k > 0 && how.top_k < s.count) {
    top_keys(values, s.count, static_cast<int>(how.top_k), s);
    const std::uint64_t last = *std::min_element(s.keys.begin(), s.keys.end());
    keep(values, {value_of_key(last), index_of_key(last)}, s);
  }
  if (how.top_p < 1) {
    kernels_.exp_row(values, 0, s.count, s.weights.data());
    int count;
    keep(values, mass_bound(values, kernels_.mass_at_least(values, s.weights.data(), s.count, -INF, &count) * how.top_p, s), s);
  }
  if (how.min_p > 0) keep(values, {static_cast<float>(std::log(how.min_p)), ANY_INDEX}, s);
  if (how.typical_p < 1) filter_typical(how.typical_p, s);
}

// Keeps the tokens whose surprise is closest to the entropy. With p = weight / total, entropy = log total + weighted_sum / total, so
// surprise - entropy = -weighted_sum / total - value.
void Sampler::filter_typical(double mass, Scratch& s) const {
  kernels_.exp_row(s.values.data(), 0, s.count, s.weights.data());
  double total = 0, weighted_sum = 0;
  for (int i = 0; i < s.count; ++i) {
    total += s.weights[i];
    weighted_sum += s.weights[i] > 0 ? -s.values[i] * s.weights[i] : 0.0f;
  }
  const float mean = static_cast<float>(-weighted_sum / total);
  for (int i = 0; i < s.count; ++i) s.scores[i] = -std::fabs(s.values[i] - mean);
  keep(s.scores.data(), mass_bound(s.scores.data(), total * mass, s), s);
}

// Keeps the candidates within the bound on `scores`.
void Sampler::keep(const float* scores, Bound bound, Scratch& s) const {
  const int count = kernels_.indices_above(scores, s.count, bound.score, true, 0, s.indices.data());
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const int index = s.indices[i];
    if (index > bound.index && scores[index] == bound.score) continue;
    s.ids[kept] = s.all ? index : s.ids[index];
    s.values[kept++] = s.values[index];
  }
  s.count = kept, s.all = false;
}

// The bound at which the weights, summed by descending score, first reach the target. Scores are at most 0, and above -200 where the
// weight is not 0. Bisects the range of scores until few candidates are left, then selects among those.
Sampler::Bound Sampler::mass_bound(const float* scores, double target, Scratch& s) const {
  const float* weights = s.weights.data();
  const int max_candidates = std::max(128, s.count / 64);
  float low = -200, high = INF;
  int from_low = s.count, from_high = 0;
  double above = 0;  // weight at and above `high`, less than the target
  for (float middle = 0; from_low - from_high > max_candidates && middle > low && middle < high;
       middle = (low + std::min(high, 0.0f)) / 2) {
    int count;
    const double mass = kernels_.mass_at_least(scores, weights, s.count, middle, &count);
    if (mass >= target) low = middle, from_low = count;
    else high = middle, from_high = count, above = mass;
  }
  const int count = kernels_.indices_above(scores, s.count, low, true, 0, s.indices.data());
  std::vector<Weighted> candidates;
  for (int i = 0; i < count; ++i) {
    const int index = s.indices[i];
    if (scores[index] < high) candidates.push_back({key_of(scores[index], index), weights[index]});
  }
  if (candidates.empty()) return {high, s.count};  // no other candidate has any weight
  const std::uint64_t last = key_at_mass(candidates, target - above);
  return {value_of_key(last), index_of_key(last)};
}

// s.keys = the `num` largest of the row, unordered. Candidates are collected block by block, and cut to `num` when there are twice as
// many.
void Sampler::top_keys(const float* x, int n, int num, Scratch& s) const {
  float bound = 0;
  bool bounded = false;
  s.keys.clear();
  const auto cut = [&] {
    std::nth_element(s.keys.begin(), s.keys.begin() + (num - 1), s.keys.end(), std::greater<std::uint64_t>());
    s.keys.resize(num);
    bound = value_of_key(s.keys.back()), bounded = true;
  };
  for (int begin = 0; begin < n; begin += VOCAB_BLOCK) {
    const int count = std::min(VOCAB_BLOCK, n - begin);
    if (bounded) {  // an equal value has a higher index here, so it comes after the bound
      const int found = kernels_.indices_above(x + begin, count, bound, false, begin, s.indices.data());
      for (int i = 0; i < found; ++i) s.keys.push_back(key_of(x[s.indices[i]], s.indices[i]));
    } else {
      for (int i = begin; i < begin + count; ++i) s.keys.push_back(key_of(x[i], i));
    }
    if (s.keys.size() >= std::size_t(num) * 2) cut();
  }
  if (s.keys.size() > std::size_t(num)) cut();
}

double Sampler::total(const float* x, float row_max, int n, Scratch& s) const {
  kernels_.exp_block_sums(x, row_max, n, s.sums.data());
  return std::accumulate(s.sums.begin(), s.sums.end(), 0.0);
}

void Sampler::score(const Logits& logits, const Scores& scores) {
  for_each_row(logits, [&](int row, Scratch& s) { score_row(logits.row(row), logits.vocab, row, scores, s); });
}

void Sampler::forbid(float* logits, const Logits& rows, const std::uint32_t* allowed, int words) {
  for_each_row(rows, [&](int row, Scratch&) {
    kernels_.mask_logits(logits + (rows.row(row) - rows.data), allowed + std::size_t(words) * row, rows.vocab);
  });
}

void Sampler::score_row(const float* x, int n, int row, const Scores& scores, Scratch& s) const {
  const float best = x[kernels_.argmax(x, n)];
  const bool is_finite = std::isfinite(best);
  s.fit(n);
  const double row_max = is_finite ? best : 0, log_total = is_finite ? std::log(total(x, best, n, s)) : best;
  const auto logprob = [&](float value) { return double{value} - row_max - log_total; };
  const int token = static_cast<int>(scores.tokens[row]);
  double* values = scores.values + std::size_t(1 + scores.num) * row;
  values[0] = logprob(x[token]);
  scores.ranks[row] = 1 + kernels_.count_above(x, token, x[token], true) + kernels_.count_above(x + token, n - token, x[token], false);
  if (scores.num == 0) return;
  top_keys(x, n, scores.num, s);
  std::sort(s.keys.begin(), s.keys.end(), std::greater<std::uint64_t>());
  for (int i = 0; i < scores.num; ++i) {
    const int id = index_of_key(s.keys[i]);
    scores.ids[std::size_t(scores.num) * row + i] = id;
    values[1 + i] = logprob(x[id]);
  }
}

}  // namespace penstock
