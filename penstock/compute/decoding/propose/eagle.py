"""EAGLE (Li et al. 2024, arXiv:2401.15077) with the dynamic draft tree of EAGLE-2 (arXiv:2406.16858): one decoder layer (the "head"),
trained on the target's hidden states, predicts the next token and the next hidden state, from which it continues for up to `depth` tokens.
The `k` drafts with the highest cumulative probabilities are proposed. Costs up to `depth` steps of the head per step of the target, for all
sequences in one batch. Needs a head trained for the target; helps if the target's step takes many times as long as the head's.

A draft's score is the sum of the head's log-probabilities on the path to it. Each round expands the best-scored drafts without children,
for all sequences in one step of the head. The head's KV cache keeps a sequence's tokens only: the rows of its tree are computed again in
each round. Where hidden states are missing (a cached prefix, or steps that omitted the sequence), a new span begins, and the head does not
attend to tokens before it. A long span is read in several steps of the target, each by a step of the head that is no longer.
"""
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.decoding.propose.block_tables import MAX_KV_TOKENS, BlockTables, SeqRows, make_batch, shares
from penstock.compute.decoding.propose.confidence import soften_sampled
from penstock.compute.decoding.propose.contract import MAX_DRAFTS, Draftable, Drafts, Host
from penstock.compute.models.heads import eagle
from penstock.core.needs import Needs
from penstock.core.registry import check_ranges


@dataclass(slots=True)
class Span:
    """Positions [begin, end) of a sequence that are in the head's KV cache. The head's input at a position is the target's hidden state
    there and the token at the next position."""

    begin: int
    end: int


@dataclass(slots=True)
class Tree:
    """The draft tree of one sequence, parents before children. Parent -1 is the root, the sequence's last token."""

    room: int
    root_state: Array  # [hidden], the head's output at the last token
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)  # log-probability of the path from the root
    expanded: list[int] = field(default_factory=list)  # drafts that have children or get them in this round, parents first
    inputs: list[Array] = field(default_factory=list)  # [hidden] for each of `expanded`: the head's input
    outputs: dict[int, Array] = field(default_factory=dict)  # by expanded draft: [hidden], the head's output, and input of its children

    def add(self, parent: int, children: Sequence[tuple[int, float]]) -> None:
        """Adds the children of a draft, each (token, log-probability)."""
        parent_score = 0.0 if parent < 0 else self.scores[parent]
        for token, logprob in children:
            self.tokens.append(token)
            self.parents.append(parent)
            self.scores.append(parent_score + logprob)

    def best(self) -> list[int]:
        """The `room` best-scored drafts, in rising order. They include the parent of each, which scores no less and has a lower index."""
        ranked = heapq.nsmallest(self.room, range(len(self.tokens)), key=lambda i: (-self.scores[i], i))
        return sorted(ranked)

    def choose_leaves(self, width: int) -> int:
        """Appends to `expanded` the drafts that get children next, and returns their number: the `width` best leaves, of those that would
        be proposed themselves."""
        leaves = [i for i in self.best() if i not in self.outputs]
        chosen = sorted(heapq.nsmallest(width, leaves, key=lambda i: (-self.scores[i], i)))
        self.expanded += chosen
        for i in chosen:
            self.inputs.append(self.root_state if self.parents[i] < 0 else self.outputs[self.parents[i]])
        return len(chosen)

    def drafts(self) -> Drafts:
        kept = self.best()
        index = {i: place for place, i in enumerate(kept)}
        return Drafts(tuple([self.tokens[i] for i in kept]), tuple([index.get(self.parents[i], -1) for i in kept]))


class Eagle:
    @dataclass(frozen=True, slots=True)
    class Options:
        path: str | None = None  # eagle.safetensors or its folder; none: the model's folder
        k: int = 8  # maximum number of drafts
        depth: int = 6  # steps of the head, and so the depth of the tree
        width: int = 4  # drafts that are expanded per step, and children of each
        kv_tokens: int = 0  # capacity of the head's KV cache, in tokens; 0: the capacity of the target's, and the trees

    needs = Needs(buffers=("hidden",), tree_masks=True)

    def __init__(self, options: Options, host: Host) -> None:
        """Raises UsageError for options out of range, and if there is no head or it was trained for another model."""
        check_ranges("eagle", options, k=(1, MAX_DRAFTS), depth=(1, MAX_DRAFTS), width=(1, MAX_DRAFTS), kv_tokens=(0, MAX_KV_TOKENS))
        self._options = options
        self._max_tree_rows = options.width * options.depth  # of one sequence in the head's cache
        kv_tokens = options.kv_tokens or host.kv_tokens + host.max_num_seqs * self._max_tree_rows
        self._aux = host.heads(options.path, "eagle", eagle.build, kv_tokens)
        self._sampler = host.sampler
        self._most_rows = host.max_num_batched_tokens
        self._tables = BlockTables(self._aux.layout)
        self._spans: dict[int, Span] = {}  # by sequence

    def lookahead(self) -> int:
        return self._options.k

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        fresh = {row.seq_id: states for row in rows if (states := self._fresh_states(row)) is not None}
        trees = self._start_trees([row for row in rows if row.seq_id in fresh], fresh)
        active = [row for row in rows if row.seq_id in trees]
        for _ in range(self._options.depth - 1):
            num_chosen = {row.seq_id: count for row in active if (count := trees[row.seq_id].choose_leaves(self._options.width))}
            active = [row for row in active if row.seq_id in num_chosen]
            if not active:
                break
            self._expand(active, trees, num_chosen)
        return [trees[row.seq_id].drafts() if row.seq_id in trees else Drafts(is_reading=row.seq_id in fresh) for row in rows]

    def forget(self, seq_id: int) -> None:
        self._tables.forget(seq_id)
        self._spans.pop(seq_id, None)

    def _fresh_states(self, row: Draftable) -> Array | None:
        """Allocates blocks for the sequence and a tree. Returns the target's hidden states [n, hidden] that the head has not computed yet;
        None if there are none, or too few blocks."""
        last = len(row.tokens) - 1  # its state is not known yet
        count = 0 if row.states is None else len(row.states)
        span = self._spans.get(row.seq_id)
        if span is None or not last - count <= span.end < last:
            self.forget(row.seq_id)
            span = Span(last - count, last - count)
        if row.states is None or not count or self._tables.grow(row.seq_id, last - span.begin + self._max_tree_rows) is None:
            self.forget(row.seq_id)
            return None
        self._spans[row.seq_id] = span
        return row.states[span.end - last :]

    def _start_trees(self, rows: Sequence[Draftable], fresh: dict[int, Array]) -> dict[int, Tree]:
        """Runs the head on the `fresh` states, as far as one step reaches. Returns trees of one level, the likeliest next tokens, of the
        sequences that are read up to their last token."""
        if not rows:
            return {}
        seqs: list[SeqRows] = []
        states: list[Array] = []
        last_rows: list[int] = []
        complete: list[Draftable] = []
        num_rows = 0
        for row, count in zip(rows, shares([len(fresh[row.seq_id]) for row in rows], self._most_rows), strict=True):
            if not count:
                continue
            span, left = self._spans[row.seq_id], fresh[row.seq_id]
            seqs.append(SeqRows(row.tokens[span.end + 1 : span.end + 1 + count], span.end - span.begin, self._tables.of(row.seq_id)))
            states.append(left[:count])
            span.end += count
            num_rows += count
            if count == len(left):
                last_rows.append(num_rows - 1)
                complete.append(row)
        hidden, found = self._step(seqs, np.concatenate(states), last_rows, complete)
        trees = {row.seq_id: Tree(row.room, hidden[last]) for row, last in zip(complete, last_rows, strict=True)}
        for row, children in zip(complete, found, strict=True):
            trees[row.seq_id].add(-1, children)
        return trees

    def _expand(self, rows: Sequence[Draftable], trees: dict[int, Tree], num_chosen: dict[int, int]) -> None:
        """Adds children to the last `num_chosen` drafts in `expanded` of each tree, by one step over all drafts in `expanded`."""
        seqs: list[SeqRows] = []
        states: list[Array] = []
        logit_rows: list[int] = []
        owners: list[Draftable] = []
        first = 0
        for row in rows:
            tree, span = trees[row.seq_id], self._spans[row.seq_id]
            index = {i: place for place, i in enumerate(tree.expanded)}
            parents = [index.get(tree.parents[i], -1) for i in tree.expanded]
            seqs.append(SeqRows([tree.tokens[i] for i in tree.expanded], span.end - span.begin, self._tables.of(row.seq_id), parents))
            states += tree.inputs
            count = len(tree.expanded)
            logit_rows += range(first + count - num_chosen[row.seq_id], first + count)
            owners += [row] * num_chosen[row.seq_id]
            first += count
        hidden, found = self._step(seqs, np.stack(states), logit_rows, owners)
        results = iter(zip(logit_rows, found, strict=True))
        for row in rows:
            tree = trees[row.seq_id]
            for i in tree.expanded[-num_chosen[row.seq_id] :]:
                place, children = next(results)
                tree.outputs[i] = hidden[place]
                tree.add(i, children)

    def _step(self, seqs: Sequence[SeqRows], states: Array, logit_rows: Sequence[int], owners: Sequence[Draftable],
              ) -> tuple[Array, list[list[tuple[int, float]]]]:
        """One step of the head. `states` [rows, hidden]: its inputs; `owners`: the sequence of each of `logit_rows`.

        Returns its outputs [rows, hidden], and for each of `logit_rows` the `width` likeliest next tokens as (token, log-probability).
        """
        aux = self._aux
        outputs = aux.backend.step(
            aux.loaded, make_batch(seqs, aux.layout.block_size, logit_rows, {"states": states}, ("hidden",)))
        count = len(logit_rows)
        logits = soften_sampled(outputs.logits, owners)
        scored = self._sampler.score(logits, [0] * count, [self._options.width] * count) if count else []
        return outputs.buffers["hidden"], [list(each.top) for each in scored]
