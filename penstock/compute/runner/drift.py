"""What rounding the rows before quantized matrices does to a model's next-token distributions, tried out on a few tokens."""
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.compute.arrays import Array
from penstock.compute.backends.contract import NO_COPIES, Backend, Batch
from penstock.core.modelspec import ModelSpec

TEXT = (
    "The ferry left at ten past six, two minutes after the rain had stopped. Nobody on board knew that the bridge was closed, and so "
    "when the captain turned north, most of the passengers went on reading. One of them, a teacher from Lund, counted the gulls: "
    "eleven, twelve, then none. \"How long does it take?\" her son asked. She did not answer at once.\n\n"
    "def area(width, height):\n    return width * height\n\nThe sum of 17 and 25 is 42. In 1969, two people walked on the Moon; "
    "the third waited above it.\n"
)
MAX_TOKENS, MIN_TOKENS = 128, 16
WEIGHTS = 10**11  # that tokens may be multiplied with in all: well under a second for a model of 0.6 billion
PLACES = 32  # at which distributions are compared


@dataclass(frozen=True, slots=True)
class Drift:
    kl: float  # nats, mean over the places: from the distributions of rows as they are to those of rounded rows
    kept: int  # places at which the likeliest token stays
    places: int

    def told(self, quant: str) -> str:
        return (f"--quant {quant} rounds activations, which is lossy: at {self.places} places of a built-in text {self.kept} top choices "
                f"stay the same, and the distributions move by {self.kl:.2g} nats")


def rounding_drift(backend: Backend, loaded: Any, tokens: list[int]) -> Drift:
    """Runs `tokens` twice, with rows as they are and rounded. What is in the first blocks of the KV cache is lost."""
    size = loaded.layout.block_size
    exact, rounded = (log_softmax(backend.step(loaded, batch_of(tokens, size, exact)).logits) for exact in (True, False))
    kl = (np.exp(exact) * (exact - rounded)).sum(axis=1)
    return Drift(float(kl.mean()), int((exact.argmax(axis=1) == rounded.argmax(axis=1)).sum()), len(exact))


def num_tokens(spec: ModelSpec, num_slots: int) -> int:
    """As many as a model of this size takes in well under a second, and its context and its KV cache hold."""
    return min(MAX_TOKENS, max(MIN_TOKENS, WEIGHTS // spec.num_parameters()), spec.max_position, num_slots)


def batch_of(tokens: list[int], block_size: int, exact: bool) -> Batch:
    count = len(tokens)
    places = np.unique(np.linspace(0, count - 1, min(PLACES, count)).astype(np.int64))
    rows = np.arange(count, dtype=np.int64)
    return Batch(
        np.asarray(tokens, dtype=np.int64), rows, rows, np.array([0, count], dtype=np.int64), np.array([count], dtype=np.int64),
        [np.arange(-(-count // block_size), dtype=np.int64)], places, NO_COPIES, exact=exact)


def log_softmax(logits: Array) -> Array:
    shifted = logits - logits.max(axis=1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
