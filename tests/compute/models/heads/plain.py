"""Heads computed in plain numpy, from the tensors of a file: what their programs are compared with."""
from typing import Any

import numpy as np

Array = Any
Tensors = dict[str, Array]


def norm(x: Array, weight: Array, eps: float) -> Array:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def silu(x: Array) -> Array:
    return x / (1 + np.exp(-x))


def rotated(x: Array, positions: Array, theta: float) -> Array:
    """x [T, heads, dim]: dimension i turns together with i + dim / 2."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * theta ** (-np.arange(half) / half)
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)[:, None, :]
    return np.concatenate([turned.real, turned.imag], axis=-1)


def eagle(config: Any, own: Tensors, table: Array, tokens: Array, states: Array) -> tuple[Array, Array]:
    """(logits, hidden) of a whole sequence, causal."""
    eps, dim = config["rms_norm_eps"], config["head_dim"]
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]

    def of(role: str) -> Array:
        return own[f"eagle.{role}.weight"]

    x = norm(table[tokens], of("token_norm"), eps) @ of("token").T + norm(states, of("state_norm"), eps) @ of("state").T
    y, positions = norm(x, of("input_layernorm"), eps), np.arange(len(tokens))
    q = rotated((y @ of("self_attn.q_proj").T).reshape(-1, heads, dim), positions, config["rope_theta"])
    k = rotated((y @ of("self_attn.k_proj").T).reshape(-1, kv_heads, dim), positions, config["rope_theta"])
    v = (y @ of("self_attn.v_proj").T).reshape(-1, kv_heads, dim)
    mixed = np.empty_like(q)
    for head in range(heads):
        kv = head // (heads // kv_heads)
        scores = q[:, head] @ k[:, kv].T / np.sqrt(dim) + np.triu(np.full((len(tokens), len(tokens)), -np.inf), 1)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed[:, head] = weights / weights.sum(-1, keepdims=True) @ v[:, kv]
    x = x + mixed.reshape(len(tokens), -1) @ of("self_attn.o_proj").T
    y = norm(x, of("post_attention_layernorm"), eps)
    x = x + (silu(y @ of("mlp.gate_proj").T) * (y @ of("mlp.up_proj").T)) @ of("mlp.down_proj").T
    hidden = norm(x, of("norm"), eps)
    return hidden @ table.T, hidden


def medusa(config: Any, own: Tensors, table: Array, tokens: Array, states: Array, head: int) -> Array:
    """Logits of one head, row by row."""
    token = norm(table[tokens], own["medusa.token_norm.weight"], config["rms_norm_eps"])
    both = states @ own[f"medusa.{head}.state.weight"].T + token @ own[f"medusa.{head}.token.weight"].T
    gate, up = np.split(both, 2, axis=-1)
    return norm(states + silu(gate) * up, own[f"medusa.{head}.norm.weight"], config["rms_norm_eps"]) @ table.T
