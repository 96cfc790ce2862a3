import pytest

from penstock.core.errors import UsageError
from penstock.decide.scheduler.chunking.contract import ChunkView
from penstock.decide.scheduler.chunking.fixed import Fixed
from penstock.decide.scheduler.chunking.slo import Slo
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.order.fcfs import Fcfs
from penstock.decide.scheduler.pacing import Pacing
from penstock.decide.scheduler.waiting import Waiting
from tests.decide.builders import Rig, SteadyTimer, make_seq

MOST = 512


def costs():
    return StepCosts(SteadyTimer(0.01, 0.001), MOST, 8)


def chunking(reserve=0.0):
    return Slo(costs(), Slo.Options(reserve))


def answer(seq_id, tpot=None, num_output=1, num_new=100, first_s=0.0):
    """One that runs, a token behind."""
    seq = make_seq(seq_id, range(8), num_new, arrival_s=0.0, tpot_slo_s=tpot)
    seq.tokens += [0] * num_output
    seq.num_computed = len(seq.tokens) - 1
    seq.first_token_s = first_s
    return seq


def view(*decodes, now=0.0, waiting=()):
    queue = Waiting(Fcfs(), costs())
    for seq in waiting:
        queue.push(seq, now)
    return ChunkView(now, decodes, (), lambda: queue.claims(now))


def test_without_objectives_steps_take_all_they_can():
    for plugin in (Fixed(), chunking()):
        assert plugin.num_rows(view(answer(0), answer(1)), MOST) == MOST == plugin.num_rows(view(), MOST)
        assert plugin.may_start(answer(2), [answer(0)], 0.0)


def test_a_step_is_no_longer_than_the_tightest_tpot():
    # Two answers take 12 ms, a row 1 ms, and the tighter of them wants a token every 30 ms.
    assert chunking().num_rows(view(answer(0, 0.03), answer(1, 0.05)), MOST) == 18
    assert chunking(0.12).num_rows(view(answer(0, 0.03), answer(1, 0.05)), MOST) == 14
    assert chunking().num_rows(view(answer(0, 10.0)), MOST) == MOST
    assert Fixed().num_rows(view(answer(0, 0.03)), MOST) == MOST


def test_who_is_behind_makes_steps_shorter_and_who_is_ahead_longer():
    behind, ahead = answer(0, 0.03, num_output=4), answer(0, 0.03, num_output=4, num_new=20)
    assert chunking().num_rows(view(behind, now=0.0995), MOST) == 9  # due at 120 ms
    assert chunking().num_rows(view(behind, now=0.13), MOST) == 0
    assert 19 < chunking().num_rows(view(ahead, now=0.02), MOST) < 79  # it affords a little more with each token to come


def test_prompts_in_a_hurry_may_take_all_that_answers_are_ahead():
    ahead = answer(0, 0.03, num_output=10)  # due at 300 ms
    patient = make_seq(1, range(64), arrival_s=0.1, ttft_slo_s=60.0)
    hurried = make_seq(2, range(64), arrival_s=0.1, ttft_slo_s=0.1)
    free = make_seq(3, range(64), arrival_s=0.1)
    lost = make_seq(4, range(64), arrival_s=0.1, ttft_slo_s=0.01)
    plugin = chunking()
    slow = plugin.num_rows(view(ahead, now=0.1, waiting=[patient, free, lost]), MOST)
    assert slow == plugin.num_rows(view(ahead, now=0.1), MOST) < 40
    assert plugin.num_rows(view(ahead, now=0.1, waiting=[hurried]), MOST) == pytest.approx(189, abs=16)  # 200 ms less those of the answer


def test_answers_beyond_help_hold_nobody_back():
    late = answer(0, 0.03, num_output=5, num_new=8)  # the last of its tokens is due in 10 ms
    assert chunking().num_rows(view(late, now=0.2), MOST) == MOST
    assert chunking().num_rows(view(late, answer(1, 0.0405, first_s=0.2), now=0.2), MOST) == 28


def test_an_answer_more_is_begun_where_all_can_bear_it():
    running = [answer(number, 0.02) for number in range(9)]
    assert chunking().may_start(make_seq(20, range(8)), running, 0.0)
    assert not chunking().may_start(make_seq(20, range(8)), [*running, answer(9)], 0.0)  # 21 ms for eleven
    assert not chunking().may_start(make_seq(20, range(8), tpot_slo_s=0.015), [answer(n) for n in range(6)], 0.0)
    assert chunking().may_start(make_seq(20, range(8), tpot_slo_s=0.015), [answer(n) for n in range(4)], 0.0)


def test_the_reserve_is_a_share():
    with pytest.raises(UsageError, match="reserve must be from 0 to below 1, not 1"):
        Slo.Options(1.0)


def play(plugin):
    """Two answers of a tight TPOT, then a long prompt; the times of steps."""
    timer = SteadyTimer(0.01, 0.001)
    rig = Rig(num_blocks=256, budget=MOST, pacing=Pacing(chunking=plugin))
    seqs = [make_seq(0, range(8), 60, arrival_s=0.0, tpot_slo_s=0.04), make_seq(1, range(50, 60), 60, arrival_s=0.0, tpot_slo_s=0.05)]
    times = []
    for seq in seqs:
        rig.scheduler.add(seq)
    while rig.scheduler.has_work():
        plan = rig.scheduler.schedule()
        outputs = rig.scheduler.commit(plan, rig.runner.execute(plan))
        times.append(timer.step_s + timer.row_s * plan.num_tokens)
        rig.clock.advance(times[-1])
        if len(times) == 5:
            seqs.append(make_seq(2, range(300), 4, arrival_s=rig.clock.now()))
            rig.scheduler.add(seqs[-1])
        assert outputs or plan
    return times[1:], [seq.tokens for seq in seqs]


def test_a_long_prompt_does_not_stall_answers_and_the_tokens_stay_the_same():
    fixed, tokens = play(Fixed())
    adapted, same = play(chunking())
    assert max(fixed) > 0.3 and max(adapted) < 0.05 and same == tokens
