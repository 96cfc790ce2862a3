"""A table of plug-ins: `name -> "module:Class"`, imported only when asked for; options parsed from `name:key=value,...`."""
import dataclasses
import importlib
import math
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from penstock.core.errors import UsageError

KINDS = {int: "a whole number, such as 2", float: "a finite number, such as 2 or 0.5"}


class Table(Mapping[str, str]):
    """The names of one kind of plug-in. `kind` is the word used in error messages, for example "batching mode"; `also` are words that may
    stand where a name does, such as "auto", where it is known beforehand with the name that each stands for: errors tell them with the
    names."""

    def __init__(self, kind: str, entries: Mapping[str, str], also: Sequence[str] | Mapping[str, str] = ()) -> None:
        self.kind = kind
        self.also = tuple(also)
        self._meant = dict(also) if isinstance(also, Mapping) else {}
        self._entries = dict(entries)

    def __getitem__(self, name: str) -> str:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def meant(self, word: str) -> str:
        """The name that a word of `also` stands for; everything else as it is."""
        return self._meant.get(word, word)

    def load(self, name: str) -> Any:
        """The class behind `name`. Raises UsageError, naming the valid choices, when there is none."""
        if name not in self._entries:
            raise UsageError(f"unknown {self.kind} {name!r}; known: {', '.join([*self.also, *self._entries])}")
        module, _, attribute = self._entries[name].partition(":")
        return getattr(importlib.import_module(module), attribute)

    def parse(self, text: str) -> tuple[Any, Any]:
        """`name:key=value,...` -> (class, its `Options` filled in). A class without `Options` takes none."""
        name, _, rest = text.partition(":")
        plugin = self.load(name)
        options_type = getattr(plugin, "Options", None)
        pairs = parse_pairs(rest, f"{self.kind} {name}")
        if options_type is None:
            if pairs:
                raise UsageError(f"{self.kind} {name!r} takes no options, but got {', '.join(pairs)}")
            return plugin, None
        return plugin, fill(options_type, pairs, f"{self.kind} {name}")


def parse_pairs(text: str, owner: str) -> dict[str, str]:
    """`key=value,key=value` -> dict. Raises UsageError on anything else, and for a key without a value or there twice."""
    pairs: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{owner}: {part[:80]!r} is not key=value")
        if not value.strip():
            raise UsageError(f"{owner}: {key.strip()} is given no value")
        if (key := key.strip()) in pairs:
            raise UsageError(f"{owner}: {key} is given twice, as {pairs[key]!r} and as {value.strip()!r}: leave one out")
        pairs[key] = value.strip()
    return pairs


def check_ranges(owner: str, options: Any, **ranges: tuple[float, float]) -> None:
    """Raises UsageError for the first option that is not from the low to the high end of its range, both included."""
    for name, (low, high) in ranges.items():
        value = getattr(options, name)
        if not low <= value <= high:
            raise UsageError(f"{owner}: {name} must be from {low:,} to {high:,}, not {value:,}")


def fill(options_type: type, pairs: Mapping[str, str], owner: str) -> Any:
    """Fills the dataclass `options_type` from strings, converted to each field's type. Unknown keys are errors."""
    hints = typing.get_type_hints(options_type)
    fields = {f.name for f in dataclasses.fields(options_type)}
    for key in pairs:
        if key not in fields:
            raise UsageError(f"{owner} has no option {key!r}; it has: {', '.join(sorted(fields)) or 'none'}")
    return options_type(**{key: convert(value, hints[key], f"{owner}: {key}") for key, value in pairs.items()})


def plain(hint: Any) -> Any:
    """A type without None."""
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        return next(kind for kind in typing.get_args(hint) if kind is not type(None))
    return hint


def typed(value: Any, kind: Any, owner: str) -> Any:
    """A value of a TOML file as `kind`: bool, int, float, str or tuple[str, ...]. Raises UsageError when it is of another type."""
    if kind == tuple[str, ...] and isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    if kind is float and type(value) is int:
        return float(value)
    if isinstance(kind, type) and type(value) is kind:
        return value
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "a string"}
    raise UsageError(f"{owner} must be {words.get(kind, 'a list of strings')}, not {value!r}")


def convert(text: str, to: Any, owner: str) -> Any:
    """A string as `to`: bool, int, float (a finite one), str, or one of these or None."""
    if plain(to) is not to:
        if text.lower() == "none":
            return None
        to = plain(to)
    if to is bool:
        words = {"true": True, "1": True, "yes": True, "on": True, "false": False, "0": False, "no": False, "off": False}
        if text.lower() not in words:
            raise UsageError(f"{owner} must be true or false, not {text!r}")
        return words[text.lower()]
    try:
        value = to(text)
    except ValueError:
        value = None
    if value is None or (to is float and not math.isfinite(value)):
        raise UsageError(f"{owner} must be {KINDS.get(to, to.__name__)}, not {text!r}")
    return value
