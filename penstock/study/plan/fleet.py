"""Several models over mixed devices: who runs where.

A heuristic, not an optimum (bin packing is NP-hard): models are placed one after the other, those that take the most devices first (first
fit decreasing); each takes, of its configurations that meet the SLO, the one that adds least to the bill. A replica of several devices
needs them free in one node: it gets the fullest node that has them. A replica of one device may share it: memory adds up, and while others
compute it waits, so that its times are divided by the share of time that they leave, which must still keep the SLO.
"""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from penstock.core.catalogue.part import Part
from penstock.study.plan.configuration import Configuration


@dataclass(frozen=True, slots=True)
class Wish:
    """A model, and the ways in which it could be served at the rate that is asked for."""

    model: str
    rows: Sequence[Configuration]
    most_s: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Tenant:
    """One replica on a device."""

    wish: int
    device_bytes: float
    busy: float  # share of the time in which it computes
    slack: float  # how many times longer its steps may take


@dataclass(slots=True)
class Device:
    part: Part
    node: int
    tenants: list[Tenant] = field(default_factory=list)

    def takes(self, tenant: Tenant) -> bool:
        """Whether all still fit and keep their SLO with this one beside them."""
        tenants = [*self.tenants, tenant]
        if sum(each.device_bytes for each in tenants) > self.part.usable_bytes:
            return False
        busy = sum(each.busy for each in tenants)
        return busy < 1 and all(1 / (1 - (busy - each.busy)) <= each.slack for each in tenants)


@dataclass(frozen=True, slots=True)
class Placement:
    """A model, its configuration, and its devices by number. `reason`: why there are none."""

    model: str
    configuration: Configuration | None
    devices: tuple[int, ...] = ()
    added_usd_per_hour: float = 0.0
    reason: str = ""


class Fleet:
    """Devices in nodes. `counts`: how many there are of each part; None: as many as are needed."""

    def __init__(self, parts: Mapping[str, Part], counts: Mapping[str, int] | None) -> None:
        self._parts = parts
        self._counts = counts
        self.devices: list[Device] = []
        self._nodes = 0
        for name, count in (counts or {}).items():
            for _ in range(-(-count // parts[name].node)):
                self._add_node(parts[name], min(parts[name].node, count))
                count -= parts[name].node

    def place(self, wishes: Sequence[Wish]) -> list[Placement]:
        """In the order of the wishes."""
        done: dict[int, Placement] = {}
        for at in sorted(range(len(wishes)), key=lambda at: -_least_devices(wishes[at])):
            done[at] = self._place(at, wishes[at])
        return [done[at] for at in range(len(wishes))]

    def usd_per_hour(self) -> float:
        """Of the devices that are used."""
        return sum(cost_of(device.part) for device in self.devices if device.tenants)

    def _place(self, at: int, wish: Wish) -> Placement:
        best: tuple[float, Configuration, list[tuple[Device, Tenant]]] | None = None
        good = [row for row in wish.rows if row.fits and row.meets_slo and row.hardware in self._parts]
        if not good:
            return Placement(wish.model, None, reason=wish.rows[0].reason if wish.rows else "there is no hardware for it")
        for row in good:
            before = len(self.devices)
            found = self._try(at, wish, row)
            if found is not None:
                added = sum({id(device): cost_of(device.part) for device, _ in found if not device.tenants}.values())
                if best is None or added < best[0]:
                    best = added, row, found
            del self.devices[before:]  # only thought of; those of the best are put back when it is taken
        if best is None:
            return Placement(wish.model, None, reason=wanting(good[0]))
        return self._take(wish, best)

    def _take(self, wish: Wish, best: tuple[float, Configuration, list[tuple[Device, Tenant]]]) -> Placement:
        added, row, found = best
        numbers = []
        for device, tenant in found:
            if not any(device is each for each in self.devices):
                self.devices.append(device)
            device.tenants.append(tenant)
            numbers.append(next(i for i, each in enumerate(self.devices) if each is device))
        return Placement(wish.model, row, tuple(sorted(set(numbers))), added)

    def _try(self, at: int, wish: Wish, row: Configuration) -> list[tuple[Device, Tenant]] | None:
        """The devices of each replica. They are taken for the time being, so that replicas do not get the same."""
        found: list[tuple[Device, Tenant]] = []
        share = row.tensor_parallel * row.pipeline_parallel
        tenant = Tenant(at, row.device_bytes or 0.0, 1.0 if share > 1 else min(1.0, row.running or 0.0), _slack(row, wish.most_s))
        for _ in range(row.replicas):
            devices = self._free(row.hardware, share) if share > 1 else self._shared(row.hardware, tenant) or self._free(row.hardware, 1)
            if devices is None:
                for device, _ in found:
                    device.tenants.pop()
                return None
            for device in devices:
                device.tenants.append(tenant)
                found.append((device, tenant))
        for device, _ in found:
            device.tenants.pop()
        return found

    def _shared(self, name: str, tenant: Tenant) -> list[Device] | None:
        """The fullest device that takes it."""
        able = [each for each in self.devices if each.part.name == name and each.tenants and each.takes(tenant)]
        return [max(able, key=lambda each: sum(t.device_bytes for t in each.tenants))] if able else None

    def _free(self, name: str, count: int) -> list[Device] | None:
        """Free devices of the fullest node that has so many, or new nodes."""
        nodes: dict[int, list[Device]] = {}
        for device in self.devices:
            if device.part.name == name and not device.tenants:
                nodes.setdefault(device.node, []).append(device)
        able = [devices for devices in nodes.values() if len(devices) >= count]
        if able:
            return min(able, key=len)[:count]
        if self._counts is not None:
            return None
        part = self._parts[name]
        begin = len(self.devices)
        for _ in range(-(-count // part.node)):
            self._add_node(part, min(count, part.node))
        return self.devices[begin : begin + count]

    def _add_node(self, part: Part, count: int) -> None:
        self.devices += [Device(part, self._nodes) for _ in range(count)]
        self._nodes += 1


def wanting(row: Configuration) -> str:
    """Why there is no place for it."""
    share = row.tensor_parallel * row.pipeline_parallel
    if share > 1:
        each = " for each replica" if row.replicas > 1 else ""
        return f"needs {row.devices} of {row.hardware}, {share} of them in one node{each}, and these are not free"
    free = "none is free" if row.devices == 1 else "not enough are free"
    return f"needs {row.devices} of {row.hardware}: {free}, and those in use have no room or time for it"


def cost_of(part: Part) -> float:
    """Dollars an hour. Raises ValueError where nobody told."""
    if part.price is None:
        raise ValueError(f"{part.name} has no price")
    return part.price


def _least_devices(wish: Wish) -> int:
    return min((row.devices for row in wish.rows if row.fits and row.meets_slo), default=0)


def _slack(row: Configuration, most_s: Mapping[str, float]) -> float:
    """How many times longer its steps may take before it misses an objective."""
    told = {"ttft": row.ttft_p99_s or row.ttft_s, "tpot": row.tpot_s, "e2e": row.e2e_s}
    return min((most / value for name, most in most_s.items() if (value := told.get(name))), default=float("inf"))
