"""Several engines behind a router: the same as each on its own, in one time, and what each policy is for."""
import random
from bisect import bisect_right
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compute.fitted import Fitted
from penstock.core.config import EngineConfig
from penstock.core.errors import RequestError, UsageError
from penstock.decide.routing.contract import Engines
from penstock.serve.engine.build import make_router
from penstock.study.measure.statistics import distribution
from penstock.study.plan.simulate.call import Call
from penstock.study.plan.simulate.play import Coming, play
from penstock.study.plan.simulate.twin import Pace, Spread, Twin, simulate

TIMER = Fitted((1, 8, 64), (0.010, 0.011, 0.030), 1e-4, 1e-5, 1e-7, 1e-8)
CONFIG = EngineConfig(max_num_seqs=4, max_num_batched_tokens=64, kv_tokens=1024, block_size=16)
POLICIES = ["round_robin", "least_loaded", "prefix"]


def asked(count, rate, seed=0, prefixes=0):
    """Requests at random, of which each begins with one of so many prefixes."""
    rng, at_s, found = random.Random(seed), 0.0, []
    for number in range(count):
        at_s += rng.expovariate(rate)
        first, head = (number + 100) << 24, rng.randrange(prefixes) << 24 if prefixes else 0
        parts = (range(head, head + 96),) if prefixes else ()
        found.append(Call(at_s, (*parts, range(first, first + rng.randint(1, 200))), rng.randint(1, 60)))
    return found


def plain(samples):
    return [(s.num_prompt, s.num_output, s.num_cached, s.due_s, s.first_s, s.last_s, s.end_s, list(s.chunk_s)) for s in samples]


@pytest.mark.parametrize("users", [None, 1, 7])
@pytest.mark.parametrize("policy", POLICIES)
def test_one_of_them_is_the_engine_itself_to_the_last_bit(policy, users):
    traffic, pace = asked(60, 4.0, prefixes=3), Pace(TIMER, 0.002)
    alone, spread = simulate(CONFIG, pace, traffic, users), simulate(CONFIG, pace, traffic, users, Spread(1, policy))
    assert plain(alone.samples) == plain(spread.samples) == plain(Twin(CONFIG, pace).run(traffic, users))
    assert alone.census == spread.census and set(spread.places) == {0}


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(1, 40), st.integers(2, 5), st.sampled_from(POLICIES))
def test_each_does_with_what_it_is_sent_what_it_would_do_on_its_own(seed, rate, count, policy):
    traffic = asked(50, rate, seed, prefixes=seed % 4)
    found = simulate(CONFIG, Pace(TIMER, 0.002), traffic, None, Spread(count, policy))
    assert [sample.number for sample in found.samples] == list(range(50)) == [sample.number for sample in sorted(found.samples, key=due)]
    steps = 0
    for number in range(count):
        own = [at for at, place in enumerate(found.places) if place == number]
        alone = Twin(CONFIG, Pace(TIMER, 0.002))
        there = alone.run([traffic[at] for at in own])
        steps += alone.census.num_steps
        for one, other in zip(plain(found.samples[at] for at in own), plain(there), strict=True):
            assert one[:4] == other[:4] and [*one[4:7], *one[7]] == pytest.approx([*other[4:7], *other[7]])
    assert found.census.num_steps == steps


def due(sample):
    return sample.due_s


class Watched:
    """A router that notes what it was told."""

    def __init__(self, inner):
        self.inner, self.told = inner, []

    def pick(self, prompt, loads):
        self.told.append(loads)
        return self.inner.pick(prompt, loads)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.floats(1, 40), st.sampled_from([None, 2, 9]), st.sampled_from(POLICIES))
def test_a_router_is_told_what_is_known_when_the_request_comes(seed, rate, users, policy):
    router = Watched(make_router(policy, Engines(3, 16, 64)))
    samples, places = play([Twin(CONFIG, Pace(TIMER)) for _ in range(3)], router, Coming(asked(50, rate, seed), 0.0, users))
    assert len(samples) == len(router.told) == 50
    for at, loads in enumerate(router.told):
        now = samples[at].due_s
        for number, load in enumerate(loads):
            there = [sample for sample, place in zip(samples[:at], places, strict=False) if place == number and sample.end_s > now]
            assert load.num_running + load.num_waiting == len(there)
            assert load.answer_tokens == sum(sample.wanted_output - bisect_right(sample.chunk_s, now) for sample in there)
            started = [sample for sample in there if sample.first_s <= now]
            todo = sum(sample.num_prompt for sample in there if sample not in started) + len(started)
            assert len(there) <= load.prompt_tokens <= todo + sum(sample.num_output for sample in started)  # preempted ones begin again


@pytest.mark.parametrize("policy", POLICIES)
def test_users_ask_again_wherever_they_were_answered(policy):
    samples = simulate(CONFIG, Pace(TIMER, 0.01), asked(60, 1.0), 5, Spread(3, policy)).samples
    assert [sample.due_s for sample in samples] == sorted(sample.due_s for sample in samples)
    ends = sorted(sample.end_s for sample in samples)
    assert [sample.due_s for sample in samples[5:]] == ends[:55]


def test_what_cannot_be_routed_is_refused():
    with pytest.raises(UsageError, match="round_robin, least_loaded, prefix"):
        simulate(CONFIG, Pace(TIMER), asked(2, 1.0), None, Spread(2, "nearest"))
    with pytest.raises(UsageError, match="not 0"):
        simulate(CONFIG, Pace(TIMER), asked(2, 1.0), None, Spread(0, "prefix"))
    with pytest.raises(RequestError, match="2000 tokens, but the KV cache holds 1024"):
        simulate(CONFIG, Pace(TIMER), [Call(0.0, (range(2000),), 4)], None, Spread(2, "prefix"))


def test_where_requests_differ_in_length_the_least_loaded_has_the_shorter_tail():
    rng, traffic, at_s = random.Random(3), [], 0.0
    for number in range(400):
        at_s += rng.expovariate(12.0)
        traffic.append(Call(at_s, (range(number << 24, (number << 24) + 40),), 400 if rng.random() < 0.1 else 10))
    config = replace(CONFIG, kv_tokens=16384)
    played = {policy: simulate(config, Pace(TIMER), traffic, None, Spread(4, policy)) for policy in POLICIES}
    tail = {policy: distribution([sample.ttft_s for sample in found.samples]).at(99) for policy, found in played.items()}
    assert tail["least_loaded"] < 0.5 * tail["round_robin"] and tail["prefix"] < 0.5 * tail["round_robin"]


def test_where_prompts_begin_alike_prefix_computes_fewer_of_their_tokens():
    config, traffic = replace(CONFIG, kv_tokens=2048), asked(300, 6.0, prefixes=24)  # caches that do not hold all of them
    found = {policy: simulate(config, Pace(TIMER), traffic, None, Spread(4, policy)) for policy in POLICIES}
    rows = {policy: each.census.prefill_tokens for policy, each in found.items()}
    assert rows["prefix"] < 0.85 * rows["round_robin"] and rows["prefix"] < 0.85 * rows["least_loaded"]
    assert all(each.places.count(number) > 40 for each in found.values() for number in range(4))


def test_at_a_light_load_prefix_uses_all_caches_when_they_are_full():
    traffic, talks, number = [], [], 0
    for turn in range(240):  # 12 conversations at a time, of which a cache holds about five
        if turn % 48 < 12:
            number += 1
            talks = [*talks[-11:], number << 24]
        traffic.append(Call(4.0 * turn, (range(first := talks[turn % len(talks)], first + 160 + turn % 48),), 4))
    alone, spread = (simulate(CONFIG, Pace(TIMER), traffic, None, Spread(count, "prefix")) for count in (1, 4))
    assert spread.census.prefill_tokens < 0.6 * alone.census.prefill_tokens
    assert min(spread.places.count(number) for number in range(4)) > 40
