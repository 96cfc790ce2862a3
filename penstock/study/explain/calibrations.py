"""What was calibrated on this machine, as an explanation rests on it: each with a note where it may not hold."""
from dataclasses import dataclass, field, replace

from penstock.compute.fitted import Fitted
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.study.explain.learn import Steps, times_as_long
from penstock.study.plan import calibrate
from penstock.study.plan.calibrate import Calibration
from penstock.study.plan.made import LEAST_STEPS, doubt, made_now

AUTO = "auto"


@dataclass(slots=True)
class Calibrations:
    """`present`: the engine that is explained, and the `steps` that it timed. Nothing is run beside it, so other formats are judged by the
    machine's limits and the build of the native module alone. `notes` gains what is doubtful of those that are asked for."""

    present: EngineConfig
    steps: Steps
    notes: list[str]
    _found: dict[EngineConfig, Calibration | None] = field(default_factory=dict)
    _told: list[Calibration] = field(default_factory=list)  # once each, whatever lever asks

    def of(self, config: EngineConfig) -> Fitted | None:
        """None where nothing was learned of such an engine on this machine, or there can be none."""
        found = self._kept(config)
        if found is None:
            return None
        if found not in self._told:
            self._told.append(found)
            self._judge(config, found)
        return found.timer

    def _judge(self, config: EngineConfig, found: Calibration) -> None:
        times = None
        if self.steps.num_steps >= LEAST_STEPS and found == self._kept(self.present):
            times = times_as_long(found.timer, self.steps), "the engine's steps take"
        if told := doubt(config, found.made, times, made_now(config.threads if found.made is None else found.made.threads)):
            self.notes.append(told)

    def _kept(self, config: EngineConfig) -> Calibration | None:
        """Of whatever keys and values are kept in: steps are timed in the backend's own format."""
        config = replace(config, kv_dtype=AUTO)
        if config not in self._found:
            try:
                self._found[config] = calibrate.kept(config)
            except PenstockError:
                self._found[config] = None
        return self._found[config]
