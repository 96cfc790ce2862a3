"""Models by name whose config.json Penstock knows, so that planning needs neither a download nor a network."""
import difflib
import os
import re
import tomllib
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

from penstock.compute.models.load import hub
from penstock.core.errors import UsageError

FILE = Path(__file__).with_name("known.toml")


def known_models() -> dict[str, dict[str, Any]]:
    """Config by short name, without the name on the hub."""
    return {name: _config(told) for name, told in _told().items()}


def known_config(name: str) -> Mapping[str, Any] | None:
    """By the short name or that of the hub, in any case; None where it is not known."""
    wanted = name.lower()
    for short, told in _told().items():
        if wanted in (short, str(told["hub"]).lower()):
            return _config(told)
    return None


def config_file(name: str) -> Path | None:
    """The config.json that a name is the path of; None where it is of none."""
    path = Path(os.path.expanduser(name))  # as hub.local_path
    return path if path.suffix == ".json" and os.path.isfile(path) else None


def other_names(name: str) -> str:
    """What else plan takes, for one who gave a name that stands for nothing: the known names like it, or all of them."""
    told = _told()
    names = {_plain(key): short for short, each in told.items() for key in (short, str(each["hub"]), str(each["hub"]).partition("/")[2])}
    near = list(dict.fromkeys(names[each] for each in difflib.get_close_matches(_plain(name), names)))
    meant = f"{', '.join(near[:-1])} or {near[-1]}" if len(near) > 1 else "".join(near)
    known = f"one of {len(told)} known names: did you mean {meant}?" if near else f"a known name: {', '.join(told)}"
    return f"plan also takes a folder, a GGUF file, a config.json, or {known}"


def has_weights(name: str) -> bool:
    """Whether the name stands for more than a config: a local or bundled model, or one that came from the hub."""
    if config_file(name) is not None:
        return False
    local = hub.local_path(name)
    if local is not None:
        return local.is_file() or any(local.glob("*.safetensors"))
    return known_config(name) is None or hub.is_cached(name)


def check_weights(name: str, what: str) -> None:
    """Raises UsageError for a short name or a config.json, which say no weights. `what`: that needs more, as `penstock tune`."""
    if name.endswith(".json"):
        raise UsageError(f"{what} runs the model, but {name} is only its config: give the folder or the GGUF file with its weights")
    told = _told().get(name.lower())
    if told is not None and hub.local_path(name) is None:
        raise UsageError(f"{what} runs the model, but of {name!r} only the config is known: give a folder or a GGUF file with its weights, "
                         f"or its name on the hub, {told['hub']}")


def _plain(name: str) -> str:
    """Without what models of the same shape are told apart by."""
    return re.sub(r"-(instruct|chat|it|base|hf)$", "", name.lower())


def _config(told: Mapping[str, Any]) -> dict[str, Any]:
    """With null in the fields that `null` lists, as TOML has no word for it."""
    fields = {key: deepcopy(value) for key, value in told.items() if key not in ("hub", "null")}
    return fields | dict.fromkeys(told.get("null", ()))


@cache
def _told() -> dict[str, dict[str, Any]]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
