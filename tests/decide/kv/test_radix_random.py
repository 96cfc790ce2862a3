"""Random operations on a RadixTree, each followed by all integrity checks."""
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.decide.kv.evict.lfu import Lfu
from penstock.decide.kv.evict.lru import Lru
from penstock.decide.kv.evict.slru import Slru
from tests.decide.kv.trees import SIZE, drop, make, take


class TreeMachine(RuleBasedStateMachine):
    """Random sequences come, share, pin and go; `contents` says what each block really holds."""

    policies = (Lru, Lfu, Slru)

    @initialize(policy=st.sampled_from(policies))
    def start(self, policy):
        self.pool, self.tree = make(10, policy(), 4)
        self.held: list[tuple] = []  # salt, tokens, end in the tree, blocks
        self.contents: dict[int, tuple] = {}
        self.now = 0.0

    @rule(tokens=st.lists(st.integers(0, 2), min_size=2, max_size=8), salt=st.sampled_from(["", "s"]))
    def come(self, tokens, salt):
        node, blocks = take(self.tree, tokens, self.now, salt)
        for i, block in enumerate(blocks):
            assert self.contents[block] == (salt, *tokens[: (i + 1) * SIZE])
        start, end = len(blocks), len(tokens) // SIZE
        end -= max(end - start - self.pool.num_free, 0) - self.tree.evict(max(end - start - self.pool.num_free, 0), self.now)
        if start < end:
            new = self.pool.allocate(end - start)
            self.contents |= {block: (salt, *tokens[: (i + 1) * SIZE]) for i, block in enumerate(new, start)}
            node = self.tree.insert(node, salt, tokens[start * SIZE : end * SIZE], new, self.now)
            blocks = blocks + new
            assert node.block_ids[-len(new) :] == new
        self.held.append((salt, tokens, node, blocks))

    @precondition(lambda self: self.held)
    @rule(data=st.data(), more=st.lists(st.integers(0, 2), min_size=2, max_size=4))
    def go_on(self, data, more):
        """One that is held computes more, which may be there."""
        at = data.draw(st.integers(0, len(self.held) - 1))
        salt, tokens, node, blocks = self.held[at]
        num = min(len(more) // SIZE, self.pool.num_free)
        if node is None or not num:
            return
        tokens, new = [*tokens[: len(blocks) * SIZE], *more[: num * SIZE]], self.pool.allocate(num)
        while len(blocks) * SIZE < len(tokens):
            end = self.tree.insert(node, salt, tokens[len(blocks) * SIZE :], new, self.now)
            num = end.depth - len(blocks)
            if end.block_ids[-1] == new[num - 1]:
                self.contents |= {block: (salt, *tokens[: (i + 1) * SIZE]) for i, block in enumerate(new, len(blocks))}
                blocks = blocks + new
            else:
                blocks = blocks + self.tree.acquire(end, self.now)
                self.pool.release_all(new[:num])
            node, new = end, new[num:]
        self.held[at] = salt, tokens, node, blocks

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def go(self, data):
        drop(self.tree, self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))[-1], self.now)

    @rule(tokens=st.lists(st.integers(0, 2), min_size=2, max_size=8), ttl=st.sampled_from([0.0, 1.0, 3.0]))
    def pin(self, tokens, ttl):
        self.tree.expire(self.now)
        for node in self.tree.path(self.tree.match("", tokens, len(tokens) // SIZE).node):
            if not self.tree.pin(node, ttl):
                assert self.tree.num_pinned + len(node.block_ids) > 4
                break

    @rule(seconds=st.sampled_from([0.0, 0.5, 2.0]))
    def wait(self, seconds):
        self.now += seconds
        self.tree.expire(self.now)

    @rule(break_pins=st.booleans(), num=st.integers(1, 4))
    def evict(self, break_pins, num):
        if break_pins and not self.tree.num_evictable:
            num_idle = self.tree.num_pinned_idle
            self.tree.break_pins(num, self.now)
            self.tree.check_integrity()
            assert self.tree.num_evictable == min(num, num_idle)
        there_are, num_free = min(num, self.tree.num_evictable), self.pool.num_free
        assert self.tree.evict(num, self.now) == there_are
        assert self.pool.num_free == num_free + there_are

    @invariant()
    def is_sound(self):
        if hasattr(self, "tree"):
            self.pool.check_integrity()
            self.tree.check_integrity()
            num_held = len({block for *_, blocks in self.held for block in blocks})
            for salt, tokens, node, blocks in self.held:
                assert [block for each in self.tree.path(node) for block in each.block_ids] == blocks
                assert self.tree.match(salt, tokens, len(blocks)).num_blocks == len(blocks)
            assert self.pool.num_free + self.tree.num_evictable + self.tree.num_pinned_idle + num_held == 10


TestTreeMachine = TreeMachine.TestCase
TestTreeMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None, derandomize=True)
