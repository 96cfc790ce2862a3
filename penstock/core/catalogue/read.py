"""The catalogue: parts by name, from a user's folder or from those that Penstock brings along, with any figure replaced.

A user's folder holds files of the same form, NAME.toml, and links/NAME.toml; one that says `like = "h100-sxm"` gives only what differs.
"""
import difflib
import math
import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.core.amount import above_zero
from penstock.core.catalogue.part import KERNELS, STAND_INS, Efficiency, Link, Part
from penstock.core.errors import UsageError
from penstock.core.hardware import Exposed, Products, flat, nested

OWN = Path(__file__).parent
LINKS = "links"
NAMED = ("link", "network")  # fields that name a link
WORDS = ("title", "device")  # that are no figures
RESERVED = ("all",)  # of the command line
NUMBERS = ("memory", "usable", "reserved", "memory_bandwidth", "power", "price", "node", "op_latency", "step_latency")
SHARES = ("memory", "attention", "codes8", "codes4")
BY_ROWS = "by_rows"  # of products: made, or told in a file, by weight format, length of a row and rows
NARROW = "attention64"  # of the operation rate, with heads of 64; that of `attention` where a file does not say
EXPERTS = "experts"  # of products, where rows are sent to experts; all of it where a file does not say
BLOCKS = "experts_blocks"  # the same of fp8 by blocks; no less where a file does not say
EXPOSED = "exposed"  # of reading: likewise, by weight format and rows
LINK_NUMBERS = ("bandwidth", "base_latency", "hop_latency", "efficiency")
LINK_ELSE: Mapping[str, str | float] = {  # of a link that does not say: one protocol for all messages, a switch, and no direct sums
    "small_efficiency": "efficiency", "bulk_base_latency": "base_latency", "bulk_hop_latency": "hop_latency", "peers": 1,
    "direct_latency": math.inf, "direct_efficiency": "efficiency"}
NEVER = "direct_latency"  # may be infinite
TIMED = "kernels"  # a table that a part need not have
PREFIXES = {"p": -12, "n": -9, "u": -6, "m": -3, "k": 3, "K": 3, "M": 6, "G": 9, "T": 12, "P": 15}  # powers of ten
WITH_UNIT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([pnumkKMGTP]?)(?:B|B/s|s|W|OPS|FLOPS|ops/s|FLOP/s)?")
LARGE, APART = 1e6, 1000.0  # bytes and operations; how many times below a part's own figure one is a number whose unit was forgotten
NEAR = 1.5  # powers of ten: half of what is between a billion and a thousand of them
MAY_BE_UNKNOWN = ("price", "power")  # of parts that are made, not read
MAY_BE_ZERO = (
    "reserved", "price", "power", "op_latency", "step_latency", "base_latency", "hop_latency", "bulk_base_latency", "bulk_hop_latency",
    "direct_latency")


class Catalogue:
    def __init__(self, folder: Path | None = None, more: Mapping[str, Callable[[], dict[str, Any]]] | None = None) -> None:
        """`folder`: the user's own, looked into first; `more`: parts that are made when they are asked for, by name. Raises UsageError
        when there is no such folder."""
        if folder is not None and not folder.is_dir():
            raise UsageError(f"there is no folder {str(folder)!r} with parts")
        self._folders = [OWN] if folder is None else [folder, OWN]
        self._more = more or {}

        if taken := [name for name in (*self._more, *RESERVED) if folder is not None and (folder / f"{name}.toml").is_file()]:
            raise UsageError(f"{folder}: a part may not be called {taken[0]}, which stands for something else: give it another name")

    def names(self) -> list[str]:
        """Of parts."""
        return sorted({file.stem for folder in self._folders for file in folder.glob("*.toml")})

    def links(self) -> list[str]:
        return sorted({file.stem for folder in self._folders for file in (folder / LINKS).glob("*.toml")})

    def named(self, name: str) -> str:
        """The part that a name stands for: its own, or a short one of no other (`is_short`). Any other is left as it is."""
        every = [*self.names(), *self._more]
        meant = [each for each in every if is_short(name, each)]
        return meant[0] if name not in every and len(meant) == 1 else name

    def part(self, name: str, changes: Mapping[str, str] | None = None) -> Part:
        """`changes`: dotted names of figures and their values, as `memory_bandwidth=8e12`, `ops.bf16=2e15`, `link=nvlink-5`.

        Raises UsageError for a part or a figure that does not exist, or a value that cannot be.
        """
        told = self._told(name)
        changes = changes or {}
        for key, value in changes.items():
            if not key.startswith(tuple(f"{each}." for each in NAMED)):
                change(told, key, value, f"what-if {key}")
        made = {field: self._link(told[field], field, changes) for field in NAMED}
        return _part(name, told, made["link"], made["network"])

    def link(self, name: str) -> Link:
        """Raises UsageError, naming the known ones, when there is none."""
        return _link(name, _completed(self._read(name, LINKS, self.links())))

    def _told(self, name: str, after: tuple[str, ...] = ()) -> dict[str, Any]:
        """A part's file, over the file that it is like. `after`: the parts that are like it."""
        told = self._more[name]() if name in self._more else self._read(name, "", [*self.names(), *self._more])
        if "like" not in told:
            told = {"reserved": 0.0} | told
            _check(told, name)
            return told
        merged = _merged(self._likeness(told.pop("like"), (*after, name)), told)
        _check(merged, name)
        return merged

    def _likeness(self, other: Any, after: tuple[str, ...]) -> dict[str, Any]:
        """The file that the last of `after` says it is like. A user's file may be like ours of the same name."""
        name = after[-1]
        if not isinstance(other, str):
            raise UsageError(f"{name}.toml: like is the name of a part, not {other!r}")
        if other == name and (OWN / f"{name}.toml").is_file():
            return _read(OWN / f"{name}.toml")
        if other in after:
            raise UsageError(f"{name}.toml is like {other}, which is like itself then: {' -> '.join((*after, other))}")
        try:
            return self._told(other, after)
        except UsageError as error:
            raise UsageError(f"{name}.toml is like {other}: {error}") from None

    def _read(self, name: str, under: str, known: list[str]) -> dict[str, Any]:
        for folder in self._folders:
            file = folder / under / f"{name}.toml"
            if name in known and file.is_file():
                return _read(file)
        raise UsageError(unknown(name, "link" if under else "hardware", known))

    def _link(self, name: str, field: str, changes: Mapping[str, str]) -> Link:
        """A link by name, with the figures in `changes` that are called after the field: `link.bandwidth=9e11`."""
        told = self._read(name, LINKS, self.links())
        asked = {key: figure for key in changes for owner, dot, figure in [key.partition(".")] if dot and owner == field}
        for key, figure in sorted(asked.items(), key=lambda each: each[1] not in LINK_NUMBERS):  # what is not told is as these, changed
            told = told if figure in LINK_NUMBERS else _completed(told)
            change(told, figure, changes[key], f"what-if {key}")
        told = _completed(told)
        return _link(name, told)


def is_short(name: str, whole: str) -> bool:
    """Whether a name is some words of another in their order, as h200 of h200-sxm and RTX4090 of rtx-4090."""
    words, wanted = whole.split("-"), "".join(re.split(r"[\s_-]+", name.lower()))
    return any("".join(words[begin:end]) == wanted for begin in range(len(words)) for end in range(begin + 1, len(words) + 1))


def unknown(name: str, kind: str, known: Sequence[str]) -> str:
    """What is said of a name that none is called by."""
    if meant := [each for each in known if is_short(name, each)]:
        return f"{name} is {' or '.join(meant)}: name {'one of them' if len(meant) > 1 else 'it so'}"
    near = [each for each in known if each.startswith(name.lower())] or difflib.get_close_matches(name.lower(), known)
    return f"unknown {kind} {name!r}; " + (f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}")


def change(told: dict[str, Any], key: str, value: str, owner: str) -> None:
    """Replaces one figure of a file. Raises UsageError for one that it does not have, or another kind of value."""
    *path, last = key.split(".")
    at: Any = told
    for each in path:
        at = at.get(each) if isinstance(at, dict) else None
    if not isinstance(at, dict) or isinstance(at.get(last, {}), dict) or last in WORDS:
        raise UsageError(f"{owner}: there is no such figure; there are: {', '.join(figures(told))}")
    if isinstance(at[last], str):
        at[last] = value
        return
    own = at[last]
    try:
        at[last] = float(value)
    except ValueError:
        raise UsageError(f"{owner} must be a number in SI units, like {in_si(value)}, not {value!r}") from None
    if own is not None and LARGE <= own < math.inf and 0 < at[last] < own / APART:
        raise UsageError(f"{owner}={value} is more than {APART:,.0f} times below this part's own {own:g}: figures are in SI units (bytes, "
                         f"bytes/s, operations/s){_such_as(value, own)}")


def _such_as(text: str, own: float) -> str:
    """What was meant, where that is billions or more of what was said; empty where none of these is near the part's own figure."""
    said = float(text)
    power = next((power for power in (9, 12, 15) if abs(math.log10(said / own) + power) < NEAR), None)
    if power is None:
        return ""
    return f", such as {said * 10.0**power:g}" if "e" in text.lower() else f", such as {text.strip()}e{power}"


def in_si(text: str) -> str:
    """A number with a unit as a number: 8TB/s as 8e12. Of what is none, an example."""
    found = WITH_UNIT.fullmatch(text.strip())
    return "8e12" if found is None else f"{found[1]}e{PREFIXES[found[2]]}" if found[2] else found[1]


def figures(told: Mapping[str, Any], before: str = "") -> list[str]:
    """Dotted names of what can be changed, those of a part's links included."""
    found: list[str] = []
    for key, value in told.items():
        if key in (BY_ROWS, EXPOSED):
            continue  # too many to be listed
        if isinstance(value, Mapping):
            found += figures(value, f"{before}{key}.")
        elif key not in WORDS:
            found.append(before + key)
            found += [f"{key}.{figure}" for figure in (*LINK_NUMBERS, *LINK_ELSE)] if key in NAMED and not before else []
    return found


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not TOML: {error}") from None


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        merged[key] = _merged(below[key], value) if isinstance(value, Mapping) and isinstance(below.get(key), Mapping) else value
    return merged


def _check(told: Mapping[str, Any], name: str) -> None:
    """Raises UsageError for a figure that is missing or not known."""
    wanted = {*WORDS, *NUMBERS, *NAMED, "ops", "efficiency"}
    if missing := sorted(wanted - told.keys()):
        raise UsageError(f"{name}.toml lacks {', '.join(missing)}")
    told = {TIMED: {}} | dict(told)
    for key in (*WORDS, *NAMED):
        if not isinstance(told[key], str):
            raise UsageError(f"{name}.toml: {key} must be a string, not {told[key]!r}")
    shares = told["efficiency"]
    for key, table in (("ops", told["ops"]), ("efficiency", shares), (TIMED, told[TIMED])):
        if not isinstance(table, Mapping):
            raise UsageError(f"{name}.toml: {key} must be a table, not {table!r}")
    if not isinstance(shares.get("products", {}), Mapping):
        raise UsageError(f"{name}.toml: efficiency.products must be a table, not {shares['products']!r}")
    strange = [*sorted(told.keys() - wanted - {TIMED}), *(f"ops.{key}" for key in told["ops"] if key not in STAND_INS),
               *(f"{TIMED}.{key}" for key in told[TIMED] if key not in KERNELS),
               *(f"efficiency.{key}" for key in shares if key not in (*SHARES, NARROW, EXPERTS, BLOCKS, "products", BY_ROWS, EXPOSED))]
    if strange:
        raise UsageError(f"{name}.toml says {', '.join(strange)}, which a part does not have")
    products = shares.get("products", {})
    lacks = [f"efficiency.{key}" for key in SHARES if key not in shares] + [
        f"efficiency.products.{key}" for key in told["ops"] if key not in products] + ([] if "fp32" in told["ops"] else ["ops.fp32"])
    if lacks:
        raise UsageError(f"{name}.toml lacks {', '.join(lacks)}")


def _part(name: str, told: Mapping[str, Any], link: Link, network: Link) -> Part:
    number: dict[str, Any] = {
        key: None if told[key] is None and key in MAY_BE_UNKNOWN else _number(told[key], f"{name}: {key}", key in MAY_BE_ZERO)
        for key in NUMBERS}
    _share(told["usable"], f"{name}: usable")
    shares = told["efficiency"]
    efficiency = Efficiency(
        **{key: _share(shares[key], f"{name}: efficiency.{key}") for key in SHARES},
        products={key: _share(value, f"{name}: efficiency.products.{key}") for key, value in shares["products"].items()},
        by_rows=_by_rows(shares.get(BY_ROWS, {}), f"{name}: efficiency.{BY_ROWS}"),
        exposed=_exposed(shares.get(EXPOSED, {}), f"{name}: efficiency.{EXPOSED}"),
        **{key: _share(shares[key], f"{name}: efficiency.{key}") for key in (NARROW, BLOCKS) if key in shares},
        experts=_share(shares.get(EXPERTS, 1.0), f"{name}: efficiency.{EXPERTS}"))
    ops = {key: _number(value, f"{name}: ops.{key}") for key, value in told["ops"].items()}
    node = _whole(number.pop("node"), f"{name}: node")
    kernels = {key: _number(value, f"{name}: {TIMED}.{key}") for key, value in told.get(TIMED, {}).items()}
    return Part(name, str(told["title"]), str(told["device"]), **number, node=node, ops=ops, efficiency=efficiency, link=link,
                network=network, kernels=kernels)


def _completed(told: Mapping[str, Any]) -> dict[str, Any]:
    """With what a link need not say."""
    return {key: told[same] if isinstance(same, str) else same for key, same in LINK_ELSE.items()
            if not isinstance(same, str) or same in told} | dict(told)


def _link(name: str, told: Mapping[str, Any]) -> Link:
    wanted = ("title", *LINK_NUMBERS, *LINK_ELSE)
    if set(told) != set(wanted):
        raise UsageError(
            f"{LINKS}/{name}.toml must say title, {', '.join(LINK_NUMBERS)}, may say {', '.join(LINK_ELSE)}, and nothing else, not "
            f"{', '.join(told)}")
    for key in ("efficiency", "small_efficiency", "direct_efficiency"):
        _share(told[key], f"{name}: {key}")
    number = {key: math.inf if key == NEVER and told[key] == math.inf else _number(told[key], f"{name}: {key}", key in MAY_BE_ZERO)
              for key in wanted[1:]}
    peers = _whole(number.pop("peers"), f"{name}: peers")
    return Link(name, str(told["title"]), **number, peers=peers)


def _whole(value: float, owner: str) -> int:
    if value != int(value):
        raise UsageError(f"{owner} must be a whole number of devices, not {value:g}")
    return int(value)


def _by_rows(told: Any, owner: str) -> Products:
    """Shares that were measured, and may be a little above 1."""
    try:
        return nested(flat(told))
    except (AttributeError, TypeError, ValueError):
        raise UsageError(f"{owner} has a table for each weight format, with one for each length of a row: ROWS = SHARE") from None


def _share(value: Any, owner: str) -> float:
    if (found := _number(value, owner)) > 1:
        raise UsageError(f"{owner} is a share, at most 1, not {found:g}")
    return found


def _number(value: Any, owner: str, zero: bool = False) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (0 < value < float("inf") or (zero and value == 0)):
        raise UsageError(f"{owner} must be a number {'from 0 on' if zero else 'above 0'}, not {value!r}")
    return float(value)


def _exposed(told: Any, owner: str) -> Exposed:
    """The same."""
    try:
        return {str(form): {int(rows): above_zero(share) for rows, share in shares.items()} for form, shares in told.items()}
    except (AttributeError, TypeError, ValueError):
        raise UsageError(f"{owner} has a table for each weight format: ROWS = SHARE") from None
