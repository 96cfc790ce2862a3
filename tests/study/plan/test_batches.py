"""Waiting where a pass takes whole prompts: against what is known of simpler queues, and the twin."""
from typing import Any

import numpy as np
import pytest

from penstock.study.plan.batches import Batches, Passes, batches, waiting

NOTHING = 1e-3  # seconds of a pass without prompts


def queue(rate: float, interval_s: list[float], decoding: float = 0.0) -> Batches:
    return batches(rate, Passes(np.array([NOTHING, *interval_s]), np.array([NOTHING, *interval_s]), interval_s[-1]), decoding)


@pytest.mark.parametrize("busy", [0.1, 0.5, 0.8])
def test_one_at_a_time_is_m_d_1(busy: float) -> None:
    found = queue(busy, [1.0])
    assert found.mean_s == pytest.approx(1 + busy / (2 * (1 - busy)), rel=0.03) and found.service_s == 1
    assert found.busy == pytest.approx(busy, abs=0.01) and found.later(3.0).mean_s == pytest.approx(found.mean_s + 3)
    assert found.share_within(1.0) == pytest.approx(1 - busy, abs=0.02) and found.share_within(0.99) == 0 and found.share_within(1e9) == 1
    assert found.share_within(found.percentile(0.95)) >= 0.95 and found.mean_s < found.percentile(0.9) < found.percentile(0.99)


def test_passes_that_take_all_in_a_second_follow_one_another() -> None:
    found = queue(20.0, [1.0] * 60)
    assert found.mean_s == pytest.approx(1.5, rel=0.01) and found.percentile(1.0) == pytest.approx(2.0, rel=0.05)


def test_together_is_later_than_one_after_the_other() -> None:
    """With as much to do: the first of two has to wait for the second."""
    one, many = queue(0.6, [1.0]), queue(0.6, [1.0 * count for count in range(1, 9)])
    assert one.mean_s < many.mean_s < 1.5 * one.mean_s


def test_a_pass_that_only_decodes_has_to_end_first() -> None:
    each = Passes(np.array([0.4, 1.0]), np.array([0.4, 1.0]), 1.0)
    assert batches(1e-3, each, 1.0).mean_s - batches(1e-3, each, 0.0).mean_s == pytest.approx(0.2, rel=0.02)


def test_very_many_come_together() -> None:
    found = waiting(400.0, 1024, 0.0, lambda count: (0.5 + count / 4096, 0.5 + count / 4096))
    each = 0.5 / (1 - 400 / 4096)
    assert found.mean_s == pytest.approx(1.5 * each, rel=0.03)


@pytest.mark.parametrize("most", [1.0, 1.25, 1.9, 2.5])
def test_a_line_of_prompts_fills_its_passes(most: float) -> None:
    """What is left of one computes a part of the next prompt, so that a pass of a second takes `most` on average."""
    found = waiting(0.97 * most, most, 0.0, lambda count: (1.0, 1.0) if count else (NOTHING, NOTHING))
    half = waiting(0.5 * most, most, 0.0, lambda count: (1.0, 1.0) if count else (NOTHING, NOTHING))
    assert 0.9 < found.busy < 1 and 1 < half.mean_s < 2 < found.mean_s < 20
    assert waiting(1.03 * most, most, 0.0, lambda count: (1.0, 1.0) if count else (NOTHING, NOTHING)).mean_s > 20 / most


@pytest.mark.parametrize(("rate", "lengths", "chunk"), [
    (4.0, (2048, 28), "8192"), (12.0, (2048, 28), "8192"), (15.0, (300, 100), "8192"), (9.0, (1500, 60), "2048"),
    (140.0, (130, 20), "256")])
def test_arithmetic_waits_as_the_twin_does(ask: Any, rate: float, lengths: tuple[int, int], chunk: str) -> None:
    asked = {"rate": rate, "input": lengths[0], "output": lengths[1], "chunk": chunk, "quant": ("none",), "kv_dtype": ("auto",),
             "tensor_parallel": "1", "pipeline_parallel": "1", "prefill_split": False, "max_devices": 1}
    (means,), (twin,) = (ask("llama-3-8b", "h100-sxm", **asked, simulate=simulate) for simulate in (False, True))
    assert (means.predicted_by, twin.predicted_by) == ("arithmetic", "twin")
    assert means.ttft_s == pytest.approx(twin.ttft_s, rel=0.1) and means.ttft_p99_s == pytest.approx(twin.ttft_p99_s, rel=0.2)
    assert twin.ttft_p99_s > 1.2 * twin.ttft_s
    assert not ask("llama-3-8b", "h100-sxm", **asked, simulate=False, slo=f"ttft={1.05 * twin.ttft_s * 1e3:.1f}ms")[0].meets_slo
