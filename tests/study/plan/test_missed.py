"""What is missed, memory or an objective: by how much, and what would do."""
import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.study.plan.evaluate import missing, ms

Ask = Callable[..., Any]


def test_what_would_fit_is_told_beside_what_does_not(ask: Ask) -> None:
    """As many at once, or as long a request, or as long a chunk; one more of it does not."""
    asked = {"max_devices": 1, "input": 7000, "output": 1000}
    many, long, wide = (ask("llama-3.1-8b", "l4", **asked | more)[0] for more in ({"batch": 64}, {"batch": 1, "input": 100_000}, {
        "batch": 1, "chunk": "10000000"}))
    assert not any(row.fits for row in (many, long, wide))
    [most], [tokens], [chunk] = (re.findall(form, row.reason) for row, form in (
        (many, r"; ([\d,]+) at once would fit; 8 devices"), (long, r"; a request of ([\d,]+) tokens would fit; 2 devices"),
        (wide, r"; one request would fit with --chunk (\d+)$")))
    batch, size, count = int(most), int(tokens.replace(",", "")) - 1000, int(chunk)
    for more, fits in (({"batch": batch}, True), ({"batch": batch + 1}, False), ({"batch": 1, "input": size}, True),
                       ({"batch": 1, "input": size + 1}, False), ({"batch": 1, "chunk": str(count)}, True),
                       ({"batch": 1, "chunk": str(count + 1)}, False)):
        assert ask("llama-3.1-8b", "l4", **asked | more)[0].fits is fits, more
    assert ask("llama-3-70b", "l4", batch=1, max_devices=1)[0].reason.endswith("more than l4's usable 21.7; 8 devices (TP8) would hold it")


def test_an_objective_that_no_batch_keeps_is_missed_by_one_request_alone(ask: Ask) -> None:
    row, alone = (ask("llama-3-8b", "h100-sxm", max_devices=1, slo="tpot=5ms", **load)[0] for load in ({}, {"batch": 1}))
    assert not row.meets_slo and row.batch == 1 and row.tpot_s == alone.tpot_s and row.batch_told == "more at once take longer"


def test_how_late_most_are_is_told_of_an_objective_at_a_rate(ask: Ask) -> None:
    """And who keeps it then: nine of ten, which is what counts as kept, and as goodput."""
    asked = {"input": 500, "output": 100, "rate": 6.0, "max_devices": 1, "quant": ("none",), "kv_dtype": ("auto",), "simulate": False,
             "prefill_split": False, "chunk": "512"}
    for name in ("ttft", "e2e"):
        missed = ask("llama-3-8b", "l40s", slo=f"{name}=20ms", **asked)[0]
        [told] = re.findall(rf"^\d+% of requests keep {name} within 20 ms, and 90% within ([\d.]+ m?s)$", missed.reason)
        value = float(told.split()[0]) * (1e-3 if told.endswith("ms") else 1)
        less, more = (ask("llama-3-8b", "l40s", slo=f"{name}={times * value:.6f}s", **asked)[0] for times in (0.98, 1.02))
        assert not less.meets_slo and more.meets_slo and 0.9 * 6 <= more.goodput_per_s < 5.99 and less.goodput_per_s == 0
        assert ask("llama-3-8b", "l40s", slo=f"{name}=100s", **asked)[0].goodput_per_s == pytest.approx(6)


def test_figures_are_told_without_powers_of_ten_and_no_share_as_if_it_sufficed(ask: Ask) -> None:
    assert (ms(1234.5), ms(0.0123), missing(0.8999)) == ("1,234 s", "12.3 ms", "89%")
    slow = ask("llama-3-8b", "h100-sxm", rate=1e6, max_devices=1, quant=("none",), kv_dtype=("auto",), simulate=False)[0]
    assert slow.reason.startswith("cannot keep up with 1,000,000 requests a second on 1 device: some ")
