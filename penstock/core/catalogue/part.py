"""A part that models run on, and the links between parts: figures as their makers give them, and what is known to be reached of them."""
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.core.hardware import Exposed, Hardware, Products, between

# Ops whose kernels others have timed: products of matrices, attention, experts, and experts in codes that are unpacked.
PRODUCT, ATTENTION, EXPERTS, UNPACKED_EXPERTS = KERNELS = ("product", "attention", "experts", "unpacked_experts")
# What computes in the place of a type that a part has no unit for, best first.
STAND_INS: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("fp4", "mxfp8", "fp8", "int8", "int16"), ("bf16", "fp16", "fp32")),
    "bf16": ("fp16", "fp32"), "fp16": ("bf16", "fp32"), "fp32": ()}


@dataclass(frozen=True, slots=True)
class Link:
    """What joins devices. Times follow the alpha-beta model of rings (Thakur, Rabenseifner, Gropp, 2005), by one of two protocols, the
    sooner: small messages carry a flag beside each word, so that nothing waits and half of the bytes are flags; large ones wait at each
    step, and fill the link (NCCL's LL, and its LL128 or Simple)."""

    name: str
    title: str
    bandwidth: float  # bytes/s that a device sends, and receives as many
    base_latency: float  # s before a collective moves anything
    hop_latency: float  # s for each of its steps
    efficiency: float  # share of the bandwidth that large messages reach
    small_efficiency: float  # that messages reach with the latencies above
    bulk_base_latency: float  # the same latencies of large messages
    bulk_hop_latency: float
    peers: int  # devices among which the bandwidth is divided, a wire to each; 1: a switch, which gives all of it to any
    direct_latency: float = math.inf  # s of a sum for which each device reads what all others have; inf: engines have no kernel for it
    direct_efficiency: float = 1.0  # share of the bandwidth that such reading reaches

    def all_reduce_seconds(self, num_bytes: float, ranks: int) -> float:
        """Sums `num_bytes` over devices that all have them: 2 (n - 1) steps, each of an n-th, or in one, each reading from all others."""
        if ranks == 1:
            return 0.0
        steps = 2 * (ranks - 1)
        direct = self.direct_latency + (ranks - 1) * num_bytes / (self.bandwidth * self.direct_efficiency)
        return min(direct, self._seconds(steps, steps * num_bytes / ranks, ranks))

    def gather_seconds(self, num_bytes: float, ranks: int) -> float:
        """Brings together `num_bytes` of which each device has an n-th."""
        steps = ranks - 1
        return self._seconds(steps, steps * num_bytes / ranks, ranks) if ranks > 1 else 0.0

    def send_seconds(self, num_bytes: float) -> float:
        """From one device to another."""
        return self._seconds(1, num_bytes, 2)

    def _seconds(self, steps: int, num_bytes: float, ranks: int) -> float:
        bandwidth = self.bandwidth * min(1.0, (ranks - 1) / self.peers)
        small = self.base_latency + steps * self.hop_latency + num_bytes / (bandwidth * self.small_efficiency)
        bulk = self.bulk_base_latency + steps * self.bulk_hop_latency + num_bytes / (bandwidth * self.efficiency)
        return min(small, bulk)


@dataclass(frozen=True, slots=True)
class Efficiency:
    """Shares of a part's figures that good kernels reach: admitted, each with its source in the part's file."""

    memory: float  # of the bandwidth
    attention: float  # of the operation rate
    codes8: float  # of `memory`, where weights are codes of 8 bits that are unpacked before they are multiplied
    codes4: float  # the same, of 4 bits
    products: Mapping[str, float]  # of the operation rates, by type
    by_rows: Products = field(default_factory=dict)  # of those rates again, by weight format, length of a row and rows; {}: all of them
    exposed: Exposed = field(default_factory=dict)  # of the time of reading weights; {}: reading and products hide each other
    attention64: float | None = None  # as `attention`, with heads of 64: half the products for as many exponentials; None: no less
    experts: float = 1.0  # of `products`, where rows are multiplied with the matrices of the experts that they are sent to
    experts_blocks: float | None = None  # the same, of matrices in fp8 with scales by blocks; None: no less

    def reached(self, form: str, inner: int, rows: float) -> float:
        """Of `products`, with so many rows, each so long, and a matrix in a weight format; all of it where that is not known."""
        of = self.by_rows.get(form)
        return between({length: between(shares, rows) for length, shares in of.items()}, inner) if of else 1.0

    def expert(self, blocks: bool) -> float:
        """Of `products`, with the matrices of experts; `blocks`: in fp8, with scales by blocks."""
        return self.experts_blocks if blocks and self.experts_blocks is not None else self.experts

    def attending(self, head: int) -> float:
        """Of the operation rate, with heads of this length."""
        return self.attention if self.attention64 is None else between({64: self.attention64, 128: self.attention}, head)

    def added(self, form: str, rows: float) -> float:
        """Of the time that weights in a format are read, what a product with so many rows takes longer for it; 0 where that is not
        known."""
        shares = self.exposed.get(form)
        return between(shares, rows) if shares else 0.0

    def unpacking(self, bits: int | None) -> float:
        """Of `memory`; `bits`: of codes that are unpacked, None for numbers that are multiplied as they are. Of codes between 4 and 8 bits
        nobody tells: they are taken for 8."""
        return 1.0 if bits is None else self.codes8 if bits > 4 else self.codes4


@dataclass(frozen=True, slots=True)
class Part:
    """One device: a card, a chip or a socket, with the links that it has."""

    name: str
    title: str
    device: str  # what a backend would have to compute on, as in `Caps.devices`
    memory: float  # bytes
    usable: float  # share of it for weights, keys, values, activations and what the engine keeps
    reserved: float  # bytes that an engine keeps for itself, whatever the model: context, workspaces, communication buffers, graphs
    memory_bandwidth: float  # bytes/s
    power: float | None  # W at full load; None: nobody told
    price: float | None  # USD an hour; None: nobody told
    node: int  # devices that `link` joins
    op_latency: float  # s that an operation takes beside its bytes and its arithmetic
    step_latency: float  # s a step, beside its operations
    ops: Mapping[str, float]  # type -> operations a second, dense
    efficiency: Efficiency
    link: Link  # within a node
    network: Link  # between nodes
    kernels: Mapping[str, float] = field(default_factory=dict)  # times `op_latency` that an op takes, of KERNELS, where it was timed

    @property
    def hardware(self) -> Hardware:
        """Its roofline, of the figures as they are given."""
        return Hardware(self.name, {int(self.memory): self.memory_bandwidth}, self.ops)

    @property
    def usable_bytes(self) -> float:
        return self.memory * self.usable

    def computes(self, dtype: str) -> str:
        """The type that products in `dtype` are computed in: itself, or what stands in where this part has no unit for it."""
        return computes(dtype, self.ops)

    def computes_codes(self, dtype: str) -> str:
        """The same for products with codes: what is computed with 16 or 32 bits may take 16-bit fixed point, where that is faster."""
        return computes_codes(dtype, self.ops)

    def joins(self, ranks: int) -> Link:
        """The slowest link among so many devices."""
        return self.link if ranks <= self.node else self.network


def computes(dtype: str, ops: Mapping[str, float]) -> str:
    """See `Part.computes`."""
    return next(each for each in (dtype, *STAND_INS[dtype]) if each in ops)


def computes_codes(dtype: str, ops: Mapping[str, float]) -> str:
    """See `Part.computes_codes`."""
    own, fixed = computes(dtype, ops), "int16"
    return fixed if own in STAND_INS[fixed] and ops.get(fixed, 0.0) > ops[own] else own
