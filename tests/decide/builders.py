"""Short ways to make sequences, managers and schedulers."""
from penstock.core.clock import VirtualClock
from penstock.core.types import CacheMark, SamplingParams, Seq
from penstock.decide.kv.evict.lru import Lru
from penstock.decide.kv.manager import KVManager
from penstock.decide.scheduler.batching.continuous import Continuous
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.limits import Limits
from penstock.decide.scheduler.order.fcfs import Fcfs
from penstock.decide.scheduler.scheduler import Scheduler
from tests.fakes import FakeRunner

VOCAB = 50


class SteadyTimer:
    """Steps of a fixed time and a time for each row."""

    def __init__(self, step_s=0.01, row_s=0.001):
        self.step_s, self.row_s = step_s, row_s

    def seconds(self, work):
        return self.step_s + self.row_s * work.num_tokens


class CountedCosts(StepCosts):
    """Counts how often a price is asked for."""

    num_asked = 0

    def step_s(self, *args):
        self.num_asked += 1
        return super().step_s(*args)

    def prompt_s(self, *args):
        self.num_asked += 1
        return super().prompt_s(*args)


def make_seq(seq_id, tokens, num_new=4, *, arrival_s=None, marks=(), params=None, **rest):
    """A sequence with prompt `tokens` and up to `num_new` more. `marks`: (num_tokens, ttl_s) pairs."""
    return Seq(
        seq_id=seq_id,
        tokens=list(tokens),
        num_prompt=len(tokens),
        params=params or SamplingParams(),
        request_id=f"r{seq_id}",
        arrival_s=float(seq_id) if arrival_s is None else arrival_s,
        max_len=len(tokens) + num_new,
        marks=tuple(CacheMark(*mark) for mark in marks),
        **rest,
    )


def make_kv(num_blocks=8, block_size=4, prefix_cache=True, policy=None, clock=None):
    return KVManager(num_blocks, block_size, prefix_cache, policy or Lru(), clock or VirtualClock())


def watch_moves(pool, monkeypatch):
    """How many blocks each call that shares or releases several gives, from now on."""
    moved = []

    def watched(act):
        def counted(block_ids):
            given = list(block_ids)
            moved.append(len(given))
            return act(given)

        return counted

    for name in ("share_all", "release_all"):
        monkeypatch.setattr(pool, name, watched(getattr(pool, name)))
    return moved


def compute(kv, seq, num_tokens=None):
    """Grows, computes and commits `num_tokens` tokens (None: all that are there); returns the copies."""
    num_tokens = len(seq.tokens) - seq.num_computed if num_tokens is None else num_tokens
    copies = kv.grow(seq, num_tokens)
    if copies is not None:
        seq.num_computed += num_tokens
        kv.commit(seq)
        kv.check_integrity()
    return copies


def serve(kv, seq):
    """Admits, computes and frees a sequence."""
    assert kv.admit(seq)
    compute(kv, seq)
    kv.free(seq)
    kv.check_integrity()
    return seq


class Rig:
    """A scheduler with a fake runner and a clock that moves one second a step."""

    def __init__(
        self,
        num_blocks=32,
        block_size=4,
        *,
        max_num_seqs=8,
        budget=16,
        prefix_cache=True,
        order=None,
        batching=None,
        num_drafts=0,
        policy=None,
        pacing=None,
    ):
        self.clock = VirtualClock()
        self.kv = make_kv(num_blocks, block_size, prefix_cache, policy, self.clock)
        self.runner = FakeRunner(block_size, VOCAB, num_drafts)
        limits = Limits(max_num_seqs, budget)
        self.scheduler = Scheduler(limits, self.kv, order or Fcfs(), batching or Continuous(), self.clock, pacing)

    def step(self):
        """One step; the plan and its outputs, or (None, [])."""
        plan = self.scheduler.schedule()
        self.scheduler.check_integrity()
        if plan is None:
            return None, []
        outputs = self.scheduler.commit(plan, self.runner.execute(plan))
        self.scheduler.check_integrity()
        self.clock.advance(1.0)
        return plan, outputs

    def run(self, *seqs, max_steps=2000):
        """Adds sequences and steps until nothing is left to do; returns the outputs."""
        for seq in seqs:
            self.scheduler.add(seq)
        outputs = []
        for _ in range(max_steps):
            if not self.scheduler.has_work():
                return outputs
            plan, found = self.step()
            outputs += found
            if plan is None:
                self.clock.advance(max(self.scheduler.wake_s() - self.clock.now(), 0.01))
        raise AssertionError(f"not finished after {max_steps} steps")
