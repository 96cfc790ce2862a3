"""What the limits of a machine say of a model's steps, and timers that lean on it where nothing was measured."""
from dataclasses import dataclass, replace

from penstock.compute.steptime import Roofline
from penstock.core.catalogue.part import Efficiency, Link, Part
from penstock.core.hardware import Hardware
from penstock.core.work import StepTimer, StepWork
from penstock.study.plan.here import by_rows
from penstock.study.plan.model import Stored

NOWHERE = Link("none", "none", 1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1)


class Roof:
    """A StepTimer: the least time of the backend's part of a step. Activations are taken to stay in caches."""

    def __init__(self, stored: Stored, hardware: Hardware, dtype: str, coded_dtype: str, beside: float = 0.0) -> None:
        """`dtype`, `coded_dtype`: that plain and coded matrices are multiplied in. `beside`: bytes that pass through the caches between two
        reads of a weight, other than weights. `lacking`: formats of the model whose products were not measured, where those of others
        were; the roof is not to be asked then."""
        working_set = stored.weight_bytes + beside
        rates = {"fp32": min(hardware.ops_per_s.values()), **hardware.ops_per_s}
        efficiency = Efficiency(1.0, 1.0, 1.0, 1.0, dict.fromkeys(rates, 1.0), by_rows(hardware.products, rates),
                                hardware.exposed_from(working_set))
        part = Part(
            "here", hardware.name, "cpu", memory=1.0, usable=1.0, reserved=0.0, memory_bandwidth=hardware.bandwidth(working_set), power=0.0,
            price=0.0, node=1, op_latency=0.0, step_latency=0.0, ops=rates,
            efficiency=efficiency, link=NOWHERE, network=NOWHERE)
        numbers = replace(
            stored.numbers, storage=replace(stored.numbers.storage, activation=0.0), dtype=dtype,
            coded_dtype=coded_dtype if coded_dtype in rates else dtype)
        forms = {numbers.form(weight, part.computes(numbers.product(weight))) for weight in numbers.coded}
        self.lacking = tuple(sorted(forms - efficiency.by_rows.keys())) if hardware.products else ()
        self._roofline = Roofline(stored.program, numbers, part)

    def seconds(self, work: StepWork) -> float:
        return self._roofline.seconds(work)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """A StepTimer of steps whose roof is another: what was measured changes by as much as the roof does. What a step takes beyond its roof
    is mostly other work (what lies between products, sampling, the host), and stays."""

    timer: StepTimer
    old: StepTimer
    new: StepTimer

    def seconds(self, work: StepWork) -> float:
        new = self.new.seconds(work)
        return max(self.timer.seconds(work) - (self.old.seconds(work) - new), new)


@dataclass(frozen=True, slots=True)
class InRatio:
    """A StepTimer of steps that were measured in another way: what was measured here, times the ratio of what was measured there."""

    timer: StepTimer
    before: StepTimer
    after: StepTimer

    def seconds(self, work: StepWork) -> float:
        return self.timer.seconds(work) * self.after.seconds(work) / max(self.before.seconds(work), 1e-12)
