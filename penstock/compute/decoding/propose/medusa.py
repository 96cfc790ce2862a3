"""Medusa (Cai et al. 2024, arXiv:2401.10774): heads on the model's last hidden state each guess one of the next tokens, whatever the others
guess; the tree holds the combinations that are likeliest together. One step of small heads for all
drafts. Pays where they were trained for the model."""
import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.backends.contract import Batch
from penstock.compute.decoding.propose.contract import MOST, Draftable, Drafts, Host, LackingError
from penstock.compute.decoding.propose.sureness import softened
from penstock.compute.decoding.propose.tables import NO_COPIES
from penstock.compute.models.heads import medusa
from penstock.core.errors import ModelError
from penstock.core.needs import Needs
from penstock.core.registry import check_ranges

MOST_HEADS = 64
Candidates = Sequence[tuple[int, float]]  # (token, log-probability), the likeliest first


class Medusa:
    @dataclass(frozen=True, slots=True)
    class Options:
        path: str | None = None  # medusa.safetensors or its folder; none: beside the model
        heads: int = 4  # of those in the file, and so the longest chain
        k: int = 8  # drafts
        width: int = 8  # tokens of each head

    needs = Needs(buffers=("hidden",), tree_masks=True)

    def __init__(self, options: Options, host: Host) -> None:
        """Raises UsageError for options without sense, ModelError where there are not so many heads, or they are for another model."""
        check_ranges("medusa", options, heads=(1, MOST_HEADS), k=(1, MOST), width=(1, MOST))
        self._options = options
        try:
            self._side = host.heads(options.path, "medusa", medusa.builder(options.heads), host.max_num_seqs)
        except LackingError as error:
            if not 0 < (held := num_heads(error.held)) < options.heads:
                raise
            asked = f"it holds {held} heads, {options.heads} are asked for (heads={held} takes those)"
            raise ModelError(f"{error}: {asked}") from None
        self._sampler = host.sampler
        self._outputs = tuple([f"logits{i}" for i in range(1, options.heads)])  # beside those of the first

    def lookahead(self) -> int:
        return self._options.k

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        going = [row for row in rows if row.states is not None and len(row.states)]
        found = dict(zip([row.seq_id for row in going], self._heads(going), strict=True))
        return [tree(found[row.seq_id], min(row.room, self._options.k)) if row.seq_id in found else Drafts() for row in rows]

    def forget(self, seq_id: int) -> None:
        """Nothing is kept of a sequence."""

    def _heads(self, rows: Sequence[Draftable]) -> list[list[Candidates]]:
        """For each row what each head guesses."""
        if not rows:
            return []
        count, width = len(rows), self._options.width
        states = np.stack([row.states[-1] for row in rows if row.states is not None])
        outputs = self._side.backend.step(self._side.loaded, alone([row.tokens[-1] for row in rows], states, self._outputs))
        logits = [outputs.logits, *(outputs.buffers[name] for name in self._outputs)]
        scored = [self._sampler.score(softened(each, rows), [0] * count, [width] * count) for each in logits]
        return [[head[i].top for head in scored] for i in range(count)]


def alone(tokens: Sequence[int], states: Array, wanted: tuple[str, ...]) -> Batch:
    """A step of a program without a KV cache: each row a sequence of its own, all of them with logits."""
    rows = np.arange(len(tokens), dtype=np.int64)
    nothing = np.zeros(1, dtype=np.int64)
    return Batch(
        np.array(tokens, dtype=np.int64), np.zeros_like(rows), rows, np.arange(len(tokens) + 1, dtype=np.int64), np.ones_like(rows),
        [nothing] * len(tokens), rows, NO_COPIES, wanted, None, None, {"states": states})


def tree(heads: Sequence[Candidates], room: int) -> Drafts:
    """The `room` likeliest beginnings of combinations, each head's guess being independent of the others'. Found best first: behind one
    that is taken stand its likeliest successor and the next alternative to it."""
    tokens: list[int] = []
    parents: list[int] = []
    found = [(-heads[0][0][1], 0, 0, -1, 0.0)] if heads and heads[0] else []  # (-score, head, rank, parent, the parent's score)
    while found and len(tokens) < room:
        cost, head, rank, parent, above = heapq.heappop(found)
        tokens.append(heads[head][rank][0])
        parents.append(parent)
        if head + 1 < len(heads):
            heapq.heappush(found, (cost - heads[head + 1][0][1], head + 1, 0, len(tokens) - 1, cost))
        if rank + 1 < len(heads[head]):
            heapq.heappush(found, (above - heads[head][rank + 1][1], head, rank + 1, parent, above))
    return Drafts(tuple(tokens), tuple(parents))


def num_heads(tensors: Sequence[str]) -> int:
    """How many heads have tensors of these names, which number them."""
    numbers = [name.removeprefix(medusa.PREFIX).partition(".")[0] for name in tensors if name.startswith(medusa.PREFIX)]
    return len({number for number in numbers if number.isdigit()})
