"""An engine that is a Python library, in a worker of its own interpreter, as a contestant."""
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from versus.contest import Entry, Measured
from versus.points import Point, asks, tokens_per_s
from versus.worker import Task, Worker

QUESTIONS = ("decode", "prefill", "streams", "mixed")


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a worker is started and what it can be asked."""

    module: str  # that serves; see worker.serve
    task: Task
    log: Path
    python: str = sys.executable
    environ: Mapping[str, str] = field(default_factory=dict)
    questions: tuple[str, ...] = QUESTIONS


class Library:
    def __init__(self, entry: Entry, recipe: Recipe) -> None:
        self.entry = entry
        self._recipe = recipe
        self._worker: Worker | None = None

    def takes(self, point: Point) -> bool:
        return point.question in self._recipe.questions

    def start(self) -> str:
        recipe = self._recipe
        self._worker = Worker([recipe.python, "-m", recipe.module], recipe.task, recipe.environ, recipe.log)
        return self._worker.version

    def measure(self, point: Point, round_number: int) -> Measured:
        """Raises RuntimeError when a request did not get all of its tokens."""
        assert self._worker is not None
        trace = asks(point, round_number)
        told = self._worker.run(trace)
        for ask, times in zip(trace, told.times, strict=True):
            if times.num_tokens != ask.num_new:
                raise RuntimeError(f"{ask.num_new} tokens were asked for, {times.num_tokens} came")
        return Measured(tokens_per_s(point, told.times), {**told.figures, "start_s": self._worker.start_s})

    def end(self) -> None:
        if self._worker is not None:
            self._worker.end()
            self._worker = None
