import pytest

from penstock.core.clock import VirtualClock
from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware
from penstock.serve.api.metrics import Metrics
from penstock.serve.engine.requests import Gauges
from penstock.serve.engine.utilization import Utilization
from penstock.study.measure.counters import Scrape, began_anew, growth, quantile, server_figures, values_of, was_restarted
from penstock.study.measure.metrics import Window

MACHINE = Hardware("test", {1 << 20: 1000.0, 1 << 30: 1000.0}, {"fp32": 100.0})


def test_what_our_own_server_says_of_a_window() -> None:
    metrics, scrapes = Metrics(), []
    known = Utilization(MACHINE, "fp32", VirtualClock())
    metrics.watch(lambda: Gauges(num_running=len(scrapes), kv_blocks_used=1, kv_blocks_total=4), known)
    for at_s in (0.0, 1.0, 2.0, 3.0):
        scrapes.append(Scrape.of(at_s, metrics.render().decode()))
        metrics.on_step(StepRecord(1, 0.0, 0.5, 0.4, 1, 10, 0, operations=25, weight_bytes=30, kv_bytes=20))
        metrics.on_step(StepRecord(2, 0.0, 0.25, 0.2, 1, 0, 2, operations=5, weight_bytes=60, kv_bytes=40))
        metrics.on_queue(0.0045)
    scrapes.append(Scrape.of(4.5, metrics.render().decode()))
    found = server_figures(scrapes, Window(1.0, 4.0))
    assert found is not None and found.queue is not None
    assert found.queue.count == 3 and found.queue.mean == pytest.approx(0.0045)
    assert dict(found.queue.percentiles)[50] == pytest.approx(0.004)  # in the middle of the bucket from 3 to 5 ms
    assert (found.mfu, found.mbu) == (pytest.approx(0.5), pytest.approx(0.4))
    assert found.operations_per_s == pytest.approx(30 / 0.75) and found.operations_per_byte == pytest.approx(30 / 150)
    assert found.prefill_share == pytest.approx(2 / 3) and found.grown["penstock_step_operations_total"] == 90
    assert found.gauges == {"num_requests_running": (2.0, 3.0), "num_requests_waiting": (0.0, 0.0), "kv_cache_usage_ratio": (0.25, 0.25)}


def test_another_server_says_less() -> None:
    texts = [f"""# HELP x
vllm:request_queue_time_seconds_bucket{{le="0.5",model_name="m"}} {count}
vllm:request_queue_time_seconds_bucket{{le="+Inf",model_name="m"}} {2 * count}
vllm:request_queue_time_seconds_count{{model_name="m"}} {2 * count}
vllm:request_queue_time_seconds_sum{{model_name="m"}} {count * 3.0} 1700000000
""" for count in (10, 14)]
    found = server_figures([Scrape.of(0.0, texts[0]), Scrape.of(5.0, texts[1])], Window(0.0, 5.0))
    assert found is not None and found.queue is not None and found.mfu is None
    assert (found.queue.count, found.queue.mean) == (8, pytest.approx(1.5))
    assert dict(found.queue.percentiles) == {50: 0.5, 90: None, 95: None, 99: None}


def test_a_histogram_without_buckets_has_a_mean() -> None:
    texts = [f"vllm:request_queue_time_seconds_count {count}\nvllm:request_queue_time_seconds_sum {count * 3.0}\n" for count in (10, 14)]
    found = server_figures([Scrape.of(0.0, texts[0]), Scrape.of(5.0, texts[1])], Window(0.0, 5.0))
    assert found is not None and found.queue is not None and (found.queue.count, found.queue.mean) == (4, pytest.approx(3.0))
    assert dict(found.queue.percentiles) == {50: None, 90: None, 95: None, 99: None}


def test_what_a_server_does_long_after_the_window_is_left_out() -> None:
    """Of two looks behind it the second, since the first may have been told before the last answer came."""
    found = server_figures([Scrape.of(float(at), f"a_total {at}") for at in range(600)], Window(1.0, 3.5))
    assert found is not None and found.grown == {"a_total": 4.0}


def test_what_a_server_does_while_users_leave_is_told_apart() -> None:
    scrapes = [Scrape.of(float(at), f"a_total {at}") for at in range(20)]
    found = [server_figures(scrapes, Window(1.0, 15.0), sent_s) for sent_s in (None, 8.5, 99.0)]
    assert [each and each.while_sent for each in found] == [None, {"a_total": 8.0}, {"a_total": 18.0}]
    assert all(each is not None and each.grown == {"a_total": 15.0} for each in found)
    assert found[1] is not None and found[1].as_json()["counters_while_sent"] == {"a_total": 8.0}
    cut = server_figures(scrapes, Window(15.0, 15.0), sent_s=8.5)
    assert cut is not None and cut.while_sent is None, "all were sent within the warm-up"


def test_a_gauge_is_no_counter_whatever_it_is_called() -> None:
    """vLLM and node exporters have gauges that end like counters; one that falls is no restart."""
    said = "# TYPE a_total counter\na_total {}\n# TYPE slots_total gauge\nslots_total{{of=\"x\"}} {}\n"
    scrapes = [Scrape.of(0.0, said.format(1, 8)), Scrape.of(1.0, said.format(3, 6))]
    assert not was_restarted(scrapes)
    found = server_figures(scrapes, Window(0.0, 1.0))
    assert found is not None and found.grown == {"a_total": 2.0}


def test_one_look_is_none() -> None:
    assert server_figures([Scrape.of(0.0, "a_total 1")], Window(0.0, 1.0)) is None
    assert server_figures([Scrape.of(0.0, ""), Scrape.of(1.0, "")], Window(0.0, 1.0)) is not None


def test_of_a_server_that_was_started_again_nothing_is_told() -> None:
    texts = ["a_total 9\ng 3", "a_total 12\ng 1", "a_total 2\ng 1"]
    scrapes = [Scrape.of(float(at), text) for at, text in enumerate([*texts, "a_total 40"])]
    assert not was_restarted(scrapes[:2]) and was_restarted(scrapes)
    assert server_figures(scrapes[:2], Window(0.0, 3.0)) is not None and server_figures(scrapes, Window(0.0, 3.0)) is None


def test_a_server_that_outgrew_its_old_counts_tells_of_its_start() -> None:
    said = "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds {}\na_total {}\n"
    same = [Scrape.of(0.0, said.format(1.5e9, 9)), Scrape.of(1.0, said.format("1.5e+09", 12))]
    found = server_figures(same, Window(0.0, 1.0))
    assert not was_restarted(same) and found is not None and found.grown == {"a_total": 3.0}
    assert was_restarted([*same, Scrape.of(2.0, said.format(1.5e9 + 0.5, 40))])
    assert began_anew(values_of(said.format(7, 9)), values_of(said.format(8, 40)))
    assert not began_anew(values_of("a_total 9"), values_of(said.format(8, 40))), "a server that did not say"


def test_samples_are_read_and_the_rest_passed_over() -> None:
    text = '# TYPE a counter\na_total 1e3\nb{x="y z"} 2.5 170000\nc NaN\n\nbroken\nd{ 1\n'
    assert values_of(text) == {"a_total": 1000.0, 'b{x="y z"}': 2.5}


def test_counters_grow_and_gauges_do_not() -> None:
    first, last = {"a_total": 2.0, "b": 1.0}, {"a_total": 5.0, "b": 7.0, 'c_sum{of="d"}': 1.0}
    assert growth(first, last) == {"a_total": 3.0, 'c_sum{of="d"}': 1.0}


def test_quantiles_of_a_histogram() -> None:
    bounds = {0.1: 10.0, 0.2: 10.0, 0.4: 30.0, float("inf"): 40.0}
    assert [quantile(bounds, share) for share in (0.125, 0.5, 0.75)] == pytest.approx([0.05, 0.3, 0.4]) and quantile(bounds, 0.9) is None
