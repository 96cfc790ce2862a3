"""What binds, in one sentence, and where the steps stand under the roof: from the steps' own bytes, operations and seconds, and the limits
that `penstock limits` measured. Where nothing was measured it says so, and gives no share of anything.

A `Says` of another kind may take this one's place (`Feed`): the page shows its words.
"""
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.core.hardware import Hardware
from penstock.serve.api.dashboard.figures import Part, Stretch

FULL = 0.5  # of the time in steps; below, what is missing is work
FAR = 0.3  # of both limits; below, neither of them binds


@dataclass(frozen=True, slots=True)
class Said:
    """`kind`: idle, unmeasured, arrivals, compute, weight_bandwidth, kv_bandwidth, host_overhead or far."""

    kind: str
    sentence: str
    share: float | None = None  # of the limit that the sentence names


Says = Callable[[Stretch, int], Said]


@dataclass(frozen=True, slots=True)
class Sentence:
    """The default. Of the steps that take most of the time it names what they come nearest to, the bandwidth or the operation rate, and
    says so where that is not near: where more of their time is spent outside the model, or both are far.

    `compute_type`: fp32, bf16 or int8."""

    hardware: Hardware | None
    compute_type: str

    def __call__(self, stretch: Stretch, num_waiting: int) -> Said:
        wait = f" {counted(num_waiting)} in the queue." if num_waiting else ""
        if not stretch.prefill.num_steps and not stretch.decode.num_steps:
            return Said("idle", f"No step has ended lately.{wait}" if wait else "Idle: there is nothing to compute.")
        busy = min(1.0, stretch.busy_s / stretch.window_s) if stretch.window_s else 1.0
        decodes = stretch.decode.seconds >= stretch.prefill.seconds
        name, part = ("Decode", stretch.decode) if decodes else ("Prefill", stretch.prefill)
        if self.hardware is None:
            return Said("unmeasured", f"Steps take {percent(busy)} of the time, most of it {name.lower()}. How near that is to this "
                        f"machine's limit is not known: `penstock limits` has not been run.{wait}")
        said = self._nearest(name, part)
        if busy < FULL and not num_waiting:
            return Said("arrivals", f"Steps take {percent(busy)} of the time: there is room for more requests. {said.sentence}", said.share)
        return Said(said.kind, said.sentence + wait, said.share)

    def _nearest(self, name: str, part: Part) -> Said:
        bandwidth, rate, outside = part.bandwidth_share or 0.0, part.rate_share or 0.0, part.outside_share
        if max(bandwidth, rate) < max(FAR, outside):
            computes = "" if part.rate_share is None else f" and computes at {percent(rate)} of the {self.compute_type} rate"
            return Said("host_overhead" if outside > max(bandwidth, rate) else "far", f"{name} is far from the machine's limits: it reads "
                        f"at {percent(bandwidth)} of the bandwidth{computes}, and spends {percent(outside)} of its time in scheduling, "
                        "sampling and drafting.", max(bandwidth, rate))
        if rate > bandwidth:
            ops = part.operations / part.seconds / 1e9
            return Said("compute", f"{name} computes at {percent(rate)} of the {self.compute_type} rate: {ops:,.0f} of {ops / rate:,.0f} "
                        "Gop/s.", rate)
        what, kind = ("weights", "weight_bandwidth") if part.weight_bytes >= part.kv_bytes else ("keys and values", "kv_bandwidth")
        reads = part.num_bytes / part.seconds / 1e9
        if not bandwidth:
            return Said(kind, f"{name} reads {reads:,.1f} GB/s.")
        return Said(kind, f"{name} reads {what} at {percent(bandwidth)} of the bandwidth: {reads:,.1f} of {reads / bandwidth:,.1f} GB/s.",
                    bandwidth)


def percent(share: float) -> str:
    return f"{100 * share:.0f}\N{NARROW NO-BREAK SPACE}%"


def counted(num_waiting: int) -> str:
    return "1 request waits" if num_waiting == 1 else f"{num_waiting:,} requests wait"


def points(stretch: Stretch) -> dict[str, Any]:
    """Where steps of each kind stand: operations for each byte of weights, keys and values; operations a second; shares of the limits."""
    parts = {"prefill": stretch.prefill, "decode": stretch.decode}
    return {name: _point(part) for name, part in parts.items() if part.num_bytes and part.operations and part.seconds}


def roof(hardware: Hardware | None, compute_type: str) -> dict[str, Any] | None:
    """The machine's measured limits: bytes a second from the largest working set, and by working set; operations a second."""
    if hardware is None:
        return None
    return {
        "name": hardware.name, "bandwidth": hardware.memory_bandwidth(), "type": compute_type, "ops": hardware.ops(compute_type),
        "by_size": [[size, rate] for size, rate in sorted(hardware.read_bytes_per_s.items())]}


def _point(part: Part) -> dict[str, Any]:
    return {
        "intensity": part.operations / part.num_bytes, "ops_per_s": part.operations / part.seconds,
        "bandwidth_share": part.bandwidth_share, "rate_share": part.rate_share, "outside_share": part.outside_share,
        "bytes_per_step": part.num_bytes / part.num_steps, "step_s": part.seconds / part.num_steps}
