import random
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.clock import VirtualClock
from penstock.core.errors import OverloadedError, RequestError, UsageError
from penstock.core.types import SamplingParams, SeqResult, StepResult
from penstock.core.work import StepWork
from penstock.decide.scheduler.admission.deadline import Deadline, told
from penstock.decide.scheduler.batching.continuous import Continuous
from penstock.decide.scheduler.chunking.slo import Slo
from penstock.decide.scheduler.costs import StepCosts
from penstock.decide.scheduler.limits import Limits
from penstock.decide.scheduler.order import deadline as order
from penstock.decide.scheduler.order.fcfs import Fcfs
from penstock.decide.scheduler.order.shortest import Shortest
from penstock.decide.scheduler.pacing import Pacing
from penstock.decide.scheduler.scheduler import Scheduler
from tests.decide.builders import SteadyTimer, make_kv, make_seq

BUDGET = 64


class Play:
    """A scheduler on a virtual clock whose steps take what the timer says; what came of each sequence."""

    def __init__(self, admission=None, *, serves=True, num_blocks=4096, prefix_cache=False, shortest=False, num_seqs=16):
        self.timer = SteadyTimer(0.01, 0.001)
        self.clock = VirtualClock()
        costs = StepCosts(self.timer, BUDGET, 16)
        pacing = Pacing(Deadline(costs, admission) if admission else None, Slo(costs, Slo.Options(0.0)) if serves else None, costs)
        kv = make_kv(num_blocks, 4, prefix_cache, clock=self.clock)
        ordering = Shortest() if shortest else order.Deadline(costs) if serves else Fcfs()
        self.costs, self.order = costs, ordering
        self.scheduler = Scheduler(Limits(num_seqs, BUDGET), kv, ordering, Continuous(), self.clock, pacing)
        self.last_s = {}
        self.lengths = {}  # by seq_id: of answers that end by themselves, with token 0
        self.refused = {}
        self.seqs = []

    def ask(self, seq_id, num_prompt, num_new, arrival_s=None, **slo):
        """Whether it is taken in."""
        at_s = self.clock.now() if arrival_s is None else arrival_s
        seq = make_seq(seq_id, [seq_id % 50] * num_prompt, num_new, arrival_s=at_s, **slo)
        try:
            self.scheduler.add(seq)
        except OverloadedError as refusal:
            self.refused[seq_id] = refusal
            return False
        self.seqs.append(seq)
        return True

    def step(self):
        plan = self.scheduler.schedule()
        self.refused |= self.scheduler.refused
        self.scheduler.refused.clear()
        if plan is None:
            return False
        work = StepWork(tuple([(len(each.tokens), each.start + len(each.tokens)) for each in plan.seqs]))
        self.clock.advance(self.timer.seconds(work))
        found = tuple([SeqResult(each.seq_id, (self.token(each),) if each.samples else ()) for each in plan.seqs])
        for output in self.scheduler.commit(plan, StepResult(plan.step_id, found, work=work)):
            self.last_s[output.seq_id] = self.clock.now()
        return True

    def token(self, planned):
        return 0 if planned.num_output + 1 == self.lengths.get(planned.seq_id) else 1

    def run(self, until_s=float("inf")):
        while self.clock.now() < until_s and self.scheduler.has_work() and self.step():
            pass
        self.scheduler.check_integrity()

    def kept(self, seq):
        num_steps = seq.num_output - 1
        return seq.finish_reason != "abort" and (
            seq.first_token_s - seq.arrival_s <= (seq.ttft_slo_s or 1e9)
            and (self.last_s[seq.seq_id] - seq.first_token_s <= (seq.tpot_slo_s or 1e9) * num_steps or not num_steps))


def deadline(**options):
    return Play(Deadline.Options(**options))


def test_who_can_be_in_time_is_taken_in_and_who_cannot_is_refused_at_once():
    # A prompt of 64 tokens takes a step of 74 ms: three of them 222 ms.
    play = deadline(reserve=0.0)
    assert [play.ask(number, 64, 1, ttft_slo_s=0.23) for number in range(5)] == [True, True, True, False, False]
    assert play.scheduler.counters.refused == 2
    refusal = play.refused[3]
    assert (refusal.status, refusal.param, refusal.code) == (429, "slo", "slo_overloaded")
    assert "would come after 296 ms, and should come within 230 ms" in str(refusal)
    play.run()
    assert all(play.kept(seq) for seq in play.seqs)


@pytest.mark.parametrize("seen_after_s", [0.05, 0.1])
def test_who_is_late_because_it_was_seen_late_is_not_told_to_come_at_once(seen_after_s):
    # A prompt of 64 tokens takes a step of 74 ms. With 250 ms from now it would do as the third; but the next is seen no sooner.
    play = deadline(reserve=0.0)
    assert play.ask(0, 64, 1, ttft_slo_s=0.2) and play.ask(1, 64, 1, ttft_slo_s=0.2)
    play.clock.advance(seen_after_s)
    assert not play.ask(2, 64, 1, 0.0, ttft_slo_s=0.25)
    retry_s = play.refused[2].retry_after_s
    assert retry_s == pytest.approx(max(0.074, seen_after_s + 0.222 - 0.25)) and f"try again in {told(retry_s)}" in str(play.refused[2])
    came_s = play.clock.now() + retry_s
    play.run(came_s + seen_after_s)
    assert play.ask(3, 64, 1, came_s, ttft_slo_s=0.25)


def test_who_asks_for_nothing_is_never_refused():
    play = deadline()
    assert all(play.ask(number, 64, 4) for number in range(200))
    assert play.ask(200, 64, 1, ttft_slo_s=0.2)  # and holds up nobody who does
    play.run()
    assert play.kept(play.seqs[-1]) and all(seq.finish_reason == "length" for seq in play.seqs)


def test_who_lacks_a_seat_is_not_taken_to_wait_for_the_end_of_a_long_prompt_in_progress():
    play = Play(Deadline.Options(), num_seqs=2)
    assert play.ask(0, 8, 4) and play.ask(1, 6000, 1) and play.step() and play.step()
    assert not play.ask(2, 32, 1, ttft_slo_s=0.2)
    assert "its first token would come after 224 ms" in str(play.refused[2])
    assert play.ask(3, 32, 1, ttft_slo_s=0.25)
    play.run()
    assert play.seqs[2].first_token_s - play.seqs[2].arrival_s == pytest.approx(0.222) and play.kept(play.seqs[2])


def test_a_long_prompt_in_progress_for_which_nothing_is_due_makes_nobody_late():
    play = deadline()
    assert play.ask(0, 6000, 1) and play.step()
    assert play.ask(1, 32, 1, ttft_slo_s=0.2) and play.ask(2, 500, 4, ttft_slo_s=1.0) and play.step()
    assert play.ask(3, 32, 1, ttft_slo_s=1.0), "behind the one in progress that has a deadline, too"
    with pytest.raises(RequestError):
        play.ask(4, 32, 1, ttft_slo_s=0.03)
    assert not play.ask(5, 32, 1, ttft_slo_s=0.2)
    play.run()
    assert all(play.kept(seq) for seq in play.seqs) and play.seqs[0].num_output == 1


def test_a_reserve_is_kept():
    assert sum(deadline(reserve=0.0).ask(n, 64, 1, ttft_slo_s=0.08) for n in range(1)) == 1
    with pytest.raises(RequestError, match="even on an idle machine"):
        deadline(reserve=0.1).ask(0, 64, 1, ttft_slo_s=0.08)


@pytest.mark.parametrize("slo", [{"ttft_slo_s": 0.01}, {"tpot_slo_s": 0.01}, {"e2e_slo_s": 0.05}])
def test_what_an_idle_machine_could_not_do_is_no_matter_of_load(slo):
    with pytest.raises(RequestError, match="cannot be met even on an idle machine") as raised:
        deadline().ask(0, 32, 8, **slo)
    assert raised.value.status == 400 and raised.value.code == "slo_unattainable" and raised.value.param == "slo"


@pytest.mark.parametrize("wish", [{"n": 8}, {"beam_width": 8}])
@pytest.mark.parametrize(("slo", "least_s", "why"), [
    (["tpot_slo_s"], 0.018, "a token every {}, but even alone a step of 8 answers takes 18 ms"),
    (["e2e_slo_s"], 0.042 + 99 * 0.018, "an end within {}, but even alone 8 answers of 100 tokens take 1.8 s")])
def test_several_answers_take_longer_steps_on_an_idle_machine_too(wish, slo, least_s, why):
    params = SamplingParams(**wish)
    assert deadline(reserve=0.0).ask(0, 32, 100, params=params, **dict.fromkeys(slo, 1.01 * least_s))
    with pytest.raises(RequestError, match=why.format(told(0.99 * least_s))):
        deadline(reserve=0.0).ask(0, 32, 100, params=params, **dict.fromkeys(slo, 0.99 * least_s))


@pytest.mark.parametrize("tokens", [1, 2, 500])
def test_an_end_that_is_too_near_is_answered_with_one_that_is_not(tokens):
    with pytest.raises(RequestError, match="an end within 10 ms, but even alone") as raised:
        deadline().ask(0, 32, tokens, e2e_slo_s=0.01)
    number, unit = str(raised.value).split(" takes ")[1].split(",")[0].split()
    takes_s = float(number) / {"ms": 1000, "s": 1}[unit]
    assert deadline().ask(0, 32, tokens, e2e_slo_s=1.01 * takes_s)
    with pytest.raises(RequestError, match="even on an idle machine"):
        deadline().ask(0, 32, tokens, e2e_slo_s=0.98 * takes_s)


def test_who_would_end_too_late_is_told_what_its_end_leaves_for_the_first_token():
    play = deadline(reserve=0.0)  # a prompt takes 74 ms, so half of what is left of 386 is 156
    assert [play.ask(number, 64, 1, e2e_slo_s=0.386) for number in range(4)] == [True, True, True, False]
    assert "would come after 296 ms, and should come within 230 ms, what an end within 386 ms leaves for it;" in str(play.refused[3])


@pytest.mark.parametrize("slo", [{"ttft_slo_s": 0.08}, {"e2e_slo_s": 0.08}])
def test_the_delay_before_a_step_counts_on_an_idle_machine_too(slo):
    # A prompt of 64 tokens takes a step of 74 ms, and no request is seen sooner than 10 ms after it came.
    play = deadline(reserve=0.0)
    for number, delay_s in enumerate((0.03, 0.02, 0.01)):
        play.clock.advance(1.0)
        came_s = play.clock.now() - delay_s
        if number:
            with pytest.raises(RequestError, match="even on an idle machine") as raised:
                play.ask(number, 64, 1, came_s, **slo)
            why = f"begins after {told(delay_s)} and then takes"
            if "e2e_slo_s" in slo:  # of what the prompt alone leaves, half is for a delay
                why = f"an end within 80 ms, but even alone a single token takes {told(0.074 + 2 * delay_s)}"
            assert raised.value.code == "slo_unattainable" and why in str(raised.value)
        else:  # the first of all may have been seen late by chance
            assert not play.ask(number, 64, 1, came_s, **slo) and play.refused[0].status == 429
    assert play.ask(3, 64, 1, play.clock.now() - 0.01, ttft_slo_s=0.085), "what an idle machine did"
    assert not play.ask(4, 64, 1, play.clock.now() - 0.01, ttft_slo_s=0.085) and play.refused[4].status == 429


@pytest.mark.parametrize(("seconds", "said"), [
    (-0.002, "0 ms"), (0.0000012, "0.0012 ms"), (0.0045, "4.5 ms"), (0.0384, "38 ms"), (0.45, "450 ms"), (1.86, "1.9 s")])
def test_short_times_are_told_with_what_tells_them_apart(seconds, said):
    assert told(seconds) == said


def test_deferred_requests_go_last_and_are_served():
    play = deadline(reserve=0.0, late="defer")
    assert all(play.ask(number, 64, 1, ttft_slo_s=0.23) for number in range(5)) and play.ask(5, 64, 1)
    assert play.scheduler.counters.deferred == 2 and [seq.deferred for seq in play.seqs] == [False] * 3 + [True] * 2 + [False]
    play.run()
    assert sorted(range(6), key=lambda number: play.seqs[number].first_token_s) == [0, 1, 2, 5, 3, 4]


def test_of_those_that_cannot_all_be_in_time_the_one_goes_that_takes_most():
    # 64 rows take 74 ms: two prompts of 48 and then the one that is in take 190, and it has 176.
    play = deadline(reserve=0.0)
    assert play.ask(0, 64, 1, ttft_slo_s=0.2) and play.ask(1, 64, 1, ttft_slo_s=0.25)
    play.step()
    assert all(play.ask(number, 48, 1, ttft_slo_s=0.16) for number in (2, 3)) and not play.refused
    play.run()
    assert set(play.refused) == {1} and "after 74 ms it makes way for cheaper requests" in str(play.refused[1])
    assert play.seqs[1].finish_reason == "abort" and all(play.kept(seq) for seq in play.seqs if seq.seq_id != 1)
    assert play.scheduler.counters.refused == 1 and play.refused[1].retry_after_s > 0


@pytest.mark.parametrize("size", [64, 60])
def test_nobody_gives_way_to_who_takes_no_less_or_would_be_late_all_the_same(size):
    play = deadline(reserve=0.0)
    assert play.ask(0, 64, 1, ttft_slo_s=0.2) and play.ask(1, size, 1, ttft_slo_s=0.22) and play.ask(2, size, 1, ttft_slo_s=0.25)
    assert not play.ask(3, 64, 1, ttft_slo_s=0.2) and "takes 74 ms of machine time, and would make cheaper" in str(play.refused[3])
    assert not play.ask(4, 8, 1, ttft_slo_s=0.07)  # the step that is next takes longer, whoever goes
    play.run()
    assert set(play.refused) == {3, 4} and all(play.kept(seq) for seq in play.seqs)


def test_who_is_late_in_any_case_keeps_nobody_out():
    # A step took 0.1 s longer than foreseen: behind 1 and 2, 3 would come at 348 ms, and alone it would not be late yet.
    play = deadline(reserve=0.0)
    assert play.ask(0, 64, 1, ttft_slo_s=0.2) and play.step()
    assert all(play.ask(number, 48, 1, 0.0, ttft_slo_s=0.33 + number // 3 * 0.01) for number in (1, 2, 3))
    play.clock.advance(0.1)
    assert play.ask(4, 8, 1, ttft_slo_s=0.1)
    play.run()
    assert not play.refused and [play.kept(seq) for seq in play.seqs[1:]] == [True, True, False, True]


def test_an_answer_counts_with_its_share_of_full_steps():
    play = deadline(reserve=0.0)
    assert play.ask(0, 64, 1, ttft_slo_s=0.2) and play.ask(1, 60, 200, ttft_slo_s=0.25)
    play.step()
    assert play.ask(2, 64, 1, ttft_slo_s=0.16) and play.ask(3, 64, 1, ttft_slo_s=0.16)
    play.run()
    assert set(play.refused) == {1}


def test_who_can_no_longer_be_in_time_is_told_at_once():
    play = deadline(reserve=0.0)
    assert play.ask(0, 64, 1, ttft_slo_s=1.0) and play.ask(1, 64, 1, ttft_slo_s=0.25)
    play.clock.advance(0.2)
    play.run()
    assert set(play.refused) == {1} and "after 200 ms its first token can no longer come in time" in str(play.refused[1])
    assert play.clock.now() == pytest.approx(0.274) and play.kept(play.seqs[0]) and play.scheduler.counters.refused == 1


def test_who_gives_way_goes_last_where_late_ones_are_deferred():
    play = deadline(reserve=0.0, late="defer")
    assert play.ask(0, 64, 1, ttft_slo_s=0.2) and play.ask(1, 64, 1, ttft_slo_s=0.25)
    play.step()
    assert all(play.ask(number, 48, 1, ttft_slo_s=0.16) for number in (2, 3)) and play.ask(4, 64, 1)
    play.run()
    assert play.scheduler.counters.deferred == 1 and [seq.deferred for seq in play.seqs] == [False, True, False, False, False]
    assert not play.refused and max(play.seqs, key=lambda seq: seq.first_token_s) is play.seqs[1]


def test_cached_prompts_are_cheap():
    play = Play(Deadline.Options(), prefix_cache=True)
    assert play.ask(1, 320, 1)
    play.run()
    assert play.ask(51, 320, 1, ttft_slo_s=0.05)  # the same tokens
    with pytest.raises(RequestError):
        play.ask(2, 320, 1, ttft_slo_s=0.05)


def test_answers_are_not_begun_where_they_would_slow_those_that_run():
    play = deadline(reserve=0.0)
    assert all(play.ask(number, 8, 40, tpot_slo_s=0.0145) for number in range(8))
    most = 0
    while play.scheduler.has_work() and play.step():
        most = max(most, play.scheduler.num_running)
    assert most == 4 and all(play.kept(seq) for seq in play.seqs)


@pytest.mark.parametrize("options", [{"late": "drop"}, {"reserve": 1.0}, {"reserve": -0.1}])
def test_options_are_checked(options):
    with pytest.raises(UsageError, match="admission deadline"):
        Deadline.Options(**options)


def offered(rate, seconds, seed):
    """(arrival, prompt, output, TTFT, TPOT): mixed lengths, Poisson."""
    rng, at_s, found = random.Random(seed), 0.0, []
    while (at_s := at_s + rng.expovariate(rate)) < seconds:
        long = rng.random() < 0.2
        found.append((at_s, rng.randint(100, 250) if long else rng.randint(8, 60), rng.randint(4, 30), 1.0 if long else 0.4, 0.05))
    return found


def serve(play, asked):
    """How many keep their objectives."""
    for number, (at_s, num_prompt, num_new, ttft, tpot) in enumerate(asked):
        play.run(at_s)
        play.clock.advance(max(0.0, at_s - play.clock.now()))
        play.ask(number, num_prompt, num_new, at_s, ttft_slo_s=ttft, tpot_slo_s=tpot)
    play.run()
    return sum(play.kept(seq) for seq in play.seqs)


def capacity(num=150):
    """Requests a second when all are there at once."""
    play = Play(serves=False)
    for number, (_, num_prompt, num_new, _, _) in enumerate(offered(1.0, num, 7)):
        play.ask(number, num_prompt, num_new)
    play.run()
    return len(play.seqs) / play.clock.now()


def test_at_one_and_a_half_times_capacity_twice_as_many_are_in_time_as_with_first_come():
    asked = offered(1.5 * capacity(), 14.0, 3)
    first_come, ours, without = serve(Play(serves=False), asked), serve(deadline(), asked), serve(Play(), asked)
    assert ours >= 2 * first_come and ours >= 0.5 * len(asked) and ours >= 0.95 * without, (first_come, ours, without, len(asked))


@pytest.mark.parametrize("load", [1.0, 1.25, 1.5, 2.0])
def test_as_many_are_in_time_as_with_the_shortest_first(load):
    """And of what is admitted few are late."""
    rate, ours, shortest, admitted = load * capacity(), 0, 0, 0
    for seed in range(3):
        asked, play, rival = offered(rate, 10.0, seed), deadline(), Play(Deadline.Options(), shortest=True)
        ours, shortest, admitted = ours + serve(play, asked), shortest + serve(rival, asked), admitted + len(asked) - len(play.refused)
    assert ours >= 0.98 * admitted, (ours, admitted)
    assert ours >= 0.99 * shortest, (ours, shortest)


def test_at_half_of_capacity_nobody_is_refused_and_nobody_is_late():
    play = deadline()
    asked = offered(0.5 * capacity(), 14.0, 4)
    assert serve(play, asked) == len(asked) and not play.refused


sequences = st.tuples(
    st.floats(0, 2), st.integers(1, 200), st.integers(1, 30), st.sampled_from([None, 0.3, 0.6, 2.0]), st.sampled_from([None, 0.03, 0.1]))


@settings(max_examples=40, deadline=None)
@given(st.lists(sequences, min_size=1, max_size=25), st.sampled_from(["refuse", "defer"]), st.integers(80, 400))
def test_everybody_is_answered_or_told(asked, late, num_blocks):
    play = Play(Deadline.Options(late=late), num_blocks=num_blocks)
    impossible = 0
    for number, (at_s, num_prompt, num_new, ttft, tpot) in enumerate(sorted(asked, key=lambda each: each[0])):
        play.run(at_s)
        play.clock.advance(max(0.0, at_s - play.clock.now()))
        try:
            play.ask(number, num_prompt, num_new, at_s, ttft_slo_s=ttft, tpot_slo_s=tpot)
        except RequestError:
            impossible += 1
    play.run()
    answered = [seq for seq in play.seqs if seq.finish_reason == "length" and seq.num_output == seq.max_len - seq.num_prompt]
    assert len(answered) + len(play.refused) + impossible == len(asked)
    assert all(refusal.retry_after_s > 0 for refusal in play.refused.values()) and (late == "refuse" or not play.refused)
    assert not play.scheduler.has_work() and play.scheduler.counters.refused == len(play.refused)


@settings(max_examples=40, deadline=None)
@given(st.lists(sequences, min_size=1, max_size=20), st.integers(8, 250), st.sampled_from([0.5, 1.0]), st.sampled_from([None, 0.05]))
def test_who_comes_again_when_told_is_taken_in_if_nobody_else_has_come(asked, num_prompt, ttft, tpot):
    play = deadline()
    for number, (_, prompt, num_new, other_ttft, other_tpot) in enumerate(asked):
        try:
            play.ask(number, prompt, num_new, ttft_slo_s=other_ttft, tpot_slo_s=other_tpot)
        except RequestError:
            continue
    again = 100
    play.step()
    try:
        if play.ask(again, num_prompt, 4, ttft_slo_s=ttft, tpot_slo_s=tpot):
            return
    except RequestError:
        return
    came_s = play.clock.now() + ceil(play.refused[again].retry_after_s)
    play.run(came_s)
    play.clock.advance(max(0.0, came_s - play.clock.now()))
    assert play.ask(again + 1, num_prompt, 4, ttft_slo_s=ttft, tpot_slo_s=tpot)
