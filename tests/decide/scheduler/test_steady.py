"""A stretch of steady steps comes to what so many single steps come to."""
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.types import SeqResult, StepResult
from tests.decide.builders import Rig, make_seq


def one_step(rig):
    plan = rig.scheduler.schedule()
    if plan is not None:
        found = tuple(SeqResult(planned.seq_id, (1,)) if planned.samples else SeqResult(planned.seq_id) for planned in plan.seqs)
        rig.scheduler.commit(plan, StepResult(plan.step_id, found))
    return plan


def state(rig, seqs):
    kv = rig.kv
    return ([(seq.status, seq.tokens, seq.num_computed, len(seq.block_ids), seq.num_preemptions) for seq in seqs],
            kv.num_used, kv.num_cached, kv.pool.num_free, rig.scheduler.counters, rig.scheduler.num_waiting)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 60)), min_size=1, max_size=8), st.integers(12, 60), st.integers(1, 5))
def test_leaps_come_to_what_steps_come_to(sizes, num_blocks, max_num_seqs):
    slow, fast = (Rig(num_blocks=num_blocks, max_num_seqs=max_num_seqs) for _ in range(2))
    sizes = [(prompt, output) for prompt, output in sizes if prompt + output <= slow.kv.num_tokens]
    pairs = [[make_seq(i, range(1000 * i, 1000 * i + prompt), output) for i, (prompt, output) in enumerate(sizes)] for _ in range(2)]
    for rig, seqs in zip((slow, fast), pairs, strict=True):
        for seq in seqs:
            rig.scheduler.add(seq)
    leaps = 0
    while fast.scheduler.has_work():
        steps = fast.scheduler.steady_steps()
        if steps:
            fast.scheduler.run_steady(steps, 1)
            leaps += 1
        else:
            one_step(fast)
        for _ in range(max(steps, 1)):
            one_step(slow)
        assert state(slow, pairs[0]) == state(fast, pairs[1])
        fast.scheduler.check_integrity()
    assert not slow.scheduler.has_work()
    assert leaps or all(output < 4 for _, output in sizes) or max_num_seqs < len(sizes) or num_blocks < 40


def test_nothing_is_steady_while_somebody_could_come_in_or_has_a_prompt_left():
    rig = Rig(max_num_seqs=2)
    assert rig.scheduler.steady_steps() == 0
    first, second, third = (make_seq(i, range(100 * i, 100 * i + 5), 9) for i in range(3))
    rig.scheduler.add(first)
    assert rig.scheduler.steady_steps() == 0
    one_step(rig)
    assert rig.scheduler.steady_steps() == 7  # the last of its nine tokens ends it
    rig.scheduler.add(second)
    assert rig.scheduler.steady_steps() == 0
    one_step(rig)
    rig.scheduler.add(third)
    one_step(rig)
    assert rig.scheduler.waits_for == "seqs" and rig.scheduler.steady_steps() > 0


def test_what_the_first_in_the_queue_lacks_is_told():
    rig = Rig(num_blocks=4, budget=6)
    rig.scheduler.add(make_seq(0, range(8), 2))
    one_step(rig)
    assert rig.scheduler.waits_for is None
    rig.scheduler.add(make_seq(1, range(100, 112), 2))
    one_step(rig)
    assert rig.scheduler.waits_for == "kv"
    rig = Rig(budget=6)
    for seq_id in range(2):
        rig.scheduler.add(make_seq(seq_id, range(100 * seq_id, 100 * seq_id + 12), 2))
    one_step(rig)
    assert rig.scheduler.waits_for == "tokens"
