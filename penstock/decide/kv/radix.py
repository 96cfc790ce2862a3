"""The prefix tree: which token sequences have their keys and values in the cache, block by block.

Each node holds one full block, and is found below its parent by that block's tokens. Salts have separate roots.

Invariants, which `check_integrity` tests:
- Who holds a node's block holds the blocks of all its ancestors (`KVManager` swaps duplicates for the tree's blocks).
  So a node is idle (only the tree holds its block) only if its whole subtree is, and every idle block can be had
  by evicting leaves.
- Pinned nodes form prefixes: the parent of a pinned node is pinned, and at least as long.
"""
import heapq
from collections import deque
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.core.prefix import num_common
from penstock.decide.kv.blocks import BlockPool, IntegrityError


@dataclass(slots=True, eq=False)
class Node:
    """One cached block. `tokens`: its block_size token ids; `depth`: blocks from the start of the sequence to its end."""

    salt: str
    block_id: int = -1
    tokens: tuple[int, ...] = ()
    parent: "Node | None" = None  # None for a salt's root, which holds no block
    depth: int = 0
    children: dict[tuple[int, ...], "Node"] = field(default_factory=dict)
    last_used_s: float = 0.0  # when a sequence last took it, or the last of them let it go
    num_uses: int = 1  # sequences that computed or found it
    pinned: bool = False
    pin_ttl_s: float = 0.0
    ends_mark: bool = False  # a marked prefix was pinned up to exactly here
    ticket: int = 0  # of its valid entry in the eviction queue


class EvictPolicy(Protocol):
    """Which idle leaf goes first: the one with the smallest priority, among equals the first to fall idle. All have as many figures.

    The tree asks when a leaf falls idle. A priority that changes by itself later on is noticed
    after at most as many evictions as the tree has nodes.
    """

    def priority(self, node: Node, now: float) -> tuple[float, ...]: ...


class RadixTree:
    """Cached prefixes over the blocks of `pool`. At most `max_pinned` of them are pinned at a time. Times are seconds on one clock."""

    def __init__(self, pool: BlockPool, block_size: int, evict: EvictPolicy, max_pinned: int = 0) -> None:
        self.block_size = block_size
        self.max_pinned = max_pinned
        self.num_pinned = 0
        self.num_evictable = 0  # idle and not pinned
        self.num_pinned_idle = 0
        self.num_evicted = 0  # blocks that were cached and made room, since the start
        self.last_evicted: deque[int] = deque(maxlen=256)  # the last of them
        self._pool = pool
        self._evict = evict
        self._roots: dict[str, Node] = {}
        self._nodes: dict[int, Node] = {}  # by block_id
        # Entries are (*priority, ticket, node), and valid if they have their node's ticket: a heap, and the latest, which is not in it yet.
        # The parent of an evicted leaf mostly goes next.
        self._queue: list[tuple[Any, ...]] = []
        self._latest: tuple[Any, ...] | None = None
        # Heap; one entry per pinned node, never later than its expiry. Of equals the deepest comes first.
        self._expiries: list[tuple[float, int, int, Node]] = []
        self._num_tickets = 0
        self._num_pops = 0  # since the queue was last rebuilt

    def __len__(self) -> int:
        return len(self._nodes)

    def block_ids(self) -> Collection[int]:
        """The blocks that the tree holds."""
        return self._nodes.keys()

    def is_idle(self, node: Node) -> bool:
        """Nobody but the tree holds the node's block."""
        return self._pool.num_holders[node.block_id] == 1

    def match(self, salt: str, tokens: Sequence[int], max_blocks: int, known: Sequence[Node] = ()) -> list[Node]:
        """The nodes of the longest cached prefix of `tokens`, at most `max_blocks` of them; changes nothing. `known`: what was found
        earlier; only what has come or gone since is looked at."""
        matched = list(known)
        while matched and self._nodes.get(matched[-1].block_id) is not matched[-1]:
            matched.pop()
        node = matched[-1] if matched else self._roots.get(salt)
        size = self.block_size
        while node is not None and len(matched) < max_blocks:
            start = len(matched) * size
            node = node.children.get(tuple(tokens[start : start + size]))
            if node is not None:
                matched.append(node)
        return matched

    def first_difference(self, salt: str, tokens: Sequence[int], matched: Sequence[Node]) -> int | None:
        """Position of the first token that differs from every cached continuation of `matched`; None if nothing there differs."""
        node = matched[-1] if matched else self._roots.get(salt)
        if node is None or not node.children:
            return None
        start = len(matched) * self.block_size
        rest = tuple(tokens[start : start + self.block_size])
        longest = max(num_common(rest, child.tokens) for child in node.children.values())
        return start + longest if longest < len(rest) else None

    def insert(self, parent: Node | None, salt: str, tokens: tuple[int, ...], block_id: int, now: float) -> Node:
        """The node of `tokens` (one full block) below `parent` (None: at the start): the one that was there before, with its own block, or
        a new one, which takes hold of `block_id`."""
        if parent is None:
            parent = self._roots.get(salt)
        if parent is None:
            parent = self._roots[salt] = Node(salt)
        node = parent.children.get(tokens)
        if node is not None:
            return node
        node = parent.children[tokens] = Node(salt, block_id, tokens, parent, parent.depth + 1, last_used_s=now)
        self._pool.share(block_id)
        self._nodes[block_id] = node
        return node

    def acquire(self, node: Node, now: float, is_new: bool = True) -> int:
        """One more sequence holds the node's block, whose id is returned; `is_new`: and uses it for the first time. Ancestors first."""
        if self.is_idle(node):
            self._count_idle(node, -1)
        node.last_used_s = now
        node.num_uses += is_new
        self._pool.share(node.block_id)
        return node.block_id

    def release(self, block_id: int, now: float) -> None:
        """A sequence lets go of a block, which may or may not be in the tree. Let descendants go first."""
        self.release_all((block_id,), now)

    def release_all(self, block_ids: Sequence[int], now: float) -> None:
        """A sequence lets go of blocks that follow each other in it. What others hold as well costs next to nothing."""
        nodes = self._nodes
        for block_id in self._pool.release_all(reversed(block_ids)):
            node = nodes.get(block_id)
            if node is not None:
                node.last_used_s = now
                self._count_idle(node, 1)
                if not node.children:
                    self._enqueue(node, now)

    def pin(self, node: Node, ttl_s: float) -> bool:
        """Keeps the node from eviction until `ttl_s` after its last use; False when `max_pinned` nodes are pinned. Pin ancestors first."""
        if not node.pinned:
            if self.num_pinned >= self.max_pinned:
                return False
            idle = self.is_idle(node)
            if idle:
                self._count_idle(node, -1)
            node.pinned = True
            node.pin_ttl_s = 0.0
            self.num_pinned += 1
            if idle:
                self._count_idle(node, 1)
            self._expire_at(node, node.last_used_s + ttl_s)
        node.pin_ttl_s = max(node.pin_ttl_s, ttl_s)
        return True

    def expire(self, now: float) -> None:
        """Unpins what has not been used for its time to live. A held block is in use."""
        while self._expiries and self._expiries[0][0] <= now:
            node = heapq.heappop(self._expiries)[-1]
            until = (node.last_used_s if self.is_idle(node) else now) + node.pin_ttl_s
            if until > now:
                self._expire_at(node, until)
            else:
                self._unpin(node)
                self._enqueue(node, now)

    def break_pins(self, num: int, now: float) -> None:
        """Unpins `num` idle nodes, or all that there are: those that would expire first. No idle node was used later than its parent, so
        that these are ends of prefixes."""
        held = []
        while num and self._expiries:
            known, *_, node = heapq.heappop(self._expiries)
            until = node.last_used_s + node.pin_ttl_s
            if not self.is_idle(node):
                held.append(node)
            elif until > known:
                self._expire_at(node, until)
            else:
                self._unpin(node)
                self._enqueue(node, now)
                num -= 1
        for node in held:
            self._expire_at(node, now + node.pin_ttl_s)

    def evict(self, now: float) -> bool:
        """Frees one block: that of the idle leaf which the policy names. False if there is none."""
        node = self._pop_idle_leaf(now)
        if node is None:
            return False
        parent, block_id = node.parent, node.block_id
        assert parent is not None
        del parent.children[node.tokens], self._nodes[block_id]
        node.ticket = 0
        self._pool.release(block_id)
        self.num_evictable -= 1
        self.num_evicted += 1
        self.last_evicted.append(block_id)
        if parent.parent is not None:
            self._enqueue(parent, now)
        elif not parent.children:
            del self._roots[parent.salt]
        return True

    def check_integrity(self) -> None:
        """Raises IntegrityError if an invariant of this module's docstring, a counter or the eviction queue is wrong."""
        reached = {node.block_id: node for root in self._roots.values() for node in _below(root)}
        if reached != self._nodes:
            raise IntegrityError("the tree and its index by block differ")
        if not all(root.children for root in self._roots.values()):
            raise IntegrityError("a salt without cached prefixes keeps its root")
        if sorted(node.block_id for *_, node in self._expiries) != sorted(node.block_id for node in reached.values() if node.pinned):
            raise IntegrityError("there is not one expiry for each pinned node")
        queued = {entry[-2] for entry in (*self._queue, self._latest) if entry is not None}
        for node in reached.values():
            self._check_node(node, queued)
        idle = [node for node in reached.values() if self.is_idle(node)]
        pinned_idle = sum(node.pinned for node in idle)
        counts = (len(idle) - pinned_idle, pinned_idle, sum(node.pinned for node in reached.values()))
        if counts != (self.num_evictable, self.num_pinned_idle, self.num_pinned):
            raise IntegrityError(f"{counts} nodes are evictable, pinned and idle, pinned, but the counters say otherwise")

    def _check_node(self, node: Node, queued: set[int]) -> None:
        parent = node.parent
        assert parent is not None
        if parent.children.get(node.tokens) is not node or node.depth != parent.depth + 1 or len(node.tokens) != self.block_size:
            raise IntegrityError(f"the node of block {node.block_id} has the wrong place, depth or length")
        if self._pool.count(node.block_id) < 1:
            raise IntegrityError(f"the tree does not hold its block {node.block_id}")
        if parent.parent is not None and self._pool.count(parent.block_id) < self._pool.count(node.block_id):
            raise IntegrityError(f"block {node.block_id} has holders who do not hold its parent {parent.block_id}")
        if node.pinned and parent.parent is not None and not (parent.pinned and parent.pin_ttl_s >= node.pin_ttl_s):
            raise IntegrityError(f"block {node.block_id} is pinned for longer than its parent {parent.block_id}")
        if not node.pinned and self._is_idle_leaf(node) and node.ticket not in queued:
            raise IntegrityError(f"the idle leaf of block {node.block_id} is not queued for eviction")

    def _is_idle_leaf(self, node: Node) -> bool:
        return not node.children and self.is_idle(node)

    def _count_idle(self, node: Node, change: int) -> None:
        if node.pinned:
            self.num_pinned_idle += change
        else:
            self.num_evictable += change

    def _expire_at(self, node: Node, until_s: float) -> None:
        heapq.heappush(self._expiries, (until_s, -node.depth, self._ticket(), node))

    def _unpin(self, node: Node) -> None:
        idle = self.is_idle(node)
        if idle:
            self._count_idle(node, -1)
        node.pinned = node.ends_mark = False
        self.num_pinned -= 1
        if idle:
            self._count_idle(node, 1)

    def _ticket(self) -> int:
        self._num_tickets += 1
        return self._num_tickets

    def _enqueue(self, node: Node, now: float) -> None:
        """Queues the node for eviction if it is an idle leaf without a pin."""
        if node.children or node.pinned or not self.is_idle(node):
            return
        node.ticket = self._ticket()
        if self._latest is not None:
            heapq.heappush(self._queue, self._latest)
        self._latest = (*self._evict.priority(node, now), node.ticket, node)
        if len(self._queue) + 1 > 2 * len(self._nodes) + 64:  # mostly outdated entries
            self._rebuild(now)

    def _rebuild(self, now: float) -> None:
        leaves = [node for node in self._nodes.values() if not node.pinned and self._is_idle_leaf(node)]
        self._queue = [(*self._evict.priority(node, now), node.ticket, node) for node in leaves]
        heapq.heapify(self._queue)
        self._latest = None
        self._num_pops = 0

    def _pop_idle_leaf(self, now: float) -> Node | None:
        if self._num_pops > len(self._nodes):
            self._rebuild(now)
        while self._queue or self._latest is not None:
            entry = heapq.heappop(self._queue) if self._latest is None else heapq.heappushpop(self._queue, self._latest)
            self._latest = None
            self._num_pops += 1
            node: Node = entry[-1]
            if entry[-2] == node.ticket and not node.pinned and self._is_idle_leaf(node):
                return node
        return None


def _below(root: Node) -> Iterator[Node]:
    stack = list(root.children.values())
    while stack:
        node = stack.pop()
        yield node
        stack.extend(node.children.values())
