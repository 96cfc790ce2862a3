"""What a client is asked to do, and what it says it saw. Seconds."""
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

MILLI = 1e-3


@dataclass(frozen=True, slots=True)
class Load:
    """`prompts`: a JSON line for each request, in order (prompts.py). Either `users` who each wait for an answer, or an even `rate`."""

    url: str  # without /v1
    model: str
    tokenizer: Path
    prompts: Path
    requests: int
    output: int  # tokens of each answer
    users: int | None = None
    rate: float | None = None
    chat: bool = False


@dataclass(frozen=True, slots=True)
class Found:
    """By our definitions (docs/bench.md), as the client itself sums it up; None for what it does not tell."""

    answered: int
    prompt_tokens: float  # of all answered
    output_tokens: float
    requests_per_s: float
    ttft_p50: float | None = None
    ttft_mean: float | None = None
    tpot_p50: float | None = None
    tpot_mean: float | None = None
    itl_p50: float | None = None
    itl_mean: float | None = None
    e2e_p50: float | None = None
    e2e_mean: float | None = None
    ttft_p99: float | None = None
    tpot_p99: float | None = None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Asker(Protocol):
    name: str

    def ask(self, load: Load, folder: Path) -> Found:
        """`folder` is empty, for files. Raises RuntimeError where the client fails."""
        ...

    def close(self) -> None: ...


def last_line(log: Path) -> str:
    """What a program said last, which is its error where it failed."""
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() if log.exists() else []
    return lines[-1][:300] if lines else "nothing was said"
