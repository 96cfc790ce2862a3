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


@dataclass(frozen=True, slots=True)
class Said:
    """`kind`: idle, unmeasured, arrivals, prefill_compute, weight_bandwidth or kv_bandwidth."""

    kind: str
    sentence: str
    share: float | None = None  # of the limit that binds


Says = Callable[[Stretch, int], Said]


@dataclass(frozen=True, slots=True)
class Sentence:
    """The default. `compute_type`: fp32, bf16 or int8."""

    hardware: Hardware | None
    compute_type: str

    def __call__(self, stretch: Stretch, num_waiting: int) -> Said:
        wait = f" {counted(num_waiting)} in the queue." if num_waiting else ""
        if not stretch.prefill.num_steps and not stretch.decode.num_steps:
            return Said("idle", f"No step runs.{wait}" if wait else "Idle: there is nothing to compute.")
        busy = min(1.0, stretch.busy_s / stretch.window_s) if stretch.window_s else 1.0
        decodes = stretch.decode.seconds >= stretch.prefill.seconds
        if self.hardware is None:
            what = "decode" if decodes else "prefill"
            return Said("unmeasured", f"Steps take {busy:.0%} of the time, most of it {what}. How near that is to this machine's limit "
                        f"is not known: `penstock limits` has not been run.{wait}")
        kind, sentence, share = self._decode(stretch) if decodes else self._prefill(stretch)
        if busy < FULL and not num_waiting:
            return Said("arrivals", f"Steps take {busy:.0%} of the time: there is room for more requests. {sentence}", share)
        return Said(kind, sentence + wait, share)

    def _decode(self, stretch: Stretch) -> tuple[str, str, float | None]:
        part, share = stretch.decode, stretch.shares.mbu
        weights = part.weight_bytes >= part.kv_bytes
        kind, what = ("weight_bandwidth", "weights") if weights else ("kv_bandwidth", "keys and values")
        reads = part.num_bytes / part.seconds
        if not share:
            return kind, f"Decode reads {reads / 1e9:,.1f} GB/s.", None
        return kind, f"Decode reads {what} at {share:.0%} of the bandwidth: {reads / 1e9:,.1f} of {reads / share / 1e9:,.1f} GB/s.", share

    def _prefill(self, stretch: Stretch) -> tuple[str, str, float | None]:
        part, share = stretch.prefill, stretch.shares.mfu
        rate = part.operations / part.seconds
        if not share:
            unknown = f"Prefill computes {rate / 1e9:,.0f} Gop/s; what {self.compute_type} could reach was not measured."
            return "prefill_compute", unknown, None
        return ("prefill_compute", f"Prefill computes at {share:.0%} of the {self.compute_type} rate: "
                f"{rate / 1e9:,.0f} of {rate / share / 1e9:,.0f} Gop/s.", share)


def counted(num_waiting: int) -> str:
    return "1 request waits" if num_waiting == 1 else f"{num_waiting:,} requests wait"


def points(stretch: Stretch) -> dict[str, Any]:
    """Where steps of each kind stand: operations for each byte of weights, keys and values; operations a second; share of the limit."""
    parts = {"prefill": (stretch.prefill, stretch.shares.mfu), "decode": (stretch.decode, stretch.shares.mbu)}
    return {name: _point(part, share) for name, (part, share) in parts.items() if part.num_bytes and part.operations and part.seconds}


def roof(hardware: Hardware | None, compute_type: str) -> dict[str, Any] | None:
    """The machine's measured limits: bytes a second from the largest working set, and by working set; operations a second."""
    if hardware is None:
        return None
    return {
        "name": hardware.name, "bandwidth": hardware.memory_bandwidth(), "type": compute_type, "ops": hardware.ops(compute_type),
        "by_size": [[size, rate] for size, rate in sorted(hardware.read_bytes_per_s.items())]}


def _point(part: Part, share: float | None) -> dict[str, Any]:
    return {
        "intensity": part.operations / part.num_bytes, "ops_per_s": part.operations / part.seconds, "share": share,
        "bytes_per_step": part.num_bytes / part.num_steps, "step_s": part.seconds / part.num_steps}
