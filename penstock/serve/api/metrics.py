"""What Prometheus reads: one Metrics per server, its own registry, safe to feed from the engine's thread and the event loop.

Token counters grow by the very Usage that a client is told, before it is told: when idle they equal the sum of all usages.
"""
import bisect
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from penstock.core.events import StepRecord
from penstock.serve.engine.ledger import Ledger
from penstock.serve.engine.requests import Gauges, Request, Usage
from penstock.serve.engine.tally import Tally
from penstock.serve.engine.utilization import Shares, Utilization

PREFIX = "penstock_"
LATENCY_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300, 600)
QUEUE_S = (  # an idle engine starts within 0.1 ms; an overloaded one's percentiles are interpolated by `penstock bench`
    0.00001, 0.00002, 0.00005, 0.0001, 0.0002, 0.0003, 0.0005, 0.00075, 0.001, 0.0015, 0.002, 0.003, 0.005, 0.0075, 0.01, 0.015, 0.02, 0.03,
    0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 40, 60, 90, 120, 180, 300, 450, 600)

HISTOGRAMS = {
    "time_to_first_token_seconds": "From the request's arrival to its first token.",
    "inter_token_latency_seconds": "Between one output token and the next of the same choice.",
    "e2e_request_latency_seconds": "From the request's arrival to its end.",
    "request_queue_time_seconds": "From the request's arrival to its first step.",
}
BOUNDS = {"request_queue_time_seconds": QUEUE_S}  # the others': LATENCY_S
COUNTERS = {
    "prompt_tokens": "Prompt tokens of answered requests, as their usage says.",
    "generation_tokens": "Output tokens of answered requests, as their usage says.",
    "prefix_cache_queries": "Prompt tokens looked up in the prefix cache.",
    "prefix_cache_hits": "Prompt tokens found in the prefix cache.",
    "cache_creation_tokens": "Prompt tokens pinned by cache_control for the first time.",
    "cache_read_tokens": "Prompt tokens read from prefixes pinned by cache_control.",
    "preemptions": "Sequences preempted because KV blocks ran out.",
    "spec_drafted_tokens": "Tokens proposed.",
    "spec_accepted_tokens": "Proposed tokens that were accepted.",
    "spec_passes": "Verifications of a sequence's drafts.",
    "step_seconds": "Seconds spent in steps, scheduling included.",
    "step_compute_seconds": "Seconds of steps spent in the backend.",
    "step_operations": "Arithmetic operations of steps, counted from the model's program.",
    "prompt_tokens_squared": "Sum of squared prompt lengths of answered requests, for their spread.",
    "generation_tokens_squared": "Sum of squared output lengths of answered requests, for their spread.",
    "open_requests": "Answered requests without max_tokens, whose answers end anywhere.",
    "unused_max_tokens": "Tokens by which answers were shorter than the max_tokens of their requests.",
}
LABELLED = {
    "requests": ("finish_reason", "Requests that ended, by reason."),
    "slo_requests": ("kept", "Answered requests with objectives, by whether all were kept."),
    "steps": ("kind", "Steps, by what they computed: prefill, decode, or mixed."),
    "step_tokens": ("kind", "Tokens computed in steps: prefill or decode."),
    "spec_drafted_tokens_per_pos": ("position", "Tokens proposed, by position after the last token."),
    "spec_accepted_tokens_per_pos": ("position", "Proposed tokens that were accepted, by position."),
    "step_bytes": ("kind", "Bytes moved in steps, counted from the model's program: weights, kv or activations."),
}
MAX_POSITIONS = 32  # that are told apart: each is a time series


class Histogram:
    """Cumulative counts over `bounds`, rising, and the sum. The caller holds the lock."""

    def __init__(self, bounds: Sequence[float] = LATENCY_S) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect.bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def buckets(self) -> list[tuple[str, float]]:
        total, rows = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            rows.append((bound, float(total)))
        return rows


class Metrics:
    """`gauges` is asked at each scrape; give it with `watch` once the engine exists, what tells MFU and MBU where limits
    are known, and what adds up the engine's time."""

    def __init__(self, gauges: Callable[[], Gauges] = Gauges) -> None:
        self._began_s = time.time()
        self._gauges = gauges
        self._utilization: Utilization | None = None
        self._ledger: Ledger | None = None
        self._lock = threading.Lock()
        self._counts: dict[str, float] = dict.fromkeys(COUNTERS, 0)
        self._labelled: dict[str, Counter[str]] = {name: Counter() for name in LABELLED}
        self._histograms = {name: Histogram(BOUNDS.get(name, LATENCY_S)) for name in HISTOGRAMS}
        self.registry = CollectorRegistry(auto_describe=False)
        self.registry.register(self)

    def watch(self, gauges: Callable[[], Gauges], utilization: Utilization | None = None, ledger: Ledger | None = None) -> None:
        self._gauges = gauges
        self._utilization = utilization
        self._ledger = ledger

    def on_step(self, record: StepRecord) -> None:
        """Called by the engine after each step."""
        kind = "prefill" if not record.num_decode_tokens else "decode" if not record.num_prefill_tokens else "mixed"
        with self._lock:
            counts, tokens, num_bytes = self._counts, self._labelled["step_tokens"], self._labelled["step_bytes"]
            counts["step_seconds"] += record.seconds
            counts["step_compute_seconds"] += record.compute_seconds
            counts["step_operations"] += record.operations
            counts["preemptions"] += record.num_preempted
            if record.num_draft_seqs:
                counts["spec_passes"] += record.num_draft_seqs
                counts["spec_drafted_tokens"] += record.num_draft_tokens
                counts["spec_accepted_tokens"] += record.num_accepted_tokens
                self._add_positions("spec_drafted_tokens_per_pos", record.drafting.drafted)
                self._add_positions("spec_accepted_tokens_per_pos", record.drafting.accepted)
            self._labelled["steps"][kind] += 1
            tokens["prefill"] += record.num_prefill_tokens
            tokens["decode"] += record.num_decode_tokens
            num_bytes["weights"] += record.weight_bytes
            num_bytes["kv"] += record.kv_bytes
            num_bytes["activations"] += record.activation_bytes
            if self._utilization is not None:
                self._utilization.on_step(record)
        if self._ledger is not None:
            self._ledger.on_step(record)

    def on_queue(self, seconds: float) -> None:
        """Called by the engine when a request is first given a place in a step."""
        with self._lock:
            self._histograms["request_queue_time_seconds"].observe(seconds)

    def on_first_token(self, seconds: float) -> None:
        with self._lock:
            self._histograms["time_to_first_token_seconds"].observe(seconds)

    def on_tokens(self, seconds: float, count: int) -> None:
        """`count` tokens of one choice came `seconds` after the one before them."""
        with self._lock:
            self._histograms["inter_token_latency_seconds"].observe(seconds / count, count)

    def on_request(self, finish_reason: str, usage: Usage, seconds: float | None, looked_up: bool = True) -> None:
        """A request ended. `seconds` is its whole time, None when it was cut short. `looked_up`: its prompt may be read from a prefix
        cache."""
        with self._lock:
            self._labelled["requests"][finish_reason] += 1
            self._add(
                prompt_tokens=usage.prompt_tokens, generation_tokens=usage.completion_tokens,
                prompt_tokens_squared=usage.prompt_tokens**2, generation_tokens_squared=usage.completion_tokens**2,
                prefix_cache_queries=usage.prompt_tokens * looked_up, prefix_cache_hits=usage.cached_tokens,
                cache_creation_tokens=usage.cache_creation_input_tokens, cache_read_tokens=usage.cache_read_input_tokens)
            if seconds is not None:
                self._histograms["e2e_request_latency_seconds"].observe(seconds)

    def on_length(self, request: Request, num_output: int) -> None:
        """A request was answered with so many tokens."""
        with self._lock:
            self._add(open_requests=request.is_open, unused_max_tokens=request.num_unused(num_output))

    def on_objectives(self, kept: bool) -> None:
        """A request that had objectives was answered."""
        with self._lock:
            self._labelled["slo_requests"]["true" if kept else "false"] += 1

    def _add_positions(self, name: str, figures: Sequence[int]) -> None:
        counter = self._labelled[name]
        for position, figure in enumerate(figures):
            counter[str(position) if position < MAX_POSITIONS else f"{MAX_POSITIONS}+"] += figure

    def _add(self, **figures: float) -> None:
        for name, figure in figures.items():
            self._counts[name] += figure

    def render(self) -> bytes:
        """Prometheus' text format."""
        return generate_latest(self.registry)

    def collect(self) -> Iterator[Metric]:
        """What the registry asks for at each scrape."""
        yield GaugeMetricFamily("process_start_time_seconds", "When these counters began, in seconds since 1970.", value=self._began_s)
        yield from _gauge_families(self._gauges())
        with self._lock:
            known = self._utilization
            shares, total = (Shares(), Shares()) if known is None else (known.shares(), copy(known.total))
            families: list[Any] = [CounterMetricFamily(PREFIX + name, text, value=self._counts[name]) for name, text in COUNTERS.items()]
            for name, (label, text) in LABELLED.items():
                family = CounterMetricFamily(PREFIX + name, text, labels=[label])
                for value, count in sorted(self._labelled[name].items()):
                    family.add_metric([value], count)
                families.append(family)
            for name, text in HISTOGRAMS.items():
                histogram = self._histograms[name]
                families.append(HistogramMetricFamily(PREFIX + name, text, buckets=histogram.buckets(), sum_value=histogram.sum))
        yield from _share_families(shares)
        yield from _least_families(total)
        yield from families
        if self._ledger is not None:
            yield from _tally_families(self._ledger.tally())


def _gauge_families(now: Gauges) -> Iterator[Metric]:
    rows = (
        ("num_requests_running", "Sequences with a place in the batch: each answer of a request is one.", now.num_running),
        ("num_requests_waiting", "Sequences in the queue.", now.num_waiting),
        ("kv_cache_usage_ratio", "Share of KV blocks held by live sequences.", now.kv_blocks_used / max(1, now.kv_blocks_total)),
        ("kv_cache_blocks", "KV blocks.", now.kv_blocks_total),
        ("kv_cache_blocks_reusable", "KV blocks that hold only reusable prefixes.", now.kv_blocks_cached),
    )
    for name, text, value in rows:
        yield GaugeMetricFamily(PREFIX + name, text, value=value)
    yield CounterMetricFamily(PREFIX + "slo_refused", "Requests refused because they could not be served in time.", value=now.num_refused)
    yield CounterMetricFamily(PREFIX + "slo_deferred", "Requests too late for their objectives, put last.", value=now.num_deferred)


def _least_families(total: Shares) -> Iterator[Metric]:
    """What MFU and MBU of any stretch of time are told from: the growth of the second over that of the first."""
    rows = (
        ("limited_step_seconds", "Seconds of steps whose least possible time is known, by prefill or decode only.",
         total.prefill_s, total.decode_s),
        ("least_step_seconds", "Seconds that those steps would have taken at the machine's measured limits.",
         total.prefill_least_s, total.decode_least_s),
    )
    for name, text, prefill, decode in rows:
        family = CounterMetricFamily(PREFIX + name, text, labels=["kind"])
        family.add_metric(["prefill"], prefill)
        family.add_metric(["decode"], decode)
        yield family


def _tally_families(tally: Tally) -> Iterator[Metric]:
    """The engine's time, as `penstock explain` reads it."""
    rows: tuple[tuple[str, str, str, Mapping[str, float]], ...] = (
        ("step_bound_seconds", "bound", "Seconds with something to compute, by what bound it.", tally.bound_s),
        ("step_bound_least_seconds", "bound", "Seconds that the same steps would have taken at the machine's limits.", tally.least_s),
        ("step_bound_more_seconds", "bound", "Seconds that twice as many sequences would take beside these.", tally.more_s),
        ("queue_seconds", "reason", "Seconds in which a request waited, by what the first in the queue was waiting for.", tally.waiting_s),
        ("request_seconds", "state", "Sequence-seconds in the engine; waiting ones count from their arrival or preemption.",
         {"running": tally.running_s, "waiting": tally.queued_s}),
    )
    for name, label, text, values in rows:
        family = CounterMetricFamily(PREFIX + name, text, labels=[label])
        for value, seconds in sorted(values.items()):
            family.add_metric([value], seconds)
        yield family
    for name, text, seconds in (
        ("engine_seconds", "Seconds since the engine started.", tally.wall_s),
        ("served_seconds", "Request-seconds from each request's first step to its end.", tally.served_s),
        ("held_seconds", "Seconds in which nothing was computed although a request was waiting.", tally.held_s),
        ("prefix_cache_missed", "Prompt tokens that a prefix cache would have found, while it is switched off.", tally.num_repeated),
        ("requests_arrived", "Requests that arrived at the engine.", tally.num_arrived),
        ("requests_found", "Sequences in the engine when a request arrived, itself included, summed over arrivals.", tally.found),
        ("requests_found_squared", "The squares of those numbers, summed over arrivals.", tally.found_squared),
        ("requests_placed", "Arrivals between two endings.", tally.num_placed),
        ("requests_after_seconds", "Seconds from the first of these two to the arrival.", tally.after_s),
        ("requests_between_seconds", "Seconds from the first to the second.", tally.between_s),
        ("requests_followed", "Arrivals of which it is known when the latest ending before them was.", tally.num_followed),
        ("requests_since_seconds", "Seconds from the latest ending to each of those arrivals.", tally.since_s),
        ("requests_since_squared_seconds", "The squares of those times.", tally.since_squared),
        ("requests_gap_seconds", "Seconds to each of those arrivals from the one before it.", tally.gap_s),
        ("requests_gap_squared_seconds", "The squares of those times.", tally.gap_squared),
        ("requests_peaks", "Stretches in which twice as many requests ended as the most that were in the engine at once.",
         tally.num_peaks),
        ("requests_peaks_inverse", "One over the most that were in the engine at once, summed over these stretches.", tally.per_peak),
        ("wakes", "Requests that arrived while there was nothing to compute.", tally.num_wakes),
        ("wake_seconds", "Seconds from such an arrival until its step began.", tally.wake_s),
        ("slow_steps", "Steps with kernels that run far below any limit.", tally.num_slow),
        ("slow_steps_rows", "Rows of these steps.", tally.slow_rows),
        ("slow_steps_rows_squared", "The squares of those numbers.", tally.slow_rows_squared),
        ("slow_steps_row_seconds", "Rows of each of these steps, times its seconds beyond the limits.", tally.slow_row_s),
    ):
        yield CounterMetricFamily(PREFIX + name, text, value=seconds)


def _share_families(shares: Shares) -> Iterator[Metric]:
    """NaN where nothing can be told: no such step within the last minute, or no measured limits."""
    rows = (
        ("mfu_ratio", "MFU of prefill steps: operations over what the machine's measured rate allows, in the last minute.", shares.mfu),
        ("mbu_ratio", "MBU of decode steps: bytes over what the measured read bandwidth allows, in the last minute.", shares.mbu),
    )
    for name, text, value in rows:
        yield GaugeMetricFamily(PREFIX + name, text, value=math.nan if value is None else value)
