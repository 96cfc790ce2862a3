"""What is explained: an engine's config, its traffic, what binds it, and how long its steps take; and what a lever is asked."""
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from penstock.compute.fitted import Fitted
from penstock.core.catalogue.part import Part
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.core.hardware import COMPUTE_TYPES, Hardware
from penstock.core.work import StepTimer
from penstock.serve.engine import build
from penstock.serve.engine.binding import Limit
from penstock.study.explain.observed import Observed
from penstock.study.explain.predict import Way
from penstock.study.explain.roof import Exchanged, InRatio, Roof
from penstock.study.explain.traffic import Traffic
from penstock.study.measure.slo import Slo
from penstock.study.plan.model import Model, Stored, weight_format

AUTO = "auto"
CALIBRATED = "both formats were calibrated on this machine"


@dataclass(frozen=True, slots=True)
class Change:
    """A lever, moved. `option`: how. `costs`: in words and numbers. `here`: whether this engine on this machine can do it. `source`: where
    the step times come from, where that is not what was measured of the engine. `drift`: nats of KL by which brook moves where other
    tokens may come, infinite where that was not measured; 0 where all stay the same."""

    option: str
    way: Way
    costs: tuple[str, ...] = ()
    here: bool = True
    source: str = ""
    drift: float = 0.0

    @property
    def lossy(self) -> bool:
        return self.drift > 0

    @property
    def called(self) -> str:
        return f"{self.option} (lossy)" if self.lossy else self.option


@dataclass(frozen=True, slots=True)
class Form:
    """A model in a weight and a KV format, as an engine holds it. `kv_formats`: that its backend keeps. `lacking`: weight formats whose
    products the machine's limits do not tell, so that there is no roof."""

    stored: Stored
    roof: Roof | None
    weight_bytes: int
    kv_formats: tuple[str, ...] = ()
    lacking: tuple[str, ...] = ()

    @property
    def kv_bytes_per_token(self) -> float:
        return self.stored.kv_bytes_per_token


class Forms:
    """What a model weighs in other formats, and how far its steps' roof moves. Nothing of it is loaded."""

    def __init__(self, model: Model, found: build.Found, hardware: Hardware | None, beside: float = 0.0) -> None:
        """`beside`: see Roof."""
        self.model = model
        self._found, self._hardware, self._beside = found, hardware, beside
        self.has_products = hardware is not None and bool(hardware.products)

    def of(self, config: EngineConfig, kv_dtype: str = AUTO) -> Form:
        """Raises PenstockError where the engine cannot hold it so."""
        chosen = build.choose(replace(config, kv_dtype=AUTO), self._found)
        held = chosen.holding.held
        kv_dtype = held.dtype if kv_dtype == AUTO else kv_dtype
        plain = self.model.stored(weight_format(config.quant, build.parse_quant), kv_dtype)
        storage = replace(plain.numbers.storage, weights=chosen.holding.held_bytes)
        stored = replace(plain, numbers=replace(plain.numbers, storage=storage))
        roof: Roof | None = None
        lacking: tuple[str, ...] = ()
        if self._hardware is not None and {COMPUTE_TYPES[held.dtype], held.compute_type} <= self._hardware.ops_per_s.keys():
            roof = Roof(stored, self._hardware, COMPUTE_TYPES[held.dtype], held.compute_type, self._beside)
            lacking = roof.lacking
        return Form(stored, None if lacking else roof, held.weight_bytes, tuple(chosen.backend.caps.kv_formats), lacking)


@dataclass(frozen=True, slots=True)
class Case:
    """`way`: as it is served. `forms` None: the model's config was not found here; `form` is the present one. `kept`: timers that were
    calibrated, by config. `parts`: hardware to compare with. `slo`: what a good request keeps, where that is what
    counts."""

    way: Way
    traffic: Traffic
    seen: Observed
    limit: Limit
    weight_bytes: int
    kv_bytes_per_token: float
    free_memory_bytes: float = float("inf")
    forms: Forms | None = None
    form: Form | None = None
    kept: Callable[[EngineConfig], Fitted | None] = lambda config: None
    parts: Mapping[str, Part] = field(default_factory=dict)
    slo: Slo | None = None
    doubts: tuple[str, ...] = ()  # of what the engine's machine was measured to do, in sentences

    @property
    def config(self) -> EngineConfig:
        return self.way.config

    def with_config(self, **changes: object) -> Way:
        """The same steps, other plans."""
        return replace(self.way, config=replace(self.config, **changes))  # type: ignore[arg-type]

    def formed(self, config: EngineConfig, kv_dtype: str = AUTO) -> Form | None:
        """None where it cannot be held so, or nothing is known of the model."""
        try:
            return None if self.forms is None else self.forms.of(config, kv_dtype)
        except PenstockError:
            return None

    def timer_of(self, config: EngineConfig, form: Form) -> tuple[StepTimer, str] | None:
        """(timer, where it comes from) of the same engine with the model in another form."""
        after = self.kept(config)
        if after is not None and (before := self.kept(self.config)) is not None:
            return InRatio(self.way.timer, before, after), CALIBRATED
        if self.form is None or self.form.roof is None or form.roof is None:
            return None
        source = "scaled by the roofline"
        if self.forms is not None and not self.forms.has_products:
            source += ", which does not know what products reach in each format (`penstock limits` measures it)"
        if config.quant != self.config.quant:
            source += f"; `penstock plan {config.model} --quant {config.quant} --calibrate` measures it"
        return Exchanged(self.way.timer, self.form.roof, form.roof), source


class Lever(Protocol):
    """One per file of `levers`."""

    each: bool  # every way that gains more than those before it is told, instead of the best alone

    def changes(self, case: Case) -> Iterator[Change]:
        """Ways to move it, those that cost least first. Nothing where it is moved as far as it goes."""
        ...

    def unknown(self, case: Case) -> str | None:
        """Why its gain cannot be told from counters, where that is so, and what to do about it."""
        ...


def becomes(before: float, after: float) -> str | None:
    """Bytes before and after, in words; None where that is the same in as many digits as are told."""
    old, new = si_bytes(before), si_bytes(after)
    return None if old == new else f"{old} -> {new}"


def si_bytes(num_bytes: float) -> str:
    """4.35 kB, 5.2 MB, 1.3 GB."""
    unit, size = next(((name, size) for name, size in (("GB", 1e9), ("MB", 1e6)) if num_bytes >= size), ("kB", 1e3))
    return f"{num_bytes / size:,.3g} {unit}"
