"""Options that hold several values as text: lists of names, numbers, and figures by part."""
from collections.abc import Collection, Sequence

from penstock.core.catalogue.read import Catalogue, is_short
from penstock.core.errors import UsageError
from penstock.core.registry import parse_pairs

ALL = "all"
DIGITS = 15  # of a number of tokens or devices: what is larger is no longer exact as a float


def listed(given: Sequence[str], every: Sequence[str], otherwise: Sequence[str]) -> tuple[str, ...]:
    """`all` stands for `every`; where nothing is given, `otherwise`."""
    if not given:
        return tuple(otherwise)
    return tuple(dict.fromkeys(name for each in given for name in (every if each == ALL else (each,))))


def counts(text: str | None, option: str) -> list[int] | None:
    """`2,4,8` -> numbers. Raises UsageError for what is none."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    if any(word.isdecimal() and len(word) > DIGITS for word in words):
        raise UsageError(f"--{option}: numbers have at most {DIGITS} digits")
    if not all(word.isdecimal() and int(word) > 0 for word in words):
        raise UsageError(f"--{option} must be numbers from 1 on, separated by commas, not {text!r}")
    return sorted({int(word) for word in words})


def by_part(text: str | None, option: str, names: Sequence[str], catalogue: Catalogue) -> dict[str, str]:
    """A figure by part; one number is for all of them. Raises UsageError for what is none, and for other parts."""
    if text is None:
        return {}
    told = dict.fromkeys(names, text)
    if "=" in text:
        pairs = [(_among(names, name) or catalogue.named(name), figure) for name, figure in parse_pairs(text, option).items()]
        told = dict(pairs)
        if len(told) < len(pairs):
            raise UsageError(f"{option} {text} gives a part twice: leave one out")
    if strange := [name for name in told if name not in names]:
        raise UsageError(f"{option} names {', '.join(strange)}, which --hardware does not")
    for value in told.values():
        if not _is_amount(value):
            raise UsageError(f"{option} must be a number from 0 on, or NAME=NUMBER,..., not {value!r}")
    return told


def _among(names: Collection[str], name: str) -> str | None:
    """Of the parts that are asked about, the one that a name stands for, also where it is short for others of the catalogue."""
    meant = {each for each in names if each == name or is_short(name, each)}
    return name if name in meant else meant.pop() if len(meant) == 1 else None


def _is_amount(text: str) -> bool:
    try:
        return 0 <= float(text) < float("inf")
    except ValueError:
        return False
