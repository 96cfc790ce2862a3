#include "sample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>

namespace penstock {

namespace {

constexpr std::size_t SHARED = std::size_t(1) << 17;  // numbers from which on rows are shared over threads
constexpr float INF = std::numeric_limits<float>::infinity();

std::uint64_t mixed(std::uint64_t x) {  // splitmix64 (Steele, Lea, Flood 2014)
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

// In [0, 1), of (seed, index) alone; penstock/compute/decoding/draw.py.
double uniform_of(std::uint64_t seed, std::int64_t index) {
  return static_cast<double>(mixed(mixed(seed) + static_cast<std::uint64_t>(index) * 0x9E3779B97F4A7C15u) >> 11) * 0x1p-53;
}

// Larger for a larger value, and among equals for the lower place: a float's bits made to count up from -inf to inf, above a place
// that counts down.
std::uint64_t key_of(float value, int place) {
  value += 0.0f;  // -0 becomes 0
  std::uint32_t bits;
  std::memcpy(&bits, &value, 4);
  bits ^= bits >> 31 ? 0xffffffffu : 0x80000000u;
  return std::uint64_t{bits} << 32 | (0xffffffffu - static_cast<std::uint32_t>(place));
}

float value_of(std::uint64_t key) {
  std::uint32_t bits = static_cast<std::uint32_t>(key >> 32);
  bits ^= bits >> 31 ? 0x80000000u : 0xffffffffu;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

int place_of(std::uint64_t key) { return static_cast<int>(0xffffffffu - static_cast<std::uint32_t>(key)); }

struct Weighted {
  std::uint64_t key;
  double weight;
};

// The key at which weights, added in falling order of keys, first reach the target: each turn halves what the answer is sought in.
std::uint64_t reaching_key(std::vector<Weighted>& items, double target) {
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

// Rows that are shared over the pool's threads.
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

template <class Task> void run_rows(Pool& pool, int count, const Task& task) { pool.run(std::make_shared<RowTasks<Task>>(pool, count, task)); }

}  // namespace

Sampler::Sampler(Pool& pool, const Kernels& kernels) : pool_(pool), kernels_(kernels), scratch_(pool.size()) {}

// Room for all that is made of a row: only threads that draw or score need any.
void Sampler::Scratch::fit(int vocab) {
  const std::size_t size = std::max(vocab, VOCAB_BLOCK);
  ids.resize(size), places.resize(size), values.resize(size), weights.resize(size), scores.resize(size);
  sums.resize((size + VOCAB_BLOCK - 1) / VOCAB_BLOCK);
}

template <class Task> void Sampler::each_row(const Logits& logits, const Task& task) {
  if (logits.rows < 2 || std::size_t(logits.rows) * logits.vocab < SHARED) {
    for (int row = 0; row < logits.rows; ++row) task(row, scratch_[0]);
    return;
  }
  run_rows(pool_, logits.rows, [&](int row, int thread) { task(row, scratch_[thread]); });
}

void Sampler::choose(const Logits& logits, const Drawing* const* drawings, const std::int64_t* indices, std::int64_t* tokens) {
  each_row(logits, [&](int row, Scratch& s) {
    const float* x = logits.row(row);
    const Drawing& how = *drawings[row];
    tokens[row] = how.temperature == 0 ? kernels_.argmax(x, logits.vocab) : draw(x, logits.vocab, how, uniform_of(how.seed, indices[row]), s);
  });
}

int Sampler::draw(const float* x, int n, const Drawing& how, double uniform, Scratch& s) const {
  const int best = kernels_.argmax(x, n);
  if (!std::isfinite(x[best])) return best;
  s.fit(n);
  kernels_.temperature_scale(x, x[best], how.temperature, n, s.values.data());
  if (how.keeps_all()) return draw_of_all(n, uniform, s);
  s.count = n, s.all = true;
  filter(how, s);
  return draw_of_kept(uniform, s);
}

// The first token at which the running sum of weights exceeds its share: block by block, then within one.
int Sampler::draw_of_all(int n, double uniform, Scratch& s) const {
  double target = total(s.values.data(), 0, n, s) * uniform;
  int block = 0, last_block = (n - 1) / VOCAB_BLOCK;
  while (s.sums[last_block] == 0) --last_block;
  while (block < last_block && s.sums[block] <= target) target -= s.sums[block++];
  const int begin = block * VOCAB_BLOCK, count = std::min(VOCAB_BLOCK, n - begin);
  kernels_.exp_row(s.values.data() + begin, 0, count, s.weights.data());
  int last = 0;
  for (int i = 0; i < count; ++i) {
    if (s.weights[i] <= 0) continue;
    last = i;
    if ((target -= s.weights[i]) < 0) break;
  }
  return begin + last;
}

int Sampler::draw_of_kept(double uniform, Scratch& s) const {
  const float most = s.values[kernels_.argmax(s.values.data(), s.count)];
  kernels_.exp_row(s.values.data(), most, s.count, s.weights.data());
  double target = std::accumulate(s.weights.begin(), s.weights.begin() + s.count, 0.0) * uniform;
  int last = 0;
  for (int i = 0; i < s.count; ++i) {
    if (s.weights[i] <= 0) continue;
    last = i;
    if ((target -= s.weights[i]) < 0) break;
  }
  return s.all ? last : s.ids[last];
}

// The filters in their order. Weights are made where they are first needed, of what is left by then.
void Sampler::filter(const Drawing& how, Scratch& s) const {
  constexpr int EVERY = std::numeric_limits<int>::max();
  const float* values = s.values.data();
  if (how.top_k > 0 && how.top_k < s.count) {
    top_keys(values, s.count, static_cast<int>(how.top_k), s);
    const std::uint64_t last = *std::min_element(s.keys.begin(), s.keys.end());
    keep(values, {value_of(last), place_of(last)}, s);
  }
  if (how.top_p < 1) {
    kernels_.exp_row(values, 0, s.count, s.weights.data());
    int count;
    keep(values, share_bound(values, kernels_.mass_at_least(values, s.weights.data(), s.count, -INF, &count) * how.top_p, s), s);
  }
  if (how.min_p > 0) keep(values, {static_cast<float>(std::log(how.min_p)), EVERY}, s);
  if (how.typical_p < 1) keep_typical(how.typical_p, s);
}

// Keeps the tokens whose surprise is nearest to the entropy. p = weight / total, so that entropy = log total + depth / total and
// surprise - entropy = -depth / total - value.
void Sampler::keep_typical(double share, Scratch& s) const {
  kernels_.exp_row(s.values.data(), 0, s.count, s.weights.data());
  double total = 0, depth = 0;
  for (int i = 0; i < s.count; ++i) {
    total += s.weights[i];
    depth += s.weights[i] > 0 ? -s.values[i] * s.weights[i] : 0.0f;
  }
  const float mean = static_cast<float>(-depth / total);
  for (int i = 0; i < s.count; ++i) s.scores[i] = -std::fabs(s.values[i] - mean);
  keep(s.scores.data(), share_bound(s.scores.data(), total * share, s), s);
}

// `scores` of the tokens that are left.
void Sampler::keep(const float* scores, Bound bound, Scratch& s) const {
  const int count = kernels_.indices_above(scores, s.count, bound.score, true, 0, s.places.data());
  int kept = 0;
  for (int i = 0; i < count; ++i) {
    const int place = s.places[i];
    if (place > bound.place && scores[place] == bound.score) continue;
    s.ids[kept] = s.all ? place : s.ids[place];
    s.values[kept++] = s.values[place];
  }
  s.count = kept, s.all = false;
}

// The bound at which weights, added in falling order of scores, first reach the target. Scores are at most 0; those of any weight are
// above -200. Halves the range of scores until few are left in it, which are then selected from.
Sampler::Bound Sampler::share_bound(const float* scores, double target, Scratch& s) const {
  const float* weights = s.weights.data();
  const int few = std::max(128, s.count / 64);
  float low = -200, high = INF;
  int from_low = s.count, from_high = 0;
  double above = 0;  // the weight from `high` on, less than the target
  for (float middle = 0; from_low - from_high > few && middle > low && middle < high; middle = (low + std::min(high, 0.0f)) / 2) {
    int count;
    const double mass = kernels_.mass_at_least(scores, weights, s.count, middle, &count);
    if (mass >= target) low = middle, from_low = count;
    else high = middle, from_high = count, above = mass;
  }
  const int count = kernels_.indices_above(scores, s.count, low, true, 0, s.places.data());
  std::vector<Weighted> between;
  for (int i = 0; i < count; ++i) {
    const int place = s.places[i];
    if (scores[place] < high) between.push_back({key_of(scores[place], place), weights[place]});
  }
  if (between.empty()) return {high, s.count};  // nothing else has any weight
  const std::uint64_t last = reaching_key(between, target - above);
  return {value_of(last), place_of(last)};
}

// `keys` become the `num` largest of the row, in no order: what may be among them is gathered, and cut down when it is twice as much.
void Sampler::top_keys(const float* x, int n, int num, Scratch& s) const {
  float bound = 0;
  bool bounded = false;
  s.keys.clear();
  const auto cut = [&] {
    std::nth_element(s.keys.begin(), s.keys.begin() + (num - 1), s.keys.end(), std::greater<std::uint64_t>());
    s.keys.resize(num);
    bound = value_of(s.keys.back()), bounded = true;
  };
  for (int begin = 0; begin < n; begin += VOCAB_BLOCK) {
    const int count = std::min(VOCAB_BLOCK, n - begin);
    if (bounded) {  // what equals the bound has a higher id, and comes after it
      const int found = kernels_.indices_above(x + begin, count, bound, false, begin, s.places.data());
      for (int i = 0; i < found; ++i) s.keys.push_back(key_of(x[s.places[i]], s.places[i]));
    } else {
      for (int i = begin; i < begin + count; ++i) s.keys.push_back(key_of(x[i], i));
    }
    if (s.keys.size() >= std::size_t(num) * 2) cut();
  }
  if (s.keys.size() > std::size_t(num)) cut();
}

double Sampler::total(const float* x, float most, int n, Scratch& s) const {
  kernels_.exp_block_sums(x, most, n, s.sums.data());
  return std::accumulate(s.sums.begin(), s.sums.end(), 0.0);
}

void Sampler::score(const Logits& logits, const Scores& scores) {
  each_row(logits, [&](int row, Scratch& s) { score_row(logits.row(row), logits.vocab, row, scores, s); });
}

void Sampler::forbid(float* logits, const Logits& rows, const std::uint32_t* allowed, int words) {
  each_row(rows, [&](int row, Scratch&) {
    kernels_.mask_logits(logits + (rows.row(row) - rows.data), allowed + std::size_t(words) * row, rows.vocab);
  });
}

void Sampler::score_row(const float* x, int n, int row, const Scores& scores, Scratch& s) const {
  const float best = x[kernels_.argmax(x, n)], most = std::isfinite(best) ? best : 0.0f;
  s.fit(n);
  const double log_total = std::log(total(x, most, n, s));
  const auto logprob = [&](float value) { return double{value} - double{most} - log_total; };
  const int token = static_cast<int>(scores.tokens[row]);
  double* values = scores.values + std::size_t(1 + scores.num) * row;
  values[0] = logprob(x[token]);
  scores.ranks[row] = 1 + kernels_.count_above(x, token, x[token], true) + kernels_.count_above(x + token, n - token, x[token], false);
  if (scores.num == 0) return;
  top_keys(x, n, scores.num, s);
  std::sort(s.keys.begin(), s.keys.end(), std::greater<std::uint64_t>());
  for (int i = 0; i < scores.num; ++i) {
    const int id = place_of(s.keys[i]);
    scores.ids[std::size_t(scores.num) * row + i] = id;
    values[1 + i] = logprob(x[id]);
  }
}

}  // namespace penstock
