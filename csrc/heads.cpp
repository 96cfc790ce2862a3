// Attention: queries, keys and values of a step's rows are normed and rotated, keys and values go to the pool, and every row is
// attended over the sequence so far.
#include <cmath>
#include <cstring>

#include "model.h"

namespace penstock {

namespace {

constexpr int PAIRS = 48;        // of a token and a query head, that pass over the keys together
constexpr int SHORT_CHUNK = 16;  // rows of a sequence that one task prepares and attends for a whole KV head

}  // namespace

std::int64_t Step::slot(const Sequence& s, int row, int position) const {
  const int base = s.context - s.num_rows;
  if (position >= base && s.parents) {
    int at = row;  // the ancestor of `row`, or itself, that stands at this position
    while (b.positions[s.first_row + at] > position) at = s.parents[at];
    return b.slots[s.first_row + at];
  }
  return s.blocks[position / m.block_size_] * m.block_size_ + position % m.block_size_;
}

// Norms and rotates, in place, what one row of `in` [heads + 2 kv_heads, dim] has for one KV head, and stores its key and value.
void Step::prepare_heads(const Op& op, int row, int head) const {
  float* all = at(op.in, row);
  const int group = op.heads / op.kv_heads;
  const auto turn = [&](float* x, int norm) {
    if (norm >= 0) m.kernels_.rms_norm(x, vector(norm), op.eps, op.offset, op.dim, x);
    if (op.angles < 0) return;
    const Angles& a = m.angles_[op.angles];
    const std::size_t pairs = a.frequencies.size();
    m.kernels_.rotate(x, a.cosines.floats() + pairs * row, a.sines.floats() + pairs * row, static_cast<int>(pairs));
  };
  for (int h = head * group; h < (head + 1) * group; ++h) turn(all + h * op.dim, op.weight);
  if (!op.writes) return;
  float* key = all + (op.heads + head) * op.dim;
  turn(key, op.weight2);
  m.write_token(op.layer, head, b.slots[row], key, all + (op.heads + op.kv_heads + head) * op.dim);
}

const float* Step::query(const Op& op, int row, int head) const { return at(op.in, row) + std::size_t(head) * op.dim; }

// Of a position that stands in the blocks.
std::size_t Step::tile_of(const Sequence& s, int position) const {
  return (s.blocks[position / m.block_size_] * m.block_size_ + position % m.block_size_) / TILE;
}

// Pointers to the tiles of positions first .. last. A tile that does not stand in the pool (blocks are no multiple of a tile, or it ends
// with a tree's branch) is put together in `copies`. What stands behind a sequence's end is whatever the slots held before.
void Step::tiles(const Op& op, const Sequence& s, int head, int row, int first, int last, std::vector<const std::uint8_t*>& keys,
                 std::vector<const std::uint8_t*>& values, Memory& copies) const {
  const Cache& c = m.caches_[op.layer];
  const int size = m.block_size_, number = c.bf16 ? 2 : 4;
  const int stands = s.parents ? (s.context - s.num_rows) / TILE * TILE : s.context;  // tiles that begin below it stand in the blocks
  const int count = last / TILE - first / TILE + 1;
  keys.resize(count), values.resize(count);
  std::vector<int> made;
  for (int i = 0; i < count; ++i) {
    const int position = (first / TILE + i) * TILE;
    if (size % TILE || position >= stands) {
      made.push_back(i);
      continue;
    }
    keys[i] = c.key_tile(head, tile_of(s, position)), values[i] = c.value_tile(head, tile_of(s, position));
  }
  const std::size_t bytes = c.tile_bytes();
  copies.grow(2 * bytes * made.size());
  const int end = s.parents ? static_cast<int>(b.positions[s.first_row + row]) + 1 : s.context;
  for (std::size_t n = 0; n < made.size(); ++n) {
    std::uint8_t *k = copies.data() + 2 * bytes * n, *v = k + bytes;
    std::memset(k, 0, 2 * bytes);
    for (int lane = 0; lane < TILE; ++lane) {
      const int position = (first / TILE + made[n]) * TILE + lane;
      if (position >= end) break;
      const std::int64_t from = slot(s, row, position);
      const int its = static_cast<int>(from % TILE);
      const std::uint8_t *fk = c.key_tile(head, from / TILE), *fv = c.value_tile(head, from / TILE);
      if (number == 4) {
        for (int d = 0; d < c.dim; ++d) {
          reinterpret_cast<float*>(k)[c.key_at(lane, d)] = reinterpret_cast<const float*>(fk)[c.key_at(its, d)];
          reinterpret_cast<float*>(v)[c.value_at(lane, d)] = reinterpret_cast<const float*>(fv)[c.value_at(its, d)];
        }
      } else {
        for (int d = 0; d < c.padded; d += 2)  // a pair of a key's numbers is one word
          reinterpret_cast<std::uint32_t*>(k)[d / 2 * TILE + lane] = reinterpret_cast<const std::uint32_t*>(fk)[d / 2 * TILE + its];
        std::uint16_t* to = reinterpret_cast<std::uint16_t*>(v) + c.value_at(lane, 0);
        const std::uint16_t* at = reinterpret_cast<const std::uint16_t*>(fv) + c.value_at(its, 0);
        for (int d = 0; d < c.padded; ++d) to[2 * d] = at[2 * d];
      }
    }
    keys[made[n]] = k, values[made[n]] = v;
  }
}

// Behind them, from a whole chunk on, pointers to the keys that are wanted after them: the first that `task` sees of `span`.
void Step::tiles_after(const Op& op, const AttentionTask& task, int span, std::vector<const std::uint8_t*>& keys,
                       std::vector<const std::uint8_t*>& values) const {
  const Sequence& s = b.sequences[task.sequence];
  if (m.block_size_ % TILE || s.parents) return;
  const int lowest = op.window ? std::max(0, s.context - s.num_rows - op.window + 1) : 0, first = std::max(span * SPAN, lowest / CHUNK * CHUNK);
  keys.resize((keys.size() + CHUNK_TILES - 1) / CHUNK_TILES * CHUNK_TILES, keys.back());
  for (int position = first; position < std::min(first + CHUNK, s.context); position += TILE)
    keys.push_back(m.caches_[op.layer].key_tile(task.head, tile_of(s, position)));
  values.resize(keys.size(), values.back());
}

struct AttentionScratch {
  std::vector<const std::uint8_t*> keys, values;
  std::vector<const float*> queries;
  std::vector<std::int32_t> positions;
  std::vector<float> best, total, mixed, later_best, later_total, later;
  Memory copies, work;
};

// Rows of one KV head over the spans of `task`. `next`: what this thread will probably do then, or nullptr.
void Step::attend(const Op& op, const AttentionTask& task, const AttentionTask* next) {
  static thread_local AttentionScratch t;
  const Sequence& s = b.sequences[task.sequence];
  const Cache& c = m.caches_[op.layer];
  const int group = op.heads / op.kv_heads, rows = task.rows * group;
  t.positions.resize(rows), t.queries.resize(rows);
  int lowest = s.context, highest = 0;
  for (int i = 0; i < rows; ++i) {
    const int row = s.first_row + task.row + i / group, position = static_cast<int>(b.positions[row]);
    t.positions[i] = position;
    t.queries[i] = query(op, row, task.head * group + i % group);
    lowest = std::min(lowest, op.window ? std::max(0, position - op.window + 1) : 0);
    highest = std::max(highest, position);
  }
  t.work.grow(m.kernels_.attend_bytes(c, rows));
  const auto run = [&](int span, float* best, float* total, float* mixed) {
    const int first = std::max(span * SPAN, lowest / CHUNK * CHUNK), last = std::min((span + 1) * SPAN - 1, highest);
    if (first > last) {
      std::fill_n(best, rows, -INFINITY), std::fill_n(total, rows, 0.0f), std::fill_n(mixed, std::size_t(rows) * c.padded, 0.0f);
      return;
    }
    tiles(op, s, task.head, task.row, first, last, t.keys, t.values, t.copies);
    if (span < task.last_span) tiles_after(op, task, span + 1, t.keys, t.values);
    else if (next) tiles_after(op, *next, next->span, t.keys, t.values);
    m.kernels_.attend({c, rows, first, last, t.positions.data(), t.queries.data(), op.scale, op.cap, op.window, t.keys.data(),
                       t.values.data(), static_cast<int>(t.keys.size()), t.work.data(), best, total, mixed});
  };
  if (task.partial >= 0) {
    float* to = m.partial_.floats() + std::size_t(task.partial) * m.partial_stride_;
    return run(task.span, to, to + rows, to + 2 * rows);
  }
  const std::size_t numbers = std::size_t(rows) * c.padded;
  t.best.resize(rows), t.total.resize(rows), t.mixed.resize(numbers);
  run(task.span, t.best.data(), t.total.data(), t.mixed.data());
  for (int span = task.span + 1; span <= task.last_span; ++span) {
    t.later_best.resize(rows), t.later_total.resize(rows), t.later.resize(numbers);
    run(span, t.later_best.data(), t.later_total.data(), t.later.data());
    for (int i = 0; i < rows; ++i)
      m.kernels_.merge_span(&t.best[i], &t.total[i], &t.mixed[std::size_t(i) * c.padded], t.later_best[i], t.later_total[i],
                            &t.later[std::size_t(i) * c.padded], c.padded);
  }
  for (int i = 0; i < rows; ++i)
    m.kernels_.divide(&t.mixed[std::size_t(i) * c.padded], t.total[i], c.dim,
                      at(op.out, s.first_row + task.row + i / group) + std::size_t(task.head * group + i % group) * op.dim);
}

// Puts the partial results of one task's spans together, in order.
void Step::merge(const Op& op, const AttentionTask& task) {
  const Sequence& s = b.sequences[task.sequence];
  const Cache& c = m.caches_[op.layer];
  const int group = op.heads / op.kv_heads, rows = task.rows * group;
  float* first = m.partial_.floats() + std::size_t(task.partial) * m.partial_stride_;
  for (int i = 0; i < rows; ++i) {
    float* mixed = first + 2 * rows + std::size_t(i) * c.padded;
    for (int span = 1; span <= task.last_span; ++span) {
      const float* later = first + std::size_t(span) * m.partial_stride_;
      m.kernels_.merge_span(first + i, first + rows + i, mixed, later[i], later[rows + i], later + 2 * rows + std::size_t(i) * c.padded, c.padded);
    }
    m.kernels_.divide(mixed, first[rows + i], c.dim,
                      at(op.out, s.first_row + task.row + i / group) + std::size_t(task.head * group + i % group) * op.dim);
  }
}

// Cuts the step's attention into tasks, the same for every layer. Long contexts of few rows are cut into spans as well.
void Step::plan_attention() {
  const Op* op = nullptr;
  for (const Op& each : m.ops_)
    if (each.kind == Kind::heads || each.kind == Kind::attention) op = &each;
  if (!op) return;
  const int group = op->heads / op->kv_heads, tokens = std::max(1, PAIRS / group), threads = m.pool_->size();
  int longest = 0, widest = 0;
  for (const Sequence& s : b.sequences) longest = std::max(longest, s.context), widest = std::max(widest, s.num_rows);
  const int heads = static_cast<int>(b.sequences.size()) * op->kv_heads;
  together_ = widest <= SHORT_CHUNK && (threads == 1 || heads >= 4 * threads || (heads % threads == 0 && heads > 0) || longest <= CHUNK);
  const bool split = !together_ && longest > SPAN && widest <= SHORT_CHUNK;
  int partials = 0;
  for (int i = 0; i < static_cast<int>(b.sequences.size()); ++i) {
    const Sequence& s = b.sequences[i];
    const int each = s.parents ? 1 : together_ ? std::max(1, s.num_rows) : tokens, last = (s.context - 1) / SPAN;
    for (int head = 0; head < op->kv_heads; ++head)
      for (int row = 0; row < s.num_rows; row += each) {
        AttentionTask task{i, head, row, std::min(each, s.num_rows - row), 0, last, -1};
        if (!split) {
          tasks_.push_back(task);
          continue;
        }
        task.partial = partials;
        merges_.push_back(task);
        for (int span = 0; span <= last; ++span) tasks_.push_back({i, head, row, task.rows, span, span, partials++});
      }
  }
  if (partials) {
    m.partial_stride_ = std::size_t(std::min(tokens, widest)) * group * (m.caches_[op->layer].padded + 2);
    m.partial_.grow(m.partial_stride_ * partials * 4);
  }
}

// Attention over what `in` holds in its first heads; the result goes to `out` [heads * dim].
void Step::attention(const Op& op, int thread) {
  const int count = static_cast<int>(tasks_.size());
  if (merges_.empty()) return share(thread, count, [&](int i) { attend(op, tasks_[count - 1 - i], i + 1 < count ? &tasks_[count - 2 - i] : nullptr); });
  share(thread, count, [&](int i) { attend(op, tasks_[i], i + 1 < count ? &tasks_[i + 1] : nullptr); });
  share(thread, static_cast<int>(merges_.size()), [&](int i) { merge(op, merges_[i]); });
}

// Queries, keys and values from one buffer: prepared, stored, attended.
void Step::heads(const Op& op, int thread) {
  if (!together_) {
    share(thread, b.rows, [&](int row) {
      for (int head = 0; head < op.kv_heads; ++head) prepare_heads(op, row, head);
    });
    return attention(op, thread);
  }
  const int count = static_cast<int>(b.sequences.size()) * op.kv_heads;
  const auto whole = [&](int i) {
    const Sequence& s = b.sequences[i / op.kv_heads];
    return AttentionTask{i / op.kv_heads, i % op.kv_heads, 0, s.parents ? 1 : s.num_rows, 0, (s.context - 1) / SPAN, -1};
  };
  share(thread, count, [&](int i) {
    AttentionTask task = whole(i);
    const AttentionTask next = whole(std::min(i + 1, count - 1));
    const Sequence& s = b.sequences[task.sequence];
    for (int row = 0; row < s.num_rows; ++row) prepare_heads(op, s.first_row + row, task.head);
    for (; task.row < s.num_rows; task.row += task.rows) attend(op, task, &next);
  });
}

}  // namespace penstock
