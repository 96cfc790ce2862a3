"""Calibrations that were kept, each compared once with a few steps that are timed now, before anything rests on it."""
import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.compute.fitted import Timed
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.study.measure.client.inside import start
from penstock.study.measure.client.precise import new_loop
from penstock.study.measure.interrupt import undisturbed
from penstock.study.plan.calibrate import Calibration, Recorder, arrivals_of, kept, measure
from penstock.study.plan.made import called, doubt, made_now, pace
from penstock.study.plan.phases import Phase, shapes

# Users at once, tokens of prompts and answers at most, so that it is short where steps are long.
LOADS = ((1, 64, 16), (8, 64, 16), (1, 256, 2))
SECONDS = 0.3
Say = Callable[[str], None]


@dataclass(slots=True)
class Checked:
    """`say` is told what it does, and `doubted` each doubt once. `doubts`: those that there are, in sentences."""

    say: Say
    doubted: Say = lambda told: None
    doubts: list[str] = field(default_factory=list)
    _found: dict[EngineConfig, Calibration] = field(default_factory=dict)

    def kept(self, config: EngineConfig, progress: Any = None) -> Calibration | None:
        """What was learned of the engine that this config makes here; None where nothing was. Raises PenstockError where it cannot."""
        if config in self._found or (found := kept(config)) is None:
            return self._found.get(config)
        self._found[config] = found
        self.say(f"timing a few steps of {called(config)} beside those that were calibrated")
        now = made_now(config.threads if found.made is None else found.made.threads)
        try:
            told = doubt(config, found.made, pace(found.timer, timed_now(config, progress)), now)
        except PenstockError as error:
            told = f"whether the calibration of {called(config)} still holds is not known: {error}"
        if told:
            self.doubts.append(told)
            self.doubted(told)
        return found


def timed_now(config: EngineConfig, progress: Any = None) -> list[Timed]:
    """Steps of about a second of load. Raises PenstockError when the model cannot be loaded."""
    recorder = Recorder()
    inner = start(config, progress, None, recorder)
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            phases = [short(inner.built.resolved.engine, *load) for load in LOADS if load[0] <= config.max_num_seqs]
            return [timed for phase in phases for timed in runner.run(measure(inner, recorder, phase, arrivals_of(phase, None), 1)).timed]
    finally:
        with undisturbed():
            inner.loop.stop()


def short(config: EngineConfig, users: int, prompt: int, answer: int) -> Phase:
    """Of so many tokens on average, or as many as fit."""
    lengths = max(shapes(config, users), key=lambda each: each.input)
    return Phase(replace(lengths, input=min(lengths.input, prompt), output=min(lengths.output, answer)), SECONDS, users)
