"""From recorded runs to what the catalogue says of products by rows."""
import statistics
from collections.abc import Iterable, Mapping
from typing import Any

from gpu.shapes import LAYERS
from penstock.core.catalogue.part import Part


def reached(runs: Iterable[Mapping[str, Any]], layer: str, form: str, rows: int, part: Part) -> float:
    """Of `efficiency.products`, by a layer's four products beside `op_latency` for each: the mean of the runs that timed them."""
    operations = 2 * rows * sum(out * inner for out, inner in LAYERS[layer])
    rates: list[float] = [run["limits"][name][0] for run in runs if (name := f"products {layer} {form} {rows}") in run["limits"]]
    beside = len(LAYERS[layer]) * part.op_latency
    return statistics.mean(operations / (operations / rate - beside) for rate in rates) / (part.ops[form] * part.efficiency.products[form])
