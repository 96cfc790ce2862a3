"""What load is put on: a server by HTTP, or an engine in this process. And the clock that both read."""
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from penstock.study.measure.client.openai import Ask, Wish
from penstock.study.measure.samples import Sample


class Stopwatch:
    """Seconds since `start`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._begun = now()

    def start(self) -> None:
        self._begun = self._now()

    def __call__(self) -> float:
        return self.told(self._now())

    def told(self, at_s: float) -> float:
        """A reading of the clock beneath, as this one's."""
        return at_s - self._begun


class Target(Protocol):
    @property
    def max_model_len(self) -> int | None:
        """Tokens of a prompt and its answer that it takes at most; None where that is not known."""
        ...

    @property
    def wish(self) -> Wish:
        """What it asks for with every request."""
        ...

    def prepare(self, ask: Ask) -> Any:
        """What can be done before a request is due. Raises PenstockError for one that cannot be asked here."""
        ...

    async def send(self, prepared: Any, sample: Sample, keep_text: bool = False) -> str:
        """Sends a request and fills the sample in -> the text that a reader sees, where it is kept. Failures go into the sample."""
        ...

    async def metrics(self) -> str | None:
        """What the target says of itself in Prometheus' text format; None where it does not."""
        ...

    async def state(self) -> Mapping[str, Any] | None:
        """What a Penstock engine says of itself beside its counters (serve/engine/state.py); None of any other."""
        ...

    def notes(self) -> list[str]:
        """What a reader of the results must know, after the load."""
        ...

    async def lost(self) -> str | None:
        """Why nothing will answer any more, asked after requests have failed; None where something may."""
        ...

    async def close(self) -> None: ...
