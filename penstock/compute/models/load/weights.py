"""Assembles a program's weights from a checkpoint: joins and stacks tensors, checks their shapes, rounds them to one dtype."""
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import ml_dtypes
import numpy as np

from penstock.compute.models.load.checkpoint import Checkpoint
from penstock.compute.program import Program, WeightSpec
from penstock.core.errors import ModelError, UsageError

Array = Any
Progress = Callable[[int, int], None]  # (bytes done, bytes in all), of the weights as they are laid out
DTYPES = {"float32": np.dtype(np.float32), "float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
RECOMPUTED = re.compile(r"rotary_emb\.inv_freq$|\.masked_bias$|\.attn\.bias$")  # what older checkpoints keep and nobody needs
log = logging.getLogger("penstock.models")


def load_weights(program: Program, checkpoint: Checkpoint, dtype: str, progress: Progress | None = None) -> dict[str, Array]:
    """Every weight of `program` by name, rounded to `dtype` (float32, float16 or bfloat16, to nearest even) and of that dtype.

    Tensors that the program has no use for are named in one line of the log. Raises ModelError when a tensor is missing, misshapen,
    or too large for float16, and when a tied output table differs from the embeddings; UsageError on an unknown dtype.
    """
    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    source = Source(program, checkpoint)
    total = program.num_parameters() * DTYPES[dtype].itemsize
    weights: dict[str, Array] = {}
    done = 0
    for name, weight in program.weights.items():
        weights[name] = source.assemble(weight, DTYPES[dtype])
        done += weights[name].nbytes
        if progress is not None:
            progress(done, total)
    source.tell_unused()
    return weights


class Source:
    """A checkpoint as one program sees it; remembers which tensors have been used."""

    def __init__(self, program: Program, checkpoint: Checkpoint) -> None:
        self._aliases = program.aliases
        self._checkpoint = checkpoint
        self._names = frozenset(checkpoint.names())
        self._used: set[str] = set()

    def assemble(self, weight: WeightSpec, dtype: np.dtype[Any]) -> Array:
        """The weight in `dtype`. Raises ModelError."""
        out = np.empty(weight.shape, dtype=dtype)
        fused = self._find(weight.fused) if weight.fused else None
        if fused is not None:
            self._copy(fused, out)
        elif weight.stacked:
            for index, tensors in enumerate(weight.stacked):
                self._join(weight, tensors, out[index])
        else:
            self._join(weight, weight.tensors, out)
            self._check_twins(weight)
        if dtype == np.float16 and not np.isfinite(out).all():
            raise ModelError(f"{weight.name} holds values beyond {np.finfo(dtype).max:g}, the largest float16; take bfloat16 or float32")
        return out

    def tell_unused(self) -> None:
        unused = sorted(name for name in self._names - self._used if not RECOMPUTED.search(name))
        if unused:
            log.warning("tensors of %s that are not used: %s", self._checkpoint.where, summary(unused))
            log.debug("all tensors that are not used: %s", ", ".join(unused))

    def _join(self, weight: WeightSpec, tensors: tuple[str, ...], out: Array) -> None:
        found = [self._find(name) for name in tensors]
        if None in found and weight.fallback and self._checkpoint.config.get("tie_word_embeddings") is None:
            log.warning("%s is not in %s: %s takes its place", tensors[0], self._checkpoint.where, weight.fallback[0])
            tensors = weight.fallback
            found = [self._find(name) for name in tensors]
        rows = (out.shape[0],) if len(tensors) == 1 else weight.parts
        at = 0
        for name, actual, count in zip(tensors, found, rows, strict=True):
            if actual is None:
                raise ModelError(f"{name} is missing from {self._checkpoint.where}")
            self._copy(actual, out[at : at + count])
            at += count

    def _copy(self, name: str, out: Array) -> None:
        shape = self._checkpoint.shape(name)
        if shape != out.shape:
            raise ModelError(
                f"{name} in {self._checkpoint.where} has the shape {list(shape)}, but config.json makes it {list(out.shape)}")
        self._used.add(name)
        with np.errstate(over="ignore"):
            out[...] = self._checkpoint.tensor(name)

    def _check_twins(self, weight: WeightSpec) -> None:
        for twin in filter(None, map(self._find, weight.twins)):
            original = self._find(weight.tensors[0])
            self._used.add(twin)
            if original is not None and not np.array_equal(self._checkpoint.tensor(twin), self._checkpoint.tensor(original)):
                raise ModelError(
                    f"{twin} differs from {original}, but config.json ties them; set tie_word_embeddings to false to use both")

    def _find(self, name: str) -> str | None:
        """What the checkpoint calls this tensor; None when it has none."""
        spellings = [name]
        for ours, theirs in self._aliases:
            spellings += [each.replace(ours, theirs, 1) for each in spellings if ours in each]
        return next((each for each in spellings if each in self._names), None)


def summary(names: Iterable[str], most: int = 8) -> str:
    """The names, layers and numbers put together: `model.layers.*.k_scale (32), extra.weight`."""
    groups = Counter(re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in names)
    told = [name if count == 1 else f"{name} ({count})" for name, count in groups.items()]
    return ", ".join(told[:most]) + (f" and {len(told) - most} more kinds" if len(told) > most else "")
