import pytest

from penstock.decide.kv.blocks import IntegrityError
from penstock.decide.kv.evict.slru import Slru
from penstock.decide.kv.radix import NOTHING, Prefix, RadixTree
from tests.decide.kv.trees import SIZE, cached, drop, end_of, make, put


def test_matches_the_longest_prefix_of_whole_blocks():
    pool, tree = make()
    blocks = put(pool, tree, [1, 2, 3, 4, 5])
    assert tree.match("", [1, 2, 3, 4, 9, 9], 3) == Prefix(end_of(tree, [1, 2, 3, 4]), 2)
    assert end_of(tree, [1, 2, 3, 4]).block_ids == blocks
    assert cached(tree, [1, 2, 3, 9]) == 2
    assert cached(tree, [9, 2, 3, 4]) == 0
    assert tree.match("", [1, 2, 3, 4], 1).num_blocks == 1
    assert tree.num_blocks == 2


def test_a_run_is_one_node_until_somebody_takes_a_part_of_it():
    pool, tree = make()
    blocks = put(pool, tree, [1, 2, 3, 4])
    node = end_of(tree, [1, 2, 3, 4])
    more = pool.allocate(2)
    assert tree.insert(node, "", [5, 6, 7, 8], more, 1.0) is node and tree.path(node) == [node]
    assert node.block_ids == blocks + more and node.start == 0
    part = put(pool, tree, [1, 2, 3, 4, 5, 6, 9, 9])
    assert part[:3] == [*blocks, more[0]] and [each.depth for each in tree.path(node)] == [3, 4]
    assert tree.path(node)[1] is node and node.block_ids == [more[1]] and [each.num_uses for each in tree.path(node)] == [2, 1]
    tree.check_integrity()
    drop(tree, part), drop(tree, blocks + more)
    tree.check_integrity()


@pytest.mark.parametrize("what", ["held by another", "used by another", "pinned", "continued", "shrunk"])
def test_a_node_that_what_follows_would_not_be_like_does_not_grow(what):
    pool, tree = make(num_blocks=9)
    blocks = put(pool, tree, [1, 2, 3, 4])
    node = end_of(tree, [1, 2, 3, 4])
    if what == "held by another":
        pool.share_all(blocks)  # as a fork does
    elif what == "used by another":
        drop(tree, put(pool, tree, [1, 2, 3, 4]))
    elif what == "pinned":
        tree.pin(node, 1.0)
    elif what == "continued":
        node = tree.cut(node, 1)
        drop(tree, blocks[1:])  # as one does that goes on as a fork of what it was
    else:
        drop(tree, blocks)
        assert tree.evict(1, 0.0) == 1
        for each in tree.path(node):
            tree.acquire(each, 0.0, is_new=False)  # as who was preempted does
    assert tree.insert(node, "", [5, 6], pool.allocate(1), 0.0) is not node
    tree.check_integrity()


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
    blocks = put(pool, tree, [1, 2, 3, 4])
    node = tree.insert(None, "", [1, 2, 5, 6], pool.allocate(2), 0.0)
    assert node.block_ids == blocks[:1] and tree.num_blocks == 2
    assert tree.insert(node, "", [5, 6], pool.allocate(1), 0.0).depth == 2


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
    assert tree.first_difference("other", asked, NOTHING) is None


def test_the_first_difference_within_a_run():
    pool, tree = make()
    put(pool, tree, [1, 2, 3, 4])
    for asked, position in (([1, 2, 3, 9], 3), ([1, 2, 3], None)):
        assert tree.first_difference("", asked, tree.match("", asked, len(asked) // SIZE)) == position


def test_evicts_idle_leaves_from_the_end_of_a_prefix_and_nothing_that_is_held():
    pool, tree = make()
    held = put(pool, tree, [1, 2, 3, 4])
    drop(tree, put(pool, tree, [1, 2, 3, 4, 5, 6, 7, 8]))
    assert tree.num_evictable == 2
    assert tree.evict(1, 1.0) and cached(tree, [1, 2, 3, 4, 5, 6, 7, 8]) == 6
    assert tree.evict(1, 1.0) and not tree.evict(1, 1.0)
    drop(tree, held)
    assert tree.evict(1, 1.0) and tree.evict(1, 1.0) and not tree.evict(1, 1.0)
    assert pool.num_free == 8 and tree.num_blocks == 0
    tree.check_integrity()


def test_a_node_that_was_taken_again_is_not_evicted_by_its_old_entry():
    pool, tree = make()
    drop(tree, put(pool, tree, [1, 2]))
    put(pool, tree, [1, 2])
    assert not tree.evict(1, 1.0)
    assert cached(tree, [1, 2]) == 2


def test_a_branch_that_grew_is_evicted_from_its_new_end():
    pool, tree = make()
    drop(tree, put(pool, tree, [1, 2], now=0.0), now=0.0)
    drop(tree, put(pool, tree, [1, 2, 3, 4], now=1.0), now=1.0)
    assert tree.evict(1, 2.0)
    assert cached(tree, [1, 2, 3, 4]) == 2


def test_a_pinned_prefix_outlasts_everything_until_its_time_to_live_after_the_last_use():
    pool, tree = make()
    blocks = put(pool, tree, [1, 2, 3, 4])
    node = end_of(tree, [1, 2])
    assert tree.pin(node, 10.0)
    drop(tree, blocks, now=5.0)
    assert tree.evict(1, 6.0) and not tree.evict(1, 6.0)
    assert tree.num_pinned_idle == 1 and tree.num_evictable == 0
    tree.expire(14.9)
    assert not tree.evict(1, 14.9)
    tree.expire(15.0)
    assert tree.num_pinned == 0 and tree.evict(1, 15.0)
    tree.check_integrity()


def test_a_held_pin_does_not_expire():
    pool, tree = make()
    blocks = put(pool, tree, [1, 2])
    tree.pin(end_of(tree, [1, 2]), 10.0)
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
    tree.pin(end_of(tree, [1, 2]), 0.0)
    tree.expire(0.0)
    assert tree.num_pinned == 0
    tree.check_integrity()


def test_idle_nodes_can_be_pinned_and_pinned_longer():
    pool, tree = make()
    drop(tree, put(pool, tree, [1, 2]))
    node = end_of(tree, [1, 2])
    assert tree.pin(node, 5.0) and tree.num_evictable == 0 and tree.num_pinned_idle == 1
    assert tree.pin(node, 20.0) and tree.num_pinned == 1
    tree.check_integrity()
    tree.expire(5.0)
    assert not tree.evict(1, 5.0)
    tree.expire(20.0)
    assert tree.evict(1, 20.0)


def test_pins_are_bounded_and_can_be_broken_soonest_first():
    pool, tree = make(max_pinned=2)
    for i, ttl in enumerate((30.0, 10.0)):
        drop(tree, put(pool, tree, [i, i]))
        assert tree.pin(end_of(tree, [i, i]), ttl)
    drop(tree, put(pool, tree, [5, 5]))
    assert not tree.pin(end_of(tree, [5, 5]), 10.0)
    assert tree.evict(1, 1.0) and cached(tree, [5, 5]) == 0 and not tree.evict(1, 1.0)
    tree.break_pins(1, 1.0)
    assert tree.evict(1, 1.0) and cached(tree, [1, 1]) == 0 and cached(tree, [0, 0]) == 2 and not tree.evict(1, 1.0)
    tree.expire(10.0)
    tree.check_integrity()
    tree.break_pins(2, 1.0)
    assert tree.evict(1, 1.0) and not tree.evict(1, 1.0)


def test_pins_are_broken_from_the_ends_of_prefixes_without_a_look_at_all_others(monkeypatch):
    pool, tree = make(num_blocks=64, max_pinned=64)
    for i in range(4):
        drop(tree, put(pool, tree, [1, i, *range(10 * i, 10 * i + 14)], now=float(i)), now=float(i))
        tree.pin(end_of(tree, [1, i, *range(10 * i, 10 * i + 14)]), 50.0)
    drop(tree, put(pool, tree, [1, 0, *range(14)], now=9.0), now=9.0)  # the first is now the last to expire
    asked = []
    idle = RadixTree.is_idle
    monkeypatch.setattr(RadixTree, "is_idle", lambda *args: asked.append(args) or idle(*args))
    for num in (4, *[1] * 6):
        tree.break_pins(num, 10.0)
    assert len(asked) < 3 * tree.num_blocks
    monkeypatch.undo()
    tree.check_integrity()
    assert tree.num_evictable == 10 and tree.evict(11, 10.0) == 10
    assert [cached(tree, [1, i, *range(10 * i, 10 * i + 14)]) for i in range(4)] == [16, 0, 12, 16]
    tree.check_integrity()


def test_what_was_found_is_found_again_and_what_has_come_or_gone_since():
    pool, tree = make()
    asked, behind = [1, 2, 3, 4, 5, 6], [0, 0, 0, 0, 5, 6]  # what was found is not looked at again
    blocks = put(pool, tree, [1, 2, 3, 4])
    known = tree.match("", asked, 3)
    more = put(pool, tree, asked)
    found = tree.match("", behind, 3, known)
    assert known.num_blocks == 2 and found.num_blocks == 3 and found.node.block_ids == more[2:]
    drop(tree, more), drop(tree, blocks)
    assert tree.evict(2, 1.0) == 2
    assert tree.match("", [0, 0, 3, 4], 3, found) == Prefix(end_of(tree, [1, 2]), 1)
    assert tree.match("", [0, 0, 3, 4], 3, known) == Prefix(end_of(tree, [1, 2]), 1)
    put(pool, tree, [1, 2, 9, 9, 5, 6])
    assert tree.match("", [0, 0, 3, 4, 5, 6], 3, found).num_blocks == 1
    assert tree.match("", [0, 0, 9, 9, 5, 6], 3, known).num_blocks == 3


def test_what_was_found_within_a_run_is_found_again_when_the_run_was_cut_grew_or_went():
    pool, tree = make()
    asked = [1, 2, 3, 4, 5, 6]
    blocks = put(pool, tree, [1, 2, 3, 4, 7, 7])
    known = tree.match("", asked, 3)
    assert known.num_blocks == 2 and known.node.depth == 3
    tree.cut(known.node, 2), tree.cut(known.node, 1)
    assert tree.match("", [0, 0, 0, 0, 5, 6], 3, known) == Prefix(end_of(tree, [1, 2, 3, 4]), 2)
    whole = tree.match("", [1, 2, 3, 4, 7, 7, 8, 8], 4)
    tree.insert(whole.node, "", [8, 8], more := pool.allocate(1), 0.0)
    assert tree.match("", [*[0] * 6, 8, 8], 4, whole) == Prefix(whole.node, 4)
    drop(tree, blocks + more)
    assert tree.evict(4, 1.0) == 4
    assert tree.match("", asked, 3, known) == tree.match("", asked, 3, whole) == NOTHING


def test_several_blocks_go_as_if_each_were_asked_for():
    """Of leaves with equal priority those that fell idle first, and the whole run before the next one."""
    def filled():
        pool, tree = make(12)
        for first in (1, 4):
            drop(tree, put(pool, tree, [first, 0, first, 1, first, 2], now=1.0), now=1.0)
        drop(tree, put(pool, tree, [7, 0, 7, 1, 7, 2], now=2.0), now=2.0)
        return pool, tree
    for num in range(1, 11):
        pool, tree = filled()
        other_pool, other = filled()
        assert tree.evict(num, 3.0) == sum(other.evict(1, 3.0) for _ in range(num)) == min(num, 9)
        assert list(tree.last_evicted) == list(other.last_evicted)
        assert pool.allocate(num)[: min(num, 9)] == list(tree.last_evicted)
        assert (cached(tree, [1, 0, 1, 1, 1, 2]), cached(tree, [4, 0, 4, 1, 4, 2])) == (2 * max(3 - num, 0), 2 * min(max(6 - num, 0), 3))
        tree.check_integrity()


def test_the_queue_does_not_grow_with_use():
    pool, tree = make()
    for now in range(1000):
        drop(tree, put(pool, tree, [1, 2], now), now)
    assert len(tree._queue) < 100
    tree.check_integrity()
    assert tree.evict(1, 1000.0)


def test_a_priority_that_changes_by_itself_is_noticed():
    pool, tree = make(num_blocks=20, policy=Slru(Slru.Options(uses=2, protect_s=100.0)))
    for _ in range(2):
        drop(tree, put(pool, tree, [1, 2], now=0.0), now=0.0)  # queued as protected, which ends at 100
    for i in range(3, 20):
        drop(tree, put(pool, tree, [i, i], now=200.0), now=200.0)
    assert tree.evict(1, 200.0) and cached(tree, [1, 2]) == 2
    num_evicted = 1
    while cached(tree, [1, 2]):
        drop(tree, put(pool, tree, [20 + num_evicted, 0], now=200.0), now=200.0)
        assert tree.evict(1, 200.0)
        num_evicted += 1
    assert num_evicted <= 20


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda pool, tree, nodes: tree._nodes.popitem(), "index by block"),
        (lambda pool, tree, nodes: tree._roots.setdefault("empty", type(nodes[0])("empty")), "keeps its root"),
        (lambda pool, tree, nodes: setattr(nodes[0], "tokens", [9, 9]), "wrong place"),
        (lambda pool, tree, nodes: nodes[1].tokens.pop(), "wrong place"),
        (lambda pool, tree, nodes: [pool.release_all(nodes[1].block_ids) for _ in range(2)], "does not hold"),
        (lambda pool, tree, nodes: pool.share_all(nodes[1].block_ids[1:]), "held in part"),
        (lambda pool, tree, nodes: pool.share_all(nodes[1].block_ids), "do not hold its parent"),
        (lambda pool, tree, nodes: tree.pin(nodes[1], 1.0), "pinned for longer"),
        (lambda pool, tree, nodes: [tree.pin(node, ttl) for node, ttl in zip(nodes, (1.0, 2.0), strict=True)], "pinned for longer"),
        (lambda pool, tree, nodes: setattr(tree, "_latest", None), "not queued"),
        (lambda pool, tree, nodes: setattr(tree, "num_evictable", 7), "counters"),
    ],
)
def test_integrity_check_sees_damage(damage, message):
    pool, tree = make()
    put(pool, tree, [1, 2, 3, 4, 7, 8])
    drop(tree, put(pool, tree, [5, 6]))
    nodes = [end_of(tree, [1, 2]), end_of(tree, [1, 2, 3, 4, 7, 8])]
    tree.check_integrity()
    damage(pool, tree, nodes)
    with pytest.raises(IntegrityError, match=message):
        tree.check_integrity()
