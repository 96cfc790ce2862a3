import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.core.errors import CapacityError
from penstock.decide.kv.blocks import BlockPool, IntegrityError


def test_hands_out_every_block_once_then_refuses():
    pool = BlockPool(3)
    assert sorted(pool.allocate(1) + pool.allocate(0)) == [0] and pool.num_free == 2
    with pytest.raises(CapacityError, match="3 KV blocks are wanted, but of 3 only 2 are free"):
        pool.allocate(3)
    assert pool.allocate(2) == [1, 2] and pool.num_free == 0
    pool.release_all([2, 0])
    assert pool.allocate(2) == [0, 2], "the block that was freed last is handed out first"


def test_a_shared_block_is_free_only_when_its_last_holder_lets_go():
    pool = BlockPool(1)
    blocks = pool.allocate(1)
    pool.share_all(blocks)
    assert pool.release_all(blocks) == blocks and pool.num_free == 0
    assert pool.release_all(blocks) == blocks and pool.num_free == 1


def test_a_free_block_cannot_be_released():
    pool = BlockPool(1)
    with pytest.raises(ValueError, match="cannot be released"):
        pool.release_all([0])
    pool.check_integrity()


def test_of_blocks_that_are_let_go_those_are_told_that_few_hold():
    pool = BlockPool(4)
    blocks = pool.allocate(3)
    pool.share_all(blocks[1:])
    pool.share_all(blocks[2:])
    assert pool.release_all(reversed(blocks)) == [blocks[1], blocks[0]] and pool.num_free == 2
    with pytest.raises(ValueError, match=f"block {blocks[0]} is free"):
        pool.release_all([blocks[2], blocks[0]])
    assert pool.count(blocks[2]) == 1
    pool.check_integrity()


def test_a_pool_without_blocks_is_refused():
    with pytest.raises(CapacityError, match="at least 1"):
        BlockPool(0)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda pool: pool._free.append(pool._free[0]), "twice"),
        (lambda pool: pool._free.pop(), "disagree"),
        (lambda pool: pool.num_holders.__setitem__(0, -1), "fewer than 0"),
    ],
)
def test_integrity_check_sees_damage(damage, message):
    pool = BlockPool(2)
    pool.allocate(1)
    pool.check_integrity()
    damage(pool)
    with pytest.raises(IntegrityError, match=message):
        pool.check_integrity()


class PoolMachine(RuleBasedStateMachine):
    """Against a dict of counts."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = BlockPool(5)
        self.counts: dict[int, int] = {}

    @precondition(lambda self: len(self.counts) < 5)
    @rule()
    def allocate(self):
        [block] = self.pool.allocate(1)
        assert block not in self.counts
        self.counts[block] = 1

    @precondition(lambda self: self.counts)
    @rule(data=st.data(), share=st.booleans())
    def share_or_release(self, data, share):
        block = data.draw(st.sampled_from(sorted(self.counts)))
        if share:
            self.pool.share_all([block])
            self.counts[block] += 1
        else:
            self.counts[block] -= 1
            assert self.pool.release_all([block]) == [block] * (self.counts[block] < 2)
            if not self.counts[block]:
                del self.counts[block]

    @invariant()
    def agrees(self):
        self.pool.check_integrity()
        assert self.pool.num_free == 5 - len(self.counts)
        assert all(self.pool.count(block) == self.counts.get(block, 0) for block in range(5))


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=20, stateful_step_count=30, deadline=None, derandomize=True)
