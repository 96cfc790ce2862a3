import numpy as np
import pytest
from scipy import stats

from penstock.study.measure.statistics import LEVEL, distribution, grouped_distribution, ranks, wilson


@pytest.mark.parametrize("count", [1, 7, 30, 200, 3000])
@pytest.mark.parametrize("share", [0.5, 0.9, 0.95, 0.99])
def test_order_statistics_cover_the_quantile(count: int, share: float) -> None:
    low, high = ranks(count, share)
    below = stats.binom(count, share)
    missed_low = 0.0 if low is None else below.cdf(low)
    missed_high = 0.0 if high is None else below.sf(high)
    assert missed_low <= 0.025 and missed_high <= 0.025
    if low is not None:
        assert below.cdf(low + 1) > 0.025  # no narrower
    if high is not None:
        assert below.sf(high - 1) > 0.025


def test_too_few_observations_bound_nothing() -> None:
    assert ranks(100, 0.99)[1] is None and ranks(400, 0.99)[1] is not None
    assert ranks(1, 0.5) == (None, None)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng, hits = np.random.default_rng(0), 0
    for _ in range(400):
        (_, _), (_, p90), *_ = distribution(rng.exponential(size=150)).percentiles
        hits += (p90.low or 0) <= -np.log(0.1) <= (p90.high or np.inf)
    assert hits / 400 >= LEVEL - 0.03


def test_percentiles_are_numpys() -> None:
    values = np.random.default_rng(1).normal(size=333)
    found = distribution(values.tolist())
    assert [found.at(p) for p in (50, 90, 95, 99)] == pytest.approx(np.percentile(values, [50, 90, 95, 99]))
    assert found.mean == pytest.approx(values.mean()) and found.stdev == pytest.approx(values.std()) and found.count == 333
    assert (found.least, found.most) == (values.min(), values.max())


@pytest.mark.parametrize("count", [1, 2, 3, 36, 100, 1000])
def test_what_is_told_lies_within_its_interval(count: int) -> None:
    for _, each in distribution(np.random.default_rng(count).exponential(size=count).tolist()).percentiles:
        assert (each.low is None or each.low <= each.value) and (each.high is None or each.value <= each.high)


def test_nothing_observed() -> None:
    assert distribution([]).as_json() == {"count": 0, "mean": None, "stdev": None, "min": None, "max": None}
    assert grouped_distribution([[], []]).count == 0 and distribution([]).at(50) is None


def test_groups_widen_the_interval() -> None:
    """Twenty values, each seen a hundred times in its own group, are no more than twenty observations."""
    groups = [[value] * 100 for value in np.random.default_rng(2).normal(size=20)]
    grouped = dict(grouped_distribution(groups).percentiles)[50]
    alone = dict(distribution([value for group in groups for value in group]).percentiles)[50]
    assert grouped.value == alone.value
    assert (grouped.high or 0) - (grouped.low or 0) > 2 * ((alone.high or 0) - (alone.low or 0))


def test_groups_hold_the_truth() -> None:
    rng, hits = np.random.default_rng(3), 0
    for seed in range(60):
        means = rng.normal(size=60)
        estimate = dict(grouped_distribution([rng.normal(mean, 1.0, size=8) for mean in means], seed).percentiles)[50]
        hits += (estimate.low or 0) <= 0.0 <= (estimate.high or 0)
    assert hits / 60 >= 0.85


def test_one_group_has_no_interval() -> None:
    assert dict(grouped_distribution([[1.0, 2.0, 3.0]]).percentiles)[50].low is None


@pytest.mark.parametrize(("hits", "count"), [(0, 10), (10, 10), (37, 50), (999, 1000)])
def test_wilson(hits: int, count: int) -> None:
    wanted = stats.binomtest(hits, count).proportion_ci(0.95, "wilson")
    found = wilson(hits, count)
    assert (found.low, found.high) == pytest.approx((wanted.low, wanted.high)) and found.value == hits / count
