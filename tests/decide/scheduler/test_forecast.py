"""Forecasts against one that plays every step and every prompt for itself."""
import random
from math import inf

import pytest

from penstock.core.types import SamplingParams, Status
from penstock.decide.scheduler.firsts import Firsts
from penstock.decide.scheduler.forecast import Forecast, Load
from penstock.decide.scheduler.limits import Limits
from penstock.decide.scheduler.promise import affords_s, claim_of, dues_s, num_more, tpot_s
from tests.decide.builders import CountedCosts, SteadyTimer, make_seq

BUDGET = 128


class Plain:
    """Step by step. An answer is [its last step, tokens in the cache, seconds it affords]."""

    def __init__(self, prices, load, reserve):
        self.prices, self.limits, self.planned = prices, load.limits, 1 - reserve
        self.now, self.free, self.num_steps, self.used, self.answers = load.now, load.free_tokens, 0, 0, []
        for seq in load.decodes:
            affords = affords_s(seq, dues_s(seq, seq.first_token_s)[1], load.now)
            self.answers.append([num_more(seq) + 1, len(seq.tokens), affords])
        self.begun = [claim for claim in load.prompts if claim.seq.status is Status.RUNNING]
        self.left = {claim.seq.seq_id: claim.num_left for claim in load.prompts}
        self.first_s = {}
        for claim in load.prompts:
            self.serve(claim)

    def serve(self, claim):
        seq = claim.seq
        if seq.seq_id in self.first_s:
            return
        if seq.status is Status.RUNNING:
            self.begun.remove(claim)
            self.free += len(seq.tokens)
        else:
            while (self.answers or self.begun) and not self.may_enter(seq):
                self.go_on(self.begun[0]) if self.begun else self.end_step()
        while self.left[seq.seq_id] > self.rows() - self.used:
            self.fill_step(seq)
        self.used += self.left[seq.seq_id]
        self.first_s[seq.seq_id] = self.now + self.prices.step_s(len(self.answers), 0, self.used)  # if nobody came after it
        if num_more(seq):
            self.free -= len(seq.tokens)
            self.answers.append([self.num_steps + 1 + num_more(seq), len(seq.tokens) - 1, tpot_s(seq, self.now)])

    def go_on(self, claim):
        """In the step that is being filled."""
        if self.left[claim.seq.seq_id] > self.rows() - self.used:
            self.fill_step(claim.seq)
        else:
            self.serve(claim)

    def fill_step(self, seq):
        room = max(self.rows() - self.used, 0)
        self.used += room
        self.left[seq.seq_id] -= room
        self.end_step()

    def bound(self):
        helpless = self.prices.step_s((len(self.answers) + 1) // 2, 0)
        return self.planned * min([affords for _, _, affords in self.answers if affords >= helpless], default=inf)

    def rows(self):
        num, bound = len(self.answers), self.bound()
        return BUDGET - num if bound == inf else self.prices.rows_within(num, 0, bound, BUDGET - num)

    def may_enter(self, seq):
        num, bound = len(self.answers), min(self.bound(), self.planned * tpot_s(seq, self.now))
        bears = bound == inf or self.prices.step_s(num + 1, 0) <= bound
        return bears and num + len(self.begun) < self.limits.max_num_seqs and self.free >= len(seq.tokens)

    def end_step(self):
        self.now += self.prices.step_s(len(self.answers), 0, self.used)
        self.used, self.num_steps = 0, self.num_steps + 1
        self.free -= len(self.answers)
        for answer in self.answers:
            answer[1] += 1
        self.free += sum([num_tokens for end, num_tokens, _ in self.answers if end <= self.num_steps])
        self.answers = [answer for answer in self.answers if answer[0] > self.num_steps]


def costs():
    return CountedCosts(SteadyTimer(0.01, 0.0005), BUDGET, 16)


def drawn(rng, seq_id, tpots, longest=120):
    slo = rng.choice(tpots)
    return make_seq(seq_id, [1] * rng.randint(1, 300), rng.randint(1, longest), arrival_s=0.0, ttft_slo_s=60.0, tpot_slo_s=slo)


def load_of(seed, prices, num_waiting, num_seqs=16, free_tokens=100_000, tpots=(None, 0.02, 0.05), begun=()):
    """`begun`: the places of prompts in progress among those that wait."""
    rng = random.Random(seed)
    decodes = []
    for number in range(rng.randint(0, num_seqs)):
        seq = drawn(rng, 10_000 + number, tpots)
        seq.tokens += [1] * rng.randint(1, seq.max_len - seq.num_prompt)
        seq.num_computed, seq.first_token_s = len(seq.tokens) - 1, -rng.uniform(0, 0.1)
        decodes.append(seq)
    seqs = [drawn(rng, number, tpots) for number in range(num_waiting)]
    for place in begun:
        seqs[place].status, seqs[place].num_computed = Status.RUNNING, len(seqs[place].tokens) // 3
    return Load(0.0, decodes, [claim_of(seq, prices) for seq in seqs], Limits(num_seqs, BUDGET), free_tokens)


def forecast(prices, load, place):
    found = Forecast(prices, load, 0.1)
    found.serve(load.prompts[:place])
    return found.first_token_s(load.prompts[place], ())


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("free_tokens", [100_000, 2_500])
def test_the_first_in_the_queue_are_forecast_step_by_step(seed, free_tokens):
    prices = costs()
    load = load_of(seed, prices, 33, free_tokens=free_tokens)
    plain = Plain(prices, load, 0.1)
    for place in (0, 1, 5, 31, 32):
        assert forecast(prices, load, place) == pytest.approx(plain.first_s[place], rel=1e-9)


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize(("free_tokens", "num_seqs"), [(100_000, 16), (1_200, 16), (100_000, 5)])
@pytest.mark.parametrize("begun", [(0, 1), (2, 7), (0, 4, 5, 31)])
def test_prompts_in_progress_hold_what_they_have_and_go_on_at_their_place_or_while_others_may_not_enter(seed, free_tokens, num_seqs, begun):
    prices = costs()
    load = load_of(seed, prices, 33, num_seqs, free_tokens, begun=begun)
    plain = Plain(prices, load, 0.1)
    for place in (3, 6, 8, 32):
        assert forecast(prices, load, place) == pytest.approx(plain.first_s[place], rel=1e-9)
    found = Forecast(prices, load, 0.1).first_tokens_s(load.prompts)
    assert all(found[place] >= plain.first_s[place] - 1e-9 for place in begun)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("num_seqs", [4, 16, 64])
@pytest.mark.parametrize("free_tokens", [100_000, 4_000])
def test_those_behind_them_are_forecast_in_bunches(seed, num_seqs, free_tokens):
    prices = costs()
    load = load_of(seed, prices, 400, num_seqs, free_tokens)
    plain = Plain(prices, load, 0.1)
    for place in (50, 100, 200, 399):
        assert forecast(prices, load, place) == pytest.approx(plain.first_s[place], rel=0.1)


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(("num_seqs", "begun"), [(16, ()), (16, (2, 7, 31)), (4, (2, 7, 31))])
def test_all_first_tokens_are_those_of_each_with_those_behind_it(seed, num_seqs, begun):
    prices = costs()
    load = load_of(seed, prices, 32, num_seqs, begun=begun)
    found = Forecast(prices, load, 0.1).first_tokens_s(load.prompts)
    for place in {*range(32)} - {*begun}:
        ahead = Forecast(prices, load, 0.1)
        ahead.serve(load.prompts[:place])
        assert found[place] == pytest.approx(ahead.first_token_s(load.prompts[place], load.prompts[place + 1 :]))


@pytest.mark.parametrize("left", [10, 127])
def test_what_was_computed_while_another_could_not_enter_does_not_slow_it_down(left):
    prices = costs()
    ends, begun, waits = make_seq(0, [1] * 8, 2), make_seq(1, [1] * 200, 50), make_seq(2, [1] * 20, 50)
    ends.tokens.append(1)
    ends.num_computed, ends.first_token_s = 8, 0.0
    begun.status, begun.num_computed = Status.RUNNING, 200 - left
    load = Load(0.0, [ends], [claim_of(seq, prices) for seq in (waits, begun)], Limits(2, BUDGET), 9000)
    first_s = 0.01 + 0.0005 * (left + 1) + 0.01 + 0.0005 * 21  # of the other: in the second step, beside the first's second token
    assert Forecast(prices, load, 0.1).first_tokens_s(load.prompts)[0] == pytest.approx(first_s, rel=0.02)
    assert Forecast(prices, load, 0.1).first_token_s(load.prompts[0], load.prompts[1:]) == pytest.approx(first_s, rel=0.02)


def test_prompts_without_answers_hold_no_room_and_several_answers_share_their_prompts():
    prices = costs()
    runs = make_seq(100, [1] * 8, 2000, arrival_s=0.0)
    runs.tokens.append(1)
    runs.num_computed, runs.first_token_s = 8, 0.0
    alone = [make_seq(number, [1] * 300, 1, arrival_s=0.0) for number in range(8)]
    four = make_seq(8, [1] * 300, 20, arrival_s=0.0, params=SamplingParams(n=4))
    last = make_seq(9, [1] * 300, 20, arrival_s=0.0)
    for seqs in ([*alone, last], [four, last, *alone]):
        load = Load(0.0, [runs], [claim_of(seq, prices) for seq in seqs], Limits(16, BUDGET), 900)
        assert forecast(prices, load, len(seqs) - 1) < 5.0
    # What the answers leave is not enough for one that needs more: it waits for the one that runs.
    large = make_seq(10, [1] * 900, 20, arrival_s=0.0)
    load = Load(0.0, [runs], [claim_of(seq, prices) for seq in (four, large)], Limits(16, BUDGET), 900)
    assert forecast(prices, load, 1) > 20.0


def test_several_answers_are_counted_until_they_are_forked():
    prices, times = costs(), []
    for first_token_s in (None, 0.0):
        several = make_seq(0, [1] * 100, 200, arrival_s=0.0, params=SamplingParams(n=8))
        several.first_token_s = first_token_s  # it was preempted, and the others were not
        if first_token_s is not None:
            several.tokens.append(1)
        claims = [claim_of(seq, prices) for seq in (several, make_seq(1, [1] * 100, 1, arrival_s=0.0))]
        times.append(forecast(prices, Load(0.0, [], claims, Limits(8, BUDGET), 9000), 1))
    assert times[0] > 2.0 and times[1] < 0.3


@pytest.mark.parametrize(("wish", "slo", "waits"), [
    ({"n": 2}, {}, False), ({"n": 8}, {}, True), ({"beam_width": 8}, {}, True), ({"n": 2}, {"tpot_slo_s": 0.011}, True),
    ({}, {"tpot_slo_s": 0.01}, False)])  # which it could not keep even alone
def test_who_would_make_answers_too_slow_waits_for_them(wish, slo, waits):
    """Steps of 10 ms and 0.5 ms a row: the one that runs bears three more, for its 100 tokens."""
    prices, runs = costs(), make_seq(0, [1] * 8, 100, arrival_s=0.0, tpot_slo_s=0.012)
    runs.tokens.append(1)
    runs.num_computed, runs.first_token_s = 8, 0.0
    claim = claim_of(make_seq(1, [1] * 8, 20, arrival_s=0.0, params=SamplingParams(**wish), **slo), prices)
    first_s = Forecast(prices, Load(0.0, [runs], [claim], Limits(16, BUDGET), 9000), 0.0).first_tokens_s([claim])[0]
    assert first_s > 1.0 if waits else first_s < 0.1


def test_a_forecast_leaves_the_next_one_as_it_is():
    prices = costs()
    load = load_of(1, prices, 60)
    whole = Forecast(prices, load, 0.1)
    whole.serve(load.prompts[:20])
    early = whole.first_token_s(load.prompts[59], ())
    whole.serve(load.prompts[20:59])
    assert early < whole.first_token_s(load.prompts[59], ()) == pytest.approx(forecast(prices, load, 59), rel=0.05)


def test_rows_that_come_meanwhile_fill_no_more_steps_than_they_take():
    """A step of 127 of them, then 299 steps of 10.5 ms, in which the answer ends."""
    runs = make_seq(0, [1] * 9, 300, arrival_s=0.0)
    runs.num_prompt, runs.num_computed, runs.first_token_s = 8, 8, 0.0
    ahead = Forecast(costs(), Load(0.0, [runs], [], Limits(16, BUDGET), 900), 0.0)
    assert ahead.until(3.19, 127) == 0 and not ahead.is_idle
    assert ahead.until(3.23, 0) == 0 and ahead.is_idle and ahead.now == pytest.approx(3.23)


@pytest.mark.parametrize("num_seqs", [16, 64, 256])
def test_a_long_queue_asks_for_few_prices_more_than_a_short_one(num_seqs):
    asked = []
    for num in (128, 512):
        prices = costs()
        load = load_of(3, prices, num, num_seqs)
        prices.num_asked = 0
        forecast(prices, load, num - 1)
        asked.append(prices.num_asked)
    assert asked[1] < 2000 and asked[1] < 3 * asked[0]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("num_seqs", [4, 16])
def test_first_tokens_without_one_in_the_queue_are_those_of_the_others(seed, num_seqs):
    prices = costs()
    load = load_of(seed, prices, 90, num_seqs, begun=(3, 40))
    whole = Forecast(prices, load, 0.1)
    for place in (0, 17, 70):
        firsts = Firsts(whole.copied(), load.prompts, place=place)
        assert firsts.until(90) == whole.copied().first_tokens_s(load.prompts)
        for gone in {place, 5, 80}:
            others = [*load.prompts[:gone], *load.prompts[gone + 1 :]]
            assert firsts.without(gone, whole).until(89)[place:] == whole.copied().first_tokens_s(others)[place:]


def test_nobody_is_served_ahead_about_whom_nobody_asks():
    prices = costs()
    load = load_of(2, prices, 40)
    whole = Forecast(prices, load, 0.1)
    found = whole.copied().first_tokens_s(load.prompts)
    firsts = Firsts(whole.copied(), load.prompts, place=3)
    assert firsts.first_late([inf] * 3 + [found[3]] + [inf] * 20 + [0.0] + [inf] * 15) == 24
    assert firsts.told() == found[:25] + [inf] * 15
    others = firsts.without(3, whole)
    assert others.first_late([inf] * 39) is None and others.told() == [inf] * 36
