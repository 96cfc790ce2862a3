"""The guess at what an engine's prefix cache holds, against a cache."""
from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.kv.radix import block_keys
from penstock.decide.routing.sent import Sent
from tests.decide.builders import make_kv, make_seq, serve

prompts = st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=10), st.sampled_from(["", "s"])), max_size=30)


@given(prompts, st.integers(1, 6))
def test_it_stays_bounded_and_knows_the_beginnings_that_it_has(asked, most):
    sent, order = Sent(most), OrderedDict()
    for tokens, salt in asked:
        keys = block_keys(salt, tokens, 2)
        assert sent.num_leading(keys) == next((at for at, key in enumerate(keys) if key not in order), len(keys))
        sent.note(keys)
        for key in reversed(keys[:most]):
            order.pop(key, None)
            order[key] = None
        while len(order) > most:
            order.popitem(last=False)
        assert len(sent) == len(order) <= most


@given(prompts)
def test_it_knows_what_the_prefix_tree_of_an_engine_finds(asked):
    kv, sent = make_kv(num_blocks=256, block_size=2), Sent(256)
    for number, (tokens, salt) in enumerate(asked):
        keys, seq = block_keys(salt, tokens, 2), make_seq(number, tokens, 0, salt=salt)
        assert sent.num_leading(keys) * 2 == len(kv.tree.match(salt, tokens, len(keys))) * 2
        serve(kv, seq)
        sent.note(keys)


def test_of_a_prompt_longer_than_the_cache_its_beginning_is_kept():
    sent, keys = Sent(3), block_keys("", range(20), 2)
    sent.note(keys)
    assert len(sent) == sent.num_leading(keys) == 3
