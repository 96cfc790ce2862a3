"""The twin against its own parts done slowly: single steps, the prefix tree switched on, a runner that is not predicted."""
import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compute.fitted import MANY, NOTHING, Extra, Fitted
from penstock.core.config import EngineConfig
from penstock.core.errors import RequestError, UsageError
from penstock.core.prefix import num_common
from penstock.study.measure.arrivals.renewal import Poisson, RateOptions
from penstock.study.measure.datasets.synthetic import Synthetic, SyntheticOptions
from penstock.study.measure.load import Part, Session, Turn
from penstock.study.measure.metrics import Warmup, figures
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import parse_slo
from penstock.study.plan.simulate.call import Call, Stretches, calls, scheduled, shares_prefixes
from penstock.study.plan.simulate.play import Arrival
from penstock.study.plan.simulate.twin import Pace, Twin, simulate

TIMER = Fitted((1, 8, 64), (0.010, 0.011, 0.030), 1e-4, 1e-5, 1e-7, 1e-8)
EXTRA = Extra(0.004, 0.002, 0.001)
CONFIG = EngineConfig(max_num_seqs=4, max_num_batched_tokens=64, kv_tokens=1024, block_size=16)


def asked(count, rate, seed=0, most=300):
    rng, at_s, found = random.Random(seed), 0.0, []
    for number in range(count):
        at_s += rng.expovariate(rate)
        first = number << 24
        found.append(Call(at_s, (range(first, first + rng.randint(1, most)),), rng.randint(1, 60)))
    return found


class Steps(Twin):
    """One step at a time, always."""

    def _steady_steps(self):
        return 0


def plain(samples):
    return [(s.num_prompt, s.num_output, s.num_cached, s.due_s, s.first_s, s.last_s, list(s.chunk_s)) for s in samples]


def told(samples):
    return [(*counts, *map(pytest.approx, times)) for *counts, due, first, last, chunks in plain(samples)
            for times in [(due, first, last, chunks)]]


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.floats(0.5, 30), st.sampled_from([None, 1, 3]), st.sampled_from([384, 1024, 8192]),
       st.sampled_from([NOTHING, EXTRA]), st.sampled_from([0, 2, 1]), st.sampled_from([0, 9]))
def test_leaps_change_nothing(seed, rate, users, kv_tokens, extra, closed_each, spare):
    config, pace = replace(CONFIG, kv_tokens=kv_tokens), Pace(TIMER, 0.002, extra=extra)
    traffic = [replace(call, is_open=not closed_each or number % closed_each > 0, spare=spare)
               for number, call in enumerate(asked(30, rate, seed))]
    fast, slow = Twin(config, pace), Steps(config, pace)
    assert plain(slow.run(traffic, users)) == told(fast.run(traffic, users))
    assert fast.census.num_steps == slow.census.num_steps and fast.census.decode_tokens == slow.census.decode_tokens


@pytest.mark.parametrize(("kv_tokens", "preempted"), [(384, True), (8192, False)])
def test_simulate_leaves_the_prefix_tree_out_only_where_it_could_find_nothing(kv_tokens, preempted):
    traffic = asked(60, 3.0)
    assert not shares_prefixes(traffic)
    config = replace(CONFIG, kv_tokens=kv_tokens)
    whole = Twin(config, Pace(TIMER))
    assert plain(whole.run(traffic)) == told(simulate(config, Pace(TIMER), traffic).samples)
    assert bool(whole.census.num_preempted) is preempted


def test_shared_prefixes_are_found_as_the_engine_would():
    traffic = [Call(float(i), (range(64), range((i + 1) << 24, ((i + 1) << 24) + 20)), 4) for i in range(4)]
    assert shares_prefixes(traffic)
    samples = Twin(CONFIG, Pace(TIMER)).run(traffic)
    assert [sample.num_cached for sample in samples] == [0, 64, 64, 64]
    assert samples[1].ttft_s < samples[0].ttft_s


def test_two_prompts_have_as_many_tokens_in_common_as_their_parts():
    rng = random.Random(5)
    def prompt():
        return tuple([range(first := rng.choice([0, 1, 3]) << 24, first + rng.randint(0, 3)) for _ in range(rng.randint(0, 4))])
    for _ in range(2000):
        one, other = prompt(), prompt()
        numbers = [list(itertools.chain.from_iterable(parts)) for parts in (one, other)]
        tokens = [Call(0.0, parts, 1).tokens() for parts in (one, other)]
        assert [len(each) for each in tokens] == [len(each) for each in numbers] and num_common(*tokens) == num_common(*numbers)


def test_what_stands_around_steps_takes_its_time():
    """A prompt of 60 rows and two tokens; another request comes in the first step, and its prompt shares the second one. It asks for a
    token less, so they end one after the other."""
    first, second = Call(0.0, (range(60),), 3), Call(0.001, (range(1 << 24, (1 << 24) + 20),), 1)
    plain, around = (Twin(CONFIG, Pace(TIMER, extra=extra)).run([first, second]) for extra in (NOTHING, EXTRA))
    later = [then.e2e_s - now.e2e_s for now, then in zip(plain, around, strict=True)]
    cold_s = [EXTRA.cold_s * rows / MANY for rows in (60 - 21, 21 - 1)]
    assert later[1] == pytest.approx(EXTRA.come_s + cold_s[0] + EXTRA.end_s)
    assert later[0] == pytest.approx(later[1] + cold_s[1] + EXTRA.end_s)
    assert around[0].ttft_s == plain[0].ttft_s, "whoever finds the engine idle waits for nobody"


def test_a_request_on_its_own_takes_its_steps_and_the_delays():
    sample = Twin(CONFIG, Pace(TIMER, 0.5)).run([Call(10.0, (range(100),), 3)])[0]
    steps = [((64, 64), 0), ((36, 100), 1), ((1, 101), 1), ((1, 102), 1)]
    times = [TIMER.of_rows(rows) + TIMER.seq_s + logits * TIMER.logit_s + TIMER.read_s * total
             + TIMER.pair_s * (rows * total - rows * (rows - 1) // 2) for (rows, total), logits in steps]
    assert sample.ttft_s == pytest.approx(1.0 + sum(times[:2])) and sample.tpot_s == pytest.approx(sum(times[2:]) / 2)
    assert (sample.num_output, sample.finish_reason, sample.ok) == (3, "length", True)


def test_every_request_ends_and_time_only_moves_on():
    samples = Twin(CONFIG, Pace(TIMER)).run(asked(200, 20.0))
    assert len(samples) == 200 and all(sample.ok and sample.num_output == sample.wanted_output == len(sample.chunk_s) for sample in samples)
    assert all(list(sample.chunk_s) == sorted(sample.chunk_s) for sample in samples)


def test_a_closed_loop_keeps_its_users_busy():
    traffic = [Call(0.0, (range(n << 24, (n << 24) + 40),), 10) for n in range(30)]
    samples = Twin(CONFIG, Pace(TIMER)).run(traffic, users=3)
    assert len(samples) == 30
    for at_s in (samples[5].first_s, samples[20].first_s):
        assert sum(sample.due_s <= at_s < sample.end_s for sample in samples) == 3


def test_users_think_before_they_ask_again():
    traffic = [Call(0.0, (range(n << 24, (n << 24) + 40),), 10, after_s=0.5 if n % 2 else 0.0) for n in range(12)]
    samples = Twin(CONFIG, Pace(TIMER)).run(traffic, users=1)
    pauses = [sample.due_s - before.end_s for before, sample in zip(samples, samples[1:], strict=False)]
    assert pauses == pytest.approx([call.after_s for call in traffic[1:]])
    due = [sample.due_s for sample in Twin(CONFIG, Pace(TIMER)).run(traffic, users=3)]
    assert len(due) == 12 and due == sorted(due)  # who thinks for long is overtaken


def test_what_never_fits_is_refused_with_the_number():
    with pytest.raises(RequestError, match="2000 tokens, but the KV cache holds 1024"):
        Twin(CONFIG, Pace(TIMER)).run([Call(0.0, (range(2000),), 4)])


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("order", ["deadline", "shortest"])
def test_leaps_change_nothing_where_requests_have_deadlines(order, is_open):
    config = replace(CONFIG, order=order, admission="deadline", chunking="slo")
    traffic = [replace(call, ttft_slo_s=0.4, tpot_slo_s=0.05, is_open=is_open) if at % 3 else call
               for at, call in enumerate(asked(80, 12.0))]
    fast, slow = (made(config, Pace(TIMER, 0.002)).run(traffic) for made in (Twin, Steps))
    assert [sample.ok for sample in fast] == [sample.ok for sample in slow] and not all(sample.ok for sample in fast)
    assert [sample.end_s for sample in fast] == pytest.approx([sample.end_s for sample in slow])


def test_batching_modes_wait_for_company_on_the_virtual_clock():
    config = replace(CONFIG, batching="dynamic:size=4,window_ms=300")
    samples = Twin(config, Pace(TIMER)).run([Call(0.0, (range(8),), 2), Call(0.1, (range(1 << 24, (1 << 24) + 8),), 2)])
    assert samples[0].first_s == samples[1].first_s and samples[0].first_s > 0.3


def test_datasets_and_arrivals_of_the_bench_are_taken():
    stretches = Stretches()
    dataset = Synthetic(SyntheticOptions(input=96, output=8, prefix=64, prefixes=2), stretches, "s")
    traffic = list(calls(scheduled(Poisson(RateOptions(rate=2.0)), dataset.sessions(), "s", 50), stretches))
    assert len(traffic) == 50 and shares_prefixes(traffic) and {call.num_prompt for call in traffic} == {96}
    found = figures(Twin(CONFIG, Pace(TIMER)).run(traffic), Warmup(share=0.1), None)
    assert found.counts.completed == 45 and 0.5 < found.rates.cached_share < 0.7


def test_conversations_are_refused_by_name():
    stretches = Stretches()
    turn = Turn(stretches.write([Part("a", 4)]), num_output=2)
    with pytest.raises(UsageError, match="conversations"):
        list(calls(iter([(0.0, Session((turn, turn)))]), stretches))
    with pytest.raises(UsageError, match="length"):
        list(calls(iter([(0.0, Session((Turn("text"),)))]), stretches))


def test_what_the_scheduler_refuses_the_twin_refuses():
    calls = [replace(call, ttft_slo_s=0.5, tpot_slo_s=0.06) for call in asked(200, 12.0, most=60)]
    slo = parse_slo("ttft=500ms,tpot=60ms")
    first_come, deadline = (
        simulate(replace(CONFIG, order=order), Pace(TIMER), calls).samples for order in ("fcfs", "deadline"))
    refused = [sample for sample in deadline if not sample.ok]
    assert len(deadline) == len(calls) and refused and all(sample.status == 429 and "try again" in sample.error for sample in refused)
    assert all(sample.ok for sample in first_come)
    assert sum(map(slo.kept, deadline)) >= 2 * sum(map(slo.kept, first_come)) > 0


def test_an_open_answer_ends_by_itself_and_the_engine_does_not_know_when():
    """Four seats are taken, and the first is free again 14 ms a step for 5 steps later. Known: so it is let in. The others have ended after
    5 tokens, too: so it may be expected. Nothing has ended yet: until the cache is full nobody ends. They might have 60 by their
    max_tokens: then that is what is expected, whatever others had."""
    traffic = [Call(0.0, (range(n << 24, (n << 24) + 8),), 5) for n in range(4)] + [Call(0.02, (range(8),), 5, ttft_slo_s=0.2)]
    config = replace(CONFIG, order="deadline")
    for is_open, spare, ended, taken in (
            (False, 0, (), True), (False, 55, (5,) * 64, False), (False, 5, (), True),
            (True, 0, (5,) * 64, True), (True, 0, (60,) * 64, False), (True, 0, (), False)):
        samples = Twin(config, Pace(TIMER, ended=ended)).run([replace(call, is_open=is_open, spare=spare) for call in traffic])
        assert [sample.ok for sample in samples] == [True] * 4 + [taken], (is_open, spare, ended)
        found = {(sample.num_output, sample.finish_reason) for sample in samples if sample.ok}
        assert found == {(5, "stop" if is_open or spare else "length")}
    assert samples[-1].status == 429


def test_lengths_are_learned_from_open_answers_that_end():
    """One after the other; then four at once, and one more who needs the seat of one of them."""
    alone = [Call(float(n), (range(n << 24, (n << 24) + 8),), 5, is_open=True) for n in range(32)]
    crowd = [Call(50.0, (range(n << 24, (n << 24) + 8),), 5, is_open=True) for n in range(32, 36)]
    last = Call(50.02, (range(8),), 5, ttft_slo_s=0.2, is_open=True)
    config = replace(CONFIG, order="deadline")
    assert [Twin(config, Pace(TIMER)).run([*alone[:count], *crowd, last])[-1].ok for count in (31, 32)] == [False, True]


def test_routers_are_told_how_long_an_open_answer_may_become():
    twin = Twin(CONFIG, Pace(TIMER))
    for number, is_open in enumerate((False, True)):
        call = Call(0.0, (range(number << 24, (number << 24) + 100),), 5, spare=20, is_open=is_open)
        twin.take(Arrival(0.0, call, call.tokens(), Sample(number, 0.0)))
    load = twin.load(0.0)
    assert (load.prompt_tokens, load.answer_tokens) == (200, 25 + 1025 - 100)


def test_the_timer_is_asked_once_for_each_step():
    asked_for = []

    class Listed:
        def seconds(self, work):
            asked_for.append(work)
            return TIMER.seconds(work)

    Steps(replace(CONFIG, order="deadline"), Pace(Listed())).run(asked(10, 5.0))
    assert len({id(work) for work in asked_for}) == len(asked_for) > 100
