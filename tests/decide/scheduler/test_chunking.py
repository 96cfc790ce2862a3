import pytest

from penstock.core.errors import UsageError
from penstock.core.types import SamplingParams
from penstock.decide.scheduler.chunking.contract import ChunkView
from penstock.decide.scheduler.chunking.fixed import Fixed
from penstock.decide.scheduler.chunking.slo import Slo
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.order.fcfs import Fcfs
from penstock.decide.scheduler.pacing import Pacing
from penstock.decide.scheduler.promise import claim_of
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


def test_an_answer_whose_first_token_is_to_come_lets_a_prompt_in_a_hurry_take_the_whole_step():
    """A fork, say: when its next token is due nobody knows yet."""
    begins, hurried = answer(0, 0.03, num_output=0, first_s=None), make_seq(1, range(2000), arrival_s=0.0, ttft_slo_s=3.0)
    for hurried.num_computed in (0, 64):
        found = ChunkView(0.0, [begins], [hurried], lambda: [claim_of(hurried, costs())])
        assert chunking().num_rows(found, MOST) == MOST


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


def test_several_answers_are_begun_where_all_can_bear_them():
    running = [answer(number, 0.02) for number in range(5)]  # bear five more: 20 ms for ten
    for wish in ({"n": 5}, {"beam_width": 5}):
        assert chunking().may_start(make_seq(20, range(8), params=SamplingParams(**wish)), running, 0.0)
        assert not chunking().may_start(make_seq(20, range(8), params=SamplingParams(**wish)), [*running, answer(9)], 0.0)


@pytest.mark.parametrize(("slo", "now"), [({"tpot_slo_s": 0.01}, 0.0), ({"e2e_slo_s": 0.5}, 1.0)])
def test_an_answer_that_would_be_too_slow_even_alone_holds_up_nobody(slo, now):
    beyond = make_seq(20, range(8), arrival_s=0.0, **slo)
    assert chunking().may_start(beyond, [answer(0)], now)
    assert not chunking().may_start(beyond, [answer(n, 0.02, first_s=now) for n in range(10)], now), "others can be helped"


def test_who_brings_many_answers_puts_none_that_run_beyond_help():
    """Six answers of 20 ms bear four more. That fewer than half of them and forty could not be kept is no matter of theirs."""
    running = [answer(number, 0.02) for number in range(6)]
    for num, begins in ((4, True), (5, False), (20, False), (40, False)):
        assert chunking().may_start(make_seq(20, range(8), params=SamplingParams(n=num)), running, 0.0) is begins


def test_several_answers_that_would_be_too_slow_even_alone_hold_up_nobody():
    for wish, tpot_slo_s in ({}, 0.0115), ({"n": 8}, 0.019), ({"beam_width": 8}, 0.015):
        beyond = make_seq(20, range(8), params=SamplingParams(**wish), tpot_slo_s=tpot_slo_s)
        assert chunking(0.1).may_start(beyond, [answer(0)], 0.0)


def test_an_answer_that_lost_its_blocks_comes_back_where_all_can_bear_what_it_still_needs():
    """The last of its 50 tokens is due after 1.47 s; it has five, the next of them due after 150 ms."""
    lost = answer(20, 0.03, num_output=5, num_new=50)
    for now, most in ((0.1, 19), (0.2, 17), (0.9, 1)):  # 30 ms a token, 28 and 12.7: it is late, and waiting makes that no better
        assert chunking().may_start(lost, [answer(number) for number in range(most)], now)
        assert not chunking().may_start(lost, [answer(number) for number in range(most + 1)], now)
    assert chunking().may_start(lost, [answer(number) for number in range(30)], 1.2), "beyond help"


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


def test_answers_that_lose_their_blocks_take_no_time_from_who_comes_in_their_place():
    """Of two beams the second needs a block of the first, which waits for its token: it loses its own, and is computed in the same step."""
    steady = StepCosts(SteadyTimer(0.5, 0.5), 3, 1)
    rig = Rig(4, 2, max_num_seqs=1, budget=3, prefix_cache=False, pacing=Pacing(chunking=Slo(steady, Slo.Options(0)), costs=steady))
    first, second = (make_seq(number, range(3), 5, held=True, arrival_s=0.0, tpot_slo_s=2.1) for number in range(2))
    rig.scheduler.add(first)
    rig.step()
    second.tokens.append(7)
    rig.scheduler.fork(0, second, 3)
    rig.scheduler.append(0, 6)
    for _ in range(2):
        rig.step()
    for seq in (first, second):
        rig.scheduler.append(seq.seq_id, 5)
    rig.step()
    assert rig.kv.num_used == 4 and second.todo() == 1
    plan, _ = rig.step()
    assert [(planned.seq_id, planned.start, len(planned.tokens)) for planned in plan.seqs] == [(1, 0, 3)]
