import numpy as np
import pytest
from scipy import stats

from penstock.compute.decoding.draw import below_max, draw, uniform
from penstock.compute.decoding.sums import SumTree


def test_uniform_is_splitmix64_of_the_mixed_seed():
    # the published first outputs of splitmix64 with state 0
    published = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]
    seed = _unmix(0)  # uniform(seed, i) is output i of the generator whose state is the first output for `seed`
    assert [uniform(seed, i) for i in range(3)] == [(x >> 11) / 2**53 for x in published]
    assert uniform(seed - (1 << 64), 1) == uniform(seed, 1)


def _unmix(output: int) -> int:
    """The seed whose first splitmix64 output is `output`."""
    mask = (1 << 64) - 1
    x = output
    x ^= (x >> 31) ^ (x >> 62)
    x = x * pow(0x94D049BB133111EB, -1, 1 << 64) & mask
    x ^= (x >> 27) ^ (x >> 54)
    x = x * pow(0xBF58476D1CE4E5B9, -1, 1 << 64) & mask
    x ^= (x >> 30) ^ (x >> 60)
    return (x - 0x9E3779B97F4A7C15) & mask


@pytest.mark.parametrize("number", [
    lambda first, i: uniform(first + 7, i),
    lambda first, i: uniform(first + i, 0),
    lambda first, i: uniform(first + i - 10_000, i),
], ids=["along one request", "first draws of neighbouring seeds", "seed and index rise together"])
def test_uniform_is_uniform(number, first_seed):
    numbers = [number(first_seed, i) for i in range(20_000)]
    assert all(0 <= x < 1 for x in numbers)
    assert stats.kstest(numbers, "uniform").pvalue > 1e-3
    pairs = np.histogram2d(numbers[::2], numbers[1::2], bins=10)[0]
    assert stats.chisquare(pairs.ravel()).pvalue > 1e-3


def test_seeds_and_indices_do_not_share_draws():
    assert len({uniform(seed, i) for seed in range(200) for i in range(200)}) == 40_000


@pytest.mark.parametrize("length", [1, 2, 3, 7, 64, 511, 1000])
def test_find_agrees_with_a_running_sum(to_array, length):
    rng = np.random.default_rng(length)
    weights = rng.integers(0, 5, (40, length)).astype(np.float32)  # whole numbers, so that every sum is exact
    weights[:, length // 2] = 1
    weights[3] = 0
    weights[3, length // 3] = 2
    running = np.cumsum(weights, axis=1, dtype=np.float64)
    targets = np.floor(rng.random(40) * running[:, -1])
    tree = SumTree(to_array(weights))
    assert tree.total.tolist() == running[:, -1].tolist()
    exceeds = [int(np.searchsorted(row, target, side="right")) for row, target in zip(running, targets, strict=True)]
    assert tree.find(to_array(targets)).tolist() == exceeds
    targets += 1
    reaches = [int(np.searchsorted(row, target, side="left")) for row, target in zip(running, targets, strict=True)]
    assert tree.find(to_array(targets), reach=True).tolist() == reaches


def test_find_never_ends_on_a_weight_of_zero(to_array):
    weights = np.zeros((4, 9), np.float32)
    weights[:, [2, 5]] = 1, 3
    tree = SumTree(to_array(weights))
    assert tree.find(to_array(np.array([0.0, 1.0, 4.0, 4.5]))).tolist() == [2, 5, 5, 5]
    assert tree.find(to_array(np.array([0.0, 1.0, 4.0, 4.5])), reach=True).tolist() == [2, 2, 5, 5]


def test_find_without_a_sum_stays_within_the_row(to_array):
    weights = np.array([[0, 0, 0], [np.nan, 1, 1], [1, 1, np.nan], [np.inf, 1, 1]], np.float32)
    tree = SumTree(to_array(weights))
    with np.errstate(invalid="ignore"):
        found = tree.find(tree.total * 0.5).tolist()
    assert found[0] == 0
    assert all(0 <= at < 3 for at in found)


def test_draw_inverts_the_distribution_in_the_order_of_ids(to_array):
    logits = np.log(np.array([[0.1, 0.2, 0.3, 0.4]] * 5, np.float32))
    assert draw(to_array(logits), [0.0, 0.0999, 0.1001, 0.61, 1 - 2**-53]) == [0, 0, 1, 3, 3]


def test_below_max(to_array, to_numpy):
    logits = np.array([[1, 3, -np.inf], [-np.inf, -np.inf, -np.inf]], np.float32)
    assert to_numpy(below_max(to_array(logits))).tolist() == [[-2, 0, -np.inf], [-np.inf] * 3]
