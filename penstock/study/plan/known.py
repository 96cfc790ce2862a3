"""Models by name whose config.json Penstock knows, so that planning needs neither a download nor a network."""
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("known.toml")


def known_models() -> dict[str, dict[str, Any]]:
    """Config by short name, without the name on the hub."""
    return {name: {key: value for key, value in told.items() if key != "hub"} for name, told in _told().items()}


def known_config(name: str) -> Mapping[str, Any] | None:
    """By the short name or that of the hub, in any case; None where it is not known."""
    wanted = name.lower()
    for short, told in _told().items():
        if wanted in (short, str(told["hub"]).lower()):
            return {key: value for key, value in told.items() if key != "hub"}
    return None


def _told() -> dict[str, dict[str, Any]]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
