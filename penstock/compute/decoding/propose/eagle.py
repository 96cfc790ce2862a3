"""EAGLE (Li et al. 2024, arXiv:2401.15077) with the tree of EAGLE-2 (arXiv:2406.16858): a layer trained on the model's hidden states goes
on from them, and a draft is worth what the head gives for it times what it gives for all before it. Pays where one was trained for the
model, whose step takes many times as long as the layer's.

In each round the most valuable drafts that have no successors yet get some, of all sequences in one step; in the end the best are offered.
The head's keys and values are those of a sequence's tokens alone; a tree's are computed anew in each round. Where hidden states are missing
(of a prefix from the cache, of steps that the sequence was left out of), a fresh stretch begins and the head sees no further back.
"""
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.decoding.propose.contract import MOST, Draftable, Drafts, Host
from penstock.compute.decoding.propose.sureness import softened
from penstock.compute.decoding.propose.tables import MOST_ROWS, MOST_TOKENS, Rows, Tables, batch
from penstock.compute.models.heads import eagle
from penstock.core.needs import Needs
from penstock.core.registry import check_ranges


@dataclass(slots=True)
class Stretch:
    """The tokens of a sequence whose rows stand in the head's cache: from `begin` to `end`, without the token at `end`. The row of a token
    holds the token after it."""

    begin: int
    end: int


@dataclass(slots=True)
class Tree:
    """Drafts of one sequence, the root being its last token: parents come before children. `scores` are log-probabilities from the root."""

    room: int
    root: Array  # [hidden], the head's state at the last token
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    expanded: list[int] = field(default_factory=list)  # those that have successors, parents first
    states: list[Array] = field(default_factory=list)  # that their rows are given, [hidden] each
    made: dict[int, Array] = field(default_factory=dict)  # what came of these rows: the states that their children are given

    def add(self, parent: int, children: Sequence[tuple[int, float]]) -> None:
        above = 0.0 if parent < 0 else self.scores[parent]
        for token, logprob in children:
            self.tokens.append(token)
            self.parents.append(parent)
            self.scores.append(above + logprob)

    def best(self) -> list[int]:
        """The `room` most valuable drafts, in their order. With each its parent is among them, which is worth no less and comes before."""
        ranked = heapq.nsmallest(self.room, range(len(self.tokens)), key=lambda i: (-self.scores[i], i))
        return sorted(ranked)

    def grow(self, width: int) -> int:
        """Chooses which drafts get successors next -> how many: at most `width`, and none whose successors could not be offered."""
        open_ones = [i for i in self.best() if i not in self.made]
        chosen = sorted(heapq.nsmallest(width, open_ones, key=lambda i: (-self.scores[i], i)))
        self.expanded += chosen
        for i in chosen:
            self.states.append(self.root if self.parents[i] < 0 else self.made[self.parents[i]])
        return len(chosen)

    def drafts(self) -> Drafts:
        kept = self.best()
        at = {i: place for place, i in enumerate(kept)}
        return Drafts(tuple([self.tokens[i] for i in kept]), tuple([at.get(self.parents[i], -1) for i in kept]))


class Eagle:
    @dataclass(frozen=True, slots=True)
    class Options:
        path: str | None = None  # eagle.safetensors or its folder; none: beside the model
        k: int = 8  # drafts
        depth: int = 6  # rounds, and so the longest chain
        width: int = 4  # drafts that get successors in a round, and successors of each
        kv_tokens: int = 0  # size of the head's KV cache; 0: as many as the model's holds

    needs = Needs(buffers=("hidden",), tree_masks=True)

    def __init__(self, options: Options, host: Host) -> None:
        """Raises UsageError for options without sense, ModelError where there is no such head or one for another model."""
        check_ranges("eagle", options, k=(1, MOST), depth=(1, MOST), width=(1, MOST), kv_tokens=(0, MOST_TOKENS))
        self._options = options
        self._most_rows = options.width * options.depth  # of a tree, in the head's cache
        kv_tokens = options.kv_tokens or host.kv_tokens + host.max_num_seqs * self._most_rows
        self._side = host.heads(options.path, "eagle", eagle.build, kv_tokens)
        self._sampler = host.sampler
        self._tables = Tables(self._side.layout)
        self._stretches: dict[int, Stretch] = {}

    def lookahead(self) -> int:
        return self._options.k

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        fresh = {row.seq_id: states for row in rows if (states := self._fresh(row)) is not None}
        going = [row for row in rows if row.seq_id in fresh]
        trees = self._read(going, fresh)
        for _ in range(self._options.depth - 1):
            grown = {row.seq_id: count for row in going if (count := trees[row.seq_id].grow(self._options.width))}
            going = [row for row in going if row.seq_id in grown]
            if not going:
                break
            self._expand(going, trees, grown)
        return [trees[row.seq_id].drafts() if row.seq_id in trees else Drafts() for row in rows]

    def forget(self, seq_id: int) -> None:
        self._tables.forget(seq_id)
        self._stretches.pop(seq_id, None)

    def _fresh(self, row: Draftable) -> Array | None:
        """The states that are still to be read, with room for them and a tree in the cache. None: there is nothing to go on from."""
        last = len(row.tokens) - 1  # whose state is not known yet
        count = 0 if row.states is None else len(row.states)
        stretch = self._stretches.get(row.seq_id)
        if stretch is None or not last - count <= stretch.end < last:
            self.forget(row.seq_id)
            stretch = Stretch(last - count, last - count)
        if row.states is None or not count or self._tables.grow(row.seq_id, last - stretch.begin + self._most_rows) is None:
            self.forget(row.seq_id)
            return None
        self._stretches[row.seq_id] = stretch
        return row.states[stretch.end - last :]

    def _read(self, rows: Sequence[Draftable], fresh: dict[int, Array]) -> dict[int, Tree]:
        """Brings the cache up to the last tokens -> trees with what may follow these."""
        shares: list[Rows] = []
        given: list[Array] = []
        ends: list[int] = []
        for row in rows:
            stretch, states = self._stretches[row.seq_id], fresh[row.seq_id]
            while len(states) > MOST_ROWS:
                self._step([self._share(row, MOST_ROWS)], states[:MOST_ROWS], [], [])
                stretch.end, states = stretch.end + MOST_ROWS, states[MOST_ROWS:]
            shares.append(self._share(row, len(states)))
            given.append(states)
            stretch.end += len(states)
            ends.append((ends[-1] if ends else -1) + len(states))
        if not rows:
            return {}
        hidden, found = self._step(shares, np.concatenate(given), ends, rows)
        trees = {row.seq_id: Tree(row.room, hidden[end]) for row, end in zip(rows, ends, strict=True)}
        for row, children in zip(rows, found, strict=True):
            trees[row.seq_id].add(-1, children)
        return trees

    def _share(self, row: Draftable, count: int) -> Rows:
        stretch = self._stretches[row.seq_id]
        return Rows(row.tokens[stretch.end + 1 : stretch.end + 1 + count], stretch.end - stretch.begin, self._tables.of(row.seq_id))

    def _expand(self, rows: Sequence[Draftable], trees: dict[int, Tree], grown: dict[int, int]) -> None:
        """Gives successors to the drafts that each tree has chosen last."""
        shares: list[Rows] = []
        given: list[Array] = []
        wanted: list[int] = []
        owners: list[Draftable] = []
        first = 0
        for row in rows:
            tree, stretch = trees[row.seq_id], self._stretches[row.seq_id]
            at = {i: place for place, i in enumerate(tree.expanded)}
            parents = [at.get(tree.parents[i], -1) for i in tree.expanded]
            shares.append(Rows([tree.tokens[i] for i in tree.expanded], stretch.end - stretch.begin, self._tables.of(row.seq_id), parents))
            given += tree.states
            count = len(tree.expanded)
            wanted += range(first + count - grown[row.seq_id], first + count)
            owners += [row] * grown[row.seq_id]
            first += count
        hidden, found = self._step(shares, np.stack(given), wanted, owners)
        places = iter(zip(wanted, found, strict=True))
        for row in rows:
            tree = trees[row.seq_id]
            for i in tree.expanded[-grown[row.seq_id] :]:
                place, children = next(places)
                tree.made[i] = hidden[place]
                tree.add(i, children)

    def _step(self, shares: Sequence[Rows], states: Array, logit_rows: Sequence[int], owners: Sequence[Draftable],
              ) -> tuple[Array, list[list[tuple[int, float]]]]:
        """(hidden states of all rows, of each row of `logit_rows` the likeliest tokens and their log-probabilities). `owners`: whose
        rows these are."""
        side = self._side
        outputs = side.backend.step(
            side.loaded, batch(shares, side.layout.block_size, logit_rows, {"states": states}, ("hidden",)))
        count = len(logit_rows)
        logits = softened(outputs.logits, owners)
        scored = self._sampler.score(logits, [0] * count, [self._options.width] * count) if count else []
        return outputs.buffers["hidden"], [list(each.top) for each in scored]
