"""Every op but attention, in the array API standard.

Batch invariance (an output row's bits depend on nothing but the row): elementwise and last-axis operations have it by nature;
matrix products are done in blocks of ROWS rows, so that every product of a weight has the same shape whatever the batch.
"""
import math
from collections.abc import Callable
from typing import Any

Array = Any
ROWS = 16
ALIGNED = 16


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


def rms_norm(xp: Any, x: Array, weight: Array, eps: float, offset: float) -> Array:
    """Zhang and Sennrich 2019, arXiv:1910.07467; computed in float32."""
    wide = xp.astype(x, xp.float32)
    scale = 1.0 / xp.sqrt(xp.mean(wide * wide, axis=-1, keepdims=True) + eps)
    return xp.astype(wide * scale * (xp.astype(weight, xp.float32) + offset), x.dtype)


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


def act_mul(xp: Any, x: Array, activation: str) -> Array:
    half = x.shape[-1] // 2
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


def moe_experts(xp: Any, x: Array, routed: tuple[Array, Array], gate_up: Array, down: Array, activation: str) -> Array:
    """x [T, hidden] through each row's experts. A row's sum goes over its experts in the order of their ids.

    Rows of one expert are computed in blocks of ROWS, the last one filled up with zeros.
    """
    weights, ids = routed
    total = xp.zeros_like(x, dtype=xp.float32)
    for expert in range(gate_up.shape[0]):
        rows, slots = xp.nonzero(ids == expert)
        count = rows.shape[0]
        if count == 0:
            continue
        padding = xp.zeros((-count % ROWS, x.shape[1]), dtype=x.dtype, device=x.device)
        chosen = xp.concat([xp.take(x, rows, axis=0), padding], axis=0)
        inner = act_mul(xp, matmul(xp, chosen, gate_up[expert, ...], ROWS), activation)
        out = xp.astype(matmul(xp, inner, down[expert, ...], ROWS)[:count, :], xp.float32)
        total[rows] = total[rows] + out * weights[rows, slots][:, None]
    return xp.astype(total, x.dtype)
