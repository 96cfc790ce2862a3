"""What was calibrated on this machine, as an explanation rests on it: each with a note where it may not hold."""
from dataclasses import dataclass, field, replace

from penstock.compute.fitted import Fitted
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.study.explain.learn import Steps, times_as_long
from penstock.study.plan import calibrate
from penstock.study.plan.made import LEAST_STEPS, doubt, made_now

AUTO = "auto"


@dataclass(slots=True)
class Calibrations:
    """`present`: the engine that is explained, and the `steps` that it timed. Nothing is run beside it, so other formats are judged by the
    machine's limits and the build of the native module alone. `notes` gains what is doubtful of those that are asked for."""

    present: EngineConfig
    steps: Steps
    notes: list[str]
    _found: dict[EngineConfig, Fitted | None] = field(default_factory=dict)

    def of(self, config: EngineConfig) -> Fitted | None:
        """None where nothing was learned of such an engine on this machine, or there can be none."""
        if config not in self._found:
            self._found[config] = self._read(config)
        return self._found[config]

    def _read(self, config: EngineConfig) -> Fitted | None:
        try:
            found = calibrate.kept(replace(config, kv_dtype=AUTO))
        except PenstockError:
            return None
        if found is None:
            return None
        times = None
        if config == self.present and self.steps.num_steps >= LEAST_STEPS:
            times = times_as_long(found.timer, self.steps), "the engine's steps take"
        if told := doubt(config, found.made, times, made_now(config.threads if found.made is None else found.made.threads)):
            self.notes.append(told)
        return found.timer
