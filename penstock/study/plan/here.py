"""This machine as a part of the catalogue: `--hardware here`, from the limits that were measured of it."""
from typing import Any

from penstock.core.catalogue.part import STAND_INS
from penstock.core.errors import UsageError
from penstock.core.hardware import Hardware
from penstock.serve.engine.machine import look, measured_limits

HERE = "here"
LIKE = "epyc-9654"  # what is not measured (what a kernel costs beside its bytes, links) is taken from a processor of the catalogue


def told_here(
    memory_bytes: int | None = None, limits: Hardware | None = None, read_bytes: float | None = None, threads: int | None = None
) -> dict[str, Any]:
    """A part's file. Its rates are measured, so that nothing is taken off them. `read_bytes`: that steps read again and again, as fast as
    so much is read: what caches hold comes faster. `threads`: that compute; None: all. Raises UsageError where `penstock limits` was not
    run."""
    limits = limits or measured_limits("cpu", threads)
    if limits is None:
        raise UsageError("--hardware here needs this machine's limits: run `penstock limits` once")
    bandwidth = limits.memory_bandwidth() if read_bytes is None else limits.bandwidth(read_bytes)
    ops = {dtype: rate for dtype, rate in limits.ops_per_s.items() if dtype in STAND_INS}
    return {
        "like": LIKE, "title": limits.name, "memory": float(memory_bytes or look().memory_bytes),
        "memory_bandwidth": bandwidth, "price": None, "power": None, "node": 1, "ops": {"fp16": ops["fp32"], **ops},
        "efficiency": {"memory": 1.0, "products": {"fp16": 1.0, **dict.fromkeys(ops, 1.0)}}}
