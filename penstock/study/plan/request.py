"""A question to the planner, as a user puts it, and its answer. Every option is obeyed or refused by name."""
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from penstock.compute.models.load import hub
from penstock.compute.models.load.checkpoint import beside
from penstock.compute.models.load.objects import read_object
from penstock.core.catalogue.part import Part
from penstock.core.catalogue.read import Catalogue
from penstock.core.config import EngineConfig
from penstock.core.errors import ModelError, PenstockError, UsageError
from penstock.core.modelspec import DTYPE_BYTES
from penstock.core.registry import parse_pairs
from penstock.decide.routing.contract import Engines
from penstock.serve.engine import build
from penstock.serve.engine.machine import look
from penstock.serve.engine.resolve import threads_of
from penstock.study.measure.datasets.traces import Row
from penstock.study.measure.slo import parse_slo
from penstock.study.plan.calibrate import kept
from penstock.study.plan.checked import Checked
from penstock.study.plan.configuration import TWIN, Configuration
from penstock.study.plan.crowd import crowded
from penstock.study.plan.degrees import Undivided, check_degrees, check_split, check_spreads, fewer_devices, undivided, unspread
from penstock.study.plan.evaluate import CHUNKS, Goal, with_chunk_told
from penstock.study.plan.experts import beyond, check_experts, check_spread
from penstock.study.plan.given import ALL, by_part, counts, listed
from penstock.study.plan.here import HERE, in_doubt, told_here
from penstock.study.plan.known import config_file, has_weights, known_config, other_names
from penstock.study.plan.load import Asked, Load, load_of, read_trace, within_context
from penstock.study.plan.model import KV_FORMATS, NONE, PLANNED, STORED, Model, WeightFormat, unserved, weight_format
from penstock.study.plan.refine import Twins, can_play, nearly
from penstock.study.plan.rehearsal import Traffic
from penstock.study.plan.search import Choices, candidates, degrees, search, splits
from penstock.study.plan.simulate.twin import Pace

AUTO = "auto"
QUANTS = (NONE, "fp8", "int8", "int4")  # those that are searched
SERVED = tuple([name for name in QUANTS if name not in PLANNED])  # and that this engine has
KV_DTYPES = (AUTO, "fp8")
MEASURES = ("ttft", "tpot", "e2e")
Watch = Callable[[str], None]  # is told how far it is


@dataclass(frozen=True, slots=True)
class Request:
    """Fields are the options of `penstock plan`. Formats that are not named are searched where traffic is planned for; a steady load is
    taken as the checkpoint is."""

    model: str = "brook"
    hardware: str | None = None
    batch: int | None = None
    input: int | None = None
    output: int | None = None
    rate: float | None = None
    traffic: str | None = None
    slo: str | None = None
    quant: tuple[str, ...] = ()
    kv_dtype: tuple[str, ...] = ()
    dtype: str = AUTO
    tensor_parallel: str | None = None
    pipeline_parallel: str | None = None
    expert_parallel: str | None = None
    max_devices: int | None = None
    chunk: str | None = None
    prefill_split: bool = True
    price: str | None = None
    watts: str | None = None
    what_if: str | None = None
    catalogue: str | None = None
    simulate: bool = True
    routing: str = AUTO


@dataclass(frozen=True, slots=True)
class Plan:
    model: str
    parameters: int
    load: Load
    most_s: Mapping[str, float]
    configurations: Sequence[Configuration]
    what_if: str | None = None  # figures of the hardware that were replaced
    left_out: str = ""  # what this machine was not planned with, and why
    calibrate: str = ""  # the command that times the steps of this machine which the roofline predicts
    timed_where_played: bool = False  # whether this machine's steps can be timed, and nothing is played that would take them
    doubts: Sequence[str] = ()  # of calibrations and limits that the figures rest on
    dtype: str = ""  # that the model is computed in where it is not quantized
    dtype_told: str = ""  # where that is wider than engines take: which option halves it
    stored: str = ""  # how the checkpoint is quantized
    undivided: Sequence[Undivided] = ()  # degrees of tensor parallelism that were not tried

    def as_json(self) -> dict[str, Any]:
        return {
            "model": self.model, "parameters": self.parameters, "load": asdict(self.load), "slo": dict(self.most_s),
            "what_if": self.what_if, "left_out": self.left_out, "undivided": [each.as_json() for each in self.undivided],
            "calibrate": self.calibrate, "timed_where_played": self.timed_where_played,
            "doubts": list(self.doubts), "dtype": self.dtype, "dtype_told": self.dtype_told, "stored": self.stored,
            "configurations": [asdict(row) for row in self.configurations]}


def unwatched(told: str) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Question:
    """A request that nothing is wrong with. `trace`: without what no server of the model takes."""

    model: Model
    trace: Sequence[Row] | None
    goal: Goal
    choices: Choices
    left_out: str
    undivided: Sequence[Undivided]

    @property
    def steady(self) -> bool:
        return self.goal.load.rate is None


def understood(request: Request, num_here: int | None = None) -> Question:
    """`num_here`: of this machine, where they are counted. Raises UsageError for options that do not go together or do not exist, and where
    they leave nothing to try; ModelError for a model that is not found or understood."""
    parts, model = both(request)
    trace: Sequence[Row] | None = None if request.traffic is None else read_trace(request.traffic)
    load = load_of(Asked(request.batch, request.input, request.output, request.rate, request.traffic), trace or ())
    most_s = objectives(request.slo)
    if trace is not None:
        trace, load = within_context(trace, load, model.spec.max_position, request.rate)
    steady = load.rate is None
    check_routing(request.routing, not steady and request.simulate)
    formats = formats_of(request, model)
    kv_dtypes = listed(request.kv_dtype, KV_DTYPES, (AUTO,) if steady or request.hardware == HERE else KV_DTYPES)
    for name in kv_dtypes:
        if name != AUTO and name not in KV_FORMATS:
            raise UsageError(f"unknown KV format {name!r}; known: {AUTO}, {', '.join(KV_FORMATS)}")
    if request.max_devices is not None and request.max_devices < 1:
        raise UsageError(f"--max-devices must be at least 1, not {request.max_devices}")
    ranks, stages = counts(request.tensor_parallel, "tensor-parallel"), counts(request.pipeline_parallel, "pipeline-parallel")
    experts = counts(request.expert_parallel, "expert-parallel")
    goal = Goal(load, most_s, counts(request.chunk, "chunk") or CHUNKS, request.max_devices, request.prefill_split, num_here)
    check_experts(model, ranks, experts)
    check_degrees(model, formats, ranks or (), experts)
    names = [part.name for part in parts]
    check_split(model, ranks, stages, goal, names)
    choices = Choices(parts_for(request, parts, model, formats), formats, kv_dtypes, ranks, stages, experts)
    left_out = [*not_served_here(choices), *fewer_devices(ranks, stages, goal, names), *unspread(ranks, experts)]
    check_spread(model, degrees(model, goal, replace(choices, expert_parallel=None)), ranks, experts)
    tried = degrees(model, goal, choices)
    uncut = undivided(model, formats, tried, experts)
    if not any(candidates(model, goal, choices)):
        raise UsageError("; ".join(["nothing is left to try", *left_out, *(each.said for each in uncut)]))
    check_spreads(model, formats, [split for _, split in splits(model, goal, choices)], experts)
    return Question(model, trace, goal, choices, "; ".join([*left_out, *beyond(model, tried)]), uncut)


def plan(request: Request, watch: Watch = unwatched, num_here: int | None = None) -> Plan:
    """Raises as `understood`."""
    asked = understood(request, num_here)
    model, goal, choices, load = asked.model, asked.goal, asked.choices, asked.goal.load
    checked = Checked(watch)
    refine = list if asked.steady or not request.simulate else Twins(
        model, choices.formats, choices.parts, goal, Traffic(load, asked.trace, request.routing),
        lambda row: measured(request, row, checked), watch).refined
    rows = search(model, goal, choices, refine, watch)
    rows = rows if asked.trace is None else crowded(rows, asked.trace, load)
    told = [with_chunk_told(row, load) for row in rows]
    command, waits = to_calibrate(request, told, goal)
    return Plan(request.model, model.spec.num_parameters(), load, goal.most_s, told, request.what_if, asked.left_out, command, waits,
                [*checked.doubts, *in_doubt(told)], model.dtype, told_wide(request, model), model.told, asked.undivided)


def quants_of(given: Sequence[str], model: Model, every: Sequence[str], steady: bool) -> tuple[str, ...]:
    """Weight formats to try. A quantized checkpoint is taken as it is unless others are named: they would be made of the original, or
    lose twice. Raises UsageError for `stored` of one that is not quantized."""
    own = model.own_format
    if STORED in given and own != STORED:
        raise UsageError(f"--quant {STORED} is for checkpoints that are quantized, and {model.name} is in {model.spec.dtype}: "
                         f"give one of {', '.join(every)}")
    others = [name for name in every if name not in (NONE, model.product)]
    named = [own if name == NONE else name for name in given]
    return listed(named, (own, *others), (own,) if steady or own == STORED else (own, *others))


def formats_of(request: Request, model: Model) -> dict[str, WeightFormat]:
    """By name: for this machine alone, those that this engine has."""
    every = SERVED if request.hardware == HERE else QUANTS
    names = quants_of(request.quant, model, every, request.rate is None and request.traffic is None)
    return {name: weight_format(name, build.parse_quant) for name in names}


def told_wide(request: Request, model: Model) -> str:
    """What to say of a checkpoint in float32, which GPUs are seldom made to serve as it is: its figures are twice and more what is told."""
    wide = request.dtype == AUTO and DTYPE_BYTES[model.dtype] > 2 and request.hardware != HERE
    return f"in {model.dtype}, as the checkpoint is; most engines would serve it in 16 bits: --dtype bfloat16" if wide else ""


def both(request: Request) -> tuple[list[Part], Model]:
    """Hardware and model. Raises UsageError or ModelError for what is not known, of both at once."""
    if request.dtype != AUTO and request.dtype not in DTYPE_BYTES:
        raise UsageError(f"--dtype must be {AUTO}, {', '.join(DTYPE_BYTES)}, not {request.dtype!r}")
    parts, wrong = list[Part](), ""
    try:
        parts = parts_of(request)
    except UsageError as error:
        wrong = str(error)
    try:
        model = model_of(request.model, None if request.dtype == AUTO else request.dtype)
    except PenstockError as error:
        raise type(error)(f"{error}; and {wrong}") if wrong else error from None
    if wrong:
        raise UsageError(wrong)
    return parts, model


def calibrated(request: Request) -> dict[str, EngineConfig]:
    """The engines whose steps are timed, by weight format: of `all`, those that this engine serves. Raises PenstockError for one that
    cannot be made."""
    names = listed(request.quant, SERVED, (NONE,))
    if lacking := [name for name in names if name in PLANNED]:
        raise UsageError(f"--calibrate times the steps of this engine, which serves no {', '.join(lacking)} weights, but "
                         f"{', '.join(SERVED)}: leave --quant {lacking[0]} out")
    engines = {name: engine_of(request, name) for name in names}
    for config in engines.values():
        kept(config)
    return engines


def measured(request: Request, row: Configuration, checked: Checked) -> Pace | None:
    """What the steps of a row take, where that was calibrated."""
    found = checked.kept(engine_of(request, row.quant)) if can_be_measured(request, row) else None
    return None if found is None else found.pace


def engine_of(request: Request, quant: str) -> EngineConfig:
    return EngineConfig(request.model, dtype=request.dtype, quant=NONE if quant == STORED else quant)


def can_be_measured(request: Request, row: Configuration) -> bool:
    """Whether `--calibrate` times the steps of a row: one device that is this machine as it is, and formats in which an engine here runs
    the model."""
    here = row.hardware == HERE and row.tensor_parallel == row.pipeline_parallel == 1 and request.what_if is None
    return here and row.kv_dtype == AUTO and not row.unserved and has_weights(request.model)


def to_calibrate(request: Request, rows: Sequence[Configuration], goal: Goal) -> tuple[str, bool]:
    """(the command that times the steps of rows which the roofline predicts; empty where there are none, or none that can be timed,
    whether nothing is played that would take such steps, as arithmetic takes none, for want of a rate)."""
    steady = goal.load.rate is None
    able = dict.fromkeys(row.quant for row in rows if can_be_measured(request, row) and (
        steady or row.predicted_by == TWIN or (request.simulate and not row.meets_slo and can_play(row) and nearly(row, goal))))
    formats = "".join(f" --quant {quant}" for quant in able if kept(engine_of(request, quant)) is None)
    dtype = "" if request.dtype == AUTO else f" --dtype {request.dtype}"
    return f"penstock plan {request.model} --calibrate{formats}{dtype}" if formats else "", bool(able) and steady


def not_served_here(choices: Choices) -> list[str]:
    """Which formats that are asked for this machine is not planned with; empty where it is not asked about, or has all of them."""
    pairs = [(quant, AUTO) for quant in choices.formats] + [(NONE, kv_dtype) for kv_dtype in choices.kv_dtypes]
    lacking = [lack for pair in pairs for lack in unserved(*pair)]
    if not lacking or not any(part.name == HERE for part in choices.parts):
        return []
    serves = f"this engine, which would run there, serves {', '.join(SERVED)} and KV in {AUTO}"
    return [f"{HERE} is left out with {', '.join(lacking)}: {serves}"]


def model_of(name: str, dtype: str | None = None) -> Model:
    """A local or bundled model, a config.json, one whose config is known by name, else one of the hub. Raises ModelError for none of these,
    with what there is."""
    file = config_file(name)
    if file is not None:
        return Model(name, build.understand(hub.Source(name, file.parent, beside(file.parent, read_object(file)))), dtype)
    local, known = hub.local_path(name), known_config(name)
    if local is not None:
        return Model(name, build.look_up(EngineConfig(model=name)), dtype)
    if known is not None:
        return Model(name, build.understand(hub.Source(name, Path(name), known)), dtype)
    try:
        source = hub.fetch_config(name)
    except ModelError as error:
        raise type(error)(f"{error}; {other_names(name)}") from None
    return Model(name, build.understand(source), dtype)


def parts_for(request: Request, parts: list[Part], model: Model, formats: Mapping[str, WeightFormat]) -> list[Part]:
    """With this machine, where it is among the parts, as it is for the model in these formats. Raises UsageError where the limits lack the
    rates of their products."""
    if all(part.name != HERE for part in parts):
        return parts
    own, every = EngineConfig(request.model), [model.stored(format, AUTO) for format in formats.values()]
    threads, _ = threads_of(own, model.spec, build.caps_of(own).least_share, look())
    forms = {form for stored in every for form in stored.numbers.forms.values()}
    return parts_of(request, max(stored.weight_bytes for stored in every), threads, forms)


def parts_of(
    request: Request, read_bytes: float | None = None, threads: int | None = None, forms: Collection[str] = ()
) -> list[Part]:
    """`read_bytes`, `threads`, `forms`: see `told_here`. Raises UsageError for unknown parts and figures."""
    catalogue = catalogue_of(request, read_bytes, threads, forms)
    if not (request.hardware or "").strip(", "):
        raise UsageError(f"--hardware is missing; known: {', '.join(catalogue.names())}, all of these as {ALL}, and this machine as {HERE}")
    asked = [name.strip() for name in (request.hardware or "").split(",") if name.strip()]
    names = [each for name in asked for each in (catalogue.names() if name == ALL else [catalogue.named(name)])]
    changes = parse_pairs(request.what_if or "", "--what-if")
    if request.what_if is not None and not changes:
        raise UsageError("--what-if names no figure: give one, like memory_bandwidth=8e12, or leave it out")
    given = {figure: by_part(text, option, names, catalogue) for figure, option, text in (
        ("price", "--price", request.price), ("power", "--watts", request.watts))}
    for figure, told in given.items():
        if told and figure in changes:
            raise UsageError(f"--what-if {figure} and {'--price' if figure == 'price' else '--watts'} give the same figure: leave one out")
    own = {name: {figure: told[name] for figure, told in given.items() if name in told} for name in names}
    return [catalogue.part(name, changes | own[name]) for name in dict.fromkeys(names)]


def check_here(request: Request) -> None:
    """Raises UsageError or ModelError, before this machine is measured for a plan, where that plan is refused anyway, or does not use this
    machine."""
    if all(part.name != HERE for part in understood(request).choices.parts):
        raise UsageError(f"--calibrate measures this machine, but a plan for --hardware {request.hardware} does not use that: "
                         f"add {HERE} there, or leave one of the two out")


def catalogue_of(
    request: Request, read_bytes: float | None = None, threads: int | None = None, forms: Collection[str] = ()
) -> Catalogue:
    if request.catalogue is not None and not request.catalogue.strip():
        raise UsageError("--catalogue names no folder: give one, or leave it out")
    folder = None if request.catalogue is None else Path(request.catalogue)
    return Catalogue(folder, {HERE: lambda: told_here(read_bytes=read_bytes, threads=threads, forms=forms)})


def objectives(slo: str | None) -> dict[str, float]:
    """Raises UsageError for what the planner does not predict."""
    if slo is None:
        return {}
    most_s = dict(parse_slo(slo).most_s)
    if strange := [name for name in most_s if name not in MEASURES]:
        raise UsageError(f"--slo {', '.join(strange)} is not predicted; plan predicts {', '.join(MEASURES)}")
    return most_s


def check_routing(routing: str, played: bool) -> None:
    """Raises UsageError for a policy that there is none of, and for one where nothing is routed."""
    if routing == AUTO:
        return
    build.make_router(routing, Engines(1, 1, 1))
    if not played:
        raise UsageError(f"--routing {routing} is for what the twin plays, at a rate or with a trace, and nothing is played here")
