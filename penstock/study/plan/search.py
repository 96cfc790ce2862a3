"""Which configurations there are, which of them nothing beats, and why each of the others lost."""
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.compute.steptime import Split
from penstock.core.catalogue.part import Part
from penstock.core.modelspec import ModelSpec
from penstock.study.plan.configuration import Candidate, Configuration
from penstock.study.plan.evaluate import Evaluator, Goal, goodput, ms, rank
from penstock.study.plan.model import Model, WeightFormat
from penstock.study.sizes import powers_of_two

Refine = Callable[[Sequence[Configuration]], list[Configuration]]
SEEN = 1.005  # times: what differs by less is told as the same
MOST_RANKS = 8  # of tensor parallelism, where nothing is told: what a node has


@dataclass(frozen=True, slots=True)
class Choices:
    """What may be chosen from. None: whatever the hardware and the model allow."""

    parts: Sequence[Part]
    formats: Mapping[str, WeightFormat]
    kv_dtypes: Sequence[str]
    tensor_parallel: Sequence[int] | None = None
    pipeline_parallel: Sequence[int] | None = None


def search(model: Model, goal: Goal, choices: Choices, refine: Refine, watch: Callable[[str], None]) -> list[Configuration]:
    """All of them, the best first, with reasons. What does not fit comes last, the nearest to fitting first. `refine` looks closer at
    rows that arithmetic has put in order; `watch` is told how far it is."""
    evaluator = Evaluator(model, choices.formats, goal)
    rows: list[Configuration] = []
    every = list(candidates(model.spec, goal, choices))
    for at, candidate in enumerate(every):
        watch(f"{at:,} of {len(every):,} ways to run it")
        rows += evaluator.configurations(candidate)
    return explained(sorted(refine(sorted(rows, key=rank)), key=rank), goal)


def candidates(spec: ModelSpec, goal: Goal, choices: Choices) -> Iterator[Candidate]:
    """Heads are divided evenly, stages have a layer at least. Without --max-devices, a replica has a node's devices at most."""
    for part in choices.parts:
        limit = goal.max_devices or max(MOST_RANKS, max(choices.tensor_parallel or [1]) * max(choices.pipeline_parallel or [1]))
        for ranks in choices.tensor_parallel or powers_of_two(min(limit, part.node, MOST_RANKS)):
            for stages in choices.pipeline_parallel or powers_of_two(limit // ranks):
                split = Split(ranks, stages)
                if split.devices > limit or spec.num_heads % ranks or stages > spec.num_layers:
                    continue
                for quant in choices.formats:
                    for kv_dtype in choices.kv_dtypes:
                        yield Candidate(part, split, quant, kv_dtype)


def explained(rows: Sequence[Configuration], goal: Goal) -> list[Configuration]:
    """Rows, sorted, with the frontier of goodput per dollar against latency marked, and a reason in each."""
    good = [row for row in rows if row.fits and row.meets_slo]
    best = good[0] if good else None
    told = []
    for row in rows:
        if not row.fits or not row.meets_slo:
            told.append(replace(row, reason=row.reason or "it does not meet the SLO"))
            continue
        winner = next((other for other in good if other is not row and beats(other, row)), None)
        reason = beaten(row, winner) if winner else frontier(row, best, goal)
        beside = (winner or best or row).called
        told.append(replace(row, pareto=winner is None, reason=reason, beside=beside if beside != row.called else ""))
    return told


def latency(row: Configuration) -> float:
    return row.e2e_s if row.e2e_s is not None else math.inf


def beats(one: Configuration, other: Configuration) -> bool:
    """As cheap and as fast, and one of them more so. What has a price is not compared with what has none."""
    if per(one) != per(other):
        return False
    a, b = (value(one), -latency(one)), (value(other), -latency(other))
    return a != b and a[0] >= b[0] and a[1] >= b[1]


def beaten(row: Configuration, winner: Configuration) -> str:
    """How a row falls short of another."""
    more, faster = value(winner) / value(row), latency(row) / latency(winner)
    dear = f"{more:.2f} times the goodput per {per(row)}" if more >= SEEN else ""
    slow = f"{faster:.2f} times as fast" if faster >= SEEN or not dear else ""
    return f"beaten by {winner.called}: {', '.join(filter(None, (dear, slow)))}"


def per(row: Configuration) -> str:
    """What goodput is divided by: dollars, unless devices cost nothing or nobody told what."""
    return "device" if row.goodput_per_usd is None else "dollar"


def value(row: Configuration) -> float:
    """Goodput per dollar or per device."""
    if row.goodput_per_usd is not None:
        return row.goodput_per_usd
    return goodput(row) / row.devices


def frontier(row: Configuration, best: Configuration | None, goal: Goal) -> str:
    asked = "meets the SLO" if goal.most_s else "fits"
    if best is None or row is best:
        first = "the cheapest" if row.usd_per_hour is not None else "of unknown price, the most goodput of a device"
        return f"{first} that {asked}; {row.bound} binds"
    if per(row) != per(best):
        return f"its price is not given, so that nothing says what it costs beside {best.called}; {row.bound} binds"
    if latency(row) > latency(best):
        return (f"{value(row) / value(best):.3g} times the goodput per {per(row)} of {best.called}, and slower "
                f"({ms(latency(row))} a request, not {ms(latency(best))})")
    faster = f"faster than {best.called} ({ms(latency(row))} a request, not {ms(latency(best))})"
    if per(row) == "device":
        return f"{faster}, with {value(row) / value(best):.0%} of its goodput per device"
    return f"{faster}, at {value(best) / value(row):.2f} times its cost"
