"""Whether a model fits a device: weights, activations, and what they leave for keys and values."""
import math
from dataclasses import dataclass

from penstock.compute.backends.contract import step_bytes
from penstock.compute.backends.cpu.layout import padded
from penstock.compute.program import KVSpec
from penstock.compute.steptime import Split
from penstock.core.catalogue.part import Part
from penstock.core.config import EngineConfig
from penstock.decide.scheduler.step import most_logits
from penstock.study.plan.model import DEVICES, Stored

SEQS = EngineConfig().max_num_seqs  # that run at once, where nobody says how many
MOST_LOGITS = 256  # rows that are sampled from at once, on other engines
LOGIT_BYTES = 4  # logits are sampled from in float32


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes of the fullest device of a replica, and tokens of the replica."""

    usable: float
    weights: float
    activations: float
    reserved: float  # that the engine keeps for itself
    kv_bytes_per_token: float  # on this device

    @property
    def left(self) -> float:
        """For keys and values; negative where not even all else fits."""
        return self.usable - self.beside

    @property
    def beside(self) -> float:
        """Bytes that are held beside keys and values, however many."""
        return self.weights + self.activations + self.reserved

    @property
    def kv_tokens(self) -> int:
        return max(0, int(self.left / self.kv_bytes_per_token))

    def missing(self, tokens: int) -> float:
        """Bytes that are too many with so many tokens in the cache; 0 where they fit."""
        return max(0.0, tokens * self.kv_bytes_per_token - self.left)

    def overfull(self, tokens: int) -> float | None:
        """What the device would hold over what it can; None where they fit."""
        return self.needed(tokens) / self.usable if self.missing(tokens) else None

    def needed(self, tokens: float) -> float:
        """Bytes with so many tokens in the cache."""
        return self.beside + tokens * self.kv_bytes_per_token

    def told(self, tokens: int, part: Part) -> str:
        """Why so many tokens do not fit."""
        cached, needs = tokens * self.kv_bytes_per_token, self.needed(tokens)
        kept = f", the engine's own {gb(self.reserved)}" if self.reserved else ""
        return (f"needs {gb(needs)} GB a device (weights {gb(self.weights)}, {tokens:,} tokens {gb(cached)}, activations "
                f"{gb(self.activations)}{kept}), {gb(self.missing(tokens))} GB more than {part.name}'s usable {gb(self.usable)}")


def gb(num_bytes: float) -> str:
    """With a digit after the point, or two that count where that would be 0."""
    return f"{num_bytes / 1e9:,.1f}" if num_bytes >= 1e8 else f"{num_bytes / 1e9:.2g}"


def room(stored: Stored, part: Part, split: Split, rows: int, seqs: int = SEQS) -> Room:
    """`rows` of a step at most, of so many sequences. Layers are divided among stages, the last of them rounded up; heads down to one on a
    device."""
    kv, ranks, stages = stored.program.kv, split.tensor_parallel, split.pipeline_parallel
    layers = math.ceil(kv.num_layers / stages) / kv.num_layers
    ends = sum(stored.tables) if stages == 1 else max(stored.tables)
    weights = (stored.matrices * layers + ends) / ranks + stored.whole * layers
    cached = stored.kv_bytes_per_token * layers * kv.share(ranks) * (padding(kv) if is_native(stored, part) else 1.0)
    return Room(part.usable_bytes, weights, activations(stored, part, ranks, rows, seqs), part.reserved, cached)


def is_native(stored: Stored, part: Part) -> bool:
    """Whether this engine's native backend would compute there."""
    return part.device in DEVICES and stored.row_bytes > 0


def padding(kv: KVSpec) -> float:
    """Times the bytes of keys and values that the native backend keeps for them (`kv_token_bytes`)."""
    return padded(kv.head_dim) / kv.head_dim if kv.parts == 2 else 1.0


def activations(stored: Stored, part: Part, ranks: int, rows: int, seqs: int) -> float:
    """Where this engine computes, what `serve` counts (serve/engine/resolve.activation_bytes). Elsewhere bytes of the most that an op has
    at once: what it reads and writes, and the residual; and logits, a row for each sequence at most."""
    program, size = stored.program, stored.numbers.storage.activation
    if is_native(stored, part):
        return step_bytes(stored.row_bytes, rows, program.vocab_size, most_logits(rows, seqs)) / ranks
    whole, divided = stored.row_values
    most = max(whole, divided / ranks)
    hidden = int(program.buffers[program.outputs["hidden"]][1])
    return rows * (most + hidden) * size + min(rows, MOST_LOGITS) * program.vocab_size * LOGIT_BYTES / ranks
