import numpy as np
import pytest
from scipy.special import log_softmax as scipy_log_softmax


def some_logits(rows, vocab, seed=0):
    return (np.random.default_rng(seed).standard_normal((rows, vocab)) * 3).astype(np.float32).round(1)  # with ties


@pytest.mark.parametrize(("rows", "vocab"), [(1, 1), (3, 2), (5, 100), (150, 33), (2, 20_000)])
def test_logprob_rank_and_top_are_those_of_a_full_sort(sampler, to_array, rows, vocab):
    logits = some_logits(rows, vocab)
    rng = np.random.default_rng(1)
    tokens, nums = rng.integers(0, vocab, rows).tolist(), rng.integers(0, 6, rows).tolist()
    wanted = scipy_log_softmax(logits.astype(np.float64), axis=-1)
    for each, line, token, num in zip(sampler.score(to_array(logits), tokens, nums), wanted, tokens, nums, strict=True):
        order = sorted(range(vocab), key=lambda i: (-line[i], i))
        assert each.token_id == token
        assert each.logprob == pytest.approx(line[token], abs=1e-6)
        assert each.rank == order.index(token) + 1
        assert [i for i, _ in each.top] == order[:num]
        assert [p for _, p in each.top] == pytest.approx(line[order[:num]].tolist(), abs=1e-6)


def test_the_likeliest_token_has_one_and_the_same_logprob_everywhere(sampler):
    logits = some_logits(4, 500, seed=2)
    best = logits.argmax(-1).tolist()
    for each in sampler.score(logits, best, [3] * 4):
        assert (each.rank, each.top[0]) == (1, (each.token_id, each.logprob))
        assert each.logprob <= 0


def test_plain_python_numbers_come_out(sampler, to_array):
    [each] = sampler.score(to_array(some_logits(1, 9)), [4], [2])
    assert [type(x) for x in (each.token_id, each.logprob, each.rank, *each.top[0])] == [int, float, int, int, float]


def test_each_row_gives_its_own_number(sampler, to_array):
    found = sampler.score(to_array(some_logits(3, 10)), [1, 2, 3], [0, 4, 99])
    assert [len(row.top) for row in found] == [0, 4, 10]


def test_nothing_asked_nothing_found(sampler):
    assert sampler.score(np.zeros((0, 5), np.float32), [], []) == []


def test_an_impossible_token(sampler):
    [each] = sampler.score(np.array([[0, -np.inf, 0]], np.float32), [1], [3])
    assert (each.logprob, each.rank, [i for i, _ in each.top]) == (-np.inf, 3, [0, 2, 1])


def test_beside_an_infinite_logit_all_others_are_impossible(sampler, to_array):
    with np.errstate(invalid="ignore", over="ignore"):
        [each] = sampler.score(to_array(np.array([[0, np.inf, 1]], np.float32)), [0], [3])
    assert (each.logprob, each.rank, [i for i, _ in each.top]) == (-np.inf, 3, [1, 2, 0])
    assert [p for _, p in each.top] == pytest.approx([np.nan, -np.inf, -np.inf], nan_ok=True)
