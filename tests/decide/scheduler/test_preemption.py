"""With too little KV cache for everybody, everybody is still served, and the first in order never waits for the others."""
import pytest

from penstock.decide.scheduler.order.priority import Priority
from tests.decide.builders import VOCAB, Rig, make_seq
from tests.fakes import continuation


@pytest.mark.parametrize("num_blocks", [5, 6, 9, 14])
@pytest.mark.parametrize("prefix_cache", [True, False])
@pytest.mark.parametrize("num_drafts", [0, 3])
def test_all_finish_with_the_tokens_that_they_have_alone(num_blocks, prefix_cache, num_drafts):
    rig = Rig(num_blocks=num_blocks, prefix_cache=prefix_cache, num_drafts=num_drafts, budget=7)
    prompts = [[i % 3] * (1 + 5 * i % 11) for i in range(12)]
    seqs = [make_seq(i, prompt, min(3 + 7 * i % 13, 20 - len(prompt))) for i, prompt in enumerate(prompts)]
    rig.run(*seqs)
    for seq, prompt in zip(seqs, prompts, strict=True):
        assert seq.tokens[len(prompt) :] == continuation(prompt, seq.max_len - len(prompt), VOCAB)
        assert seq.finish_reason == "length"
    assert rig.kv.num_used == 0


def test_two_that_do_not_fit_together_do_not_evict_each_other_for_ever():
    rig = Rig(num_blocks=6)
    one, two = make_seq(0, range(8), 16), make_seq(1, range(50, 58), 16)
    rig.run(one, two, max_steps=60)
    assert one.num_preemptions == 0 and two.num_preemptions >= 1
    assert rig.scheduler.counters.preemptions == two.num_preemptions


def test_the_last_in_order_loses_its_blocks():
    rig = Rig(num_blocks=9, order=Priority())
    seqs = [make_seq(i, [i] * 8, 12, priority=priority) for i, priority in enumerate((5, 1, 3))]
    rig.run(*seqs)
    assert seqs[1].num_preemptions == 0
    assert seqs[0].num_preemptions >= seqs[2].num_preemptions and seqs[0].num_preemptions > 0


def test_a_sequence_that_was_planned_in_the_same_step_can_lose_its_place():
    rig = Rig(num_blocks=6, budget=5, order=Priority())
    low, high = make_seq(0, range(10), 12, priority=1), make_seq(1, range(50, 62), 5)
    rig.scheduler.add(low)
    rig.step(), rig.step()
    rig.scheduler.add(high)
    plans = [rig.step()[0] for _ in range(3)]
    # The third block of the prompt was set aside for it, but the decode before it in the step took it.
    assert [[(p.seq_id, len(p.tokens)) for p in plan.seqs] for plan in plans] == [[(0, 1), (1, 4)], [(0, 1), (1, 4)], [(1, 4)]]
    assert low.num_preemptions == 1
    rig.run()
    assert low.num_output == 12 and high.num_output == 5


def test_a_preempted_sequence_goes_on_where_it_was_with_its_blocks_from_the_cache():
    rig = Rig(num_blocks=6, budget=64)
    one, two = make_seq(0, range(8), 9), make_seq(1, range(50, 58), 9)
    rig.run(one, two)
    assert two.num_preemptions == 1 and two.num_cached == 0
    resumed = next(p for plan in rig.runner.plans for p in plan.seqs if p.seq_id == 1 and p.num_output and len(p.tokens) > 1)
    assert resumed.new is None  # the runner still knows it
    assert resumed.start + len(resumed.tokens) == 8 + resumed.num_output


def test_pins_do_not_stop_a_request_that_needs_all_blocks():
    rig = Rig(num_blocks=8)
    rig.run(make_seq(0, range(16), 1, marks=[(16, 1e9)]))
    assert rig.kv.tree.num_pinned == 4
    small, big = make_seq(1, range(100, 104), 4), make_seq(2, range(200, 220), 13)
    rig.run(small, big)
    assert small.finish_reason == big.finish_reason == "length"
    assert rig.kv.tree.num_pinned < 4


def test_a_pinned_prefix_survives_as_long_as_others_can_run_beside_it():
    rig = Rig(num_blocks=8)
    rig.run(make_seq(0, range(16), 1, marks=[(16, 1e9)]))
    rig.run(*(make_seq(i, range(100 * i, 100 * i + 8), 8) for i in range(1, 6)))
    assert rig.kv.tree.num_pinned == 4
    again = make_seq(9, range(16), 1, marks=[(16, 1e9)])
    rig.run(again)
    assert again.num_mark_read == 16
