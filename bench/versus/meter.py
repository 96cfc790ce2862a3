"""The machine's limits, measured between turns: the machine may be shared, and then what it gives changes by the minute."""
from collections.abc import Callable

from penstock.study.measure.probes import Probe
from versus.contest import Roof
from versus.points import Point
from versus.shapes import Shape

MAX_WORKING_SET = 1 << 30  # bytes; beyond every cache the size does not matter


def meter(shape: Shape, probe: Probe, threads: int) -> Callable[[Point, int], Roof]:
    """Half a second to two."""

    def look(point: Point, bits: int) -> Roof:
        size = min(shape.working_set(point, bits), MAX_WORKING_SET)
        return Roof(probe.bandwidth(size, threads), {name: rate.ops_per_s for name, rate in probe.rates(threads).items()})

    return look
