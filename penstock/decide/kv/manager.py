"""Which blocks each live sequence holds: prefix matching, growth on demand, copy-on-write, forks, pinned prefixes.

Invariants, which `check_integrity` tests: a sequence holds the blocks of its first `num_computed` tokens, in order, and
those that the step in flight writes; whatever it has computed in whole blocks of final tokens is in the tree, under the
tree's own blocks. Blocks that only the tree holds count as free.
"""
import logging
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from penstock.core.clock import Clock
from penstock.core.errors import CapacityError
from penstock.core.prefix import num_common
from penstock.core.types import SamplingParams, Seq
from penstock.decide.kv import marks
from penstock.decide.kv.blocks import BlockPool, IntegrityError
from penstock.decide.kv.radix import NOTHING, EvictPolicy, Node, Prefix, RadixTree

MAX_PINNED_SHARE = 0.5  # of all blocks; what marks may keep from everybody else
WATERMARK_SHARE = 0.01  # of all blocks; left free at admission for the growth of what runs already

log = logging.getLogger("penstock.prefix")


@dataclass(slots=True)
class _Held:
    """What the manager knows of a live sequence beside its blocks."""

    seq: Seq
    node: Node | None  # the deepest node that the sequence has registered or found
    num_registered: int  # blocks; the depth of `node`
    num_promised: int = 0  # blocks that admission has set aside for its tokens, not yet allocated
    marked: bool = False  # its marks have been pinned


def looks_up(params: SamplingParams) -> bool:
    """Whether a request's prompt may be read from the prefix cache: prompt logprobs need every row of it."""
    return params.prompt_logprobs is None


def alike(one: Seq, other: Seq, num_tokens: int) -> bool:
    """Whether both begin with the same `num_tokens` tokens, and may share their blocks. A prompt that is one object is not looked at."""
    start = min(one.num_prompt, num_tokens) if one.prompt and one.prompt is other.prompt else 0
    return one.tokens[start:num_tokens] == other.tokens[start:num_tokens] and one.salt == other.salt


class KVManager:
    """Blocks for sequences: `num_blocks` of `block_size` tokens. `evict` says which cached prefix goes first when room is needed."""

    def __init__(self, num_blocks: int, block_size: int, prefix_cache: bool, evict: EvictPolicy, clock: Clock) -> None:
        if block_size < 1:
            raise CapacityError(f"a block of {block_size} tokens holds nothing; it needs at least 1")
        self.block_size = block_size
        self.prefix_cache = prefix_cache
        self.num_queried = 0  # prompt tokens looked up so far
        self.num_hit = 0  # prompt tokens found so far
        self._evict = evict
        self._clock = clock
        self._watermark = int(num_blocks * WATERMARK_SHARE)
        self._begin(num_blocks)

    def _begin(self, num_blocks: int) -> None:
        self.pool = BlockPool(num_blocks)
        self.tree = RadixTree(self.pool, self.block_size, self._evict, max_pinned=int(num_blocks * MAX_PINNED_SHARE))
        self._held: dict[int, _Held] = {}
        self._num_promised = 0
        self._refused: tuple[int, Prefix] | None = None  # seq_id last refused, and what of it was cached

    @property
    def num_total(self) -> int:
        """Blocks there are."""
        return self.pool.num_blocks

    @property
    def num_cached(self) -> int:
        """Blocks that hold reusable prefixes and nothing else."""
        return self.tree.num_evictable + self.tree.num_pinned_idle

    @property
    def num_used(self) -> int:
        """Blocks that live sequences hold."""
        return self.num_total - self.pool.num_free - self.num_cached

    @property
    def num_allocatable(self) -> int:
        """Blocks that a live sequence could be given."""
        return self.pool.num_free + self.tree.num_evictable

    @property
    def num_tokens(self) -> int:
        """Tokens that fit when one sequence has the whole cache."""
        return self.num_total * self.block_size

    @property
    def num_free_tokens(self) -> int:
        """Tokens of new sequences that there is room for now."""
        return max(0, self._room()) * self.block_size

    def num_found(self, seq: Seq) -> int:
        """Tokens of the sequence that `admit` would find in the cache now, and not compute again."""
        return min(self._find(seq).num_blocks * self.block_size, len(seq.tokens) - 1)

    def holders(self) -> set[int]:
        """The seq_ids of live sequences."""
        return set(self._held)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def admit(self, seq: Seq, alone: bool = False) -> bool:
        """Takes the sequence in, with the longest cached prefix of its tokens, if all of them will fit; else changes nothing.

        `alone` says that no other sequence is live: then whatever can fit at all is taken in, and pins give way as it grows.
        At least the last token is left to compute. The first time, sets what was found: num_cached and num_mark_read.
        """
        now = self._clock.now()
        self.tree.expire(now)
        found = self._find(seq)
        fit = self._fit(seq, found, self.num_total if alone else self._room(), alone)
        if fit is None:
            self._refused = (seq.seq_id, found)
            return False
        self._refused = None
        num_found, num_needed = fit
        seq.num_computed = min(num_found * self.block_size, len(seq.tokens) - 1)
        num_registered = seq.num_computed // self.block_size
        last = self._end(found.node, num_found)
        registered, nodes = self._end(last, num_registered), self.tree.path(last)
        num_new = 0 if seq.num_preemptions else num_registered  # one whose last token is computed again is used by `commit`
        seq.block_ids = tuple(chain.from_iterable([self.tree.acquire(node, now, node.depth <= num_new) for node in nodes]))
        self._held[seq.seq_id] = _Held(seq, registered, num_registered, num_needed)
        self._num_promised += num_needed
        if seq.num_preemptions == 0:
            self._count_found(seq, nodes)
        self._pin_marks(seq, self._held[seq.seq_id], now)
        return True

    def fits(self, seq: Seq) -> bool:
        """Whether `admit` would take the sequence in now, beside others."""
        self.tree.expire(self._clock.now())
        return self._fit(seq, self._find(seq), self._room(), alone=False) is not None

    def still_refuses(self, seq: Seq) -> bool:
        """Whether `admit` refused the sequence last, and would until a block is freed: neither time nor growth can make room, and nothing
        that runs can come to share more with it."""
        if self._refused is None or self._refused[0] != seq.seq_id or self.tree.num_pinned:
            return False
        found = self._find(seq)
        return not self._may_be_cached(seq, found) and self._fit(seq, found, self._room(), alone=False) is None

    def ready(self, seqs: Sequence[Seq]) -> list[bool]:
        """Whether each has the slot of its next token already, and to itself: `grow` would change nothing."""
        size, num_holders = self.block_size, self.pool.num_holders
        return [(at := seq.num_computed // size) < len(seq.block_ids) and num_holders[seq.block_ids[at]] == 1 for seq in seqs]

    def grow(self, seq: Seq, num_tokens: int, break_pins: bool = False) -> list[tuple[int, int]] | None:
        """Room to write the next `num_tokens` tokens: allocates blocks, and replaces shared ones by copies.

        Returns the (source, target) blocks to copy before anything is written, or None, with nothing changed, if there is no room.
        """
        block_ids, start, size = seq.block_ids, seq.num_computed, self.block_size
        first, needed = start // size, (start + num_tokens - 1) // size + 1
        shared = [i for i in range(first, min(len(block_ids), needed)) if self.pool.num_holders[block_ids[i]] > 1]
        num_new = max(needed - len(block_ids), 0) + len(shared)
        if num_new == 0:
            return []
        now = self._clock.now()
        tree = self.tree
        if num_new > self.num_allocatable:
            tree.expire(now)
            num_missing = num_new - self.num_allocatable
            if num_missing > (tree.num_pinned_idle if break_pins else 0):
                return None
            if num_missing > 0:
                tree.break_pins(num_missing, now)
                log.warning("request %s runs alone and needs %d pinned blocks to continue: evicted early", seq.request_id, num_missing)
        fresh = self._allocate(num_new, now)
        copies = [(block_ids[i], block_id) for i, block_id in zip(shared, fresh, strict=False)]
        grown = list(block_ids)
        for i, block_id in zip(shared, fresh, strict=False):
            grown[i] = block_id
        seq.block_ids = (*grown, *fresh[len(shared) :])
        for source, _ in copies:
            tree.release_all((source,), now)
        held = self._held[seq.seq_id]
        kept = min(num_new, held.num_promised)
        held.num_promised -= kept
        self._num_promised -= kept
        return copies

    def commit(self, seq: Seq) -> None:
        """Registers the blocks that the sequence has filled with final tokens, and pins its marks once they are computed.

        Where the tree has the same prefix already, the sequence goes on with the tree's block and its own is freed.
        """
        held, size = self._held[seq.seq_id], self.block_size
        if seq.num_computed // size <= held.num_registered or not self.prefix_cache:
            return
        num_full = min(seq.num_computed, len(seq.tokens)) // size
        now = self._clock.now()
        while (start := held.num_registered) < num_full:
            own = list(seq.block_ids[start:num_full])
            node = self.tree.insert(held.node, seq.salt, seq.tokens[start * size : num_full * size], own, now)
            num = node.depth - start
            if node.block_ids[-1] != own[num - 1]:
                seq.block_ids = (*seq.block_ids[:start], *self.tree.acquire(node, now), *seq.block_ids[node.depth :])
                self.pool.release_all(own[:num])
            held.node, held.num_registered = node, node.depth
        self._pin_marks(seq, held, now)

    def truncate(self, seq: Seq) -> None:
        """Gives back the blocks that its tokens do not need: those of drafts that were rejected."""
        keep = self.blocks_for(len(seq.tokens))
        if keep < len(seq.block_ids):
            self.tree.release_all(seq.block_ids[keep:], self._clock.now())
            seq.block_ids = seq.block_ids[:keep]

    def free(self, seq: Seq) -> None:
        """Lets go of all blocks; what is registered stays cached. The sequence is as before its admission."""
        held = self._held.pop(seq.seq_id)
        self._num_promised -= held.num_promised
        self.tree.release_all(seq.block_ids, self._clock.now())
        seq.block_ids = ()
        seq.num_computed = 0

    def reset(self) -> None:
        """Begins anew, with all blocks free, whatever state an interrupted call has left; counts go on."""
        num_evicted = self.tree.num_evicted
        self._begin(self.num_total)
        self.tree.num_evicted = num_evicted

    def fork(self, parent: Seq, child: Seq, num_tokens: int) -> None:
        """The child takes part in the blocks of the first `num_tokens` tokens that the parent has computed; the last may be partial. A
        child that lives already lets go of others that it has; those that both begin with are left alone.

        Raises ValueError when the parent has computed fewer, or the child's tokens differ.
        """
        if num_tokens > parent.num_computed:
            raise ValueError(f"sequence {parent.seq_id} has computed {parent.num_computed} tokens, not {num_tokens}")
        if not alike(child, parent, num_tokens):
            raise ValueError(f"sequence {child.seq_id} does not begin with the first {num_tokens} tokens of {parent.seq_id}")
        held, before = self._held[parent.seq_id], self._held.get(child.seq_id)
        block_ids = parent.block_ids[: self.blocks_for(num_tokens)]
        last = self._end(held.node, min(held.num_registered, len(block_ids)))
        depth = min(held.num_registered, num_tokens // self.block_size)
        node = self._end(last, depth)
        num_same = num_common(child.block_ids, block_ids)
        self.pool.share_all(block_ids[num_same:])
        self.tree.release_all(child.block_ids[num_same:], self._clock.now())
        child.block_ids, child.num_computed = block_ids, num_tokens
        num_promised = 0 if before is None else before.num_promised
        self._held[child.seq_id] = _Held(child, node, depth, num_promised, marked=True)

    def check_integrity(self) -> None:
        """Raises IntegrityError if an invariant of the pool, the tree or this module's docstring does not hold."""
        self.pool.check_integrity()
        self.tree.check_integrity()
        holders = Counter(self.tree.block_ids())
        for held in self._held.values():
            holders.update(held.seq.block_ids)
            self._check_held(held)
        if any(holders[block_id] != self.pool.count(block_id) for block_id in range(self.num_total)):
            raise IntegrityError("reference counts differ from the holders that there are")
        if self._num_promised != sum(held.num_promised for held in self._held.values()):
            raise IntegrityError("the sum of promised blocks is wrong")

    def _check_held(self, held: _Held) -> None:
        seq = held.seq
        if len(set(seq.block_ids)) < len(seq.block_ids):
            raise IntegrityError(f"sequence {seq.seq_id} has a block twice")
        if len(seq.block_ids) < self.blocks_for(seq.num_computed):
            raise IntegrityError(f"sequence {seq.seq_id} has {len(seq.block_ids)} blocks for {seq.num_computed} computed tokens")
        if (held.node.depth if held.node else 0) != held.num_registered:
            raise IntegrityError(f"sequence {seq.seq_id} has registered {held.num_registered} blocks, but its node is not as deep")
        size = self.block_size
        for node in self.tree.path(held.node):
            start, end = node.start, node.depth
            if seq.block_ids[start:end] != tuple(node.block_ids) or seq.tokens[start * size : end * size] != node.tokens:
                raise IntegrityError(f"sequence {seq.seq_id} and the tree differ in blocks {start} to {end - 1}")

    def _room(self) -> int:
        """Blocks that a new sequence could be given."""
        return self.num_allocatable - self._num_promised - self._watermark

    def _end(self, node: Node | None, num_blocks: int) -> Node | None:
        """The node of the last of the first blocks on the way to this one, which ends with them; None if there are none."""
        return None if node is None or not num_blocks else self.tree.cut(node, num_blocks)

    def _find(self, seq: Seq) -> Prefix:
        if not self._num_readable(seq):
            return NOTHING
        known = self._refused[1] if self._refused is not None and self._refused[0] == seq.seq_id else NOTHING
        return self.tree.match(seq.salt, seq.tokens, self._num_readable(seq) // self.block_size, known)

    def _may_be_cached(self, seq: Seq, found: Prefix) -> bool:
        """Whether a live sequence may come to register the block that follows what was found of this one."""
        end = (found.num_blocks + 1) * self.block_size
        if end > self._num_readable(seq):
            return False
        path = {None, *self.tree.path(found.node)}
        for held in self._held.values():
            own, depth = held.seq, held.num_registered
            if own.salt == seq.salt and depth <= found.num_blocks and held.node in path:
                start, most = depth * self.block_size, min(end, len(own.tokens))
                if own.tokens[start:most] == seq.tokens[start:most]:
                    return True
        return False

    def _num_readable(self, seq: Seq) -> int:
        """Tokens whose keys and values may come from the cache: of a prompt that is to be scored those that are."""
        if not self.prefix_cache:
            return 0
        return len(seq.tokens) if looks_up(seq.params) or seq.num_scored >= seq.num_prompt - 1 else seq.num_scored

    def _fit(self, seq: Seq, found: Prefix, room: int, alone: bool) -> tuple[int, int] | None:
        """(blocks to take from the cache, blocks to allocate beside them), or None if both together are more than `room`.

        When the cache has all tokens, the last is computed again, into a copy of its block; without room for a copy one block less is
        taken, and all of the last is computed again, into a new one.
        """
        num_found = found.num_blocks
        whole = num_found * self.block_size == len(seq.tokens)
        num_needed = self.blocks_for(len(seq.tokens)) - num_found + whole
        if num_needed > room:
            return None
        num_kept = 0 if alone else self._num_kept(found)
        if whole and num_needed + num_found - num_kept > room:
            num_found -= 1
        return (num_found, num_needed) if num_needed + max(num_found - num_kept, 0) <= room else None

    def _num_kept(self, found: Prefix) -> int:
        """Blocks of what was found that cannot be evicted; below one that can, all can."""
        node, num = found.node, found.num_blocks
        while node is not None and node.parent is not None and self._is_evictable(node):
            node, num = node.parent, node.start
        return num

    def _is_evictable(self, node: Node) -> bool:
        return not node.pinned and self.tree.is_idle(node)

    def _count_found(self, seq: Seq, nodes: list[Node]) -> None:
        num_found = nodes[-1].depth if nodes else 0
        if self.prefix_cache and looks_up(seq.params):
            seq.num_cached = num_found * self.block_size
            self.num_queried += len(seq.tokens)
            self.num_hit += seq.num_cached
            if log.isEnabledFor(logging.DEBUG):
                self._explain(seq, Prefix(nodes[-1], num_found) if nodes else NOTHING)
        seq.num_mark_read = marks.num_read(nodes, marks.spans(seq.marks, seq.num_prompt, self.block_size)) * self.block_size

    def _explain(self, seq: Seq, prefix: Prefix) -> None:
        found, asked = prefix.num_blocks * self.block_size, len(seq.tokens)
        position = self.tree.first_difference(seq.salt, seq.tokens, prefix)
        name = seq.request_id
        if position is not None:
            log.debug("request %s: %d of %d prompt tokens are cached; the first differing token is at %d", name, found, asked, position)
        elif found + self.block_size <= asked:
            log.debug("request %s: %d of %d prompt tokens are cached, and nothing cached continues from there", name, found, asked)

    def _pin_marks(self, seq: Seq, held: _Held, now: float) -> None:
        """Pins the sequence's marked prefixes as soon as the longest is in the tree, as far as the bound on pins allows."""
        if held.marked or not seq.marks:
            return
        marked = marks.spans(seq.marks, seq.num_prompt, self.block_size)
        longest = max(marked, default=0)
        if longest > held.num_registered:
            return
        held.marked = True
        if held.node is None or longest == 0:
            log.info("request %s: its marks cover less than a block of %d tokens and pin nothing", seq.request_id, self.block_size)
            return
        self.tree.expire(now)
        pinned = marks.pin(self.tree, held.node, marked)
        seq.num_mark_created = max(pinned * self.block_size - seq.num_mark_read, 0)
        if pinned < longest:
            log.warning(
                "request %s: %d of %d marked tokens are pinned, because pins keep at most %d blocks; the rest is cached like any prefix",
                seq.request_id,
                pinned * self.block_size,
                longest * self.block_size,
                self.tree.max_pinned,
            )

    def _allocate(self, num: int, now: float) -> list[int]:
        """So many blocks, which can be had: those that are free, then those that are evicted."""
        num_free = min(num, self.pool.num_free)
        fresh = self.pool.allocate(num_free)
        if num_free < num:
            self.tree.evict(num - num_free, now)
            fresh += self.pool.allocate(num - num_free)
        return fresh
