"""Where a program's weights are in a checkpoint: names, aliases, parts, what replaces a tensor that is left out. Reads headers only."""
import logging
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from penstock.compute.models.load.contract import Checkpoint
from penstock.compute.program import Pairs, Program, WeightSpec
from penstock.core.errors import ModelError

RECOMPUTED = re.compile(r"rotary_emb\.inv_freq$|\.masked_bias$|\.attn\.bias$")  # what older checkpoints keep and nobody needs
log = logging.getLogger("penstock.models")


@dataclass(frozen=True, slots=True)
class Part:
    """A tensor of the checkpoint: so many rows of a weight, those of stacked matrices one after another. A vector's values are its rows.
    See `WeightSpec` for the ways in which the tensor may have them in another order."""

    tensor: str
    rows: int
    turned: bool = False
    alternates: bool = False
    pairs: Pairs | None = None


@dataclass(frozen=True, slots=True)
class Placed:
    """The tensors that one after another are a weight, and those that must be equal to the first of them."""

    parts: tuple[Part, ...]
    twins: tuple[str, ...] = ()


class Finder:
    """A checkpoint as one program sees it; remembers which tensors have been found."""

    def __init__(self, program: Program, checkpoint: Checkpoint) -> None:
        self._program = program
        self._checkpoint = checkpoint
        self._names = frozenset(checkpoint.names())
        self._used: set[str] = set()

    def place(self, weight: WeightSpec) -> Placed:
        """Raises ModelError when a tensor is missing or misshapen."""
        fused = self._find(weight.fused) if weight.fused else None
        if fused is not None and (weight.fused != weight.turned or self._checkpoint.shape(fused) == weight.shape):
            return Placed((replace(self._part(fused, weight.shape), alternates=weight.alternates),))
        turned = self._find(weight.turned) if weight.turned else None
        if turned is not None:
            count, rows, inner = weight.shape
            part = self._part(turned, (count, inner, rows))
            return Placed((replace(part, rows=count * rows, turned=True, alternates=weight.alternates),))
        first = weight.stacked[0][0] if weight.stacked else ""
        if (weight.turned or weight.bias) and self._find(first) is None and self._checkpoint.spelled(first) == first:
            raise ModelError(f"{weight.turned or weight.fused} is missing from {self._checkpoint.where}")
        if weight.stacked:
            return Placed(tuple(part for tensors in weight.stacked for part in self._parts(weight, tensors, weight.shape[1:])))
        parts = self._parts(weight, weight.tensors, weight.shape)
        twins = tuple(filter(None, map(self._find, weight.twins)))
        self._used.update(twins)
        return Placed(tuple(parts), twins)

    def tell_unused(self) -> None:
        unused = sorted(self._checkpoint.spelled(name) for name in self._names - self._used if not RECOMPUTED.search(name))
        if unused:
            log.warning("tensors of %s that are not used: %s", self._checkpoint.where, summary(unused))
            log.debug("all tensors that are not used: %s", ", ".join(unused))

    def _parts(self, weight: WeightSpec, tensors: tuple[str, ...], shape: tuple[int, ...]) -> list[Part]:
        """The tensors that make up a matrix or vector of this shape."""
        found = [self._find(name) for name in tensors]
        if None in found and weight.fallback and self._checkpoint.config.get("tie_word_embeddings") is None:
            log.warning("%s is not in %s: %s takes its place", tensors[0], self._checkpoint.where, weight.fallback[0])
            tensors = weight.fallback
            found = [self._find(name) for name in tensors]
        rows = (shape[0],) if len(tensors) == 1 else weight.parts
        parts: list[Part] = []
        for name, actual, count in zip(tensors, found, rows, strict=True):
            if actual is None:
                raise ModelError(f"{self._checkpoint.spelled(name)} is missing from {self._checkpoint.where}")
            pairs = weight.pairs if weight.pairs is not None and len(parts) < weight.pairs.parts else None
            parts.append(replace(self._part(actual, (count, *shape[1:])), pairs=pairs))
        return parts

    def _part(self, name: str, expected: tuple[int, ...]) -> Part:
        shape = self._checkpoint.shape(name)
        if shape != expected:
            raise ModelError(f"{self._checkpoint.spelled(name)} in {self._checkpoint.where} has the shape {list(shape)}, but the model's"
                             f" config makes it {list(expected)}")
        self._used.add(name)
        rows = 1
        for size in shape[:-1] or shape:
            rows *= size
        return Part(name, rows)

    def _find(self, name: str) -> str | None:
        """What the checkpoint calls this tensor; None when it has none."""
        return next((each for each in self._program.spellings(name) if each in self._names), None)


def summary(names: Iterable[str], most: int = 8) -> str:
    """The names, layers and numbers put together: `model.layers.*.k_scale (32), extra.weight`."""
    groups = Counter(re.sub(r"(?<=\.)\d+(?=\.)", "*", name) for name in names)
    told = [name if count == 1 else f"{name} ({count})" for name, count in groups.items()]
    return ", ".join(told[:most]) + (f" and {len(told) - most} more kinds" if len(told) > most else "")
