"""What is known of open answers, and whom it lets in."""
import random
from math import comb, inf

import pytest

from penstock.core.types import SamplingParams
from penstock.decide.scheduler.admission.deadline import Deadline
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.lengths import REMEMBERED, RENEWED, Lengths, is_open, shares
from penstock.decide.scheduler.promise import claim_of
from penstock.decide.scheduler.waiting import Waiting
from tests.decide.builders import Rig, SteadyTimer, make_seq
from tests.decide.scheduler.test_admission import Play

OPEN = SamplingParams(max_tokens=None)
MOST = 2000


def learned(lengths, found=None):
    found = found or Lengths()
    for number in lengths:
        found.add(number)
    return found


def running(num_output, params=OPEN, **rest):
    seq = make_seq(0, [1] * 10, MOST, params=params, **rest)
    seq.tokens += [1] * num_output
    return seq


def test_nothing_is_known_until_enough_have_ended():
    found = learned(range(1, RENEWED))
    assert found.likely(MOST) == MOST and found.left([running(5)]) == [MOST - 5]
    assert found.add(RENEWED) and found.likely(MOST) == 17 and found.likely(9) == 9
    assert not found.add(1)


def test_the_latest_count():
    found = learned([10] * REMEMBERED)
    assert found.likely(MOST) == 10
    assert learned([90] * REMEMBERED, found).likely(MOST) == 90


@pytest.mark.parametrize("closed", [
    {"params": SamplingParams(max_tokens=MOST)}, {"params": SamplingParams(max_tokens=None, ignore_eos=True)}, {"held": True}])
def test_who_has_a_maximum_may_reach_it(closed):
    found, seq = learned(range(1, REMEMBERED + 1)), running(5, **closed)
    assert not is_open(seq) and found.left([seq, running(5)])[0] == MOST - 5 > found.left([seq, running(5)])[1]
    costs = costs_with(range(1, REMEMBERED + 1))
    assert claim_of(running(0, **closed), costs).num_more == MOST - 1 > claim_of(running(0), costs).num_more == 128


def test_an_answer_that_goes_on_is_one_of_those_that_were_longer():
    found = learned([10] * 128 + [100] * 128)
    assert found.left([running(0)]) == [100] and found.left([running(9)]) == [91] and found.left([running(40)]) == [60]
    assert found.left([running(100)]) == [MOST - 100] and found.left([running(MOST)]) == [1]
    left = found.left([running(0)] * 64)
    assert {10, 100} == set(left) - {MOST} and 20 <= left.count(10) <= 32 and left.count(MOST) <= 4
    assert 9 <= left[:32].count(10) <= 16, "neighbours are told apart"


def test_a_few_that_were_longer_say_little():
    found = learned([10] * 253 + [60, 70, 80])
    assert found.left([running(20)]) == [MOST - 20]
    assert sorted(found.left([running(20)] * 32))[0] == 40


@pytest.mark.parametrize("num", [1, 2, 4, 16, 64, 300])
def test_the_kth_to_end_has_ended_by_then(num):
    for rank, share in enumerate(sorted(shares(num)), 1):
        within = sum([comb(num, count) * share**count * (1 - share) ** (num - count) for count in range(rank, num + 1)])
        assert 0.9 < within <= 1.0 + 1e-9
    assert num < 64 or sorted(shares(num))[num // 2] < 0.62


def costs_with(lengths):
    costs = StepCosts(SteadyTimer(), 16, 8)
    learned(lengths, costs.lengths)
    return costs


def test_an_open_answer_takes_what_it_is_likely_to_take_and_is_promised_as_before():
    asked = {"params": OPEN, "arrival_s": 1.0, "ttft_slo_s": 1.0, "tpot_slo_s": 0.1}
    seq, costs, before = make_seq(0, [1] * 10, MOST, **asked), costs_with([11] * 32), StepCosts(SteadyTimer(), 16, 8)
    assert claim_of(seq, costs).work_s == claim_of(make_seq(0, [1] * 10, 11, **asked), before).work_s < claim_of(seq, before).work_s
    assert claim_of(seq, costs).due_s == claim_of(seq, before).due_s == 2.0
    seq.first_token_s = 2.0
    seq.tokens.append(1)
    assert claim_of(seq, costs) == claim_of(seq, before) and claim_of(seq, before).hopeless_s < inf


def test_those_that_wait_are_priced_anew_when_more_is_known():
    play = Play(Deadline.Options())
    queue = Waiting(play.order, play.costs)
    queue.push(make_seq(0, [1], MOST, params=OPEN, ttft_slo_s=9.0), 0.0)
    queue.push(make_seq(1, [1], MOST, params=OPEN), 0.0)
    assert [claim.num_more for claim in queue.claims(0.0)] == [MOST - 1] * 2
    ended = running(20)
    for _ in range(RENEWED):
        play.costs.learn_length(ended)
    assert [claim.num_more for claim in queue.claims(0.0)] == [19] * 2


def test_lengths_are_those_of_open_answers_that_ended_by_themselves():
    play = Play()
    for number, (length, params) in enumerate([(7, OPEN), (9, SamplingParams(max_tokens=20)), (12, OPEN), (30, OPEN)] * RENEWED):
        play.lengths[number] = length
        assert play.ask(number, 4, 20, params=params, eos_token_ids=(0,))
        if length == 12:
            play.step()
            play.scheduler.finish(number, "abort")
    play.run()
    assert play.costs.lengths.left([running(0)] * 2) == [20, 20] and play.costs.lengths.likely(MOST) == 14  # of 7 and 20


def test_without_prices_nothing_is_learned_and_all_goes_on():
    rig = Rig()
    assert len(rig.run(make_seq(0, [1, 2], 3, params=OPEN))) == 3


def known(lengths):
    """Play that has seen open answers of these lengths end, one after the other."""
    play = Play(Deadline.Options())
    for number, length in enumerate(lengths, 10_000):
        play.lengths[number] = length
        assert ask(play, number)
        play.run()
    return play


def ask(play, number, ttft=0.5, at_s=None):
    return play.ask(number, 8, MOST, at_s, params=OPEN, eos_token_ids=(0,), ttft_slo_s=ttft)


def test_who_finds_all_seats_taken_waits_for_the_first_to_end():
    """A step of 16 answers takes 26 ms: in half a second 17 of 40 tokens."""
    rng = random.Random(2)
    drawn = [1 + int(rng.expovariate(1 / 40)) for _ in range(120)]
    for play, lets_in in ((known([]), False), (known(drawn[:64]), True)):
        for number, length in enumerate(drawn[64:80]):
            play.lengths[number] = length
            assert ask(play, number)
        play.step()
        play.step()
        assert ask(play, 100) == lets_in
        if lets_in:
            play.lengths[100] = 5
            assert sum([ask(play, number) for number in range(101, 140)]) < 8
            assert all(0.0 < refusal.retry_after_s < 2.0 for refusal in play.refused.values())
            play.run()
            assert play.kept(play.seqs[-1])


def test_answers_that_are_longer_than_all_before_them_hold_their_seats():
    play = known([10] * 64)
    assert all(ask(play, number) for number in range(16))
    for _ in range(15):
        play.step()
    assert not ask(play, 100) and play.refused[100].retry_after_s > 30


@pytest.mark.parametrize(("draw", "load", "most"), [("mixed", 0.8, 0), ("exponential", 1.2, 28), ("alike", 1.2, 10)])
def test_at_capacity_few_are_refused_and_of_those_let_in_few_are_late(draw, load, most):
    rng = random.Random(5)
    length_of = {
        "alike": lambda: rng.randint(20, 30), "exponential": lambda: 1 + int(rng.expovariate(1 / 25)),
        "mixed": lambda: rng.choice([8, 8, 8, 76])}[draw]
    play, num = known([length_of() for _ in range(64)]), 250
    at_s = play.clock.now()
    for number in range(num):
        at_s += rng.expovariate(load * 18)
        play.run(at_s)
        play.clock.advance(max(0.0, at_s - play.clock.now()))
        play.lengths[number] = length_of()
        ask(play, number, at_s=at_s)
    play.run()
    kept = sum([play.kept(seq) for seq in play.seqs if seq.seq_id < num])
    assert len(play.refused) <= most and kept > 0.98 * (num - len(play.refused))
