"""A set of options that differ from what the engine would run with: what is proposed, measured, and in the end written to a file."""
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from penstock.core.config import EngineConfig

RESTS_ON = {"draft_control": "propose", "admission": "order", "chunking": "order"}  # an option -> the one without which it says nothing


@dataclass(frozen=True, slots=True)
class Setting:
    """`changes`: (field of EngineConfig, value), in the order in which they were made."""

    changes: tuple[tuple[str, Any], ...] = ()

    def given(self, name: str, value: Any) -> "Setting":
        """With this option, in place of the value that it has."""
        return Setting((*[change for change in self.changes if change[0] != name], (name, value)))

    def without(self, name: str) -> "Setting":
        """With the default of an option, and of those that rest on it."""
        return Setting(tuple([change for change in self.changes if name not in (change[0], RESTS_ON.get(change[0]))]))

    def apply(self, config: EngineConfig) -> EngineConfig:
        return replace(config, **dict(self.changes))

    @property
    def key(self) -> str:
        """The same for the same options, in whichever order they were made."""
        return json.dumps(sorted(self.changes))

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.changes)

    def __len__(self) -> int:
        return len(self.changes)

    def __str__(self) -> str:
        return " ".join(f"{name}={told(value)}" for name, value in self.changes) or "the defaults"

    def as_json(self) -> dict[str, Any]:
        return dict(self.changes)


def told(value: Any) -> str:
    """A value as it is written on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)
