"""What a replica makes of its devices: shares of their bandwidth and operations, what they hold, and where the time of its steps goes."""
from dataclasses import dataclass
from typing import Any

from penstock.compute.steptime import Roofline, Split, StepTime
from penstock.core.catalogue.part import Part
from penstock.core.work import StepWork
from penstock.study.plan.load import Load
from penstock.study.plan.memory import Room
from penstock.study.plan.model import Stored
from penstock.study.plan.simulate.census import Census, Steps
from penstock.study.plan.steady import MeanStep, shares_of, told_of


@dataclass(frozen=True, slots=True)
class Replica:
    """Devices that hold one copy of a model."""

    stored: Stored
    part: Part
    split: Split

    def mbu(self, decodes: float, context: int, tpot_s: float) -> float | None:
        """Bytes that decoding must read from one token to the next for so many sequences, which see `context` tokens each, over those that
        the memories of all devices could deliver. Stages read their weights once for each micro-batch: as many as there are stages, if
        there are sequences for them. None where there is but one token."""
        batches = min(self.split.pipeline_parallel, max(1.0, decodes))
        count = max(1, round(decodes / batches))
        cost = self.stored.price.count(StepWork(((1, context),) * count, count))
        could = tpot_s * self.part.memory_bandwidth * self.split.devices
        return batches * (cost.weight_bytes + cost.kv_bytes) / could if could else None

    def mfu(self, rows: int, total: int, service_s: float) -> float:
        """Operations of the last `rows` tokens of a prompt of `total`, over those that the devices could do until its first token, had it
        not waited."""
        numbers = self.stored.numbers
        cost = self.stored.price.count(StepWork(((rows, total),), 1))
        dtype = self.part.computes_codes(numbers.coded_dtype) if numbers.coded else self.part.computes(numbers.dtype)
        return cost.operations / (service_s * self.part.ops[dtype] * self.split.devices)

    def device_bytes(self, space: Room, load: Load, running: float) -> float:
        """With so many requests."""
        return space.needed(running * (load.input + load.output))

    def played(self, census: Census, load: Load, num_requests: int, tpot_s: float) -> dict[str, Any]:
        """mbu and mfu of a Configuration, from the steps that so many requests took."""
        mixed, decoding = census.mixed, census.decoding if census.decoding.count else census.mixed
        rows = min(load.input, max(1, round(mixed.rows / num_requests)))
        service_s = mixed.seconds / mixed.count * mixed.prompts / num_requests
        context = load.input + load.output // 2
        return {"mbu": self.mbu(decoding.decodes / decoding.count, context, tpot_s), "mfu": self.mfu(rows, load.input, service_s)}


def binding(census: Census, roofline: Roofline, measured: bool) -> dict[str, Any]:
    """bound and shares of a Configuration, of the steps' own time. Where it was measured, not predicted by the roofline, the roofline
    accounts for as much of it as it can, and the rest is overhead that no limit explains."""
    mixed, decoding = (told(steps, roofline, measured) for steps in (census.mixed, census.decoding))
    beyond_s = max(0.0, census.busy_s - mixed.seconds - decoding.seconds) if measured else 0.0
    prompt_share = mean(census.mixed).prompt_share if census.mixed.count else 0.0
    return told_of(shares_of(mixed, decoding, prompt_share, beyond_s))


def told(steps: Steps, roofline: Roofline, measured: bool) -> StepTime:
    """The steps' seconds by what binds, as of their mean; of measured ones, no more than the roofline takes."""
    if not steps.count:
        return StepTime()
    found = roofline.told(mean(steps)).scaled(steps.count)
    return found if measured and found.seconds < steps.seconds else found.scaled(steps.seconds / found.seconds)


def mean(steps: Steps) -> MeanStep:
    decodes, prompts = max(1, steps.decodes), max(1, steps.prompts)
    return MeanStep(steps.decodes / steps.count, steps.context / decodes, steps.prompts / steps.count, steps.rows / prompts,
                    steps.total / prompts)
