import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decide.scheduler.chunk import chunk


@pytest.mark.parametrize(
    ("num_left", "num_drafts", "budget", "expected"),
    [(5, 0, 9, (5, 0)), (5, 0, 3, (3, 0)), (1, 4, 9, (5, 4)), (1, 4, 3, (3, 2)), (1, 4, 1, (1, 0)), (6, 4, 5, (5, 0))],
)
def test_examples(num_left, num_drafts, budget, expected):
    assert chunk(num_left, num_drafts, budget) == expected


@settings(derandomize=True, deadline=None)
@given(st.integers(1, 99), st.integers(0, 9), st.integers(1, 99))
def test_drafts_come_only_after_all_final_tokens_and_within_the_budget(num_left, num_drafts, budget):
    num_tokens, drafts = chunk(num_left, num_drafts, budget)
    assert 1 <= num_tokens <= budget and 0 <= drafts <= num_drafts
    assert num_tokens == num_left + drafts if drafts else num_tokens == min(num_left, budget)
