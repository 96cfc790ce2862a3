"""Several models over mixed devices: who runs where.

A heuristic, not an optimum (bin packing is NP-hard): models are placed one after the other, those that take the most devices first (first
fit decreasing); each takes, of its configurations that meet the SLO, the one that adds least to the bill. Of few models, other orders and
configurations are tried as well, as many as the effort allows: what leaves fewer models without a place wins, and what costs less and
leaves out none but these. A replica of several devices needs them free in one node: it gets the fullest node that has them. One that is
larger than a node needs those of each stage in one (see `together`). A replica of one device may share it: memory adds up (see `Wish`), and
while others compute it waits, so that its times are divided by the share of time that they leave, which must still keep the SLO.
"""
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import le

from penstock.core.catalogue.part import Part
from penstock.study.plan.configuration import Configuration
from penstock.study.plan.evaluate import at_once

FEW = 12  # models, of which other ways are tried
EFFORT = 200_000  # looks at a device, in which they are
LEAST_USD = 1e-6  # an hour, that makes a difference
Way = tuple[float, Configuration, "list[tuple[Device, Tenant]]"]  # what it adds to the bill, and the devices of each replica


@dataclass(frozen=True, slots=True)
class Wish:
    """A model, and the ways in which it could be served at the rate that is asked for. `device_bytes` of a row are all that it needs of a
    device to itself: others there take the rest. `request_tokens`: of a mean request, in the cache."""

    model: str
    rows: Sequence[Configuration]
    most_s: Mapping[str, float]
    request_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Tenant:
    """One replica on a device."""

    wish: int
    device_bytes: float  # while its steps take as long as alone
    request_bytes: float  # of a request more
    busy: float  # share of the time in which it computes
    slack: float  # how many times longer its steps may take

    def held(self, longer: float) -> float:
        """Bytes while its steps take so many times as long, so that more requests are there at once (Little's law)."""
        return self.device_bytes + (at_once(longer * self.busy) - at_once(self.busy)) * self.request_bytes


@dataclass(slots=True)
class Device:
    part: Part
    node: int
    tenants: list[Tenant] = field(default_factory=list)

    def takes(self, tenant: Tenant) -> bool:
        """Whether all still fit and keep their SLO with this one beside them."""
        tenants = [*self.tenants, tenant]
        busy = sum(each.busy for each in tenants)
        if busy >= 1:
            return False
        longer = [(each, 1 / (1 - (busy - each.busy))) for each in tenants]
        return all(times <= each.slack for each, times in longer) and (
            sum(each.held(times) for each, times in longer) <= self.part.usable_bytes)


@dataclass(frozen=True, slots=True)
class Placement:
    """A model, its configuration, and its devices by number. `reason`: why there are none."""

    model: str
    configuration: Configuration | None
    devices: tuple[int, ...] = ()
    added_usd_per_hour: float = 0.0
    reason: str = ""


class Fleet:
    """Devices in nodes. `counts`: how many there are of each part; None: as many as are needed, of a part or of all."""

    def __init__(self, parts: Mapping[str, Part], counts: Mapping[str, int | None] | None) -> None:
        self.parts = parts
        self._counts: Mapping[str, int | None] = dict.fromkeys(parts) if counts is None else counts
        self.devices: list[Device] = []
        self._nodes = 0
        for name, count in self._counts.items():
            for left in range(count or 0, 0, -parts[name].node):
                self._add_node(parts[name], min(parts[name].node, left))

    def place(self, wishes: Sequence[Wish]) -> list[Placement]:
        """In the order of the wishes."""
        done: dict[int, Placement] = {}
        order = sorted(range(len(wishes)), key=lambda at: -_least_devices(wishes[at]))
        for at in order:
            done[at] = self._place(at, wishes[at], self.ways(at, wishes[at]))
        found = None
        if 1 < len(wishes) <= FEW:
            lost = frozenset(at for at, each in done.items() if each.configuration is None)
            found = _Search(Fleet(self.parts, self._counts), wishes, lost, self.usd_per_hour()).run(order)
        if found is not None:
            self.devices = Fleet(self.parts, self._counts).devices
            for at, row in found:
                done[at] = self._place(at, wishes[at], [] if row is None else self.ways(at, replace(wishes[at], rows=[row])))
        return [done[at] for at in range(len(wishes))]

    def usd_per_hour(self) -> float:
        """Of the devices that are used."""
        return sum(cost_of(device.part) for device in self.devices if device.tenants)

    def ways(self, at: int, wish: Wish) -> list[Way]:
        """Where each of its configurations would run now, the one that adds least first."""
        found: list[Way] = []
        for row in _good(wish, self.parts):
            before = len(self.devices)
            devices = self._try(at, wish, row)
            del self.devices[before:]  # only thought of; those of the way that is taken are put back
            if devices is not None:
                added = sum({id(device): cost_of(device.part) for device, _ in devices if not device.tenants}.values())
                found.append((added, row, devices))
        return sorted(found, key=lambda way: way[0])

    def put(self, way: Way) -> None:
        """Takes the devices."""
        there = {id(device) for device in self.devices}
        for device, tenant in way[2]:
            if id(device) not in there:
                there.add(id(device))
                self.devices.append(device)
            device.tenants.append(tenant)

    def put_back(self, way: Way, before: int) -> None:
        """Frees them. `before`: devices that there were."""
        for device, _ in reversed(way[2]):
            device.tenants.pop()
        del self.devices[before:]

    def _place(self, at: int, wish: Wish, ways: Sequence[Way]) -> Placement:
        if not ways:
            least = min(_good(wish, self.parts), key=lambda row: row.devices, default=None)
            if least is None:
                return Placement(wish.model, None, reason=wish.rows[0].reason if wish.rows else "there is no hardware for it")
            free = sum(device.part.name == least.hardware and not device.tenants for device in self.devices)
            return Placement(wish.model, None, reason=wanting(least, self.parts[least.hardware], free))
        added, row, devices = ways[0]
        self.put(ways[0])
        numbers = {id(device): number for number, device in enumerate(self.devices)}
        return Placement(wish.model, row, tuple(sorted({numbers[id(device)] for device, _ in devices})), added)

    def _try(self, at: int, wish: Wish, row: Configuration) -> list[tuple[Device, Tenant]] | None:
        """The devices of each replica. They are taken for the time being, so that replicas do not get the same."""
        found: list[tuple[Device, Tenant]] = []
        share, each = _share(row), together(row, self.parts[row.hardware])
        tenant = Tenant(at, row.device_bytes or 0.0, wish.request_tokens * row.kv_bytes_per_token,
                        1.0 if share > 1 else min(1.0, row.running or 0.0), _slack(row, wish.most_s))
        for _ in range(row.replicas * share // each):
            devices = self._free(row.hardware, each) if share > 1 else self._shared(row.hardware, tenant) or self._free(row.hardware, 1)
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
        """Free devices of the fullest node that has so many, or a new node."""
        nodes: dict[int, list[Device]] = {}
        for device in self.devices:
            if device.part.name == name and not device.tenants:
                nodes.setdefault(device.node, []).append(device)
        able = [devices for devices in nodes.values() if len(devices) >= count]
        if able:
            return min(able, key=len)[:count]
        if self._counts.get(name, 0) is not None:
            return None
        self._add_node(self.parts[name], count)
        return self.devices[-count:]

    def _add_node(self, part: Part, count: int) -> None:
        self.devices += [Device(part, self._nodes) for _ in range(count)]
        self._nodes += 1


@dataclass(slots=True)
class _Search:
    """Depth first through the orders of the models and the configurations of each. `lost`: the models without a place in the best way so
    far, which costs so much an hour."""

    fleet: Fleet
    wishes: Sequence[Wish]
    lost: frozenset[int]
    usd: float
    found: list[tuple[int, Configuration | None]] | None = None
    effort: int = 0

    def __post_init__(self) -> None:
        self.wishes = [replace(wish, rows=undominated(wish, self.fleet.parts)) for wish in self.wishes]

    def run(self, order: Sequence[int]) -> list[tuple[int, Configuration | None]] | None:
        """(model, its configuration), in the order in which they are to be placed; None where nothing better was found."""
        for each in itertools.permutations(order):
            if self.effort > EFFORT:
                break
            self.effort += 1
            self._go_on(each, [], frozenset(), 0.0)
        return self.found

    def _go_on(self, order: Sequence[int], chosen: list[tuple[int, Configuration | None]], lost: frozenset[int], usd: float) -> None:
        if not self._is_better(lost, usd):
            return
        if len(chosen) == len(order):
            self.lost, self.usd, self.found = lost, usd, list(chosen)
            return
        at, before = order[len(chosen)], len(self.fleet.devices)
        wish = self.wishes[at]
        self.effort += sum(row.replicas for row in wish.rows) * (1 + before)
        for way in self.fleet.ways(at, wish) if self.effort <= EFFORT else ():
            self.fleet.put(way)
            self._go_on(order, [*chosen, (at, way[1])], lost, usd + way[0])
            self.fleet.put_back(way, before)
        self._go_on(order, [*chosen, (at, None)], lost | {at}, usd)

    def _is_better(self, lost: frozenset[int], usd: float) -> bool:
        return len(lost) < len(self.lost) or (lost == self.lost and usd < self.usd - LEAST_USD)


def undominated(wish: Wish, parts: Mapping[str, Part]) -> list[Configuration]:
    """Its configurations that meet the SLO, without those that need no less than an earlier one in any respect."""
    kept: list[Configuration] = []
    needs: list[tuple[tuple[str, int, int], tuple[float, ...]]] = []
    for row in _good(wish, parts):
        share = _share(row)
        shared = (row.device_bytes or 0.0, row.kv_bytes_per_token, row.running or 0.0, -_slack(row, wish.most_s)) if share == 1 else ()
        kind, mine = (row.hardware, share, together(row, parts[row.hardware])), (row.replicas, *shared)
        if not any(other == kind and all(map(le, theirs, mine)) for other, theirs in needs):
            kept.append(row)
            needs.append((kind, mine))
    return kept


def together(row: Configuration, part: Part) -> int:
    """Devices that have to stand in one node, as the row's figures have it: those of a replica, of a stage where a node has fewer, and of
    nothing where it has fewer than that."""
    return next((count for count in (_share(row), row.tensor_parallel) if count <= part.node), 1)


def wanting(row: Configuration, part: Part, free: int) -> str:
    """Why there is no place for it. `free`: devices of its kind."""
    share, each = _share(row), together(row, part)
    if share > 1:
        owners = [owner for owner, several in (("stage", each < share), ("replica", row.replicas > 1)) if several]
        owned = f" for each {' of each '.join(owners)}" if owners else ""
        node = f", {each} of them in one node{owned}" if each > 1 else ""
        apart = ", but not so many in one node" if free >= row.devices else ""
        return f"needs {row.devices:,} of {row.hardware}{node}: {free_told(free)}{apart}"
    return f"needs {row.devices:,} of {row.hardware}: {free_told(free)}, and those in use have no room or time for it"


def free_told(free: int) -> str:
    return f"{free:,} {'is' if free == 1 else 'are'} free" if free else "none is free"


def cost_of(part: Part) -> float:
    """Dollars an hour. Raises ValueError where nobody told."""
    if part.price is None:
        raise ValueError(f"{part.name} has no price")
    return part.price


def _share(row: Configuration) -> int:
    """Devices of a replica."""
    return row.tensor_parallel * row.pipeline_parallel


def _good(wish: Wish, parts: Mapping[str, Part]) -> list[Configuration]:
    return [row for row in wish.rows if row.fits and row.meets_slo and row.hardware in parts]


def _least_devices(wish: Wish) -> int:
    return min((row.devices for row in wish.rows if row.fits and row.meets_slo), default=0)


def _slack(row: Configuration, most_s: Mapping[str, float]) -> float:
    """How many times longer its steps may take before it misses an objective."""
    told = {"ttft": row.ttft_p99_s or row.ttft_s, "tpot": row.tpot_s, "e2e": row.e2e_s}
    return min((most / value for name, most in most_s.items() if (value := told.get(name))), default=float("inf"))
