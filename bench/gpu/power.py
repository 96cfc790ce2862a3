"""The power that nvidia-smi tells, sampled on a thread beside what is measured."""
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

COMMAND = ("nvidia-smi", "--query-gpu=power.draw.instant", "--format=csv,noheader,nounits")
LIMIT_S = 10.0


@dataclass(slots=True)
class Sampled:
    watts: list[float] = field(default_factory=list)
    failure: str = ""

    def told(self) -> dict[str, Any]:
        if self.failure or not self.watts:
            return {"failure": self.failure or "nvidia-smi told nothing in time"}
        return {"sampled_watts": sum(self.watts) / len(self.watts), "samples": len(self.watts)}


def drawn() -> float:
    """Watts of the first GPU. Raises OSError, SubprocessError, ValueError or LookupError where they are not told."""
    return float(subprocess.run(COMMAND, capture_output=True, text=True, check=True, timeout=LIMIT_S).stdout.split()[0])


@contextmanager
def sampling(read: Callable[[], float] = drawn) -> Iterator[Sampled]:
    """While the body runs, at least once, until the first failure."""
    found, done = Sampled(), threading.Event()

    def sample() -> None:
        while not found.failure:
            try:
                found.watts.append(read())
            except (OSError, subprocess.SubprocessError, ValueError, LookupError) as error:
                found.failure = f"{type(error).__name__}: {error}"
            if done.is_set():
                break

    sampler = threading.Thread(target=sample)
    sampler.start()
    try:
        yield found
    finally:
        done.set()
        sampler.join()
