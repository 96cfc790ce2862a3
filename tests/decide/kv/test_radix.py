import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.decide.kv.blocks import BlockPool, IntegrityError
from penstock.decide.kv.evict.lfu import Lfu
from penstock.decide.kv.evict.lru import Lru
from penstock.decide.kv.evict.slru import Slru
from penstock.decide.kv.radix import RadixTree

SIZE = 2


def make(num_blocks=8, policy=None, max_pinned=4):
    pool = BlockPool(num_blocks)
    return pool, RadixTree(pool, SIZE, policy or Lru(), max_pinned)


def put(pool, tree, tokens, now=0.0, salt=""):
    """Computes `tokens` as a sequence would: holds its path, and returns the blocks, to be released by `drop`."""
    nodes = tree.match(salt, tokens, len(tokens) // SIZE)
    blocks = [tree.acquire(node, now) for node in nodes]
    node = nodes[-1] if nodes else None
    for i in range(len(nodes), len(tokens) // SIZE):
        block = pool.allocate()
        node = tree.insert(node, salt, tuple(tokens[i * SIZE : (i + 1) * SIZE]), block, now)
        assert node.block_id == block
        blocks.append(block)
    return blocks


def drop(tree, blocks, now=0.0):
    for block in reversed(blocks):
        tree.release(block, now)


def cached(tree, tokens, salt=""):
    return len(tree.match(salt, tokens, len(tokens) // SIZE)) * SIZE


def test_matches_the_longest_prefix_of_whole_blocks():
    pool, tree = make()
    blocks = put(pool, tree, [1, 2, 3, 4, 5])
    assert [node.block_id for node in tree.match("", [1, 2, 3, 4, 9, 9], 3)] == blocks
    assert cached(tree, [1, 2, 3, 9]) == 2
    assert cached(tree, [9, 2, 3, 4]) == 0
    assert len(tree.match("", [1, 2, 3, 4], 1)) == 1
    assert len(tree) == 2


def test_the_same_tokens_after_another_beginning_are_another_prefix():
    pool, tree = make()
    put(pool, tree, [1, 2, 7, 7])
    assert cached(tree, [3, 4, 7, 7]) == 0


def test_salts_share_nothing():
    pool, tree = make()
    put(pool, tree, [1, 2], salt="one")
    assert cached(tree, [1, 2], salt="two") == 0 and cached(tree, [1, 2]) == 0
    assert cached(tree, [1, 2], salt="one") == 2


def test_inserting_what_is_there_returns_the_node_that_is_there():
    pool, tree = make()
    block = put(pool, tree, [1, 2])[0]
    assert tree.insert(None, "", (1, 2), pool.allocate(), 0.0).block_id == block


def test_an_only_continuation_and_one_of_several_are_found_alike():
    pool, tree = make()
    put(pool, tree, [1, 2, 3, 4])
    assert cached(tree, [1, 2, 3, 4]) == 4 and cached(tree, [1, 2, 4, 3]) == 2
    put(pool, tree, [1, 2, 5, 6])
    assert cached(tree, [1, 2, 3, 4]) == cached(tree, [1, 2, 5, 6]) == 4 and cached(tree, [1, 2, 3, 6]) == 2


@pytest.mark.parametrize(
    ("asked", "position"),
    [
        ([1, 2, 3, 9], 3),
        ([9, 2, 3, 4], 0),
        ([1, 2, 5, 6], 3),  # as far as the best of the branches goes
        ([1, 2, 3], None),  # agrees as far as it goes
        ([1, 2, 3, 4, 5, 6], None),  # nothing is cached there
    ],
)
def test_first_difference(asked, position):
    pool, tree = make()
    put(pool, tree, [1, 2, 3, 4])
    put(pool, tree, [1, 2, 5, 5])
    assert tree.first_difference("", asked, tree.match("", asked, len(asked) // SIZE)) == position
    assert tree.first_difference("other", asked, []) is None


def test_evicts_idle_leaves_from_the_end_of_a_prefix_and_nothing_that_is_held():
    pool, tree = make()
    held = put(pool, tree, [1, 2, 3, 4])
    drop(tree, put(pool, tree, [1, 2, 3, 4, 5, 6, 7, 8]))
    assert tree.num_evictable == 2
    assert tree.evict(1.0) and cached(tree, [1, 2, 3, 4, 5, 6, 7, 8]) == 6
    assert tree.evict(1.0) and not tree.evict(1.0)
    drop(tree, held)
    assert tree.evict(1.0) and tree.evict(1.0) and not tree.evict(1.0)
    assert pool.num_free == 8 and len(tree) == 0
    tree.check_integrity()


def test_a_node_that_was_taken_again_is_not_evicted_by_its_old_entry():
    pool, tree = make()
    drop(tree, put(pool, tree, [1, 2]))
    put(pool, tree, [1, 2])
    assert not tree.evict(1.0)
    assert cached(tree, [1, 2]) == 2


def test_a_branch_that_grew_is_evicted_from_its_new_end():
    pool, tree = make()
    drop(tree, put(pool, tree, [1, 2], now=0.0), now=0.0)
    drop(tree, put(pool, tree, [1, 2, 3, 4], now=1.0), now=1.0)
    assert tree.evict(2.0)
    assert cached(tree, [1, 2, 3, 4]) == 2


def test_a_pinned_prefix_outlasts_everything_until_its_time_to_live_after_the_last_use():
    pool, tree = make()
    blocks = put(pool, tree, [1, 2, 3, 4])
    node = tree.match("", [1, 2], 1)[0]
    assert tree.pin(node, 10.0)
    drop(tree, blocks, now=5.0)
    assert tree.evict(6.0) and not tree.evict(6.0)
    assert tree.num_pinned_idle == 1 and tree.num_evictable == 0
    tree.expire(14.9)
    assert not tree.evict(14.9)
    tree.expire(15.0)
    assert tree.num_pinned == 0 and tree.evict(15.0)
    tree.check_integrity()


def test_a_held_pin_does_not_expire():
    pool, tree = make()
    blocks = put(pool, tree, [1, 2])
    tree.pin(tree.match("", [1, 2], 1)[0], 10.0)
    tree.expire(100.0)
    assert tree.num_pinned == 1
    drop(tree, blocks, now=105.0)
    tree.expire(110.0)
    assert tree.num_pinned == 1
    tree.expire(115.0)
    assert tree.num_pinned == 0


def test_a_held_pin_without_time_to_live_expires():
    pool, tree = make()
    put(pool, tree, [1, 2])
    tree.pin(tree.match("", [1, 2], 1)[0], 0.0)
    tree.expire(0.0)
    assert tree.num_pinned == 0
    tree.check_integrity()


def test_idle_nodes_can_be_pinned_and_pinned_longer():
    pool, tree = make()
    drop(tree, put(pool, tree, [1, 2]))
    node = tree.match("", [1, 2], 1)[0]
    assert tree.pin(node, 5.0) and tree.num_evictable == 0 and tree.num_pinned_idle == 1
    assert tree.pin(node, 20.0) and tree.num_pinned == 1
    tree.check_integrity()
    tree.expire(5.0)
    assert not tree.evict(5.0)
    tree.expire(20.0)
    assert tree.evict(20.0)


def test_pins_are_bounded_and_can_be_broken_soonest_first():
    pool, tree = make(max_pinned=2)
    for i, ttl in enumerate((30.0, 10.0)):
        drop(tree, put(pool, tree, [i, i]))
        assert tree.pin(tree.match("", [i, i], 1)[0], ttl)
    drop(tree, put(pool, tree, [5, 5]))
    assert not tree.pin(tree.match("", [5, 5], 1)[0], 10.0)
    assert tree.evict(1.0) and cached(tree, [5, 5]) == 0 and not tree.evict(1.0)
    tree.break_pins(1, 1.0)
    assert tree.evict(1.0) and cached(tree, [1, 1]) == 0 and cached(tree, [0, 0]) == 2 and not tree.evict(1.0)
    tree.expire(10.0)
    tree.check_integrity()
    tree.break_pins(2, 1.0)
    assert tree.evict(1.0) and not tree.evict(1.0)


def test_pins_are_broken_from_the_ends_of_prefixes_without_a_look_at_all_others(monkeypatch):
    pool, tree = make(num_blocks=64, max_pinned=64)
    for i in range(4):
        drop(tree, put(pool, tree, [1, i, *range(10 * i, 10 * i + 14)], now=float(i)), now=float(i))
        for node in tree.match("", [1, i, *range(10 * i, 10 * i + 14)], 8):
            tree.pin(node, 50.0)
    drop(tree, put(pool, tree, [1, 0, *range(14)], now=9.0), now=9.0)  # the first is now the last to expire
    asked = []
    idle = RadixTree.is_idle
    monkeypatch.setattr(RadixTree, "is_idle", lambda *args: asked.append(args) or idle(*args))
    for num in (4, *[1] * 6):
        tree.break_pins(num, 10.0)
    assert len(asked) < 3 * len(tree)
    monkeypatch.undo()
    tree.check_integrity()
    assert tree.num_evictable == 10 and all(tree.evict(10.0) for _ in range(10)) and not tree.evict(10.0)
    assert [cached(tree, [1, i, *range(10 * i, 10 * i + 14)]) for i in range(4)] == [16, 0, 12, 16]
    tree.check_integrity()


def test_what_was_found_is_found_again_and_what_has_come_or_gone_since():
    pool, tree = make()
    blocks = put(pool, tree, [1, 2, 3, 4])
    known = tree.match("", [1, 2, 3, 4, 5, 6], 3)
    more = put(pool, tree, [1, 2, 3, 4, 5, 6])
    found = tree.match("", [0, 0, 0, 0, 5, 6], 3, known)
    assert [node.block_id for node in found] == more and len(known) == 2
    drop(tree, more), drop(tree, blocks)
    assert tree.evict(1.0) and tree.evict(1.0)
    assert tree.match("", [1, 2, 3, 4, 5, 6], 3, found) == known[:1]
    put(pool, tree, [1, 2, 3, 4])
    again = tree.match("", [1, 2, 3, 4, 5, 6], 3, found)
    assert len(again) == 2 and again[1] is not known[1]


def test_the_queue_does_not_grow_with_use():
    pool, tree = make()
    for now in range(1000):
        drop(tree, put(pool, tree, [1, 2], now), now)
    assert len(tree._queue) < 100
    tree.check_integrity()
    assert tree.evict(1000.0)


def test_a_priority_that_changes_by_itself_is_noticed():
    pool, tree = make(num_blocks=20, policy=Slru(Slru.Options(uses=2, protect_s=100.0)))
    for _ in range(2):
        drop(tree, put(pool, tree, [1, 2], now=0.0), now=0.0)  # queued as protected, which ends at 100
    for i in range(3, 20):
        drop(tree, put(pool, tree, [i, i], now=200.0), now=200.0)
    assert tree.evict(200.0) and cached(tree, [1, 2]) == 2
    num_evicted = 1
    while cached(tree, [1, 2]):
        drop(tree, put(pool, tree, [20 + num_evicted, 0], now=200.0), now=200.0)
        assert tree.evict(200.0)
        num_evicted += 1
    assert num_evicted <= 20


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda pool, tree, nodes: tree._nodes.popitem(), "index by block"),
        (lambda pool, tree, nodes: tree._roots.setdefault("empty", type(nodes[0])("empty")), "keeps its root"),
        (lambda pool, tree, nodes: setattr(nodes[0], "tokens", (9, 9)), "wrong place"),
        (lambda pool, tree, nodes: [pool.release(nodes[1].block_id) for _ in range(2)], "does not hold"),
        (lambda pool, tree, nodes: pool.share(nodes[1].block_id), "do not hold its parent"),
        (lambda pool, tree, nodes: tree.pin(nodes[1], 1.0), "pinned for longer"),
        (lambda pool, tree, nodes: [tree.pin(node, ttl) for node, ttl in zip(nodes, (1.0, 2.0), strict=True)], "pinned for longer"),
        (lambda pool, tree, nodes: setattr(tree, "_latest", None), "not queued"),
        (lambda pool, tree, nodes: setattr(tree, "num_evictable", 7), "counters"),
    ],
)
def test_integrity_check_sees_damage(damage, message):
    pool, tree = make()
    put(pool, tree, [1, 2, 3, 4])
    drop(tree, put(pool, tree, [5, 6]))
    tree.check_integrity()
    damage(pool, tree, tree.match("", [1, 2, 3, 4], 2))
    with pytest.raises(IntegrityError, match=message):
        tree.check_integrity()


class TreeMachine(RuleBasedStateMachine):
    """Random sequences come, share, pin and go; `contents` says what each block really holds."""

    policies = (Lru, Lfu, Slru)

    @initialize(policy=st.sampled_from(policies))
    def start(self, policy):
        self.pool, self.tree = make(10, policy(), 4)
        self.held: list[list[int]] = []
        self.contents: dict[int, tuple] = {}
        self.now = 0.0

    @rule(tokens=st.lists(st.integers(0, 2), min_size=2, max_size=8), salt=st.sampled_from(["", "s"]))
    def come(self, tokens, salt):
        nodes = self.tree.match(salt, tokens, len(tokens) // SIZE)
        for i, node in enumerate(nodes):
            assert self.contents[node.block_id] == (salt, *tokens[: (i + 1) * SIZE])
        blocks = [self.tree.acquire(node, self.now) for node in nodes]
        node = nodes[-1] if nodes else None
        for i in range(len(nodes), len(tokens) // SIZE):
            if not self.pool.num_free and not self.tree.evict(self.now):
                break
            block = self.pool.allocate()
            self.contents[block] = (salt, *tokens[: (i + 1) * SIZE])
            node = self.tree.insert(node, salt, tuple(tokens[i * SIZE : (i + 1) * SIZE]), block, self.now)
            blocks.append(block)
            assert node.block_id == block
        self.held.append(blocks)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def go(self, data):
        drop(self.tree, self.held.pop(data.draw(st.integers(0, len(self.held) - 1))), self.now)

    @rule(tokens=st.lists(st.integers(0, 2), min_size=2, max_size=8), ttl=st.sampled_from([0.0, 1.0, 3.0]))
    def pin(self, tokens, ttl):
        self.tree.expire(self.now)
        for node in self.tree.match("", tokens, len(tokens) // SIZE):
            if not self.tree.pin(node, ttl):
                assert self.tree.num_pinned == 4
                break

    @rule(seconds=st.sampled_from([0.0, 0.5, 2.0]))
    def wait(self, seconds):
        self.now += seconds
        self.tree.expire(self.now)

    @rule(break_pins=st.booleans())
    def evict(self, break_pins):
        if break_pins and not self.tree.num_evictable:
            self.tree.break_pins(1, self.now)
            self.tree.check_integrity()
            assert self.tree.num_evictable or not self.tree.num_pinned_idle
        there_is_one = self.tree.num_evictable > 0
        num_free = self.pool.num_free
        assert self.tree.evict(self.now) == there_is_one
        assert self.pool.num_free == num_free + there_is_one

    @invariant()
    def is_sound(self):
        if hasattr(self, "tree"):
            self.pool.check_integrity()
            self.tree.check_integrity()
            num_held = len({block for blocks in self.held for block in blocks})
            assert self.pool.num_free + self.tree.num_evictable + self.tree.num_pinned_idle + num_held == 10


TestTreeMachine = TreeMachine.TestCase
TestTreeMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None, derandomize=True)
