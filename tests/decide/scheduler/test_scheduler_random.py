"""Random requests, aborts, forks and lost steps on tiny caches; every plan is checked slot by slot by the fake runner."""
import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.core.types import SamplingParams, Seq
from penstock.decide.kv.evict.lfu import Lfu
from penstock.decide.kv.evict.lru import Lru
from penstock.decide.kv.evict.slru import Slru
from penstock.decide.scheduler.batching.continuous import Continuous
from penstock.decide.scheduler.batching.dynamic import Dynamic
from penstock.decide.scheduler.batching.static import Static
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.order.deadline import Deadline
from penstock.decide.scheduler.order.fcfs import Fcfs
from penstock.decide.scheduler.order.priority import Priority
from penstock.decide.scheduler.order.shortest import Shortest
from tests.decide.builders import VOCAB, Rig, SteadyTimer, make_seq
from tests.fakes import continuation

SIZE = 3
PARAMS = [
    SamplingParams(),
    SamplingParams(ignore_eos=True),
    SamplingParams(ignore_eos=True, prompt_logprobs=0),
    SamplingParams(stop_token_ids=(3, 4)),
    SamplingParams(min_tokens=4),
]


class SchedulerMachine(RuleBasedStateMachine):
    @initialize(
        num_blocks=st.integers(4, 12),
        limits=st.tuples(st.integers(1, 5), st.integers(1, 12)),
        num_drafts=st.sampled_from([0, 0, 1, 4]),
        order=st.sampled_from([Fcfs, Priority, Shortest, lambda: Deadline(StepCosts(SteadyTimer(), 16, 8))]),
        batching=st.sampled_from([Continuous, Continuous, Static, Dynamic]),
        policy=st.sampled_from([Lru, Lfu, Slru]),
        prefix_cache=st.sampled_from([True, True, False]),
    )
    def start(self, num_blocks, limits, num_drafts, order, batching, policy, prefix_cache):
        self.rig = Rig(
            num_blocks,
            SIZE,
            max_num_seqs=limits[0],
            budget=limits[1],
            prefix_cache=prefix_cache,
            order=order(),
            batching=batching(),
            num_drafts=num_drafts,
            policy=policy(),
        )
        self.most = num_blocks * SIZE
        self.seqs: list[Seq] = []
        self.outputs: dict[int, list[int]] = {}

    def new_seq(self, prompt, num_new, params, **rest):
        return make_seq(len(self.seqs), prompt, num_new, arrival_s=self.rig.clock.now(), params=params, eos_token_ids=(0, 1), **rest)

    @rule(
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=12),
        num_new=st.integers(0, 12),
        params=st.sampled_from(PARAMS),
        priority=st.integers(0, 2),
        slo=st.sampled_from([None, 2.0, 20.0]),
        marks=st.lists(st.tuples(st.integers(1, 12), st.sampled_from([2.0, 50.0])), max_size=1),
        wants_embedding=st.sampled_from([False, False, False, True]),
    )
    def add(self, prompt, num_new, params, priority, slo, marks, wants_embedding):
        seq = self.new_seq(
            prompt,
            min(num_new, self.most + 1 - len(prompt)),
            params,
            priority=priority,
            ttft_slo_s=slo,
            tpot_slo_s=slo,
            marks=marks if self.rig.kv.prefix_cache else (),
            wants_embedding=wants_embedding,
        )
        self.seqs.append(seq)
        self.rig.scheduler.add(seq)

    @precondition(lambda self: self.seqs)
    @rule(data=st.data())
    def fork(self, data):
        parent = data.draw(st.sampled_from(self.seqs))
        child = self.new_seq(parent.tokens[: parent.num_prompt], parent.max_len - parent.num_prompt, parent.params)
        if parent.num_computed >= parent.num_prompt or parent.finish_reason:
            self.seqs.append(child)
            self.rig.scheduler.fork(parent.seq_id, child, parent.num_prompt - 1)

    @precondition(lambda self: self.seqs)
    @rule(data=st.data())
    def abort(self, data):
        self.rig.scheduler.finish(data.draw(st.sampled_from(self.seqs)).seq_id, "abort")

    @rule(lost=st.sampled_from([False, False, False, True]), data=st.data())
    def step(self, lost, data):
        scheduler = self.rig.scheduler
        plan = scheduler.schedule()
        scheduler.check_integrity()
        if plan is None:
            self.rig.clock.advance(0.5)
        elif not lost:
            result = self.rig.runner.execute(plan)
            if data.draw(st.booleans(), label="abort in flight"):
                scheduler.finish(plan.seqs[0].seq_id, "abort")
            self.note(scheduler.commit(plan, result))
            self.rig.clock.advance(1.0)

    def note(self, outputs):
        for output in outputs:
            self.outputs.setdefault(output.seq_id, []).extend(output.tokens)

    @invariant()
    def is_sound(self):
        if hasattr(self, "rig"):
            self.rig.scheduler.check_integrity()
            live = sum(seq.finish_reason is None for seq in self.seqs)
            assert self.rig.scheduler.num_running + self.rig.scheduler.num_waiting == live

    def teardown(self):
        if not hasattr(self, "rig"):
            return
        self.note(self.rig.run())
        assert self.rig.kv.num_used == 0
        for seq in self.seqs:
            assert seq.finish_reason is not None and seq.todo() >= 0 and not seq.block_ids
            output = seq.tokens[seq.num_prompt :]
            assert output == continuation(seq.tokens[: seq.num_prompt], len(output), VOCAB)
            assert output == self.outputs.get(seq.seq_id, [])
            self.check_end(seq, output)

    def check_end(self, seq, output):
        stops = {*seq.params.stop_token_ids, *(() if seq.params.ignore_eos else (0, 1))}
        assert not stops & set(output[max(seq.params.min_tokens - 1, 0) : -1])
        if seq.finish_reason == "length":
            assert len(seq.tokens) == seq.max_len
        elif seq.finish_reason == "stop" and not seq.wants_embedding:
            assert output[-1] in stops
        assert seq.num_mark_created + seq.num_mark_read <= math.ceil(seq.num_prompt / SIZE) * SIZE


TestSchedulerMachine = SchedulerMachine.TestCase
TestSchedulerMachine.settings = settings(max_examples=40, stateful_step_count=40, deadline=None, derandomize=True)
