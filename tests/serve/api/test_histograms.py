"""Bounds of histograms: fine where answers are looked for."""
from prometheus_client.parser import text_string_to_metric_families

from penstock.serve.api.metrics import BOUNDS, HISTOGRAMS, LATENCY_S, QUEUE_S, Metrics


def bounds(metrics: Metrics, name: str) -> list[float]:
    families = {family.name: family for family in text_string_to_metric_families(metrics.render().decode())}
    return [float(sample.labels["le"]) for sample in families[f"penstock_{name}"].samples if "le" in sample.labels]


def test_queue_times_are_told_apart_below_a_millisecond_and_between() -> None:
    assert list(QUEUE_S) == sorted(set(QUEUE_S)) and sum(bound < 0.001 for bound in QUEUE_S) >= 8
    # From 0.1 ms to 10 s a bound is at most twice the one before: a percentile is wrong by no more.
    inner = [bound for bound in QUEUE_S if 0.0001 <= bound <= 10]
    assert all(later <= 2 * earlier for earlier, later in zip(inner, inner[1:], strict=False))


def test_each_histogram_has_its_own_bounds() -> None:
    metrics = Metrics()
    for name in HISTOGRAMS:
        assert bounds(metrics, name)[:-1] == [float(bound) for bound in BOUNDS.get(name, LATENCY_S)]
    metrics.on_queue(0.00004)
    metrics.on_queue(0.4)
    text = metrics.render().decode()
    assert 'request_queue_time_seconds_bucket{le="5e-05"} 1.0' in text and 'request_queue_time_seconds_bucket{le="0.5"} 2.0' in text
    assert 'request_queue_time_seconds_bucket{le="0.3"} 1.0' in text
