"""How a backend holds a model's weights, known from headers and shapes before any weight is read or downloaded."""
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock import __version__
from penstock.compute.backends.contract import Backend
from penstock.compute.backends.packed import PackedCache
from penstock.compute.models.load.weights import Forming, Weights, codings_of
from penstock.compute.price import Price, Storage
from penstock.compute.program import Program
from penstock.compute.quant.codes import Coding
from penstock.compute.quant.contract import MIN_COLUMNS, QuantScheme
from penstock.compute.quant.planned import PlannedCoding
from penstock.compute.weight import Form, form_bytes, most_coded
from penstock.core.errors import UsageError
from penstock.core.modelspec import DTYPE_BYTES


@dataclass(frozen=True, slots=True)
class Held:
    """What a backend can hold: the dtypes and weight formats it accepts, the types that it computes in and keeps keys and values in, and
    the device."""

    dtypes: tuple[str, ...]
    dtype: str
    device: str = "cpu"
    quant_schemes: tuple[str, ...] = ("none",)
    weight_bytes: int = 0  # as it holds them
    compute_type: str = "fp32"  # that bounds its products
    least_share: int = 1  # of Caps
    kv_token_bytes: int = 0  # of a token in its cache
    row_bytes: int = 0  # of a step's row
    product_format: str = ""  # in `Hardware.products`, of most of its products; empty: these are not timed


@dataclass(frozen=True, slots=True)
class Holding:
    """A program's weights as they will be held: their forms, and what a backend makes of them."""

    program: Program
    forms: Mapping[str, Form]
    held_bytes: Mapping[str, int]  # of each weight, as the backend holds it
    held: Held

    @property
    def stored_bytes(self) -> int:
        """Bits per weight in these forms, without what a backend adds."""
        return sum(form_bytes(self.forms[name], weight.shape) for name, weight in self.program.weights.items())

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.stored_bytes / self.program.num_parameters()

    @property
    def price(self) -> Price:
        """Of its steps on this backend. What pads keys and values is read and written as they are."""
        kv = self.program.kv
        value = self.held.kv_token_bytes / (kv.num_layers * kv.values_per_token)
        return Price(self.program, Storage(activation=DTYPE_BYTES[self.held.dtype], kv=value, weights=self.held_bytes))

    @property
    def matrices(self) -> dict[str, int]:
        """How many matrices are held in which form, the most common first."""
        names = Counter(form_name(self.forms[name], weight.shape[-1]) for name, weight in self.program.weights.items() if weight.matrix)
        return dict(names.most_common())

    def told(self) -> str:
        """`matrices: 112 in 4 bits by 32 columns, 1 in 8 bits by row; 5.02 bits a weight in all`."""
        told = [f"{count} in {form}" for form, count in self.matrices.items()]
        return f"matrices: {', '.join(told)}; {self.bits_per_weight:.2f} bits a weight in all"


def form_name(form: Form, columns: int) -> str:
    if isinstance(form, str):
        return form
    if isinstance(form, PlannedCoding):
        return form.told
    shared = "row" if form.bits == 8 and form.group == columns else f"{form.group} columns"
    return f"{form.bits} bits by {shared}{' with minima' if form.mins else ''}"


def holding(program: Program, source: Any, backend: Backend, forming: Forming) -> Holding:
    """`source`: of the hub module; a GGUF file is asked which of its matrices are codes. Raises ModelError as the file's reader does."""
    forms = forming.forms(program, codings_of(program, source))
    caps, coded = backend.caps, most_coded(program, forms)
    held_bytes = backend.held_bytes(program, forms)
    return Holding(program, forms, held_bytes, Held(
        caps.dtypes, backend.dtype, caps.devices[0], caps.quant_schemes, sum(held_bytes.values()),
        backend.compute_type(coded), caps.least_share, backend.kv_token_bytes(program.kv), backend.row_bytes(program),
        backend.product_format(coded)))


def packed_cache(quant: str, weights: Weights, folder: Path) -> PackedCache | None:
    """The folder for packed quantized weights; None for unquantized ones, which are packed about as fast as they would be read."""
    if not any(isinstance(form, Coding) for form in weights.forms.values()):
        return None
    return PackedCache(folder, f"{__version__} {quant} {weights.fingerprint()}")


def check_effects(quant: str, scheme: QuantScheme, backend: Backend, holding: Holding) -> None:
    """Raises UsageError for options that would change nothing: where rows are to be rounded before quantized matrices and the model will
    have none, and as `Backend.check`."""
    backend.check(holding.program, holding.forms)
    if scheme.activations and not any(isinstance(form, Coding) for form in holding.forms.values()):
        widest = max(weight.shape[-1] for weight in holding.program.weights.values() if weight.matrix)
        what = (f"take int8:activations={scheme.activations}" if widest >= MIN_COLUMNS else
                f"its widest has {widest} columns, and {MIN_COLUMNS} is the least; leave out activations={scheme.activations}")
        raise UsageError(f"--quant {quant}: rows are rounded only where matrices are quantized, and none of this model's is: {what}")
