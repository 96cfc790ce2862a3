"""The guess at what an engine's prefix cache holds, against a cache."""
from collections import OrderedDict

from hypothesis import given
from hypothesis import strategies as st

from penstock.decide.routing.sent import Sent, block_keys
from tests.decide.builders import make_kv, make_seq, serve

prompts = st.lists(st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=10), st.sampled_from(["", "s"])), max_size=30)


def test_a_block_is_named_by_its_salt_and_all_tokens_up_to_its_end_and_alike_in_every_process():
    names = block_keys("", range(1, 8), 2)
    assert [name.hex()[:8] for name in names] == ["b06f0c66", "694d0cb0", "7c50a3d2"]
    assert block_keys("", [1, 2, 3, 5], 2) == [names[0], block_keys("", [1, 2, 3, 5, 9], 2)[1]] != names[:2]
    assert not {*names} & {*block_keys("é", range(1, 8), 2), *block_keys("", range(3, 8), 2)}
    assert len(block_keys("\udcff", range(3), 2)) == 1


@given(prompts, st.integers(1, 6))
def test_it_stays_bounded_and_knows_the_beginnings_that_it_has(asked, most):
    sent, order, num_new = Sent(most), OrderedDict(), 0
    for tokens, salt in asked:
        keys = block_keys(salt, tokens, 2)
        assert sent.num_leading(keys) == next((at for at, key in enumerate(keys) if key not in order), len(keys))
        sent.note(keys)
        for key in reversed(keys[:most]):
            num_new += key not in order
            order.pop(key, None)
            order[key] = None
        while len(order) > most:
            order.popitem(last=False)
        assert len(sent._keys) == len(order) <= most and sent.num_new == num_new


@given(prompts)
def test_it_knows_what_the_prefix_tree_of_an_engine_finds(asked):
    kv, sent = make_kv(num_blocks=256, block_size=2), Sent(256)
    for number, (tokens, salt) in enumerate(asked):
        keys, seq = block_keys(salt, tokens, 2), make_seq(number, tokens, 0, salt=salt)
        assert sent.num_leading(keys) * 2 == kv.tree.match(salt, tokens, len(keys)).num_blocks * 2
        serve(kv, seq)
        sent.note(keys)


def test_of_a_prompt_longer_than_the_cache_its_beginning_is_kept():
    sent, keys = Sent(3), block_keys("", range(20), 2)
    sent.note(keys)
    assert sent.num_new == sent.num_leading(keys) == 3
