"""Prompts on replicas of their own: how many links hand the keys and values over."""
import random
from collections.abc import Callable
from typing import Any

import pytest

from penstock.study.plan.configuration import Configuration

Ask = Callable[..., Any]
HANDED = {"input": 1000, "output": 200, "quant": ("int4",), "kv_dtype": ("auto",), "tensor_parallel": "1", "pipeline_parallel": "1",
          "simulate": False}


def handed_over(ask: Ask, rate: float, network: str, slo: str | None) -> Configuration:
    rows = ask("llama-2-7b", "rtx-4090", rate=rate, what_if=f"network={network}", slo=slo, **HANDED)
    return next(row for row in rows if row.prefill_replicas)


@pytest.mark.parametrize("slo", ["ttft=1s", "e2e=10s", "e2e=4s", "e2e=3s"])
def test_links_leave_an_objective_the_time_that_it_takes(ask: Ask, slo: str) -> None:
    """Also one of whole requests: where the first tokens come late, the others have to come sooner."""
    row = handed_over(ask, 16.0, "ethernet-25", slo)
    assert row.meets_slo and row.bound == "interconnect" and row.ttft_s < row.ttft_p99_s
    none, tokens = handed_over(ask, 16.0, "ethernet-25", None), row.replicas - row.prefill_replicas
    assert row.prefill_replicas > none.prefill_replicas and row.ttft_s < none.ttft_s / 10
    assert row.tpot_s < none.tpot_s if slo == "e2e=4s" else tokens >= none.replicas - none.prefill_replicas


def test_most_waits_for_both_links_end_within_the_objective(ask: Ask) -> None:
    row, rng = handed_over(ask, 16.0, "ethernet-25", "ttft=1s"), random.Random(0)
    moved_s = 1000 * row.kv_bytes_per_token / (3.125e9 * 0.9)

    def waits_s(links: int) -> list[float]:
        found, wait_s = [], 0.0
        for _ in range(20_000):
            found.append(wait_s)
            wait_s = max(0.0, wait_s + moved_s - rng.expovariate(16 / links))
        return rng.sample(found, len(found))

    both = zip(waits_s(row.prefill_replicas), waits_s(row.replicas - row.prefill_replicas), strict=True)
    assert sorted(map(sum, both))[18_000] + moved_s < 1
    assert sorted(map(sum, zip(waits_s(4), waits_s(4), strict=True)))[18_000] + moved_s > 1, "which on average is soon enough"


def test_a_network_binds_where_a_faster_one_takes_fewer_replicas(ask: Ask) -> None:
    """22 prompts a second are more than one link of 100 Gbit/s takes, and more than one replica computes."""
    one, fast = (handed_over(ask, 22.0, name, None) for name in ("ethernet-100", "ethernet-400"))
    assert 22 * 1000 * one.kv_bytes_per_token > 12.5e9 * 0.9 and one.utilization > 0.5
    assert (one.prefill_replicas, one.replicas) == (fast.prefill_replicas, fast.replicas) and one.bound == "KV bandwidth"
    waits, sooner = (handed_over(ask, 16.0, name, "ttft=2s") for name in ("ethernet-25", "ethernet-400"))
    moved_s = 1000 * waits.kv_bytes_per_token / (3.125e9 * 0.9)
    assert 16 / (waits.prefill_replicas - 1) * moved_s < 1 and waits.replicas > sooner.replicas and waits.bound == "interconnect"
