"""One engine that answers with drafts and without: two engines differ by where their memory lies, by up to 6 %."""
from collections.abc import Sequence
from time import perf_counter
from typing import Any, cast

from drafts.turns import Ask, Ran, run
from penstock.serve.engine.engine import Engine


class Timed:
    """A drafter, and how long it took: bookkeeping, decisions and proposals, and neither the rows of its drafts nor what they gain."""

    def __init__(self, drafter: Any) -> None:
        self._drafter = drafter
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        given = getattr(self._drafter, name)
        if not callable(given):
            return given

        def timed(*args: Any) -> Any:
            began = perf_counter()
            try:
                return given(*args)
            finally:
                self.seconds += perf_counter() - began

        return timed


class Switch:
    """Between runs. The engine keeps no prefixes, so that the same requests may come twice."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._runner = cast(Any, engine._runner)
        self._drafter = self._runner._drafter  # nothing but the runner knows of it

    def on(self) -> None:
        self._runner._drafter = self._drafter

    def run(self, requests: Sequence[Ask], drafts: bool) -> tuple[Ran, float]:
        """And the share of its time that the drafter took."""
        timed = self._runner._drafter = Timed(self._drafter) if drafts and self._drafter is not None else None
        ran = run({"": self._engine}, requests)[""]
        return ran, 0.0 if timed is None else timed.seconds / ran.seconds
