"""How much a weight format may change what the model says: `kl=0.02,flips=0.05`."""
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from penstock.core.amount import amount
from penstock.core.errors import UsageError
from penstock.core.registry import parse_pairs

MEASURES = ("kl", "flips")


@dataclass(frozen=True, slots=True)
class Drift:
    """From the model as it is, at `places` of a built-in text. `kl`: nats, mean; `flips`: share at which another token is likeliest."""

    kl: float
    flips: float
    places: int

    def as_json(self) -> dict[str, Any]:
        return {"kl": self.kl, "flips": self.flips, "places": self.places}

    def __str__(self) -> str:
        return f"kl {self.kl:.2g} nats, flips {self.flips:.1%}, at {self.places} places of a built-in text"


def drift_of_json(told: Mapping[str, Any]) -> Drift:
    """Raises TypeError, KeyError or ValueError for what `as_json` did not make."""
    return Drift(amount(told["kl"]), amount(told["flips"]), int(amount(told["places"])))


@dataclass(frozen=True, slots=True)
class Budget:
    """Empty: nothing that changes the model's answers may be chosen."""

    most: Mapping[str, float] = field(default_factory=dict)

    def refusal(self, drift: Drift) -> str | None:
        """Why a format of this drift may not be chosen; None: it may."""
        for name, most in self.most.items():
            if (found := drift.as_json()[name]) > most:
                return f"its {name} of {found:.2g} is above the budget of {most:g} ({drift})"
        return None

    def __str__(self) -> str:
        return ",".join(f"{name}={most:g}" for name, most in self.most.items()) or "none: lossless"


def parse_budget(text: str | None) -> Budget:
    """Raises UsageError for a measure that there is none of, and for a number that is no bound."""
    if text is None:
        return Budget()
    most: dict[str, float] = {}
    for name, value in parse_pairs(text, "--quality-budget").items():
        if name not in MEASURES:
            raise UsageError(f"--quality-budget has no {name!r}; it has: {', '.join(MEASURES)}")
        try:
            most[name] = float(value)
        except ValueError:
            most[name] = -1.0
        if not 0 <= most[name] < float("inf"):
            raise UsageError(f"--quality-budget {name} must be a number from 0 on, like 0.02, not {value!r}")
        if name == "flips" and most[name] > 1:
            raise UsageError(f"--quality-budget flips is a share, at most 1, not {value}")
    if not most:
        raise UsageError(f"--quality-budget is like kl=0.02 or flips=0.05, not {text!r}")
    return Budget(most)
