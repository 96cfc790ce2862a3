"""What a run's throughput costs at a price per hour.

All of the price is put on the output (what is usually quoted), all of it on the input, and on both together. Where the server says how
much of its time went into prompts, it is also parted by that: what input and output would have to cost each to pay for the machine.
"""
from dataclasses import asdict, dataclass
from typing import Any

from penstock.study.measure.metrics import Rates

HOUR_S = 3600.0
MILLION = 1e6


@dataclass(frozen=True, slots=True)
class Cost:
    """Dollars; None where nothing was made."""

    usd_per_hour: float
    usd_per_million_output_tokens: float | None
    usd_per_million_input_tokens: float | None
    usd_per_million_tokens: float | None
    usd_per_thousand_requests: float | None
    usd_per_million_output_tokens_by_time: float | None  # decode's share of the time alone
    usd_per_million_input_tokens_by_time: float | None  # prefill's share alone

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def cost(usd_per_hour: float, rates: Rates, prefill_share: float | None) -> Cost:
    def each(rate: float, count: float, share: float | None = 1.0) -> float | None:
        return None if share is None or not rate else usd_per_hour * share / HOUR_S / rate * count

    read, written = rates.input_tokens_per_s, rates.output_tokens_per_s
    return Cost(
        usd_per_hour, each(written, MILLION), each(read, MILLION), each(read + written, MILLION), each(rates.requests_per_s, 1000.0),
        each(written, MILLION, None if prefill_share is None else 1 - prefill_share), each(read, MILLION, prefill_share))
