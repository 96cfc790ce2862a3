"""What the points of a model cost at least: bytes and operations counted from its program, at a number of bits a weight."""
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from penstock.compute.models.decoder import build as build_program
from penstock.compute.price import Price, Storage
from penstock.core.config import EngineConfig
from penstock.core.modelspec import ModelSpec
from penstock.core.work import StepWork
from penstock.serve.engine.build import Found, find
from versus.contest import Roof
from versus.points import NEW, Point, asks

STORED_BITS = {16: 16.0, 8: 8.0, 4: 4.5}  # bits of a weight -> with its scales: 4 bits have one of 16 bits for 32 weights
KV_VALUE_BYTES = 2
MIB = 1 << 20


@dataclass(frozen=True)
class Shape:
    model: str  # as it is called
    path: str  # as ours opens it
    found: Found

    @property
    def spec(self) -> ModelSpec:
        return self.found.spec

    @cached_property
    def _price(self) -> Price:
        program = build_program(self.spec, self.found.family.names, self.spec.max_position)
        no_weights = dict.fromkeys(program.weights, 0)  # `weight_bytes` counts them, from the spec
        return Price(program, Storage(activation=KV_VALUE_BYTES, kv=KV_VALUE_BYTES, weights=no_weights))

    @property
    def kv_bytes_per_token(self) -> int:
        return self.spec.kv_bytes_per_token(KV_VALUE_BYTES)

    def holds(self, point: Point) -> bool:
        return point.max_tokens <= self.spec.max_position

    def weight_bytes(self, bits: int) -> float:
        """That a step reads: the head, but of the embeddings no more than rows."""
        return self.spec.num_active_parameters() * STORED_BITS[bits] / 8

    def working_set(self, point: Point, bits: int) -> int:
        """Bytes that a step of this point reads again and again."""
        kv = self.kv_bytes_per_token * (point.depth + NEW // 2) if point.question == "decode" else 0
        return max(MIB, round(self.weight_bytes(bits) + kv))

    def limit(self, point: Point, bits: int, computes: str, roof: Roof) -> float:
        """Tokens a second that the machine's limits allow: whatever is faster skips bytes or operations."""
        if point.question == "decode":
            return 1 / self._step_seconds(StepWork(((1, point.depth + NEW // 2),), 1), bits, computes, roof)
        if point.question == "prefill":
            return point.size / self._step_seconds(StepWork(((point.size, point.size),), 1), bits, computes, roof)
        return self._serving_limit(point, bits, computes, roof)

    def operations(self, point: Point) -> int:
        """Of all requests of a point."""
        return sum(
            self._price.count(StepWork(((ask.num_prompt, ask.num_prompt),), 1)).operations
            + (ask.num_new - 1) * self._price.count(StepWork(((1, ask.num_prompt + ask.num_new // 2),), 1)).operations
            for ask in asks(point, 0))

    def _step_seconds(self, work: StepWork, bits: int, computes: str, roof: Roof) -> float:
        cost = self._price.count(work)
        return max((self.weight_bytes(bits) + cost.kv_bytes) / roof.bytes_per_s, self._compute_seconds(cost.operations, computes, roof))

    def _serving_limit(self, point: Point, bits: int, computes: str, roof: Roof) -> float:
        """All operations at the full rate, or the longest answer's steps at the full bandwidth, or waiting for the last arrival."""
        trace = asks(point, 0)
        reading = max(ask.num_new for ask in trace) * self.weight_bytes(bits) / roof.bytes_per_s
        computing = self._compute_seconds(self.operations(point), computes, roof)
        return sum(ask.num_new for ask in trace) / max(reading, computing, max(ask.at_s for ask in trace))

    @staticmethod
    def _compute_seconds(operations: int, computes: str, roof: Roof) -> float:
        """Nothing where the rate of this type cannot be measured."""
        rate = roof.ops_per_s.get(computes)
        return operations / rate if rate else 0.0


def open_shape(model: str, models: Path | None) -> Shape:
    """`model`: a folder in `models`, or whatever Penstock opens: a path, a bundled model. Raises ModelError when there is none."""
    folder = models / model if models is not None else None
    path = str(folder) if folder is not None and folder.is_dir() else model
    return Shape(model, path, find(EngineConfig(model=path)))
