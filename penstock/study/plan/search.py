"""Which configurations there are, which of them nothing beats, and why each of the others lost."""
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from penstock.compute.steptime import Split
from penstock.core.catalogue.part import Part
from penstock.study.plan.configuration import ARITHMETIC, MEASURED, Candidate, Configuration, layout_of
from penstock.study.plan.evaluate import Evaluator, Goal, goodput, ms, rank
from penstock.study.plan.experts import spreads
from penstock.study.plan.here import HERE
from penstock.study.plan.model import Model, WeightFormat, unserved
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
    expert_parallel: Sequence[int] | None = None


def search(model: Model, goal: Goal, choices: Choices, refine: Refine, watch: Callable[[str], None]) -> list[Configuration]:
    """All of them, the best first, with reasons. What does not fit comes last, the nearest to fitting first. `refine` looks closer at
    rows that arithmetic has put in order; `watch` is told how far it is."""
    evaluator = Evaluator(model, choices.formats, goal)
    rows: list[Configuration] = []
    every = list(candidates(model, goal, choices))
    for at, candidate in enumerate(every):
        watch(f"{at:,} of {len(every):,} ways to run it")
        rows += evaluator.configurations(candidate)
    ordered = in_order(set_apart(refine(sorted(rows, key=rank))))
    return explained(told_what_holds(ordered, choices, model, evaluator), goal)


def told_what_holds(rows: Sequence[Configuration], choices: Choices, model: Model, evaluator: Evaluator) -> list[Configuration]:
    """With the devices that would do, in the first row of each hardware on which the model does not fit in any way that was tried."""
    found, told = {row.hardware for row in rows if row.fits}, []
    parts = {part.name: part for part in choices.parts}
    for row in rows:
        if row.hardware not in found and row.hardware != HERE and row.overfull is not None:
            enough = fewest(parts[row.hardware], row, model, evaluator, choices.expert_parallel)
            row = replace(row, reason=f"{row.reason}; {enough} would hold it") if enough else row
        found.add(row.hardware)
        told.append(row)
    return told


def fewest(part: Part, row: Configuration, model: Model, evaluator: Evaluator, given: Sequence[int] | None) -> str:
    """The fewest devices that have the memory for what a row stands for, in words; empty where there are none. `given`: the degrees of
    expert parallelism that were asked for."""
    splits = [Split(ranks, stages, experts) for ranks in powers_of_two(min(part.node, MOST_RANKS))
              for experts in spreads(model, ranks, given) for stages in {*powers_of_two(model.spec.num_layers), model.spec.num_layers}]
    able = [split for split in splits
            if evaluator.takes(split, row.quant) and evaluator.holds(Candidate(part, split, row.quant, row.kv_dtype))]
    if not able:
        return ""
    best = min(able, key=lambda split: (split.devices, split.pipeline_parallel, split.expert_parallel))
    return f"{best.devices} devices ({layout_of(best.tensor_parallel, best.pipeline_parallel, best.expert_parallel)})"


def in_order(rows: Sequence[Configuration]) -> list[Configuration]:
    """By rank, but what costs the same for all that is told comes after what beats it."""
    found: list[Configuration] = []
    for row in sorted(rows, key=rank):
        beaten_at = [at for at, other in enumerate(found) if other.meets_slo and row.meets_slo and beats(row, other)]
        found.insert(min(beaten_at, default=len(found)), row)
    return found


def set_apart(rows: Sequence[Configuration]) -> list[Configuration]:
    """What has no measured steps is marked, where others of the same hardware have them: a roofline is no rival of what was measured."""
    measured = {row.hardware for row in rows if row.steps == MEASURED}
    return [replace(row, unmeasured=row.steps != MEASURED and row.hardware in measured) for row in rows]


def candidates(model: Model, goal: Goal, choices: Choices) -> Iterator[Candidate]:
    """Heads and groups are divided evenly, stages have a layer at least. This machine has the formats of this engine alone."""
    for part, split in splits(model, goal, choices):
        for quant, format in choices.formats.items():
            if model.cut(split.tensor_parallel, format, split.expert_parallel) is not None:
                continue
            for kv_dtype in choices.kv_dtypes:
                if part.name != HERE or not unserved(quant, kv_dtype):
                    yield Candidate(part, split, quant, kv_dtype)


def splits(model: Model, goal: Goal, choices: Choices) -> Iterator[tuple[Part, Split]]:
    """Those that there are devices and layers for. Without --max-devices, a replica has a node's devices at most."""
    for part in choices.parts:
        limit = goal.most_devices(part.name) or max(MOST_RANKS, max(choices.tensor_parallel or [1]) * max(choices.pipeline_parallel or [1]))
        for ranks in choices.tensor_parallel or powers_of_two(min(limit, part.node, MOST_RANKS)):
            for stages in choices.pipeline_parallel or powers_of_two(limit // ranks):
                if ranks * stages <= limit and stages <= model.spec.num_layers:
                    for experts in spreads(model, ranks, choices.expert_parallel):
                        yield part, Split(ranks, stages, experts)


def degrees(model: Model, goal: Goal, choices: Choices) -> list[int]:
    """Of tensor parallelism, that there are devices for."""
    return sorted({split.tensor_parallel for _, split in splits(model, goal, choices)})


def explained(rows: Sequence[Configuration], goal: Goal) -> list[Configuration]:
    """Rows, sorted, with the frontier of goodput per dollar against latency marked, and a reason in each."""
    good = [row for row in rows if row.fits and row.meets_slo]
    best, asked = good[0] if good else None, "meets the SLO" if goal.most_s else "fits"
    told, any_played = [], any(row.predicted_by != ARITHMETIC for row in rows)
    for row in rows:
        if not row.fits or not row.meets_slo:
            told.append(replace(row, reason=row.reason or "it does not meet the SLO"))
            continue
        winner = next((other for other in good if other is not row and beats(other, row)), None)
        only_means = any_played and row.predicted_by == ARITHMETIC
        reason = beaten(row, winner) if winner else frontier(row, best, asked, only_means) if len(rows) > 1 else (
            f"it {asked}; {row.bound} binds")
        beside = (winner or best or row).called
        told.append(replace(row, pareto=winner is None, reason=reason, beside=beside if beside != row.called else ""))
    return told


def latency(row: Configuration) -> float:
    return row.e2e_s if row.e2e_s is not None else math.inf


def beats(one: Configuration, other: Configuration) -> bool:
    """As cheap and as fast, and one of them more so, by as much as is told. What has a price is not compared with what has none, nor what
    was measured with what was not; what the twin has played, tails and all, is not beaten by means."""
    if unpriced(one) != unpriced(other) or one.unmeasured != other.unmeasured or only_arithmetic(one, other):
        return False
    gains = more(one, other), faster(one, other)
    return min(gains) > 1 / SEEN and max(gains) >= SEEN


def only_arithmetic(one: Configuration, other: Configuration) -> bool:
    """Whether the twin has played the other, and not this one."""
    return one.predicted_by == ARITHMETIC != other.predicted_by


def more(one: Configuration, other: Configuration) -> float:
    """Times the goodput per dollar, or per device; of one that costs nothing, beside one that does, infinitely many."""
    if per(one) != per(other):
        return 0.0 if one.usd_per_hour else math.inf
    return value(one) / value(other)


def faster(one: Configuration, other: Configuration) -> float:
    """Times as fast."""
    return latency(other) / latency(one)


def beaten(row: Configuration, winner: Configuration) -> str:
    """How a row falls short of another."""
    times = more(winner, row)
    dear = "" if times < SEEN else "it costs nothing" if times == math.inf else f"{times:.2f} times the goodput per {per(row)}"
    slow = f"{faster(winner, row):.2f} times as fast" if faster(winner, row) >= SEEN else ""
    return f"beaten by {winner.called}: {', '.join(filter(None, (dear, slow)))}"


def unpriced(row: Configuration) -> bool:
    return row.usd_per_hour is None


def per(row: Configuration) -> str:
    """What goodput is divided by: dollars, unless devices cost nothing or nobody told what."""
    return "device" if row.goodput_per_usd is None else "dollar"


def value(row: Configuration) -> float:
    """Goodput per dollar or per device."""
    if row.goodput_per_usd is not None:
        return row.goodput_per_usd
    return goodput(row) / row.devices


def frontier(row: Configuration, best: Configuration | None, asked: str, among_played: bool) -> str:
    """`among_played`: whether the twin has played others, and not the row."""
    if best is None or row is best:
        first = "the cheapest that" if row.usd_per_hour is not None else "the most goodput per device of what"
        means = "its means" if row.kept_share is None else "its mean steps under the trace's arrivals"
        doubt = ", its steps not measured" if row.unmeasured else f", by {means}: it was not played" if among_played else ""
        return f"{first} {asked}{doubt}; {row.bound} binds"
    if unpriced(row) != unpriced(best):
        return f"its price is not given, so that nothing says what it costs beside {best.called}; {row.bound} binds"
    if row.unmeasured != best.unmeasured:
        return (f"its steps were not measured, as those of other rows of {row.hardware} were, so that it is not compared with "
                f"{best.called}; {row.bound} binds")
    if only_arithmetic(best, row):
        return f"{best.called} was not played, so that nothing says which of them is faster; {row.bound} binds"
    return beside(row, best)


def beside(row: Configuration, best: Configuration) -> str:
    """How a row compares with the first, where neither beats the other."""
    if max(more(row, best), faster(row, best)) < SEEN:
        return f"as much goodput per {per(row)} as {best.called}, and as fast"
    times = f"({ms(latency(row))} a request, not {ms(latency(best))})"
    if faster(row, best) < SEEN:
        pace = f"slower {times}" if faster(best, row) >= SEEN else "as fast"
        if more(row, best) == math.inf:
            return f"it costs nothing, unlike {best.called}, and is {pace}"
        return f"{more(row, best):.3g} times the goodput per {per(row)} of {best.called}, and {pace}"
    if per(row) == "device":
        return f"faster than {best.called} {times}, with {more(row, best):.0%} of its goodput per device"
    if more(best, row) == math.inf:
        return f"faster than {best.called} {times}, which costs nothing"
    cost = f"{more(best, row):.2f} times its cost" if more(best, row) >= SEEN else "its cost"
    return f"faster than {best.called} {times}, at {cost}"
