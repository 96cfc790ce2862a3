"""Where things lie and what is asked of every engine of a run. Rivals' own interpreters import this file, and have no Penstock."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from versus.points import Point
from versus.trace import WARM
from versus.worker import Task

if TYPE_CHECKING:
    from versus.shapes import Shape


@dataclass(frozen=True, slots=True)
class Place:
    shape: Shape
    points: tuple[Point, ...]
    threads: int
    logs: Path
    rivals: Path | None = None
    models: Path | None = None
    options: tuple[tuple[str, Any], ...] = ()  # fields of EngineConfig, for ours

    @property
    def keeps_prefixes(self) -> bool:
        """Whether all questions are of decode: then a deep context is computed once and taken from the engine's cache later."""
        return all(point.question == "decode" for point in self.points)

    @property
    def max_tokens(self) -> int:
        return max(WARM.num_prompt + WARM.num_new, *[point.max_tokens for point in self.points])

    @property
    def kv_tokens(self) -> int:
        """Of the largest point, and again half of it for what an engine keeps."""
        return max(4096, max(point.kv_tokens for point in self.points) * 3 // 2)

    def task(self, model: str, format: str, setting: str, **options: Any) -> Task:
        return Task(
            model, format, setting, self.threads, self.max_tokens, self.kv_tokens, self.shape.kv_bytes_per_token, self.keeps_prefixes,
            options)

    def log(self, *words: str) -> Path:
        return self.logs / ("-".join(filter(None, (self.shape.model, *words))).replace("/", "-").replace(" ", "-") + ".log")

    def converted(self, kind: str) -> Path | None:
        """The model in a rival's own format: `<model>.<kind>` among the models; None when there is none."""
        return converted(self.models, self.shape.model, kind)

    def file(self, format: str) -> Path | None:
        """The model as a GGUF file that llama.cpp made."""
        return self.converted(f"llamacpp-{format}")

    def tool(self, rival: str, name: str) -> Path | None:
        path = None if self.rivals is None else self.rivals / rival / "bin" / name
        return path if path is not None and path.exists() else None

    def version(self, rival: str) -> str:
        file = None if self.rivals is None else self.rivals / rival / "version"
        return file.read_text(encoding="utf-8").strip() if file is not None and file.exists() else "unknown"

    def openmp(self, spins: bool = True) -> dict[str, str]:
        """Threads that sleep at barriers lose to a busy host's slow wake-ups; so they spin, and stand still while others measure."""
        return {"OMP_NUM_THREADS": str(self.threads)} | ({"OMP_WAIT_POLICY": "active"} if spins else {})


def converted(models: Path | None, model: str, kind: str) -> Path | None:
    path = None if models is None else models / f"{model}.{kind}"
    return path if path is not None and path.exists() else None


def checkpoint(place: Place) -> str | None:
    """The folder in Hugging Face layout that a library opens: of the shape, or of a bundled model. None for anything else."""
    if Path(place.shape.path).is_dir():
        return place.shape.path
    found = Path(place.shape.found.source.path)
    return str(found) if found.is_dir() else None


def questions(points: Sequence[Point]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(point.question for point in points))
