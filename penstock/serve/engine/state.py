"""What an engine reports about itself besides its counters, for `penstock explain`: config, model, machine, and how long its steps take."""
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import penstock
from penstock.compute.fitted import windows_of
from penstock.core.hardware import Hardware, stated
from penstock.serve.engine.build import Built
from penstock.serve.engine.ledger import Ledger
from penstock.serve.engine.machine import look

FORMAT = 1
AT_BEGIN = "steps_at_begin"  # beside `steps`: what those were that had been made when a stretch of time began


def make_ledger(built: Built) -> Ledger:
    engine = built.engine
    return Ledger(
        built.hardware, engine.facts.compute_type, engine.clock, windows_of(built.spec), engine.repeats, lambda: engine.under_way_s)


def state_of(built: Built, ledger: Ledger) -> dict[str, Any]:
    """As JSON."""
    return {
        "format": FORMAT, "version": penstock.__version__, "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "fingerprint": built.fingerprint, "config": asdict(built.resolved.engine), "reasons": dict(built.resolved.reasons),
        "model": {
            "parameters": built.spec.num_parameters(), "weight_bytes": built.weight_bytes,
            "kv_bytes_per_token": built.kv_bytes_per_token, "windows": [list(each) for each in windows_of(built.spec)]},
        "limits": None if built.hardware is None else limits_told(built.hardware), "compute_type": built.engine.facts.compute_type,
        "free_memory_bytes": look().memory_bytes,
        "steps": [[float(f"{each:.10g}") for each in row] for row in ledger.steps()],
    }


def with_begin(state: Mapping[str, Any] | None, began: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """What an engine says at the end of a stretch of time, with the steps that it told at its begin."""
    if state is None or began is None:
        return None if state is None else dict(state)
    return {**state, AT_BEGIN: began.get("steps", [])}


def limits_told(hardware: Hardware) -> dict[str, Any]:
    """In the form that `core/hardware.hardware_of` reads."""
    return {"machine": hardware.name, "read_bytes_per_s": {str(size): rate for size, rate in hardware.read_bytes_per_s.items()},
            "ops_per_s": dict(hardware.ops_per_s), "product_ops_per_s": stated(hardware.products),
            "exposed_reading": stated(hardware.exposed), "doubts": list(hardware.doubts),
            "measured": hardware.measured}
