import math
from collections import Counter

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.core.clock import VirtualClock
from penstock.core.drafting import Drafting
from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware
from penstock.serve.api import metrics
from penstock.serve.api.metrics import LATENCY_S, MAX_POSITIONS, QUEUE_S, Histogram, Metrics
from penstock.serve.engine.requests import Gauges, Usage
from penstock.serve.engine.utilization import Utilization
from tests.serve.api.fakes import Running, wait_for


def samples(text: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if "le" not in sample.labels:
                found[sample.name + "".join(f"{{{value}}}" for value in sample.labels.values())] += sample.value
    return found


def test_a_fresh_server_shows_every_name(http: httpx.Client) -> None:
    found = samples(http.get("/metrics").text)
    for name in ("time_to_first_token_seconds", "inter_token_latency_seconds", "e2e_request_latency_seconds", "request_queue_time_seconds"):
        assert f"penstock_{name}_count" in found and f"penstock_{name}_sum" in found
    for name in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_ratio", "prefix_cache_queries_total",
                 "prefix_cache_hits_total", "preemptions_total", "prompt_tokens_total", "generation_tokens_total",
                 "spec_drafted_tokens_total",
                 "spec_accepted_tokens_total", "spec_passes_total"):
        assert f"penstock_{name}" in found


def test_token_counters_are_the_sum_of_the_usages(http: httpx.Client, server: Running) -> None:
    before = samples(http.get("/metrics").text)
    body = {"prompt": ["the fox", "a king"], "n": 2, "max_tokens": 5}
    usages = [http.post("/v1/completions", json=body).json()["usage"] for _ in range(3)]
    usages.append(http.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}], "max_tokens": 7}).json()["usage"])
    server.engine.step_s = 0.01
    with http.stream("POST", "/v1/completions", json={"prompt": "x", "max_tokens": 200, "stream": True}) as response:
        next(response.iter_lines())  # and hang up: nobody is told of its usage
    wait_for(lambda: bool(server.engine.aborted))
    after = samples(http.get("/metrics").text)
    grown = {name: after[name] - before[name] for name in after}
    assert grown["penstock_prompt_tokens_total"] == sum(usage["prompt_tokens"] for usage in usages)
    assert grown["penstock_generation_tokens_total"] == sum(usage["completion_tokens"] for usage in usages) == 67
    assert grown["penstock_prefix_cache_hits_total"] == sum(usage["prompt_tokens_details"]["cached_tokens"] for usage in usages) > 0
    assert grown["penstock_e2e_request_latency_seconds_count"] == 7 and grown["penstock_requests_total{abort}"] == 1
    assert grown["penstock_time_to_first_token_seconds_count"] == 8
    assert after["penstock_num_requests_running"] == 0


def test_a_prompt_that_is_not_read_from_the_cache_was_not_looked_up(http: httpx.Client) -> None:
    before = samples(http.get("/metrics").text)["penstock_prefix_cache_queries_total"]
    for more in ({}, {"prompt_logprobs": 1}):
        usage = http.post("/v1/completions", json={"prompt": "the fox", "max_tokens": 1, **more}).json()["usage"]
    assert samples(http.get("/metrics").text)["penstock_prefix_cache_queries_total"] == before + usage["prompt_tokens"]


def test_answers_that_may_end_anywhere_are_counted(http: httpx.Client) -> None:
    before, usages = samples(http.get("/metrics").text), []
    for more in ({"max_tokens": 2}, {"max_tokens": None}, {"max_tokens": None, "ignore_eos": True}, {"max_tokens": None, "n": 2},
                 {"max_tokens": 9, "stop": list("abcdefghijklmnopqrstuvwxyz ")}, {"max_tokens": 9, "n": 2, "temperature": 0},
                 {"max_tokens": 9, "best_of": 3}, {"max_tokens": 9, "beam_width": 2, "temperature": 0}):
        reply = http.post("/v1/completions", json={"prompt": "the fox", **more})
        assert reply.status_code == 200
        usages.append(reply.json()["usage"]["completion_tokens"])
    after = samples(http.get("/metrics").text)
    assert after["penstock_open_requests_total"] == before["penstock_open_requests_total"] + 2 and usages[4] < 9
    unused = (2 - usages[0]) + (9 - usages[4])
    assert after["penstock_unused_max_tokens_total"] == before["penstock_unused_max_tokens_total"] + unused


def test_steps_are_added_up() -> None:
    metrics = Metrics(lambda: Gauges(num_running=3, num_waiting=2, kv_blocks_used=4, kv_blocks_total=16))
    metrics.on_step(StepRecord(1, 0.0, 0.5, 0.4, 2, 10, 0, num_preempted=1, weight_bytes=100, kv_bytes=10, activation_bytes=1,
                               operations=7))
    metrics.on_step(StepRecord(2, 0.5, 0.25, 0.2, 2, 3, 2, weight_bytes=100, operations=5))
    metrics.on_step(StepRecord(3, 0.7, 0.25, 0.2, 2, 0, 6, num_draft_tokens=8, num_accepted_tokens=5, num_draft_seqs=2,
                               drafting=Drafting(2, 7, (2, 2, 2, 2), (2, 2, 1, 0))))
    metrics.on_queue(0.02)
    found = samples(metrics.render().decode())
    assert [found[f"penstock_steps_total{{{kind}}}"] for kind in ("prefill", "mixed", "decode")] == [1, 1, 1]
    assert (found["penstock_step_tokens_total{prefill}"], found["penstock_step_tokens_total{decode}"]) == (13, 8)
    assert [found[f"penstock_step_bytes_total{{{kind}}}"] for kind in ("weights", "kv", "activations")] == [200, 10, 1]
    assert found["penstock_step_operations_total"] == 12 and found["penstock_step_seconds_total"] == 1.0
    assert [found[f"penstock_spec_{name}_total"] for name in ("drafted_tokens", "accepted_tokens", "passes")] == [8, 5, 2]
    assert [found[f"penstock_spec_drafted_tokens_per_pos_total{{{i}}}"] for i in range(4)] == [2, 2, 2, 2]
    assert [found[f"penstock_spec_accepted_tokens_per_pos_total{{{i}}}"] for i in range(4)] == [2, 2, 1, 0]
    assert found["penstock_preemptions_total"] == 1 and found["penstock_request_queue_time_seconds_count"] == 1
    assert found["penstock_kv_cache_usage_ratio"] == 0.25 and found["penstock_num_requests_waiting"] == 2


def test_far_positions_are_counted_together() -> None:
    metrics = Metrics()
    long = Drafting(1, 1, (1,) * 100, (0,) * 100)
    for _ in range(2):
        metrics.on_step(StepRecord(1, 0.0, 0.5, 0.4, 1, 0, 1, num_draft_tokens=100, num_draft_seqs=1, drafting=long))
    found = {name: count for name, count in samples(metrics.render().decode()).items() if "spec_drafted_tokens_per_pos" in name}
    name = "penstock_spec_drafted_tokens_per_pos_total"
    assert len(found) == MAX_POSITIONS + 1 and found[f"{name}{{31}}"] == 2 and found[f"{name}{{32+}}"] == 2 * (100 - MAX_POSITIONS)


def test_shares_of_the_limits_are_those_of_the_steps() -> None:
    metrics = Metrics()
    metrics.watch(Gauges, Utilization(Hardware("box", {1: 1000.0}, {"bf16": 100.0}), "bf16", VirtualClock()))
    metrics.on_step(StepRecord(1, 0.0, 2.0, 1.0, 1, 8, 0, operations=50, weight_bytes=10**6))
    metrics.on_step(StepRecord(2, 2.0, 1.0, 0.5, 1, 0, 1, operations=10**6, weight_bytes=600, kv_bytes=150))
    found = samples(metrics.render().decode())
    assert found["penstock_mfu_ratio"] == 0.25 and found["penstock_mbu_ratio"] == 0.75


def test_shares_that_cannot_be_told_are_not_numbers() -> None:
    metrics = Metrics()
    metrics.on_step(StepRecord(1, 0.0, 2.0, 1.0, 1, 8, 0, operations=50))
    found = samples(metrics.render().decode())
    assert math.isnan(found["penstock_mfu_ratio"]) and math.isnan(found["penstock_mbu_ratio"])


def test_requests_add_up_to_their_usages() -> None:
    metrics = Metrics()
    metrics.on_request("stop", Usage(10, 5, 4), 1.0)
    metrics.on_request("length", Usage(1, 2), 1.0)
    metrics.on_request("abort", Usage(), None)
    metrics.on_request("stop", Usage(100, 1), 1.0, looked_up=False)
    found = samples(metrics.render().decode())
    names = ("prompt_tokens", "generation_tokens", "prefix_cache_queries", "prefix_cache_hits")
    assert [found[f"penstock_{name}_total"] for name in names] == [111, 8, 11, 4]
    assert [found[f"penstock_requests_total{{{reason}}}"] for reason in ("stop", "length", "abort")] == [2, 1, 1]


def test_a_histogram_puts_a_value_into_the_first_bucket_that_holds_it() -> None:
    histogram = Histogram()
    histogram.observe(LATENCY_S[2], 2)
    histogram.observe(10_000)
    counts = [count for _, count in histogram.buckets()]
    assert counts[:3] == [0, 0, 2] and counts[-2:] == [2, 3] and histogram.sum == 2 * LATENCY_S[2] + 10_000


def test_waits_in_the_queue_are_told_apart_within_a_factor_of_two() -> None:
    at = QUEUE_S.index(0.0001)
    assert QUEUE_S[-1] == LATENCY_S[-1] and all(high <= 2.001 * low for low, high in zip(QUEUE_S[at:], QUEUE_S[at + 1:], strict=False))


def test_two_servers_share_no_metrics() -> None:
    one, other = Metrics(), Metrics()
    one.on_queue(1)
    counts = [samples(each.render().decode())["penstock_request_queue_time_seconds_count"] for each in (one, other)]
    assert counts == [1, 0]


def test_a_server_says_since_when_it_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics.time, "time", lambda: 1.5e9)
    one = Metrics()
    monkeypatch.setattr(metrics.time, "time", lambda: 2e9)
    assert samples(one.render().decode())["process_start_time_seconds"] == 1.5e9


def test_least_seconds_add_up_to_the_shares_of_any_stretch_of_time() -> None:
    clock = VirtualClock()
    metrics = Metrics()
    machine = Hardware("test", {1 << 20: 1000.0, 1 << 30: 1000.0}, {"fp32": 100.0})
    metrics.watch(Gauges, Utilization(machine, "fp32", clock))
    metrics.on_step(StepRecord(1, 0.0, 0.5, 0.4, 1, 10, 0, operations=25))
    before = samples(metrics.render().decode())
    clock.advance(1000.0)  # out of the gauges' minute
    metrics.on_step(StepRecord(2, 1000.0, 2.0, 0.4, 1, 10, 2, operations=50))
    metrics.on_step(StepRecord(3, 1002.0, 0.5, 0.4, 1, 0, 2, weight_bytes=60, kv_bytes=40))
    grown = samples(metrics.render().decode())
    grown.subtract(before)
    assert grown["penstock_least_step_seconds_total{prefill}"] / grown["penstock_limited_step_seconds_total{prefill}"] == 0.25
    assert grown["penstock_least_step_seconds_total{decode}"] / grown["penstock_limited_step_seconds_total{decode}"] == 0.2
