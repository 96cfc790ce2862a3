"""Every op but attention, in the array API standard.

Batch invariance (an output row's bits depend on nothing but the row): elementwise and last-axis operations have it by nature;
matrix products are done in blocks of one number of rows, so that every product of a weight has the same shape whatever the batch,
and that number is one for which the library's kernels give a row the same bits wherever it stands in its block.
"""
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.core.modelspec import Activation, ClampedSpec

Array = Any
ROWS = (16, 8, 4, 1)  # of a block, the best first
ALIGNED = 16  # columns
MIN_INT8_SCALE = 2.0**-126  # the least float32 whose inverse is finite and which has all its bits


def matmul(xp: Any, x: Array, weight: Array, rows: int | None) -> Array:
    """x [T, in] times weight [out, in] transposed. With `rows`, T is a multiple of it and each block is a product of its own.

    The inner length of such a block is filled up with zeros to a multiple of ALIGNED: MKL sums a row in an order that depends on its
    address modulo 16 bytes.
    """
    if rows is not None and x.shape[1] % ALIGNED:
        x, weight = _filled(xp, x), _filled(xp, weight)
    turned = xp.permute_dims(weight, (1, 0))
    if rows is None or x.shape[0] <= rows:
        return xp.matmul(x, turned)
    return xp.concat([xp.matmul(x[at : at + rows, :], turned) for at in range(0, x.shape[0], rows)], axis=0)


def _filled(xp: Any, x: Array) -> Array:
    """x [n, m] with columns of zeros up to a multiple of ALIGNED."""
    return xp.concat([x, xp.zeros((x.shape[0], -x.shape[1] % ALIGNED), dtype=x.dtype, device=x.device)], axis=1)


def block_rows(xp: Any, matrices: Iterable[Array]) -> int:
    """The first of ROWS with which every matrix [out, in] makes equal rows out of equal rows.

    A block of 16 is not the same to all kernels: OpenBLAS's for AVX2 takes 12 rows and then 4, which it adds up in another order.
    """
    matrices = list(matrices)
    return next(rows for rows in ROWS if rows == 1 or all(_even(xp, matrix, rows) for matrix in matrices))


def _even(xp: Any, matrix: Array, rows: int) -> bool:
    """Tries so many rows that at least 256 sums are compared."""
    out, inner = matrix.shape
    for trial in range(1, 2 + 256 // out):
        row = xp.sin(xp.arange(1, inner + 1, dtype=xp.float32, device=matrix.device) * (1.7 * trial))
        product = matmul(xp, xp.tile(xp.astype(row, matrix.dtype)[None, :], (rows, 1)), matrix, rows)
        if not bool(xp.all((product == product[:1, :]) | (product != product))):
            return False
    return True


def to_int8(xp: Any, x: Array) -> Array:
    """What is left of rows [T, n] when they are rounded to int8, each with the scale max |x| / 127, or 2^-126 where that is less."""
    wide = xp.astype(x, xp.float32)
    top = xp.max(xp.abs(wide), axis=-1, keepdims=True)
    most = xp.full_like(top, 127.0)  # an array: torch takes a number over an array for the number times its inverse
    least = xp.full_like(top, MIN_INT8_SCALE)
    is_large = top / most > least
    inverse = xp.where(is_large, most / xp.where(is_large, top, most), 1 / least)
    return xp.astype(xp.round(wide * inverse) * xp.maximum(top / most, least), x.dtype)


def rms_norm(xp: Any, x: Array, weight: Array, attrs: Mapping[str, Any]) -> Array:
    """Zhang and Sennrich 2019, arXiv:1910.07467; computed in float32."""
    wide = xp.astype(x, xp.float32)
    root = 1.0 / xp.sqrt(xp.mean(wide * wide, axis=-1, keepdims=True) + attrs["eps"])
    return xp.astype(wide * root * (xp.astype(weight, xp.float32) + attrs["offset"]) * attrs["scale"], x.dtype)


def rope(xp: Any, x: Array, positions: Array, inv_freq: Array, scale: float) -> Array:
    """Rotates x [T, heads, dim]: the pair (i, i + n) by positions[t] * inv_freq[i], n = len(inv_freq); later dimensions stay."""
    half = inv_freq.shape[0]
    angles = xp.astype(positions, xp.float32)[:, None] * inv_freq[None, :]
    cos, sin = (xp.cos(angles) * scale)[:, None, :], (xp.sin(angles) * scale)[:, None, :]
    wide = xp.astype(x, xp.float32)
    first, second, rest = wide[..., :half], wide[..., half : 2 * half], wide[..., 2 * half :]
    parts = [first * cos - second * sin, second * cos + first * sin]
    return xp.astype(xp.concat([*parts, rest] if rest.shape[-1] else parts, axis=-1), x.dtype)


def silu(xp: Any, x: Array) -> Array:
    return x / (1.0 + xp.exp(-x))


def gelu_tanh(xp: Any, x: Array) -> Array:
    """Hendrycks and Gimpel 2016, arXiv:1606.08415, section 2."""
    return 0.5 * x * (1.0 + xp.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def gelu(xp: Any, x: Array) -> Array:
    """x * Phi(x); erf by Abramowitz and Stegun 7.1.26, absolute error below 1.5e-7."""
    z = xp.abs(x) * math.sqrt(0.5)
    t = 1.0 / (1.0 + 0.3275911 * z)
    poly = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    erf = xp.sign(x) * (1.0 - poly * xp.exp(-z * z))
    return 0.5 * x * (1.0 + erf)


ACTIVATIONS: dict[str, Callable[[Any, Array], Array]] = {"silu": silu, "gelu": gelu, "gelu_tanh": gelu_tanh}


def clamped(xp: Any, gate: Array, up: Array, how: ClampedSpec) -> Array:
    gate, up = xp.clip(gate, None, how.limit), xp.clip(up, -how.limit, how.limit)
    return (up + 1.0) * gate / (1.0 + xp.exp(-how.alpha * gate))


def act_mul(xp: Any, x: Array, activation: Activation) -> Array:
    half = x.shape[-1] // 2
    if isinstance(activation, ClampedSpec):
        wide = xp.astype(x, xp.float32)
        return xp.astype(clamped(xp, wide[..., :half], wide[..., half:], activation), x.dtype)
    gate = xp.astype(ACTIVATIONS[activation](xp, xp.astype(x[..., :half], xp.float32)), x.dtype)
    return gate * x[..., half:]


def softcap(xp: Any, x: Array, cap: float) -> Array:
    return cap * xp.tanh(x / cap)


def softmax(xp: Any, x: Array) -> Array:
    """Over the last axis, in float32."""
    wide = xp.astype(x, xp.float32)
    powers = xp.exp(wide - xp.max(wide, axis=-1, keepdims=True))
    return powers / xp.sum(powers, axis=-1, keepdims=True)


def moe_route(xp: Any, scores: Array, num_active: int, renormalize: bool) -> tuple[Array, Array]:
    """Router scores [T, experts] -> weights and ids [T, num_active], the heaviest first; equal weights: the lower id."""
    weights = softmax(xp, scores)
    ids = xp.argsort(-weights, axis=-1, stable=True)[:, :num_active]
    chosen = xp.take_along_axis(weights, ids, axis=-1)
    if renormalize:
        chosen = chosen / xp.sum(chosen, axis=-1, keepdims=True)
    return chosen, ids


@dataclass(frozen=True, slots=True)
class Experts:
    product: Callable[[Array, int, int], Array]  # rows times gate_up (0) or down (1) of an expert, with its bias
    count: int
    activation: Activation
    rows: int | None  # of a block


def moe_experts(xp: Any, x: Array, routed: tuple[Array, Array], experts: Experts) -> Array:
    """x [T, hidden] through each row's experts: `routed` are weights and ids. A row's sum goes over its experts in the order of their
    ids. Those of one expert are computed in blocks of `experts.rows`, the last one filled up with zeros.
    """
    weights, ids = routed
    total = xp.zeros_like(x, dtype=xp.float32)
    for expert in range(experts.count):
        at, slots = xp.nonzero(ids == expert)
        count = at.shape[0]
        if count == 0:
            continue
        padding = xp.zeros((-count % (experts.rows or 1), x.shape[1]), dtype=x.dtype, device=x.device)
        chosen = xp.concat([xp.take(x, at, axis=0), padding], axis=0)
        inner = act_mul(xp, experts.product(chosen, 0, expert), experts.activation)
        out = xp.astype(experts.product(inner, 1, expert)[:count, :], xp.float32)
        total[at] = total[at] + out * weights[at, slots][:, None]
    return xp.astype(total, x.dtype)
