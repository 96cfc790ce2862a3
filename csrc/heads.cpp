// Attention operations: normalizes and rotates queries and keys, writes keys and values to the pool, attends each row over its sequence.
//
// The context is divided into spans of SPAN keys at fixed positions. Each span gives an AttentionState of its own, and states are merged
// in order, whether one task computes all spans or each span is a task. So a row's bits do not depend on how the work is divided.
#include <cmath>
#include <cstring>

#include "model.h"

namespace penstock {

namespace {

constexpr int MAX_QUERY_ROWS = 48;  // (token, query head) rows of a task that attends alone, which share the keys they read
constexpr int MAX_FUSED_ROWS = 16;  // rows of a sequence up to which one task prepares and attends a whole KV head

}  // namespace

// A thread's buffers, reused by its tasks.
struct AttentionScratch {
  std::vector<const std::uint8_t*> keys, values;  // of tiles
  std::vector<const float*> queries;
  std::vector<std::int32_t> positions;
  Memory copies, work, state, span_state;
};

std::int64_t Step::slot(const Sequence& s, int row, int position) const {
  const int base = s.context - s.num_rows;
  if (position >= base && s.parents) {
    int at = row;  // `row` or its ancestor at this position
    while (batch_.positions[s.first_row + at] > position) at = s.parents[at];
    return batch_.slots[s.first_row + at];
  }
  return s.blocks[position / model_.block_size_] * model_.block_size_ + position % model_.block_size_;
}

// One row and KV head of `in` [heads + 2 * kv_heads, dim]: norms and rotary embedding in place, then the KV write.
void Step::prepare_heads(const Op& op, int row, int head) const {
  float* all = at(op.in, row);
  const int group = op.heads_per_kv();
  const auto norm_and_rope = [&](float* heads, int count, int norm) {
    for (int h = 0; norm >= 0 && h < count; ++h) {
      float* x = heads + h * op.dim;
      model_.kernels_.rms_norm(x, vector(norm), op.eps, op.offset, op.dim, x);
    }
    if (op.rope_table >= 0) rotate(op, row, heads, count);
  };
  norm_and_rope(all + head * group * op.dim, group, op.weight);
  if (!op.writes) return;
  float* key = all + (op.heads + head) * op.dim;
  norm_and_rope(key, 1, op.weight2);
  model_.write_token(op.layer, head, batch_.slots[row], key, all + (op.heads + op.kv_heads + head) * op.dim);
}

const float* Step::query(const Op& op, int row, int head) const { return at(op.in, row) + std::size_t(head) * op.dim; }

// Only for positions in the block table.
std::size_t Step::tile_of(const Sequence& s, int position) const {
  return (s.blocks[position / model_.block_size_] * model_.block_size_ + position % model_.block_size_) / TILE_SLOTS;
}

// Pointers to the tiles that hold keys first .. last. A tile that is not contiguous in the pool (block size not a multiple of TILE_SLOTS,
// or the branch of a draft tree) is gathered into `copies`. Slots beyond the end of a sequence may hold anything.
void Step::collect_tiles(const Op& op, const AttentionTask& task, int first, int last, AttentionScratch& t) const {
  const Sequence& s = batch_.sequences[task.sequence];
  const Cache& c = model_.caches_[op.layer];
  const int size = model_.block_size_;
  // Tiles below this position are contiguous in the pool.
  const int gathered_from = s.parents ? (s.context - s.num_rows) / TILE_SLOTS * TILE_SLOTS : s.context;
  const int count = last / TILE_SLOTS - first / TILE_SLOTS + 1;
  t.keys.resize(count), t.values.resize(count);
  std::vector<int> gathered;
  for (int i = 0; i < count; ++i) {
    const int position = (first / TILE_SLOTS + i) * TILE_SLOTS;
    if (size % TILE_SLOTS || position >= gathered_from) {
      gathered.push_back(i);
      continue;
    }
    t.keys[i] = c.key_tile(task.head, tile_of(s, position)), t.values[i] = c.value_tile(task.head, tile_of(s, position));
  }
  const std::size_t bytes = c.tile_bytes();
  t.copies.grow(2 * bytes * gathered.size());
  const int end = s.parents ? static_cast<int>(batch_.positions[s.first_row + task.row]) + 1 : s.context;
  for (std::size_t n = 0; n < gathered.size(); ++n) {
    const TilePair to{t.copies.data() + 2 * bytes * n, t.copies.data() + 2 * bytes * n + bytes};
    std::memset(to.keys, 0, 2 * bytes);
    for (int lane = 0; lane < TILE_SLOTS; ++lane) {
      const int position = (first / TILE_SLOTS + gathered[n]) * TILE_SLOTS + lane;
      if (position >= end) break;
      const std::int64_t from = slot(s, task.row, position);
      c.copy_token(c.pair(task.head, from / TILE_SLOTS), static_cast<int>(from % TILE_SLOTS), to, lane);
    }
    t.keys[gathered[n]] = to.keys, t.values[gathered[n]] = to.values;
  }
}

// Pads the tiles to a whole chunk, then appends the first chunk of keys that `task` reads in `span`, for prefetch.
void Step::append_prefetch_tiles(const Op& op, const AttentionTask& task, int span, AttentionScratch& t) const {
  const Sequence& s = batch_.sequences[task.sequence];
  if (model_.block_size_ % TILE_SLOTS || s.parents) return;
  const int lowest = op.window ? std::max(0, s.context - s.num_rows - op.window + 1) : 0;
  const int first = std::max(span * SPAN, lowest / CHUNK * CHUNK);
  t.keys.resize((t.keys.size() + CHUNK_TILES - 1) / CHUNK_TILES * CHUNK_TILES, t.keys.back());
  for (int position = first; position < std::min(first + CHUNK, s.context); position += TILE_SLOTS)
    t.keys.push_back(model_.caches_[op.layer].key_tile(task.head, tile_of(s, position)));
  t.values.resize(t.keys.size(), t.values.back());
}

// Attention of one task. `next`: the task that this thread will probably run next, for prefetch, or nullptr.
void Step::attend(const Op& op, const AttentionTask& task, const AttentionTask* next) {
  static thread_local AttentionScratch t;
  const Sequence& s = batch_.sequences[task.sequence];
  const Cache& c = model_.caches_[op.layer];
  const int group = op.heads_per_kv(), rows = task.rows * group;
  t.positions.resize(rows), t.queries.resize(rows);
  int lowest = s.context, highest = 0;
  for (int i = 0; i < rows; ++i) {
    const int row = s.first_row + task.row + i / group, position = static_cast<int>(batch_.positions[row]);
    t.positions[i] = position;
    t.queries[i] = query(op, row, task.head * group + i % group);
    lowest = std::min(lowest, op.window ? std::max(0, position - op.window + 1) : 0);
    highest = std::max(highest, position);
  }
  t.work.grow(model_.kernels_.attend_bytes(c, rows));
  const auto run = [&](int span, const AttentionState& to) {
    const int first = std::max(span * SPAN, lowest / CHUNK * CHUNK), last = std::min((span + 1) * SPAN - 1, highest);
    if (first > last) {  // no row sees a key of this span
      std::fill_n(to.running_max, rows, -INFINITY), std::fill_n(to.running_sum, rows, 0.0f);
      std::fill_n(to.acc, std::size_t(rows) * c.padded, 0.0f);
      return;
    }
    collect_tiles(op, task, first, last, t);
    if (span < task.last_span) append_prefetch_tiles(op, task, span + 1, t);
    else if (next) append_prefetch_tiles(op, *next, next->span, t);
    model_.kernels_.attend({c, rows, first, last, t.positions.data(), t.queries.data(), op.scale, op.cap, op.window, t.keys.data(),
                            t.values.data(), static_cast<int>(t.keys.size()), model_.cache_prefetch(), t.work.data(), to});
  };
  if (task.partial >= 0) return run(task.span, partial(task.partial, rows, c.padded));
  const std::size_t bytes = AttentionState::num_floats(rows, c.padded) * 4;
  t.state.grow(bytes);
  const AttentionState state(t.state.floats(), rows, c.padded);
  run(task.span, state);
  for (int span = task.span + 1; span <= task.last_span; ++span) {
    t.span_state.grow(bytes);
    const AttentionState span_state(t.span_state.floats(), rows, c.padded);
    run(span, span_state);
    model_.kernels_.merge_spans(state, span_state, rows, c.padded);
  }
  normalize(op, task, state);
}

AttentionState Step::partial(int index, int rows, int padded) const {
  return {model_.partial_.floats() + model_.partial_stride_ * index, rows, padded};
}

// acc / running_sum -> the output. A sink is a key that all rows see last, whose value is 0: it is no part of any span.
void Step::normalize(const Op& op, const AttentionTask& task, const AttentionState& from) const {
  const int group = op.heads_per_kv(), first = batch_.sequences[task.sequence].first_row + task.row;
  const Cache& c = model_.caches_[op.layer];
  for (int i = 0; i < task.rows * group; ++i) {
    const int head = task.head * group + i % group;
    float sum = from.running_sum[i];
    if (op.sinks >= 0) sum += std::exp(vector(op.sinks)[head] - from.running_max[i]);  // beyond float: the output is 0
    model_.kernels_.normalize(from.acc + std::size_t(i) * c.padded, sum, c.dim, at(op.out, first + i / group) + std::size_t(head) * op.dim);
  }
}

// Merges the partial results of one task's spans, in order.
void Step::merge(const Op& op, const AttentionTask& task) const {
  const int rows = task.rows * op.heads_per_kv(), padded = model_.caches_[op.layer].padded;
  const AttentionState first = partial(task.partial, rows, padded);
  for (int span = 1; span <= task.last_span; ++span)
    model_.kernels_.merge_spans(first, partial(task.partial + span, rows, padded), rows, padded);
  normalize(op, task, first);
}

// Divides the step's attention into tasks, the same for every layer: layers may differ in their query heads, not in their KV heads.
void Step::plan_attention() {
  int group = 0, kv_heads = 0;  // the most query heads that share a KV head
  for (const Op& each : model_.ops_)
    if (each.kind == Kind::heads || each.kind == Kind::attention) kv_heads = each.kv_heads, group = std::max(group, each.heads_per_kv());
  if (group == 0) return;
  const int tokens_per_task = std::max(1, MAX_QUERY_ROWS / group), threads = model_.pool_->size();
  int longest = 0, widest = 0;
  for (const Sequence& s : batch_.sequences) longest = std::max(longest, s.context), widest = std::max(widest, s.num_rows);
  const int heads = static_cast<int>(batch_.sequences.size()) * kv_heads;
  // Fusing preparation and attention of a KV head saves a phase. It pays where heads are enough to balance the threads, or contexts are
  // short.
  const bool balanced = threads == 1 || heads >= 4 * threads || (heads > 0 && heads % threads == 0);
  fused_heads_ = widest <= MAX_FUSED_ROWS && (balanced || longest <= CHUNK);
  // Otherwise long contexts of few rows are divided into spans as well, so that all threads take part.
  const bool split_context = !fused_heads_ && longest > SPAN && widest <= MAX_FUSED_ROWS;
  int partials = 0;
  for (int i = 0; i < static_cast<int>(batch_.sequences.size()); ++i) {
    const Sequence& s = batch_.sequences[i];
    const int rows_per_task = s.parents ? 1 : fused_heads_ ? std::max(1, s.num_rows) : tokens_per_task, last = (s.context - 1) / SPAN;
    for (int head = 0; head < kv_heads; ++head)
      for (int row = 0; row < s.num_rows; row += rows_per_task) {
        AttentionTask task{i, head, row, std::min(rows_per_task, s.num_rows - row), 0, last, -1};
        if (!split_context) {
          tasks_.push_back(task);
          continue;
        }
        task.partial = partials;
        merges_.push_back(task);
        for (int span = 0; span <= last; ++span) tasks_.push_back({i, head, row, task.rows, span, span, partials++});
      }
  }
  if (partials) {
    model_.partial_stride_ = AttentionState::num_floats(std::min(tokens_per_task, widest) * group, model_.caches_[0].padded);
    model_.partial_.grow(model_.partial_stride_ * partials * 4);
  }
}

// Attention of the queries in `in` [heads, dim] -> out [heads, dim].
void Step::attention(const Op& op, int thread) {
  const int count = static_cast<int>(tasks_.size());
  if (merges_.empty())  // from the last on: later rows see more keys, and the longest tasks should not be the last to begin
    return parallel_for(thread, count, [&](int i) { attend(op, tasks_[count - 1 - i], i + 1 < count ? &tasks_[count - 2 - i] : nullptr); });
  parallel_for(thread, count, [&](int i) { attend(op, tasks_[i], i + 1 < count ? &tasks_[i + 1] : nullptr); });
  parallel_for(thread, static_cast<int>(merges_.size()), [&](int i) { merge(op, merges_[i]); });
}

// in [queries, keys, values] -> out: preparation, KV write, attention.
void Step::heads(const Op& op, int thread) {
  if (!fused_heads_) {
    parallel_for_rows(thread, batch_.rows, [&](int row) {
      for (int head = 0; head < op.kv_heads; ++head) prepare_heads(op, row, head);
    });
    return attention(op, thread);
  }
  const int count = static_cast<int>(batch_.sequences.size()) * op.kv_heads;
  const auto head_task = [&](int i) {
    const Sequence& s = batch_.sequences[i / op.kv_heads];
    return AttentionTask{i / op.kv_heads, i % op.kv_heads, 0, s.parents ? 1 : s.num_rows, 0, (s.context - 1) / SPAN, -1};
  };
  parallel_for(thread, count, [&](int i) {
    AttentionTask task = head_task(i);
    const AttentionTask next = head_task(std::min(i + 1, count - 1));
    const Sequence& s = batch_.sequences[task.sequence];
    for (int row = 0; row < s.num_rows; ++row) prepare_heads(op, s.first_row + row, task.head);
    for (; task.row < s.num_rows; task.row += task.rows) attend(op, task, &next);
  });
}

}  // namespace penstock
