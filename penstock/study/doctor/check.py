"""What a check finds, and what it may look at."""
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import Any

GIB = 1 << 30


class Status(Enum):
    PASS = "PASS"
    WARN = "WARN"  # works, but slower or with less than it could
    ERROR = "ERROR"  # does not work


@dataclass(frozen=True, slots=True)
class Check:
    """`found` is for people, `details` for programs; `hint` says how to mend what is not as it should be."""

    name: str
    status: Status
    found: str
    hint: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Host:
    """All that checks look at beside Python itself. `root` is where /proc and /sys are; tests put a folder there."""

    root: Path
    home: Path
    environ: Mapping[str, str]
    native: ModuleType | None = None
    native_error: str | None = None  # why the module that is there cannot be imported

    def read(self, path: str) -> str | None:
        """A file below the root, without the space around; None where it cannot be read."""
        try:
            return (self.root / path).read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            return None

    def which(self, *names: str) -> str | None:
        """The first of these programs on PATH."""
        found = (shutil.which(name, path=self.environ.get("PATH", "")) for name in names)
        return next(filter(None, found), None)


def gib(num_bytes: float) -> str:
    return f"{num_bytes / GIB:.1f} GiB"
