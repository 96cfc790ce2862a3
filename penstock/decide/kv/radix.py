"""The prefix tree: which token sequences have their keys and values in the cache, block by block.

Each node holds a run of full blocks, and is found below its parent by the tokens of the first. Salts have separate roots.

Invariants, which `check_integrity` tests:
- Who holds one of a node's blocks holds all of them (who takes fewer cuts the node first), and those of all its ancestors (`KVManager`
  swaps duplicates for the tree's blocks). So a node is idle (only the tree holds its blocks) only if its whole subtree is, and every idle
  block can be had by evicting leaves.
- A node that has lost its end does not grow. So what was once on the way to a node's end still is, as far as the node now goes.
- Pinned nodes form prefixes: the parent of a pinned node is pinned, and at least as long.
"""
import heapq
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.core.message import message
from penstock.core.prefix import num_common
from penstock.decide.kv.blocks import BlockPool, IntegrityError


@dataclass(slots=True, eq=False)
class Node:
    """Cached blocks that follow each other, held, used and pinned alike. `tokens`: block_size token ids of each; `depth`: blocks from the
    start of the sequence to its end."""

    salt: str
    block_ids: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    parent: "Node | None" = None  # None for a salt's root, which holds no block
    depth: int = 0
    children: dict[tuple[int, ...], "Node"] = field(default_factory=dict)  # by the tokens of their first block
    last_used_s: float = 0.0  # when a sequence last took it, or the last of them let it go
    num_uses: int = 1  # sequences that computed or found it
    pinned: bool = False
    pin_ttl_s: float = 0.0
    ends_mark: bool = False  # a marked prefix was pinned up to exactly here
    ticket: int = 0  # of its valid entry in the eviction queue
    shrunk: bool = False  # has lost its end

    @property
    def start(self) -> int:
        """Blocks before its first."""
        return self.depth - len(self.block_ids)


@message
class Prefix:
    """The first `num_blocks` blocks on the way to the end of `node`, which has at least the last of them."""

    node: Node | None
    num_blocks: int


NOTHING = Prefix(None, 0)


class EvictPolicy(Protocol):
    """Which idle leaf goes first: the one with the smallest priority, among equals the first to fall idle. All have as many figures.

    The tree asks when a leaf falls idle. A priority that changes by itself later on is noticed
    after at most as many evictions as the tree has blocks.
    """

    def priority(self, node: Node, now: float) -> tuple[float, ...]: ...


class RadixTree:
    """Cached prefixes over the blocks of `pool`. At most `max_pinned` of these are pinned at a time. Times are seconds on one clock."""

    def __init__(self, pool: BlockPool, block_size: int, evict: EvictPolicy, max_pinned: int = 0) -> None:
        self.block_size = block_size
        self.max_pinned = max_pinned
        self.num_blocks = 0
        self.num_pinned = 0
        self.num_evictable = 0  # idle and not pinned
        self.num_pinned_idle = 0
        self.num_evicted = 0  # blocks that were cached and made room, since the start
        self.last_evicted: deque[int] = deque(maxlen=256)  # the last of them
        self._pool = pool
        self._evict = evict
        self._roots: dict[str, Node] = {}
        self._nodes: dict[int, Node] = {}  # by their last block's id
        # Entries are (*priority, ticket, node), and valid if they have their node's ticket: a heap, and the latest, which is not in it yet.
        # The parent of an evicted leaf mostly goes next.
        self._queue: list[tuple[Any, ...]] = []
        self._latest: tuple[Any, ...] | None = None
        # Heap; one entry per pinned node, never later than its expiry. Of equals the deepest comes first.
        self._expiries: list[tuple[float, int, int, Node]] = []
        self._num_tickets = 0
        self._num_pops = 0  # since the queue was last rebuilt

    def block_ids(self) -> list[int]:
        """The blocks that the tree holds."""
        return [block_id for node in self._nodes.values() for block_id in node.block_ids]

    def is_idle(self, node: Node) -> bool:
        """Nobody but the tree holds the node's blocks."""
        return self._pool.num_holders[node.block_ids[-1]] == 1

    def match(self, salt: str, tokens: list[int], max_blocks: int, known: Prefix = NOTHING) -> Prefix:
        """The longest cached prefix of `tokens`, of at most `max_blocks` blocks; changes nothing. `known`: what was found
        earlier; only what has come or gone since is looked at."""
        node, num = known.node, known.num_blocks
        while node is not None and (num := min(num, node.depth)) <= node.start:
            node = node.parent
        if node is None:
            node = self._roots.get(salt)
        size = self.block_size
        while node is not None and num < max_blocks:
            if num == node.depth:
                child = node.children.get(tuple(tokens[num * size : (num + 1) * size]))
                if child is None:
                    break
                node, num = child, num + 1
            end, first = min(node.depth, max_blocks), node.start
            num += num_common(tokens[num * size : end * size], node.tokens[(num - first) * size : (end - first) * size]) // size
            if num < node.depth:
                break
        return Prefix(node, num) if num else NOTHING

    def first_difference(self, salt: str, tokens: list[int], found: Prefix) -> int | None:
        """Position of the first token that differs from every cached continuation of what was found; None if nothing there differs."""
        node, size, start = found.node or self._roots.get(salt), self.block_size, found.num_blocks * self.block_size
        if node is None:
            return None
        inside = node.tokens[start - node.start * size :][:size]
        rest, ahead = tokens[start : start + size], [inside] if inside else [child.tokens[:size] for child in node.children.values()]
        longest = max([num_common(rest, each) for each in ahead], default=len(rest))
        return start + longest if longest < len(rest) else None

    def path(self, node: Node | None) -> list[Node]:
        """The nodes on the way to this one, the first first."""
        found = []
        while node is not None and node.parent is not None:
            found.append(node)
            node = node.parent
        return found[::-1]

    def insert(self, parent: Node | None, salt: str, tokens: list[int], block_ids: list[int], now: float) -> Node:
        """The node of `tokens` (full blocks) below `parent` (None: at the start), which the sequence that has filled them holds: as far as
        it was there before, with its own blocks, or else one that takes hold of `block_ids`, new or grown."""
        size = self.block_size
        if parent is None:
            parent = self._roots.get(salt)
        if parent is None:
            parent = self._roots[salt] = Node(salt)
        key = tuple(tokens[:size])
        node = parent.children.get(key)
        if node is not None:
            return self.cut(node, node.start + num_common(tokens, node.tokens) // size)
        if self._may_grow(parent):
            node = parent
            del self._nodes[node.block_ids[-1]]
            node.block_ids += block_ids
            node.tokens += tokens
            node.depth += len(block_ids)
            node.last_used_s = now
        else:
            node = parent.children[key] = Node(salt, block_ids[:], tokens[:], parent, parent.depth + len(block_ids), last_used_s=now)
        self._pool.share_all(block_ids)
        self._nodes[block_ids[-1]] = node
        self.num_blocks += len(block_ids)
        return node

    def cut(self, node: Node, depth: int) -> Node:
        """The node on the way to the end of `node` that ends `depth` blocks from the start. One that goes on from there is cut in two; it
        is the second of them."""
        while node.start >= depth:
            assert node.parent is not None
            node = node.parent
        if node.depth == depth:
            return node
        parent, num, size = node.parent, depth - node.start, self.block_size
        assert parent is not None
        head = Node(node.salt, node.block_ids, node.tokens, parent, depth, last_used_s=node.last_used_s, num_uses=node.num_uses,
                    pinned=node.pinned, pin_ttl_s=node.pin_ttl_s)
        node.block_ids, node.tokens, node.parent = head.block_ids[num:], head.tokens[num * size :], head
        del head.block_ids[num:], head.tokens[num * size :]
        head.children[tuple(node.tokens[:size])] = node
        parent.children[tuple(head.tokens[:size])] = self._nodes[head.block_ids[-1]] = head
        if head.pinned:
            self._expire_at(head, head.last_used_s + head.pin_ttl_s)
        return head

    def acquire(self, node: Node, now: float, is_new: bool = True) -> list[int]:
        """One more sequence holds the node's blocks, whose ids are returned; `is_new`: uses them for the first time. Ancestors first."""
        if self.is_idle(node):
            self._count_idle(node, -1)
        node.last_used_s = now
        node.num_uses += is_new
        self._pool.share_all(node.block_ids)
        return node.block_ids

    def release_all(self, block_ids: Sequence[int], now: float) -> None:
        """A sequence lets go of blocks that follow each other in it, and may or may not be in the tree; descendants go first. What others
        hold as well costs next to nothing."""
        nodes = self._nodes
        for block_id in self._pool.release_all(reversed(block_ids)):
            node = nodes.get(block_id)
            if node is not None:
                node.last_used_s = now
                self._count_idle(node, 1)
                if not node.children:
                    self._enqueue(node, now)

    def pin(self, node: Node, ttl_s: float) -> bool:
        """Keeps the node from eviction until `ttl_s` after its last use; False when more than `max_pinned` blocks would be pinned. Pin
        ancestors first."""
        if not node.pinned:
            if self.num_pinned + len(node.block_ids) > self.max_pinned:
                return False
            idle = self.is_idle(node)
            if idle:
                self._count_idle(node, -1)
            node.pinned = True
            node.pin_ttl_s = 0.0
            self.num_pinned += len(node.block_ids)
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
        """Unpins `num` idle blocks, or all that there are: those that would expire first. No idle node was used later than its parent, so
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
                if node.depth - num > node.start:
                    self.cut(node, node.depth - num)
                self._unpin(node)
                self._enqueue(node, now)
                num -= len(node.block_ids)
        for node in held:
            self._expire_at(node, now + node.pin_ttl_s)

    def evict(self, num: int, now: float) -> int:
        """Frees up to `num` blocks, the last ones of the idle leaf that the policy names at each; the first is to be allocated first.
        Returns how many."""
        freed: list[int] = []
        while len(freed) < num and (node := self._pop_idle_leaf(now)) is not None:
            most = num - len(freed)
            if most > 1 and self._queue and (*self._evict.priority(node, now), node.ticket) > self._queue[0][:-1]:
                most = 1  # then somebody else is named
            num_left = max(len(node.block_ids) - most, 0)
            freed += reversed(node.block_ids[num_left:])
            self._shrink(node, num_left, now)
        self._pool.release_all(reversed(freed))
        self.num_evictable -= len(freed)
        self.num_evicted += len(freed)
        self.last_evicted.extend(freed)
        return len(freed)

    def check_integrity(self) -> None:
        """Raises IntegrityError if an invariant of this module's docstring, a counter or the eviction queue is wrong."""
        reached = {node.block_ids[-1]: node for root in self._roots.values() for node in _below(root)}
        if reached != self._nodes:
            raise IntegrityError("the tree and its index by block differ")
        if not all(root.children for root in self._roots.values()):
            raise IntegrityError("a salt without cached prefixes keeps its root")
        if sorted(node.block_ids[-1] for *_, node in self._expiries) != sorted(last for last, node in reached.items() if node.pinned):
            raise IntegrityError("there is not one expiry for each pinned node")
        queued = {entry[-2] for entry in (*self._queue, self._latest) if entry is not None}
        for node in reached.values():
            self._check_node(node, queued)
        idle = [node for node in reached.values() if self.is_idle(node)]
        counts = (_num_blocks(node for node in idle if not node.pinned), _num_blocks(node for node in idle if node.pinned),
                  _num_blocks(node for node in reached.values() if node.pinned), _num_blocks(reached.values()))
        if counts != (self.num_evictable, self.num_pinned_idle, self.num_pinned, self.num_blocks):
            raise IntegrityError(f"{counts} blocks are evictable, pinned and idle, pinned, and in all, but the counters say otherwise")

    def _check_node(self, node: Node, queued: set[int]) -> None:
        parent, last = node.parent, node.block_ids[-1]
        assert parent is not None
        key, num_tokens = tuple(node.tokens[: self.block_size]), len(node.block_ids) * self.block_size
        if parent.children.get(key) is not node or node.start != parent.depth or len(node.tokens) != num_tokens:
            raise IntegrityError(f"the node of block {last} has the wrong place, depth or length")
        if self._pool.count(last) < 1:
            raise IntegrityError(f"the tree does not hold its block {last}")
        if len({self._pool.count(block_id) for block_id in node.block_ids}) > 1:
            raise IntegrityError(f"the node of block {last} is held in part")
        if parent.parent is not None and self._pool.count(parent.block_ids[-1]) < self._pool.count(last):
            raise IntegrityError(f"block {last} has holders who do not hold its parent {parent.block_ids[-1]}")
        if node.pinned and parent.parent is not None and not (parent.pinned and parent.pin_ttl_s >= node.pin_ttl_s):
            raise IntegrityError(f"block {last} is pinned for longer than its parent {parent.block_ids[-1]}")
        if not node.pinned and self._is_idle_leaf(node) and node.ticket not in queued:
            raise IntegrityError(f"the idle leaf of block {last} is not queued for eviction")

    def _may_grow(self, node: Node) -> bool:
        """Whether what follows this node in a sequence that holds it would be held, used and pinned like it."""
        if node.parent is None or node.children or node.pinned or node.shrunk or node.num_uses > 1:
            return False
        return self._pool.num_holders[node.block_ids[-1]] == 2

    def _shrink(self, node: Node, num_left: int, now: float) -> None:
        """An idle leaf loses all but so many of its blocks."""
        parent, num = node.parent, len(node.block_ids) - num_left
        assert parent is not None
        del self._nodes[node.block_ids[-1]]
        if not num_left:
            del parent.children[tuple(node.tokens[: self.block_size])]
        del node.block_ids[num_left:], node.tokens[num_left * self.block_size :]
        node.depth -= num
        node.shrunk = True
        self.num_blocks -= num
        self._num_pops += num - 1
        if num_left:
            self._nodes[node.block_ids[-1]] = node
            self._enqueue(node, now, node.ticket)
        elif parent.parent is not None:
            self._enqueue(parent, now)
        elif not parent.children:
            del self._roots[parent.salt]

    def _is_idle_leaf(self, node: Node) -> bool:
        return not node.children and self.is_idle(node)

    def _count_idle(self, node: Node, sign: int) -> None:
        if node.pinned:
            self.num_pinned_idle += sign * len(node.block_ids)
        else:
            self.num_evictable += sign * len(node.block_ids)

    def _expire_at(self, node: Node, until_s: float) -> None:
        heapq.heappush(self._expiries, (until_s, -node.depth, self._ticket(), node))

    def _unpin(self, node: Node) -> None:
        idle = self.is_idle(node)
        if idle:
            self._count_idle(node, -1)
        node.pinned = node.ends_mark = False
        self.num_pinned -= len(node.block_ids)
        if idle:
            self._count_idle(node, 1)

    def _ticket(self) -> int:
        self._num_tickets += 1
        return self._num_tickets

    def _enqueue(self, node: Node, now: float, ticket: int = 0) -> None:
        """Queues the node for eviction if it is an idle leaf without a pin. `ticket`: since when it is; 0: since now."""
        if node.children or node.pinned or not self.is_idle(node):
            return
        node.ticket = ticket or self._ticket()
        if self._latest is not None:
            heapq.heappush(self._queue, self._latest)
        self._latest = (*self._evict.priority(node, now), node.ticket, node)
        if len(self._queue) + 1 > 2 * self.num_blocks + 64:  # mostly outdated entries
            self._rebuild(now)

    def _rebuild(self, now: float) -> None:
        leaves = [node for node in self._nodes.values() if not node.pinned and self._is_idle_leaf(node)]
        self._queue = [(*self._evict.priority(node, now), node.ticket, node) for node in leaves]
        heapq.heapify(self._queue)
        self._latest = None
        self._num_pops = 0

    def _pop_idle_leaf(self, now: float) -> Node | None:
        if self._num_pops > self.num_blocks:
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


def _num_blocks(nodes: Iterable[Node]) -> int:
    return sum(len(node.block_ids) for node in nodes)
