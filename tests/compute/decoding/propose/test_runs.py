"""The places of runs: one meaning in both forms."""
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compute.decoding.propose.runs import PythonRuns, best_runs, copied
from tests.guard import ends


@pytest.fixture
def native():
    return pytest.importorskip("penstock._native").Runs


def slow(tokens, least, most):
    for size in range(most, least - 1, -1):
        for end in range(len(tokens) - 1, size - 1, -1):
            if tokens[end - size : end] == tokens[len(tokens) - size :]:
                return end
    return None


def test_a_sequence_that_grew_token_by_token_is_one_made_at_once():
    rng = random.Random(3)
    tokens = [rng.randrange(3) for _ in range(200)]
    grown = PythonRuns(2, 4)
    for end in range(1, len(tokens) + 1):
        (guess,) = grown.guess([(0, tokens[end - 1 : end], 5, False)])
        at = slow(tokens[:end], 2, 4)
        assert [guess] == PythonRuns(2, 4).guess([(0, tokens[:end], 5, False)]) == [() if at is None else copied(tokens[:end], at, 5)]


def test_where_only_the_longest_runs_will_do_shorter_ones_are_no_match(native):
    for form in (PythonRuns(2, 4), native(2, 4)):
        assert list(form.guess([(0, [1, 2, 3, 4, 9, 7, 3, 4], 2, True), (1, [1, 2, 3, 4, 9, 1, 2, 3, 4], 2, True)])) == [(), (9, 1)]
        assert list(form.guess([(0, [], 2, False)])) == [(9, 7)]


def test_beyond_the_end_a_copy_goes_on_with_itself():
    assert copied([3, 4], 1, 3) == (4, 4, 4)


rows = st.lists(st.tuples(st.integers(0, 2), st.lists(st.integers(0, 3), max_size=12), st.integers(0, 9), st.booleans()), max_size=3)
steps = st.lists(st.one_of(rows, st.integers(0, 2)), max_size=30)  # rows to guess for, or a sequence to forget


def test_both_forms_guess_the_same():
    native, guessed = pytest.importorskip("penstock._native").Runs, 0

    @given(least=st.integers(1, 3), longer=st.integers(0, 3), steps=steps)
    @settings(max_examples=150, deadline=None)
    def same(least, longer, steps):
        nonlocal guessed
        forms = [PythonRuns(least, least + longer), native(least, least + longer)]
        for step in steps:
            if isinstance(step, int):
                forms[0].forget(step), forms[1].forget(step)
            else:
                first, second = (form.guess(step) for form in forms)
                assert first == second
                guessed += sum(map(len, first))

    same()
    assert guessed > 500


def test_long_texts_of_many_tokens(native):
    rng = random.Random(5)
    forms, text = [PythonRuns(1, 3), native(1, 3)], [rng.choice([rng.randrange(5), rng.randrange(50_000)]) for _ in range(6000)]
    at = guessed = 0
    while at < len(text):
        new = text[at : at + rng.randrange(1, 40)]
        at += len(new)
        first, second = (form.guess([(7, new, 12, at % 3 == 0)]) for form in forms)
        assert first == second
        guessed += sum(map(len, first))
    assert guessed > 1000


def test_long_runs_are_looked_up_as_fast_as_short_ones(native):
    """With the time of each token of each run it would take minutes."""
    rng = random.Random(6)
    text = [rng.randrange(1000) for _ in range(30_000)]
    with ends(10):
        assert native(4000, 4096).guess([(0, [*text, *text[:5000]], 3, True)]) == [tuple(text[5000:5003])]


def test_the_native_form_is_the_one_that_is_used_and_refuses_what_it_cannot_hold(native):
    assert isinstance(best_runs(1, 2), native)
    with pytest.raises(ValueError, match="runs of 3 to 2 tokens"):
        native(3, 2)
    with pytest.raises(ValueError, match="4294967295"):
        native(1, 2).guess([(0, [2**32 - 1], 1, False)])
