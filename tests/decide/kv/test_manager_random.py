"""Random operations on a KVManager, each followed by all integrity checks."""
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.clock import VirtualClock
from penstock.core.types import Seq
from penstock.decide.kv.evict.lfu import Lfu
from penstock.decide.kv.evict.lru import Lru
from penstock.decide.kv.evict.slru import Slru
from tests.decide.builders import make_kv, make_seq

NUM_BLOCKS, SIZE = 10, 3
TOKENS = st.lists(st.integers(0, 1), min_size=1, max_size=14)
MARKS = st.lists(st.tuples(st.integers(1, 14), st.sampled_from([1.0, 5.0])), max_size=2)


class ManagerMachine(RuleBasedStateMachine):
    """`contents` says which token at the end of which prefix is in each slot; nobody may find anything else in their blocks."""

    @initialize(policy=st.sampled_from([Lru, Lfu, Slru]), prefix_cache=st.sampled_from([True, True, False]))
    def start(self, policy, prefix_cache):
        self.clock = VirtualClock()
        self.kv = make_kv(NUM_BLOCKS, SIZE, prefix_cache, policy(), self.clock)
        self.live: list[Seq] = []
        self.contents: dict[tuple[int, int], tuple] = {}
        self.num_seqs = 0
        self.refused: Seq | None = None

    def new_seq(self, tokens, **rest):
        self.num_seqs += 1
        return make_seq(self.num_seqs, tokens, 30, **rest)

    @rule(tokens=TOKENS, salt=st.sampled_from(["", "", "s"]), marks=MARKS)
    def admit(self, tokens, salt, marks):
        seq = self.new_seq(tokens, salt=salt, marks=marks)
        free = self.kv.pool.num_free
        if self.kv.admit(seq, alone=not self.live):
            assert seq.num_computed < len(tokens)
            self.live.append(seq)
        else:
            assert self.live and self.kv.pool.num_free == free
            self.refused = seq

    @precondition(lambda self: self.live)
    @rule(data=st.data(), num_accepted=st.integers(0, 4), num_drafts=st.integers(0, 4))
    def compute(self, data, num_accepted, num_drafts):
        """Some tokens of one sequence and, at its end, drafts, of which some are accepted, and a new token."""
        seq = data.draw(st.sampled_from(self.live))
        left = len(seq.tokens) - seq.num_computed
        num_tokens = data.draw(st.integers(1, left))
        drafts = [1] * num_drafts if num_tokens == left else []
        before = seq.block_ids
        copies = self.kv.grow(seq, num_tokens + len(drafts), break_pins=len(self.live) == 1)
        if copies is None:
            assert seq.block_ids == before
            return
        for source, target in copies:
            for offset in range(SIZE):
                self.contents[target, offset] = self.contents.get((source, offset), ())
        written = seq.tokens + drafts
        for position in range(seq.num_computed, seq.num_computed + num_tokens + len(drafts)):
            slot = seq.block_ids[position // SIZE], position % SIZE
            assert self.kv.pool.count(slot[0]) == 1, "a shared block is written"
            self.contents[slot] = (seq.salt, *written[: position + 1])
        seq.num_computed += num_tokens
        if num_tokens == left:
            accepted = drafts[:num_accepted]
            seq.tokens += [*accepted, data.draw(st.integers(0, 1))]
            seq.num_computed += len(accepted)
        self.kv.commit(seq)
        self.kv.truncate(seq)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def fork(self, data):
        parent = data.draw(st.sampled_from(self.live))
        num_tokens = data.draw(st.integers(0, parent.num_computed))
        child = self.new_seq([*parent.tokens[:num_tokens], data.draw(st.integers(0, 1))], salt=parent.salt)
        self.kv.fork(parent, child, num_tokens)
        self.live.append(child)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def rebase(self, data):
        """One that lives goes on as a fork of another, or of what it was itself."""
        parent = data.draw(st.sampled_from(self.live))
        child = data.draw(st.sampled_from([seq for seq in self.live if seq.salt == parent.salt]))
        num_tokens = data.draw(st.integers(0, parent.num_computed))
        if child is not parent:
            child.tokens[:] = [*parent.tokens[:num_tokens], data.draw(st.integers(0, 1))]
        self.kv.fork(parent, child, num_tokens)

    @precondition(lambda self: self.live)
    @rule(data=st.data())
    def free(self, data):
        self.kv.free(self.live.pop(data.draw(st.integers(0, len(self.live) - 1))))

    @rule(seconds=st.sampled_from([0.5, 3.0]))
    def wait(self, seconds):
        self.clock.advance(seconds)

    @invariant()
    def is_sound(self):
        if not hasattr(self, "kv"):
            return
        self.kv.check_integrity()
        if (seq := self.refused) is not None:
            found = self.kv._find(seq)
            assert found == self.kv.tree.match(seq.salt, seq.tokens, len(seq.tokens) // SIZE if self.kv.prefix_cache else 0)
            evictable = [not node.pinned and self.kv.tree.is_idle(node) for node in self.kv.tree.path(found.node)]
            assert evictable == sorted(evictable), "below one that can be evicted, all can"
        assert self.kv.num_used + self.kv.num_cached + self.kv.pool.num_free == NUM_BLOCKS
        assert self.kv.num_used == len({block for seq in self.live for block in seq.block_ids})
        for seq in self.live:
            for position in range(seq.num_computed):
                slot = seq.block_ids[position // SIZE], position % SIZE
                assert self.contents[slot] == (seq.salt, *seq.tokens[: position + 1])


TestManagerMachine = ManagerMachine.TestCase
TestManagerMachine.settings = settings(max_examples=30, stateful_step_count=30, deadline=None, derandomize=True)
