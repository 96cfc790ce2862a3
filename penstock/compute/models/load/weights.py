"""A program's weights, from a checkpoint: tensors are found and checked at once, and each is read when a backend takes it."""
import hashlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.contract import Checkpoint
from penstock.compute.models.load.find import Finder, Placed
from penstock.compute.models.load.ordered import biases, in_order, ordered_vector
from penstock.compute.models.quantized import planned_codings, quantization_of, refuse_quantized
from penstock.compute.program import Program, WeightSpec
from penstock.compute.quant import microscaled
from penstock.compute.quant.codes import Codes, Coding, common
from penstock.compute.quant.contract import QuantScheme
from penstock.compute.quant.none import Stored
from penstock.compute.quant.planned import PlannedCoding
from penstock.compute.weight import DTYPES, Form, Weight, form_bytes
from penstock.core.errors import ModelError, UsageError

Array = Any
Progress = Callable[[int, int], None]  # (bytes done, bytes in all), of the matrices as they are taken
PIECE = 2 << 20  # weights that are handed over at once
PANEL = 64  # rows of which a piece is a multiple, so that a backend gets whole panels to pack


def load_weights(
    program: Program, checkpoint: Checkpoint, dtype: str, scheme: QuantScheme | None = None, progress: Progress | None = None,
    whole: bool = True,
) -> "Weights":
    """Every weight of `program` by name: matrices in the form that `scheme` gives them, all else to be rounded to `dtype` (float32,
    float16 or bfloat16, to nearest even).

    Tensors that the program has no use for are named in one line of the log, unless it is not the `whole` of the model.

    Raises ModelError when a tensor is missing or misshapen, and for a checkpoint that is quantized, UsageError on an unknown dtype. While
    weights are taken, ModelError is raised where one holds what its form cannot, and where a tied output table differs from the embeddings.
    """
    if dtype not in DTYPES:
        raise UsageError(f"unknown dtype {dtype!r}; known: {', '.join(DTYPES)}")
    refuse_quantized(checkpoint.config)
    finder = Finder(program, checkpoint)
    placed = {name: finder.place(weight) for name, weight in program.weights.items()}
    if whole:
        finder.tell_unused()
    return Weights(program, checkpoint, placed, Forming(dtype, scheme or Stored()), progress)


class Forming:
    """Chooses the form of each weight, and brings rows into it."""

    def __init__(self, dtype: str, scheme: QuantScheme) -> None:
        self._dtype = dtype
        self._scheme = scheme

    def forms(self, program: Program, stored: Callable[[str], Coding | None] = lambda name: None) -> dict[str, Form]:
        """`stored`: the coding in which the checkpoint has a matrix, where it has one."""
        tables = tables_of(program)
        codings = {name: stored(name) for name, weight in program.weights.items() if weight.matrix}
        read = any(coding is not None and not isinstance(coding, PlannedCoding) for coding in codings.values())
        vectors = "float32" if read else self._dtype  # beside codes they are stored exactly
        return {name: self._form(self._scheme.coding(weight.shape, name in tables), codings[name]) if weight.matrix else vectors
                for name, weight in program.weights.items()}

    def _form(self, wanted: Coding | None, stored: Coding | None) -> Form:
        """A matrix stored with scales of its own stays so where multiples of a unit are wanted: rounded again it would lose."""
        if wanted is not None and wanted.has_units and stored == replace(wanted, scales="float16"):
            return stored
        return wanted or stored or self._dtype

    def rows(self, rows: Array | Codes, form: Form) -> Array | Codes:
        """Rows as a checkpoint has them, in this form; numbers are left to be rounded by whoever takes them, but for float64.

        Raises ValueError for what the form cannot hold.
        """
        if isinstance(form, Coding):
            if isinstance(rows, Codes) and rows.coding.joined(form) == form:
                return rows.widened(form)
            return self._scheme.quantize(narrowed(plain(rows), "float32"), form)
        numbers = narrowed(plain(rows), form)
        if DTYPES[form] == np.float16 and not fits_float16(numbers):
            if not np.isfinite(numbers).all():
                raise ValueError("holds numbers that are not finite")
            raise ValueError(f"holds values beyond {np.finfo(np.float16).max:g}, the largest float16; take bfloat16 or float32")
        return numbers


def plain(rows: Array | Codes) -> Array:
    return rows.dequantize() if isinstance(rows, Codes) else rows


def narrowed(numbers: Array, dtype: str) -> Array:
    """float64 numbers, which no backend takes, in this dtype; others as they are."""
    if numbers.dtype != np.float64:
        return numbers
    with np.errstate(over="ignore"):
        return numbers.astype(DTYPES[dtype])


def fits_float16(numbers: Array) -> bool:
    with np.errstate(over="ignore"):
        return bool(np.isfinite(numbers.astype(np.float16)).all())


def tables_of(program: Program) -> set[str]:
    """The weights with a row for each word of the vocabulary: the embeddings, and what the logits are made with."""
    writer = {name: op for op in program.ops for name in op.outputs}
    last = writer[program.outputs["logits"]]
    while not last.weights:
        last = writer[last.inputs[0]]
    return {op.weights[0] for op in (*program.ops, last) if op.kind == "embed" or op is last}


def codings_of(program: Program, source: Any, kept: bool = True) -> Callable[[str], Coding | None]:
    """By the name of a matrix: the coding that a source (of the hub module) has it in; None: plain numbers. A GGUF file is asked, and of
    safetensors config.json tells. `kept`: what is loaded is told as it is kept, not as files have it. Raises ModelError as the file's
    reader does."""
    if source.stored is not None:
        return stored_codings(program, open_checkpoint(source.path))
    found = quantization_of(source.config)
    if found is None:
        return lambda name: None
    planned = planned_codings(program, found, tables_of(program))
    return (lambda name: planned(name) and microscaled.coding()) if kept and found.served else planned


def stored_codings(program: Program, checkpoint: Checkpoint) -> Callable[[str], Coding | None]:
    """By the name of a matrix: the coding that holds all of its tensors exactly; None where one of them is stored as plain numbers."""
    finder = Finder(program, checkpoint)
    placed = {name: finder.place(weight) for name, weight in program.weights.items()}
    return partial(stored_coding, checkpoint, placed)


def stored_coding(checkpoint: Checkpoint, placed: Mapping[str, Placed], name: str) -> Coding | None:
    codings = [checkpoint.coding(part.tensor) for part in placed[name].parts]
    known = [each for each in codings if each is not None]
    return common(known) if known and len(known) == len(codings) else None


class Weights(Mapping[str, Weight]):
    """Nothing is read before the pieces of a weight are asked for, and then no more than a piece at a time stays in memory."""

    def __init__(self, program: Program, checkpoint: Checkpoint, placed: Mapping[str, Placed], forming: Forming,
                 progress: Progress | None) -> None:
        self._program = program
        self._checkpoint = checkpoint
        self._placed = placed
        self._forming = forming
        self._progress = progress
        self.forms = forming.forms(program, partial(stored_coding, checkpoint, placed))
        self._total = sum(form_bytes(self.forms[name], weight.shape) for name, weight in program.weights.items() if weight.matrix)
        self._done = 0

    def fingerprint(self) -> str:
        """Tells these weights from all others: the files' content, the tensors that are taken of it, and the forms."""
        taken = [(weight, self._placed[name], self.forms[name]) for name, weight in self._program.weights.items()]
        return hashlib.blake2b(self._checkpoint.fingerprint() + repr(taken).encode(), digest_size=32).hexdigest()

    def __getitem__(self, name: str) -> Weight:
        spec = self._program.weights[name]
        return Weight(spec.shape, self.forms[name], partial(self._matrix if len(spec.shape) > 1 else self._vector, spec))

    def __iter__(self) -> Iterator[str]:
        return iter(self._program.weights)

    def __len__(self) -> int:
        return len(self._program.weights)

    def _vector(self, spec: WeightSpec) -> Iterator[Array]:
        parts: list[Any] = [self._formed(spec, ordered_vector(self._checkpoint, part)) for part in self._placed[spec.name].parts]
        yield np.concatenate([part.astype(np.float32) for part in parts])[None]
        del parts
        self._took(spec, 1)

    def _matrix(self, spec: WeightSpec) -> Iterator[Array | Codes]:
        placed = self._placed[spec.name]
        if spec.bias:
            yield self._formed(spec, biases(self._checkpoint, placed.parts, spec))
            return self._took(spec, spec.shape[0])
        for part in placed.parts:
            if part.turned or part.alternates or part.pairs is not None:
                for rows in in_order(self._checkpoint, part, spec):
                    yield self._formed(spec, rows)
                    self._took(spec, rows.shape[0])
                continue
            step = max(1, PIECE // spec.shape[-1] // PANEL) * PANEL
            for start in range(0, part.rows, step):
                stop = min(start + step, part.rows)
                rows = self._checkpoint.rows(part.tensor, start, stop)
                for twin in placed.twins:
                    self._compare(part.tensor, rows, twin, start)
                yield self._formed(spec, rows)
                self._took(spec, stop - start)

    def _formed(self, spec: WeightSpec, rows: Array | Codes) -> Array | Codes:
        try:
            return self._forming.rows(rows, self.forms[spec.name])
        except ValueError as error:
            raise ModelError(f"{spec.name} {error}") from None

    def _compare(self, tensor: str, rows: Array | Codes, twin: str, start: int) -> None:
        stop = start + rows.shape[0]
        if not np.array_equal(plain(rows), plain(self._checkpoint.rows(twin, start, stop))):
            raise ModelError(f"{twin} differs from {tensor}, but config.json ties them; set tie_word_embeddings to false to use both")

    def _took(self, spec: WeightSpec, rows: int) -> None:
        self._checkpoint.release()
        if self._progress is None or not spec.matrix:
            return
        self._done += form_bytes(self.forms[spec.name], (rows, spec.shape[-1]))
        self._progress(self._done, self._total)
