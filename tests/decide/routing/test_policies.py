"""What holds for every policy, and what each is for."""
import importlib
import pkgutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decide import routing
from penstock.decide.routing.contract import Engines, Load, Prompt, load_of
from penstock.decide.routing.least_loaded import LeastLoaded
from penstock.decide.routing.prefix import Prefix
from penstock.decide.routing.round_robin import RoundRobin
from penstock.serve.engine.build import make_router
from tests.decide.builders import make_seq

SIZE = 4  # tokens of a block
IDLE = Load()
loads_of = st.builds(Load, *[st.integers(0, 5)] * 2, *[st.integers(0, 40)] * 2)
prompts = st.builds(Prompt, st.lists(st.integers(0, 2), min_size=1, max_size=24), st.sampled_from(["", "a", "b"]))


def rounds(count):
    return st.lists(st.tuples(prompts, st.lists(loads_of, min_size=count, max_size=count)), max_size=30)


traffic = st.integers(1, 5).flatmap(lambda count: st.tuples(st.just(count), rounds(count)))


def modules():
    return [importlib.import_module(f"{routing.__name__}.{each.name}") for each in pkgutil.iter_modules(routing.__path__)]


def policies():
    return [found for module in modules() for name, found in vars(module).items()
            if isinstance(found, type) and found.__module__ == module.__name__ and hasattr(found, "pick") and name != "Router"]


def engines(count, num_blocks=16):
    return Engines(count, SIZE, num_blocks)


def words(number, count=16):
    """A prompt that shares nothing with those of other numbers."""
    return Prompt(list(range(100 * number, 100 * number + count)))


@pytest.mark.parametrize("policy", policies())
@given(traffic)
def test_every_request_goes_somewhere_and_always_to_the_same_place(policy, asked):
    count, calls = asked
    one, other = policy(engines(count)), policy(engines(count))
    found = [one.pick(prompt, loads) for prompt, loads in calls]
    assert found == [other.pick(prompt, loads) for prompt, loads in calls] and all(0 <= number < count for number in found)


@pytest.mark.parametrize("name", ["round_robin", "least_loaded", "prefix"])
def test_a_policy_is_made_by_its_name(name):
    router = make_router(name, engines(3))
    assert type(router) in policies() and router.pick(words(0), [IDLE] * 3) == 0


@given(traffic)
def test_in_turn_all_get_as_many(asked):
    count, calls = asked
    router = RoundRobin(engines(count))
    found = [router.pick(prompt, loads) for prompt, loads in calls]
    shares = [found.count(number) for number in range(count)]
    assert max(shares) - min(shares) <= 1


@given(traffic)
def test_nobody_who_has_more_to_do_is_taken_before_who_has_less(asked):
    count, calls = asked
    router = LeastLoaded(engines(count))
    for prompt, loads in calls:
        outstanding = [load.outstanding for load in loads]
        assert router.pick(prompt, loads) == outstanding.index(min(outstanding))


def test_a_prompt_goes_where_its_beginning_went():
    router = Prefix(engines(3))
    assert [router.pick(words(number), [IDLE] * 3) for number in range(3)] == [0, 1, 2]
    assert [router.pick(Prompt([*words(number).tokens, 7, 8]), [IDLE] * 3) for number in (2, 0, 1, 2)] == [2, 0, 1, 2]


@pytest.mark.parametrize(("more", "where"), [(15, 1), (17, 0)])
def test_a_prefix_of_16_tokens_is_worth_a_wait_for_16(more, where):
    router = Prefix(engines(2))
    assert router.pick(words(0), [Load(prompt_tokens=9), IDLE]) == 1
    assert router.pick(words(0), [Load(answer_tokens=5), Load(prompt_tokens=3, answer_tokens=2 + more)]) == where
    assert router.pick(words(0), [IDLE, IDLE]) == where  # computed again elsewhere, it is found there as well


@given(traffic)
def test_what_is_waited_for_never_costs_more_than_the_prefix_saves(asked):
    count, calls = asked
    router = Prefix(engines(count, 1 << 20))
    sent = [[] for _ in range(count)]
    for prompt, loads in calls:
        def held(number, prompt=prompt):
            return max([common(prompt, other) for other in sent[number]], default=0)

        number = router.pick(prompt, loads)
        least = min(load.outstanding for load in loads)
        assert loads[number].outstanding - least <= held(number)
        costs = [load.outstanding - held(at) for at, load in enumerate(loads)]
        assert costs[number] == min(costs)
        sent[number].append(prompt)


def common(one, other):
    """Tokens of the full blocks that two prompts begin with alike; none across salts."""
    alike = 0
    if one.salt == other.salt:
        while alike < min(len(one.tokens), len(other.tokens)) and one.tokens[alike] == other.tokens[alike]:
            alike += 1
    return alike // SIZE * SIZE


def test_salts_are_told_apart():
    router = Prefix(engines(2))
    busy = [IDLE, Load(answer_tokens=8)]
    assert router.pick(Prompt(words(0).tokens, "a"), busy[::-1]) == 1
    assert router.pick(Prompt(words(0).tokens, "a"), busy) == 1
    assert router.pick(Prompt(words(0).tokens, "b"), busy) == 0
    assert router.pick(words(0), busy) == 0


def test_what_a_small_cache_has_forgotten_is_no_reason_to_go_there():
    router = Prefix(engines(2, num_blocks=4))
    first, busy = [Load(answer_tokens=99), IDLE], [IDLE, Load(answer_tokens=8)]
    assert router.pick(words(0), first) == 1 and router.pick(words(0), busy) == 1
    assert router.pick(words(1), first) == 1 and router.pick(words(0), busy) == 0


def test_full_caches_are_filled_in_turn_by_those_who_find_all_idle():
    router = Prefix(engines(3, num_blocks=6))
    found = [router.pick(words(number), [IDLE] * 3) for number in range(18)]  # of which each cache holds one, and half of another
    assert found == [0, 1, 2] * 6


def test_a_load_is_what_its_sequences_have_before_them():
    decoding, half, waiting = make_seq(0, range(10), 5), make_seq(1, range(8), 4), make_seq(2, range(6), 3)
    decoding.tokens += [1, 2]
    decoding.num_computed, half.num_computed = 11, 4
    assert load_of([decoding, half, waiting], 2) == Load(2, 1, 1 + 4 + 6, 3 + 4 + 3)
    assert load_of([], 0) == IDLE and Load(1, 2, 3, 4).outstanding == 7
