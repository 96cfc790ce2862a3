"""Medusa (Cai et al. 2024, arXiv:2401.10774): each of `heads` trained heads predicts one of the next tokens, independently of the others,
from the target's last hidden state and the token chosen there. The draft tree holds the `k` combinations with the highest products of
probabilities. Costs one step of all heads per step of the target, for all sequences in one batch. Needs heads trained for the target;
cheaper than EAGLE, with fewer drafts accepted."""
import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.backends.contract import NO_COPIES, Batch
from penstock.compute.decoding.propose.confidence import soften_sampled
from penstock.compute.decoding.propose.contract import MAX_DRAFTS, Draftable, Drafts, Host, MissingHeadsError
from penstock.compute.models.heads import medusa
from penstock.core.errors import UsageError
from penstock.core.needs import Needs
from penstock.core.registry import check_ranges

MAX_HEADS = 64
Candidates = Sequence[tuple[int, float]]  # (token, log-probability), likeliest first


class Medusa:
    @dataclass(frozen=True, slots=True)
    class Options:
        path: str | None = None  # medusa.safetensors or its folder; none: the model's folder
        heads: int | None = None  # number of heads used, and so the depth of the tree; none: as many as the file holds
        k: int = 8  # maximum number of drafts
        width: int = 8  # likeliest tokens of each head that are considered

    needs = Needs(buffers=("hidden",), num_states=1, tree_masks=True)

    def __init__(self, options: Options, host: Host) -> None:
        """Raises UsageError for options out of range, for fewer heads, and for heads of another model."""
        num = max(num_heads(host.head_tensors(options.path, "medusa")), 1) if options.heads is None else options.heads
        options = replace(options, heads=num)
        check_ranges("medusa", options, heads=(1, MAX_HEADS), k=(1, MAX_DRAFTS), width=(1, MAX_DRAFTS))
        self._options = options
        try:
            self._aux = host.heads(options.path, "medusa", medusa.builder(num), host.max_num_seqs)
        except MissingHeadsError as error:
            if not 0 < (count := num_heads(error.present)) < num:
                raise
            reason = f"it holds {count} heads, {num} are asked for (heads={count} takes those)"
            raise UsageError(f"{error}: {reason}") from None
        self._sampler = host.sampler
        self._outputs = tuple([f"logits{i}" for i in range(1, num)])  # buffers; head 0 has the step's logits

    def lookahead(self) -> int:
        return self._options.k

    def propose(self, rows: Sequence[Draftable]) -> list[Drafts]:
        active = [row for row in rows if row.states is not None and len(row.states)]
        found = dict(zip([row.seq_id for row in active], self._run_heads(active), strict=True))
        return [best_tree(found[row.seq_id], min(row.room, self._options.k)) if row.seq_id in found else Drafts() for row in rows]

    def forget(self, seq_id: int) -> None:
        """Does nothing: no state of sequences is kept."""

    def _run_heads(self, rows: Sequence[Draftable]) -> list[list[Candidates]]:
        """One step of the heads. Returns for each row the candidates of each head."""
        if not rows:
            return []
        count, width = len(rows), self._options.width
        states = np.stack([row.states[-1] for row in rows if row.states is not None])
        outputs = self._aux.backend.step(self._aux.loaded, uncached_batch([row.tokens[-1] for row in rows], states, self._outputs))
        logits = [outputs.logits, *(outputs.buffers[name] for name in self._outputs)]
        scored = [self._sampler.score(soften_sampled(each, rows), [0] * count, [width] * count) for each in logits]
        return [[head[i].top for head in scored] for i in range(count)]


def uncached_batch(tokens: Sequence[int], states: Array, wanted: tuple[str, ...]) -> Batch:
    """The batch of a program without KV cache: each row is a sequence of its own, and has logits. `states`: [rows, hidden]."""
    rows = np.arange(len(tokens), dtype=np.int64)
    table = np.zeros(1, dtype=np.int64)  # unused
    return Batch(
        np.array(tokens, dtype=np.int64), np.zeros_like(rows), rows, np.arange(len(tokens) + 1, dtype=np.int64), np.ones_like(rows),
        [table] * len(tokens), rows, NO_COPIES, wanted, None, None, {"states": states})


def best_tree(heads: Sequence[Candidates], room: int) -> Drafts:
    """The tree of the `room` likeliest paths; heads are independent, so a path's probability is the product of its tokens'.

    Best-first search: each path taken from the queue adds two paths, its likeliest extension by one token, and itself with the last token
    replaced by that head's next likely one.
    """
    tokens: list[int] = []
    parents: list[int] = []
    queue = [(-heads[0][0][1], 0, 0, -1, 0.0)] if heads and heads[0] else []  # (cost: -log-probability, head, rank, parent, parent's cost)
    while queue and len(tokens) < room:
        cost, head, rank, parent, parent_cost = heapq.heappop(queue)
        tokens.append(heads[head][rank][0])
        parents.append(parent)
        if head + 1 < len(heads):
            heapq.heappush(queue, (cost - heads[head + 1][0][1], head + 1, 0, len(tokens) - 1, cost))
        if rank + 1 < len(heads[head]):
            heapq.heappush(queue, (parent_cost - heads[head][rank + 1][1], head, rank + 1, parent, parent_cost))
    return Drafts(tuple(tokens), tuple(parents))


def num_heads(tensors: Sequence[str]) -> int:
    """The number of heads that tensors of these names belong to: `medusa.<head>.<...>`."""
    numbers = [name.removeprefix(medusa.PREFIX).partition(".")[0] for name in tensors if name.startswith(medusa.PREFIX)]
    return len({number for number in numbers if number.isdigit()})
