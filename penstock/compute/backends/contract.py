"""What a backend is given and gives back; arrays are numpy at this border."""
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from penstock.compute.backends.packed import PackedCache
from penstock.compute.decoding.sampling import Sampling
from penstock.compute.program import KVSpec, Program
from penstock.compute.weight import Coded, Form, Given
from penstock.core.message import message
from penstock.core.needs import Caps

Array = Any
LEAST_STEP = 64 << 20  # bytes of a step, beside its logits
MOST_SPARE = 256  # rows of logits whose memory a backend may keep for other steps, of two at once
NO_COPIES = np.zeros((0, 2), dtype=np.int64)  # `Batch.copies` of no blocks


@dataclass(frozen=True, slots=True)
class KVLayout:
    """The KV cache to lay out: `num_blocks` blocks of `block_size` slots in every KV layer, each slot one token's keys and values."""

    num_blocks: int
    block_size: int
    dtype: str = "auto"


@message
class Batch:
    """Any mix of prefill chunks, decodes and draft rows, as flat arrays of int64. Rows of one sequence stand together.

    T rows, S sequences, L rows whose logits are wanted.
    """

    tokens: Array  # [T]
    positions: Array  # [T]
    slots: Array  # [T] block * block_size + offset that the row's keys and values go to
    row_starts: Array  # [S + 1] sequence s has the rows row_starts[s] : row_starts[s + 1]
    contexts: Array  # [S] tokens in the cache after this step
    block_tables: Sequence[Array]  # S arrays of block ids
    logit_rows: Array  # [L]
    copies: Array  # [C, 2] (source, target) blocks, copied before anything is written
    wanted: tuple[str, ...] = ()  # buffers to hand out beside the logits, all T rows of them
    # [T] int32: draft trees. For each row the row that it follows, counted within its sequence's rows of this step, or -1: the cache.
    # A row sees the cache, those it follows and itself. None: each row follows the one before it.
    parents: Array | None = None
    # [M, 2] (source, target) slots: keys and values of accepted drafts, copied in this order before the blocks are; None: none.
    moves: Array | None = None
    inputs: Mapping[str, Array] = field(default_factory=dict)  # those of the program: [T, width] float32
    exact: bool = False  # rows stay as they are, also where they are to be rounded before they meet a quantized matrix


@message
class Outputs:
    logits: Array  # [L, vocab] float32
    buffers: Mapping[str, Array] = field(default_factory=dict)  # those that were wanted, float32


class Loaded(Protocol):
    """A program with its weights packed and its KV pool laid out; only its backend looks inside."""

    program: Program
    weight_bytes: int
    kv_bytes_per_token: int
    compute_type: str  # that its products are computed in, and so the rate that bounds them: fp32, bf16, int16 or int8
    sampling: Sampling | None  # a form of the sampler's arithmetic that is faster here


class Backend(Protocol):
    """Runs programs. A row's outputs have the same bits whatever else is in its step (promise 1); slots that a sequence has not
    written are never read into its results."""

    caps: Caps
    dtype: str  # computed in, and what the KV cache holds

    def held_bytes(self, program: Program, forms: Mapping[str, Form]) -> dict[str, int]:
        """What each weight of a program takes in memory once they are loaded in these forms."""
        ...

    def kv_token_bytes(self, kv: KVSpec) -> int:
        """What a token takes in the cache, over all layers."""
        ...

    def row_bytes(self, program: Program) -> int:
        """What a step takes in memory for each of its rows, beside logits."""
        ...

    def compute_type(self, coded: Coded | None) -> str:
        """What products are computed in, of a model with such matrices, or with none that is quantized: see Loaded."""
        ...

    def product_format(self, coded: Coded | None) -> str:
        """The name in `Hardware.products` of what `compute_type` is asked of; empty: `penstock limits` does not time these products."""
        ...

    def check(self, program: Program, forms: Mapping[str, Form]) -> None:
        """Raises UsageError for options that would change nothing of a model whose weights have these forms, or that it cannot have."""
        ...

    def load(self, program: Program, weights: Mapping[str, Given], kv: KVLayout, threads: int | None = None,
             cache: PackedCache | None = None) -> Loaded:
        """`weights`: one for each of the program's, in numpy, as codes or piece by piece; each is asked for once, in any order, and let
        go when it has been taken in. `threads`: None: one for each processor. `cache`: where a backend that packs weights may find
        and leave them packed. Raises KeyError when a weight is missing, ModelError for a program with ops that are planned with alone."""
        ...

    def step(self, loaded: Any, batch: Batch) -> Outputs: ...

    def read_blocks(self, loaded: Any, ids: Sequence[int]) -> Array:
        """Keys and values of whole blocks: [2, kv_layers, len(ids), block_size, kv_heads, head_dim], float32."""
        ...

    def write_blocks(self, loaded: Any, ids: Sequence[int], data: Array) -> None:
        """What `read_blocks` gave, into these blocks. Raises ValueError when `data` has another shape."""
        ...


def step_bytes(row_bytes: float, rows: int, vocab: int, logits: int) -> float:
    """What steps of so many rows take in memory, of which so many have logits: those of two earlier steps are kept while they are few."""
    kept = min(logits, MOST_SPARE)
    return max(LEAST_STEP, rows * row_bytes) + 4 * vocab * (2 * kept + (logits if logits > kept else 0))
