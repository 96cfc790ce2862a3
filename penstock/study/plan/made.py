"""What a calibration was made with, and whether the same steps still take as long here: told before figures that rest on it."""
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import penstock
from penstock.compute.fitted import Fitted, Timed
from penstock.core.amount import above_zero
from penstock.core.config import EngineConfig
from penstock.core.hardware import Hardware
from penstock.core.work import StepWork
from penstock.serve.engine.machine import measured_limits, native_build

FAR = 0.25  # of the time of steps, or of a limit, beyond which what was kept is in doubt
LEAST_STEPS = 8  # that say something; of steps that take long
LEAST_S = 0.1  # so much of their time does, from two on
LONG = 128  # rows of a step, from which on it is of a long prompt
READING = "reading memory"


@dataclass(frozen=True, slots=True)
class Made:
    """`date` in UTC; `build` of the native module, empty without one. `limits`: that were known of the machine then with so many
    `threads`, bytes and operations a second; empty where `penstock limits` had not been run."""

    date: str
    version: str
    build: str
    threads: int | None
    limits: Mapping[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def made_of(told: Any) -> Made | None:
    """Raises KeyError, TypeError or ValueError for what `as_json` did not make. None for a file that does not say."""
    if told is None:
        return None
    threads, limits = told["threads"], dict(told["limits"])
    return Made(
        str(told["date"]), str(told["version"]), str(told["build"]), None if threads is None else int(above_zero(threads)),
        {str(name): above_zero(rate) for name, rate in limits.items()})


def made_now(threads: int | None) -> Made:
    limits = measured_limits("cpu", threads)
    return Made(
        time.strftime("%Y-%m-%d %H:%M", time.gmtime()), penstock.__version__, native_build(), threads,
        {} if limits is None else rates_of(limits))


def rates_of(limits: Hardware) -> dict[str, float]:
    return {READING: limits.memory_bandwidth(), **{f"arithmetic in {dtype}": rate for dtype, rate in limits.ops_per_s.items()}}


def pace(timer: Fitted, timed: Sequence[Timed]) -> tuple[float, str] | None:
    """(how many times as long as the timer says steps take, of which steps): those that only decode, those with short prompts, or those
    with long ones, whichever are furthest off. None where too few were timed."""
    kinds: dict[str, list[Timed]] = {}
    for each in timed:
        kinds.setdefault(kind(each.work), []).append(each)
    took = {name: sum(each.seconds for each in of) for name, of in kinds.items()}
    found = [(took[name] / sum(map(timer.took, of)), f"steps that {name} take")
             for name, of in kinds.items() if len(of) >= LEAST_STEPS or (len(of) > 1 and took[name] >= LEAST_S)]
    return max(found, key=lambda each: max(each[0], 1 / each[0]), default=None)


def kind(work: StepWork) -> str:
    if work.num_tokens == work.num_seqs:
        return "decode"
    return "compute long prompts" if work.num_tokens >= LONG else "compute prompts"


def is_far(times: float) -> bool:
    return max(times, 1 / times) > 1 + FAR


def doubt(config: EngineConfig, made: Made | None, times: tuple[float, str] | None, now: Made) -> str:
    """A sentence where what was kept may not hold as it is, empty elsewhere. `times`: pace() of steps that were timed now; None: the
    limits of the machine are compared, where they were measured since."""
    said = f"{called(config)} was calibrated {since(made, now)}"
    found = times or limits_apart(made, now)
    told = "" if found is None else f"{found[1]} {found[0]:.2f} times as {'long' if times else 'fast'} now"
    if found is not None and is_far(found[0]):
        return f"{said}; {told}, and figures that rest on it may be as far off: {renewed(config)} renews it, best while nothing else runs"
    if made is not None and made.build == now.build:
        return ""
    return f"{said}; {told}, so it stands" if times else f"{said}: {renewed(config)} renews it"


def called(config: EngineConfig) -> str:
    return config.model if config.quant == "none" else f"{config.model} in {config.quant}"


def since(made: Made | None, now: Made) -> str:
    if made is None:
        return "by an older Penstock, which did not record its conditions"
    return f"on {made.date}" + (", and the native module was rebuilt since" if made.build != now.build else "")


def limits_apart(made: Made | None, now: Made) -> tuple[float, str] | None:
    """(how many times as fast the machine is as it was then, at what): the limit that is furthest off; None where it is not known."""
    then = {} if made is None else made.limits
    both = [(now.limits[name] / rate, f"{name} goes") for name, rate in then.items() if name in now.limits]
    return max(both, key=lambda each: max(each[0], 1 / each[0]), default=None)


def renewed(config: EngineConfig) -> str:
    quant = "" if config.quant == "none" else f" --quant {config.quant}"
    dtype = "" if config.dtype == "auto" else f" --dtype {config.dtype}"
    return f"`penstock plan {config.model} --calibrate{quant}{dtype}`"
