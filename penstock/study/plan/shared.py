"""Several models over the devices there are: a TOML file with a table `devices` (part = count; left out: as many as needed) and a list
`models`, each with the fields of a Request and a rate.
"""
import dataclasses
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_type_hints

from penstock.core.catalogue.part import Part
from penstock.core.errors import UsageError
from penstock.core.registry import plain, typed
from penstock.study.plan.fleet import Fleet, Placement, Wish
from penstock.study.plan.request import Request, Watch, catalogue_of, objectives, parts_of, plan, unwatched

UNPLAYED = ("simulate", "prefill_split")  # of fleets, whose rows are arithmetic, each replica with all that its model takes
FIELDS = {name: plain(hint) for name, hint in get_type_hints(Request).items() if name not in UNPLAYED}
TEXT = {"tensor_parallel", "pipeline_parallel", "chunk", "price", "watts"}  # numbers are taken as well

MOST_DEVICES = 100_000  # of a part: each is looked at for each replica


@dataclass(frozen=True, slots=True)
class Shared:
    placements: Sequence[Placement]
    devices: Sequence[str]  # parts, by number
    usd_per_hour: float

    def as_json(self) -> dict[str, Any]:
        return {"placements": [asdict(each) for each in self.placements], "devices": list(self.devices), "usd_per_hour": self.usd_per_hour}


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
    asked = dataclasses.replace(given, hardware=hardware, **unplayed)
    requests = [_request(entry, asked, file) for entry in entries]
    parts: dict[str, Part] = {}
    for request in requests:
        with _naming(file, request.model):
            parts |= {part.name: part for part in parts_of(request)}
            objectives(request.slo)  # before any of them is planned
    if counts and (strange := [name for name in counts if name not in parts]):
        raise UsageError(f"{file} has devices {', '.join(strange)}, which no model may use")
    if unpriced := [name for name, part in parts.items() if part.price is None]:
        raise UsageError(f"who runs where is a question of dollars, and the price of {', '.join(unpriced)} is not known: "
                         f"give --price {unpriced[0]}=DOLLARS")
    wishes = []
    for request in requests:
        with _naming(file, request.model):
            found = plan(request, _of(request.model, watch))
        wishes.append(Wish(request.model, found.configurations, found.most_s))
    fleet = Fleet(parts, counts)
    placements = fleet.place(wishes)
    return Shared(placements, [device.part.name for device in fleet.devices], fleet.usd_per_hour())


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
    request = dataclasses.replace(given, **values)
    if "model" not in values or (request.rate is None and request.traffic is None):
        raise UsageError(f"{file}: each of the models has a model and a rate, or a traffic")
    return request
