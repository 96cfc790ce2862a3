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

// What a thread needs to attend, kept from task to task.
struct AttentionScratch {
  std::vector<const std::uint8_t*> keys, values;  // of tiles
  std::vector<const float*> queries;
  std::vector<std::int32_t> positions;
  Memory copies, work, here, later;
};

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
  const auto turn = [&](float* heads, int count, int norm) {
    for (int h = 0; norm >= 0 && h < count; ++h) {
      float* x = heads + h * op.dim;
      m.kernels_.rms_norm(x, vector(norm), op.eps, op.offset, op.dim, x);
    }
    if (op.angles < 0) return;
    const Angles& a = m.angles_[op.angles];
    const std::size_t pairs = a.frequencies.size();
    m.kernels_.rotate({heads, std::size_t(op.dim)}, count, a.cosines.floats() + pairs * row, a.sines.floats() + pairs * row, static_cast<int>(pairs));
  };
  turn(all + head * group * op.dim, group, op.weight);
  if (!op.writes) return;
  float* key = all + (op.heads + head) * op.dim;
  turn(key, 1, op.weight2);
  m.write_token(op.layer, head, b.slots[row], key, all + (op.heads + op.kv_heads + head) * op.dim);
}

const float* Step::query(const Op& op, int row, int head) const { return at(op.in, row) + std::size_t(head) * op.dim; }

// Of a position that stands in the blocks.
std::size_t Step::tile_of(const Sequence& s, int position) const {
  return (s.blocks[position / m.block_size_] * m.block_size_ + position % m.block_size_) / TILE;
}

// Pointers to the tiles of positions first .. last that a task's rows see. A tile that does not stand in the pool (blocks are no multiple of
// a tile, or it ends with a tree's branch) is put together in `copies`. What stands behind a sequence's end is whatever the slots held before.
void Step::tiles(const Op& op, const AttentionTask& task, int first, int last, AttentionScratch& t) const {
  const Sequence& s = b.sequences[task.sequence];
  const Cache& c = m.caches_[op.layer];
  const int size = m.block_size_;
  const int stands = s.parents ? (s.context - s.num_rows) / TILE * TILE : s.context;  // tiles that begin below it stand in the blocks
  const int count = last / TILE - first / TILE + 1;
  t.keys.resize(count), t.values.resize(count);
  std::vector<int> made;
  for (int i = 0; i < count; ++i) {
    const int position = (first / TILE + i) * TILE;
    if (size % TILE || position >= stands) {
      made.push_back(i);
      continue;
    }
    t.keys[i] = c.key_tile(task.head, tile_of(s, position)), t.values[i] = c.value_tile(task.head, tile_of(s, position));
  }
  const std::size_t bytes = c.tile_bytes();
  t.copies.grow(2 * bytes * made.size());
  const int end = s.parents ? static_cast<int>(b.positions[s.first_row + task.row]) + 1 : s.context;
  for (std::size_t n = 0; n < made.size(); ++n) {
    const TilePair to{t.copies.data() + 2 * bytes * n, t.copies.data() + 2 * bytes * n + bytes};
    std::memset(to.keys, 0, 2 * bytes);
    for (int lane = 0; lane < TILE; ++lane) {
      const int position = (first / TILE + made[n]) * TILE + lane;
      if (position >= end) break;
      const std::int64_t from = slot(s, task.row, position);
      const TilePair tile = c.pair(task.head, from / TILE);
      if (c.bf16) c.copy_token<std::uint16_t>(tile, static_cast<int>(from % TILE), to, lane);
      else c.copy_token<float>(tile, static_cast<int>(from % TILE), to, lane);
    }
    t.keys[made[n]] = to.keys, t.values[made[n]] = to.values;
  }
}

// Behind them, from a whole chunk on, pointers to the keys that are wanted after them: the first that `task` sees of `span`.
void Step::tiles_after(const Op& op, const AttentionTask& task, int span, AttentionScratch& t) const {
  const Sequence& s = b.sequences[task.sequence];
  if (m.block_size_ % TILE || s.parents) return;
  const int lowest = op.window ? std::max(0, s.context - s.num_rows - op.window + 1) : 0, first = std::max(span * SPAN, lowest / CHUNK * CHUNK);
  t.keys.resize((t.keys.size() + CHUNK_TILES - 1) / CHUNK_TILES * CHUNK_TILES, t.keys.back());
  for (int position = first; position < std::min(first + CHUNK, s.context); position += TILE)
    t.keys.push_back(m.caches_[op.layer].key_tile(task.head, tile_of(s, position)));
  t.values.resize(t.keys.size(), t.values.back());
}

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
  const auto run = [&](int span, const Mixture& to) {
    const int first = std::max(span * SPAN, lowest / CHUNK * CHUNK), last = std::min((span + 1) * SPAN - 1, highest);
    if (first > last) {
      std::fill_n(to.best, rows, -INFINITY), std::fill_n(to.total, rows, 0.0f), std::fill_n(to.mixed, std::size_t(rows) * c.padded, 0.0f);
      return;
    }
    tiles(op, task, first, last, t);
    if (span < task.last_span) tiles_after(op, task, span + 1, t);
    else if (next) tiles_after(op, *next, next->span, t);
    m.kernels_.attend({c, rows, first, last, t.positions.data(), t.queries.data(), op.scale, op.cap, op.window, t.keys.data(),
                       t.values.data(), static_cast<int>(t.keys.size()), t.work.data(), to});
  };
  if (task.partial >= 0) return run(task.span, partial(task.partial, rows, c.padded));
  const std::size_t bytes = Mixture::numbers(rows, c.padded) * 4;
  t.here.grow(bytes);
  const Mixture here(t.here.floats(), rows, c.padded);
  run(task.span, here);
  for (int span = task.span + 1; span <= task.last_span; ++span) {
    t.later.grow(bytes);
    const Mixture later(t.later.floats(), rows, c.padded);
    run(span, later);
    m.kernels_.merge_span(here, later, rows, c.padded);
  }
  divide(op, task, here);
}

Mixture Step::partial(int index, int rows, int padded) const { return {m.partial_.floats() + m.partial_stride_ * index, rows, padded}; }

// What a task's rows have come to -> the output.
void Step::divide(const Op& op, const AttentionTask& task, const Mixture& from) const {
  const int group = op.heads / op.kv_heads, first = b.sequences[task.sequence].first_row + task.row;
  const Cache& c = m.caches_[op.layer];
  for (int i = 0; i < task.rows * group; ++i)
    m.kernels_.divide(from.mixed + std::size_t(i) * c.padded, from.total[i], c.dim,
                      at(op.out, first + i / group) + std::size_t(task.head * group + i % group) * op.dim);
}

// Puts the partial results of one task's spans together, in order.
void Step::merge(const Op& op, const AttentionTask& task) const {
  const int rows = task.rows * (op.heads / op.kv_heads), padded = m.caches_[op.layer].padded;
  const Mixture first = partial(task.partial, rows, padded);
  for (int span = 1; span <= task.last_span; ++span) m.kernels_.merge_span(first, partial(task.partial + span, rows, padded), rows, padded);
  divide(op, task, first);
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
  // Tasks that prepare and attend a whole head spare a wait for all threads between the two, where they can be shared out evenly, or are short.
  const bool even = threads == 1 || heads >= 4 * threads || (heads > 0 && heads % threads == 0);
  together_ = widest <= SHORT_CHUNK && (even || longest <= CHUNK);
  // Else few heads of a long context are cut along the context, so that every thread has some of it.
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
    m.partial_stride_ = Mixture::numbers(std::min(tokens, widest) * group, m.caches_[op->layer].padded);
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
    share_rows(thread, b.rows, [&](int row) {
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
