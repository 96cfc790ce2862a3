"""The phases of a calibration's sweep: which load each puts on the engine, and what it found, kept in a file each until all are done, so
that a sweep which was stopped goes on where it was."""
import dataclasses
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.compute.fitted import Around, Timed
from penstock.core.amount import above_zero, amount
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError
from penstock.core.work import StepWork
from penstock.study.measure.datasets.synthetic import SyntheticOptions
from penstock.study.measure.keep import put
from penstock.study.sizes import doublings

PHASE_S = 1.5
LOADS = (0.3, 0.6, 0.9)  # of capacity
SPREAD = 0.9  # of lengths around their mean
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Phase:
    """Load for so many seconds: `users` who ask again when they are answered, else requests at random at this share of capacity."""

    lengths: SyntheticOptions
    seconds: float
    users: int | None = None
    load: float | None = None

    @property
    def told(self) -> str:
        return f"{self.users} at once" if self.users is not None else f"at random, {self.load:.0%} of capacity"


@dataclass(frozen=True, slots=True)
class First:
    """A request that had the engine to itself: its time to first token, and the tokens of its prompt, of which some were cached."""

    ttft_s: float
    num_prompt: int
    num_cached: int


@dataclass(frozen=True, slots=True)
class Measured:
    """What a phase left. `took_s`: the time that it took, the last answers included."""

    timed: Sequence[Timed]
    alone: Sequence[First]
    took_s: float

    def as_json(self) -> dict[str, Any]:
        timed = [[each.seconds, each.work.num_logits, each.work.contexts, dataclasses.astuple(each.around)] for each in self.timed]
        return {"timed": timed,
                "alone": [dataclasses.astuple(each) for each in self.alone], "took_s": self.took_s}


def measured_from_json(told: Any) -> Measured:
    """Raises KeyError, TypeError or ValueError for what `as_json` did not make."""
    timed = [Timed(StepWork(tuple((int(above_zero(rows)), int(above_zero(total))) for rows, total in contexts), int(amount(logits))),
                   above_zero(seconds), Around(*(int(amount(count)) for count in around)))
             for seconds, logits, contexts, around in told["timed"]]
    alone = [First(above_zero(ttft_s), int(above_zero(prompt)), int(amount(cached))) for ttft_s, prompt, cached in told["alone"]]
    if any(not each.work.contexts for each in timed) or any(first.num_cached >= first.num_prompt for first in alone):
        raise ValueError("nothing was computed in a step or for a prompt")
    return Measured(timed, alone, amount(told["took_s"]))


def phases_of(config: EngineConfig, phase_s: float = PHASE_S) -> list[Phase]:
    """Of an engine, in their order: those at random need to know what those of users found."""
    found = [Phase(lengths, phase_s * (1 + users.bit_length() // 3), users)  # with more of them, fewer steps
             for users in doublings(config.max_num_seqs) for lengths in shapes(config, users)]
    found += [Phase(lengths, 2 * phase_s, load=load) for lengths in shapes(config, config.max_num_seqs) for load in LOADS]
    return list(dict.fromkeys(found))


def shapes(config: EngineConfig, users: int) -> Iterator[SyntheticOptions]:
    """Lengths that fit the context and, all users together, the KV cache: answers after short and after long prompts, then mostly
    prompts."""
    context = min(config.max_model_len or 0, (config.kv_tokens or 0) // users)
    most = max(8, int(context / (1 + SPREAD)) - 2)
    answer = max(2, min(48, most // 4))
    yield SyntheticOptions(max(2, most // 16), answer, SPREAD, SPREAD)
    yield SyntheticOptions(max(2, min(most * 3 // 4, 4096)), answer, SPREAD, SPREAD)
    yield SyntheticOptions(max(2, min(most // 2, 2048)), max(2, answer // 4), SPREAD, SPREAD)


@dataclass(frozen=True, slots=True)
class Kept:
    """Phases in a folder, a file each, by what they are, by the `build` of the native module and by `config`, less the size of the cache:
    lengths hang on it, steps do not, and it may be another one whenever an engine starts."""

    folder: Path
    config: EngineConfig
    build: str = ""

    def read(self, phase: Phase) -> Measured | None:
        try:
            return measured_from_json(json.loads(self._file(phase).read_text(encoding="utf-8")))
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def keep(self, phase: Phase, found: Measured) -> None:
        """Whole or not at all. Raises PenstockError where it cannot be written."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            put(self._file(phase), json.dumps(found.as_json()))
        except OSError as error:
            raise PenstockError(f"cannot write {self.folder}: {error.strerror}") from None

    def forget(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)

    def _file(self, phase: Phase) -> Path:
        config = dataclasses.replace(self.config, kv_tokens=None)
        stated = json.dumps([dataclasses.asdict(phase), dataclasses.asdict(config), self.build], default=str)
        return self.folder / f"{hashlib.sha256(stated.encode()).hexdigest()[:16]}.json"


class Course:
    """Tells how long a sweep will take, from how much longer than their load the phases before took."""

    def __init__(self, phases: Sequence[Phase], say: Say) -> None:
        self.phases = phases
        self._say = say
        self._left = list(phases)
        self._loaded_s = self._took_s = 0.0

    def begin(self, found: Mapping[Phase, Measured]) -> None:
        """`found`: what an earlier sweep left."""
        for phase, kept in found.items():
            self._count(phase, kept)
        told = f", {len(found)} of them done by one that was stopped: {lasting(self.left_s)} to come" if found else (
            f": {lasting(self.left_s)} if steps are short")
        self._say(f"a sweep of {len(self.phases)} phases{told}; if stopped, it continues from there when started again")

    def done(self, phase: Phase, found: Measured) -> None:
        self._count(phase, found)
        self._say(f"{len(self.phases) - len(self._left)} of {len(self.phases)}, {phase.told}: {len(found.timed):,} steps"
                  + (f"; {lasting(self.left_s)} to come" if self._left else ""))

    @property
    def left_s(self) -> float:
        return sum(phase.seconds for phase in self._left) * (self._took_s / self._loaded_s if self._loaded_s else 1.0)

    def _count(self, phase: Phase, found: Measured) -> None:
        self._left.remove(phase)
        self._loaded_s += phase.seconds
        self._took_s += found.took_s


def lasting(seconds: float) -> str:
    return f"about {seconds:.0f} s" if seconds < 100 else f"about {seconds / 60:.0f} minutes"
