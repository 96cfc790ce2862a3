"""What binds, in the sentence of `penstock explain` about the last seconds, and where steps stand under the roof: from the steps' own
bytes, operations and seconds, and the limits that `penstock limits` measured. Where nothing was measured nothing is said of any share.
"""
from collections import deque
from collections.abc import Callable, Iterable
from copy import deepcopy
from dataclasses import fields
from typing import Any

from penstock.core.clock import Clock
from penstock.core.events import StepRecord
from penstock.core.hardware import Hardware
from penstock.serve.api.dashboard.figures import Part, Stretch
from penstock.serve.engine.binding import Limit, limit_of
from penstock.serve.engine.ledger import Ledger
from penstock.serve.engine.tally import UNMEASURED, Tally

WINDOW_S = 5.0
UNSEEN = Limit(UNMEASURED, "What binds is not known yet: there are requests, but no step has ended.", 0.0)
UnderWay = Callable[[], float | None]  # when the step began that is computed at this moment; None: there is none


class Binding:
    """Fed with steps by one thread."""

    def __init__(self, hardware: Hardware | None, compute_type: str, clock: Clock, under_way_s: UnderWay = lambda: None) -> None:
        self._ledger = Ledger(hardware, compute_type, clock, under_way_s=under_way_s)
        self._under_way_s = under_way_s
        self._past = deque([self._ledger.tally()])

    def limit(self, records: Iterable[StepRecord], somebody: bool = False) -> Limit:
        """What binds in the last seconds, these new steps included. `somebody`: there are requests, whatever has become of them."""
        for record in records:
            self._ledger.on_step(record)
        now = self._ledger.tally()
        while len(self._past) > 1 and self._past[1].wall_s <= now.wall_s - WINDOW_S:
            self._past.popleft()
        self._past.append(now)
        found = since(self._past[0], now)
        if not found.busy_s and (somebody or self._under_way_s() is not None):
            return UNSEEN
        return limit_of(found)


def since(before: Tally, now: Tally) -> Tally:
    """What was added between two looks at one ledger."""
    found = deepcopy(now)
    for each in fields(Tally):
        was, value = getattr(before, each.name), getattr(found, each.name)
        if isinstance(value, dict):
            grown = {name: amount - was.get(name, 0.0) for name, amount in value.items()}
            setattr(found, each.name, {name: amount for name, amount in grown.items() if amount > 0})
        else:
            setattr(found, each.name, value - was)
    return found


def points(stretch: Stretch) -> dict[str, Any]:
    """Where steps of each kind stand: operations for each byte of weights, keys and values; operations a second; shares of the limits."""
    parts = {"prefill": stretch.prefill, "decode": stretch.decode}
    return {name: _point(part) for name, part in parts.items() if part.num_bytes and part.operations and part.seconds}


def roof(hardware: Hardware | None, compute_type: str) -> dict[str, Any] | None:
    """The machine's measured limits: bytes a second from the largest working set, operations a second."""
    if hardware is None:
        return None
    return {
        "name": hardware.name, "bandwidth": hardware.memory_bandwidth(), "type": compute_type, "ops": hardware.ops(compute_type)}


def _point(part: Part) -> dict[str, Any]:
    return {
        "intensity": part.operations / part.num_bytes, "ops_per_s": part.operations / part.seconds,
        "bandwidth_share": part.bandwidth_share, "rate_share": part.rate_share,
        "bytes_per_step": part.num_bytes / part.num_steps, "step_s": part.seconds / part.num_steps}
