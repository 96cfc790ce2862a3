"""Every op written down once more, naively and in float64: what the reference on numpy is compared with."""
import math
from typing import Any

import numpy as np
from scipy.special import erf

from penstock.core.modelspec import ClampedSpec

Array = Any


def wide(x: Array) -> Array:
    return np.asarray(x, dtype=np.float64)


def rms_norm(x: Array, weight: Array, eps: float, offset: float, scale: float) -> Array:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + eps) * (wide(weight) + offset) * scale


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    return np.einsum("...i,oi->...o", x, wide(weight)) + (0 if bias is None else wide(bias))


def rope(x: Array, positions: Array, inv_freq: Array, scale: float) -> Array:
    """x [T, heads, dim]: a rotation of complex numbers."""
    n = len(inv_freq)
    turned = (x[..., :n] + 1j * x[..., n : 2 * n]) * np.exp(1j * np.outer(positions, inv_freq))[:, None, :] * scale
    return np.concatenate([turned.real, turned.imag, x[..., 2 * n :]], axis=-1)


ACTIVATIONS = {
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": lambda x: x * 0.5 * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}


def act_mul(x: Array, activation: str | ClampedSpec) -> Array:
    gate, up = np.split(x, 2, axis=-1)
    if isinstance(activation, ClampedSpec):
        gate, up = np.minimum(gate, activation.limit), np.clip(up, -activation.limit, activation.limit)
        return gate * (up + 1) / (1 + np.exp(-activation.alpha * gate))
    return ACTIVATIONS[activation](gate) * up


def softcap(x: Array, cap: float) -> Array:
    return cap * np.tanh(x / cap)


def softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attention(qkv: tuple[Array, Array, Array], scale: float, window: int | None = None, softcap: float | None = None,
              sinks: Array | None = None) -> Array:
    """One sequence from its beginning: q [n, heads, dim], k and v [n, kv_heads, dim], sinks [heads] -> [n, heads * dim]."""
    q, k, v = qkv
    group = q.shape[1] // k.shape[1]
    distance = np.subtract.outer(np.arange(len(q)), np.arange(len(q)))
    seen = (distance >= 0) & (distance < (window or len(q)))
    out = []
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head // group].T * scale
        if softcap is not None:
            scores = softcap * np.tanh(scores / softcap)
        scores = np.where(seen, scores, -np.inf)
        if sinks is not None:  # one more key for all, whose value is 0
            scores = np.concatenate([scores, np.full((len(q), 1), sinks[head], dtype=np.float64)], axis=1)
        out.append(softmax(scores)[:, : len(q)] @ v[:, head // group])
    return np.concatenate(out, axis=-1)


def moe_route(scores: Array, num_active: int, renormalize: bool) -> tuple[Array, Array]:
    """The heaviest first; among equals the lower id."""
    weights = softmax(scores)
    ids = np.array([sorted(range(len(row)), key=lambda i, row=row: (-row[i], i))[:num_active] for row in weights])
    chosen = np.take_along_axis(weights, ids, axis=-1)
    return (chosen / chosen.sum(-1, keepdims=True) if renormalize else chosen), ids


def moe_experts(x: Array, routed: tuple[Array, Array], weights: tuple[Array, ...], activation: str | ClampedSpec) -> Array:
    """`weights`: of gate and up, of down, and the biases of both, if any."""
    gate_up, down, *biases = weights
    out = np.zeros(x.shape)
    for row in range(len(x)):
        for weight, expert in zip(routed[0][row], routed[1][row], strict=True):
            gate_up_bias, down_bias = (bias[expert] for bias in biases) if biases else (None, None)
            inner = act_mul(linear(x[row], gate_up[expert], gate_up_bias), activation)
            out[row] += weight * linear(inner, down[expert], down_bias)
    return out
