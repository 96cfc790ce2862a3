"""Several models over the devices there are: a TOML file with a table `devices` (part = count; left out: as many as needed, and one of this
machine) and a list `models`, each with the fields of a Request and a rate.
"""
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any, get_type_hints

from penstock.core.catalogue.part import Part
from penstock.core.errors import UsageError
from penstock.core.registry import plain, typed
from penstock.study.plan.configuration import Configuration
from penstock.study.plan.degrees import Undivided, among
from penstock.study.plan.fleet import Fleet, Placement, Wish
from penstock.study.plan.here import HERE
from penstock.study.plan.load import Load
from penstock.study.plan.request import Request, Watch, catalogue_of, objectives, parts_of, plan, unwatched

UNPLAYED = ("simulate", "prefill_split")  # of fleets, whose rows are arithmetic, each replica with all that its model takes
FIELDS = {name: plain(hint) for name, hint in get_type_hints(Request).items() if name not in UNPLAYED}
TEXT = {"tensor_parallel", "pipeline_parallel", "expert_parallel", "chunk", "price", "watts"}  # numbers are taken as well

MOST_DEVICES = 100_000  # of a part: each is looked at for each replica


@dataclass(frozen=True, slots=True)
class Shared:
    placements: Sequence[Placement]
    devices: Sequence[str]  # parts, by number
    usd_per_hour: float
    undivided: Sequence[tuple[str, Undivided]] = ()  # models, and degrees of tensor parallelism that were not tried for them

    def as_json(self) -> dict[str, Any]:
        return {"placements": [asdict(each) for each in self.placements], "devices": list(self.devices), "usd_per_hour": self.usd_per_hour,
                "undivided": [{"model": model, **each.as_json()} for model, each in self.undivided]}


def _of(model: str, watch: Watch) -> Watch:
    return lambda told: watch(f"{model}: {told}")


def shared(file: Path, given: Request, watch: Watch = unwatched) -> Shared:
    """`given`: what each model's entry adds to. Raises UsageError for a file that cannot be obeyed."""
    told = _read(file)
    counts = _devices(told, file)
    if counts:
        names = {name: catalogue_of(given).named(name) for name in counts}
        if twice := [name for name, part in names.items() if list(names.values()).count(part) > 1]:
            raise UsageError(f"{file}: {' and '.join(twice)} are the same part: give one number of devices")
        counts = {part: counts[name] for name, part in names.items()}
    entries = told.get("models")
    if not isinstance(entries, list) or not entries or not all(isinstance(each, Mapping) for each in entries):
        raise UsageError(f"{file} must have a list of models, as [[models]] with model = ..., rate = ...")
    hardware = given.hardware or (",".join(counts) if counts else None)
    unplayed: dict[str, Any] = dict.fromkeys(UNPLAYED, False)
    asked = replace(given, hardware=hardware, **unplayed)
    requests = [_request(entry, asked, file) for entry in entries]
    users = _users(requests, file)
    parts = {name: of[0][0] for name, of in users.items()}
    there: Mapping[str, int | None] = {name: 1 if name == HERE else None for name in parts} if counts is None else counts
    if counts and (strange := [name for name in counts if name not in parts]):
        raise UsageError(f"{file} has devices {', '.join(strange)}, which no model may use")
    if unpriced := [name for name, part in parts.items() if part.price is None]:
        raise UsageError(f"who runs where is a question of dollars, and the price of {', '.join(unpriced)} is not known: "
                         f"give --price {unpriced[0]}=DOLLARS")
    wishes, left_out = [], list[tuple[str, Undivided]]()
    for request in requests:
        with _naming(file, request.model):
            found = plan(request, _of(request.model, watch), there.get(HERE) or 1)
        rows = [at_most(row, found.load, parts[row.hardware]) for row in found.configurations]
        wishes.append(Wish(request.model, rows, found.most_s, found.load.input + found.load.output))
        counted = [there.get(row.hardware, 0) for row in rows]
        most = max(MOST_DEVICES if count is None else count for count in counted)
        left_out += [(request.model, each) for each in among(most, found.undivided)]
    fleet = Fleet(parts, there)
    placements = fleet.place(wishes)
    return Shared(placements, [device.part.name for device in fleet.devices], fleet.usd_per_hour(), left_out)


def at_most(row: Configuration, load: Load, part: Part) -> Configuration:
    """With the bytes that a device holds of it while there are as many requests as hardly ever are more, or the longest one: on average
    there are fewer, but whoever shares the device has to leave room for these, and for those that wait for others there (`Tenant.held`).
    With `kv_tokens` the device is full."""
    if row.device_bytes is None:
        return row
    each = load.input + load.output
    now = (row.running or 0.0) * each
    most = max(now, (row.batch or 1) * each, load.most_tokens)
    share = (row.kv_tokens - most) / (row.kv_tokens - now) if row.kv_tokens > most else 0.0
    return replace(row, device_bytes=part.usable_bytes - share * (part.usable_bytes - row.device_bytes))


def _users(requests: Sequence[Request], file: Path) -> dict[str, list[tuple[Part, Request]]]:
    """By the name of a part the models that may use it, each with the part as it asks for it. Raises UsageError where two ask for
    different ones: the fleet has but one."""
    found: dict[str, list[tuple[Part, Request]]] = {}
    for request in requests:
        with _naming(file, request.model):
            parts = parts_of(request)
            objectives(request.slo)  # before any of them is planned
        for part in parts:
            found.setdefault(part.name, []).append((part, request))
            first, other = found[part.name][0]
            looked_up = {"memory"} if part.name == HERE and request.what_if == other.what_if else set[str]()  # anew: what is free changes
            names = [each.name for each in fields(Part) if each.name not in looked_up]
            if apart := [name for name in names if getattr(part, name) != getattr(first, name)]:
                raise UsageError(
                    f"{file}: {other.model} and {request.model} are given different figures of {part.name} ({', '.join(apart)}), which is "
                    "one part: give both the same price, watts, what-if and catalogue")
    return found


@contextmanager
def _naming(file: Path, model: str) -> Iterator[None]:
    """What is refused is told with the file and the model that it is of."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{file}, {model}: {error}") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        told = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not TOML: {error}") from None
    if strange := sorted(told.keys() - {"devices", "models"}):
        raise UsageError(f"{file}: {', '.join(strange)} is neither devices nor models")
    return told


def _devices(told: Mapping[str, Any], file: Path) -> dict[str, int] | None:
    counts = told.get("devices")
    if counts is None:
        return None
    if not isinstance(counts, Mapping):
        raise UsageError(f"{file}: devices is a table of numbers by part, as h100-sxm = 8, not {counts!r:.60}")
    for name, count in counts.items():
        if type(count) is not int or not 0 < count <= MOST_DEVICES:
            raise UsageError(f"{file}: the devices of a part are a number from 1 to {MOST_DEVICES:,}, and of {name} it is {count!r:.60}")
    return dict(counts)


def _request(entry: Mapping[str, Any], given: Request, file: Path) -> Request:
    values: dict[str, Any] = {}
    for key, value in entry.items():
        name = key.replace("-", "_")
        if name not in FIELDS:
            raise UsageError(f"{file}: a model has no {key!r}; it has: {', '.join(FIELDS)}")
        if name in ("quant", "kv_dtype") and isinstance(value, str):
            value = [value]
        if name in TEXT and type(value) in (int, float):
            value = str(value)
        values[name] = typed(value, FIELDS[name], f"{file}: {key} of a model")
    request = replace(given, **values)
    if "model" not in values or (request.rate is None and request.traffic is None):
        raise UsageError(f"{file}: each of the models has a model and a rate, or a traffic")
    return request
