import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from penstock.compute.decoding.rank import key_ids, largest_keys, rank_keys, share_key

few_values = st.sampled_from([-np.inf, -3e38, -1.5, -1e-45, -0.0, 0.0, 1e-45, 2.0, 3e38, np.inf])


def in_order(row):
    """Indices by falling value, the lower first among equals."""
    return sorted(range(len(row)), key=lambda i: (-row[i], i))


@given(hnp.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 30)), elements=few_values), st.integers(0, 40))
def test_largest_keys_are_the_largest_scores_with_the_lower_index_first_among_equals(scores, num):
    ids = key_ids(largest_keys(rank_keys(scores), num))
    assert ids.tolist() == [in_order(row)[:num] for row in scores.tolist()]


def test_any_floats_and_both_libraries(to_array):
    scores = np.random.default_rng(0).standard_normal((5, 3000)).astype(np.float32).round(1)
    ids = key_ids(largest_keys(rank_keys(to_array(scores)), 700))
    assert ids.tolist() == [in_order(row)[:700] for row in scores.tolist()]


def test_largest_keys_leave_their_argument_alone(to_array):
    keys = rank_keys(to_array(np.random.default_rng(1).standard_normal((2, 50)).astype(np.float32)))
    before = keys.tolist()
    largest_keys(keys, 5)
    assert keys.tolist() == before


@pytest.mark.parametrize("spread", [0.0, 0.5, 3.0])
@pytest.mark.parametrize("vocab", [5, 600, 5000])
def test_share_key_reaches_its_share_with_the_fewest_entries(to_array, spread, vocab):
    rng = np.random.default_rng(vocab)
    scores = (rng.standard_normal((6, vocab)) * spread).astype(np.float32)
    weights = rng.integers(1, 9, (6, vocab)).astype(np.float32)  # exact sums, and not in the order of the scores
    shares = np.array([1e-30, 0.1, 0.5, 0.9, 0.999, 1.0])
    keys = rank_keys(to_array(scores))
    last = share_key(keys, to_array(weights), to_array(shares))
    num_kept = [int(num) for num in (keys >= last).sum(-1)]
    for row in range(6):
        running = np.cumsum(weights[row, in_order(scores[row].tolist())], dtype=np.float64)
        assert num_kept[row] == np.searchsorted(running, shares[row] * running[-1], side="left") + 1
