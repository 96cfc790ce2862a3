"""Layers that read an earlier layer's keys and values, against attention written out in numpy; no published family is asked."""
from dataclasses import replace

import numpy as np
import pytest

from penstock.compute.backends.contract import Batch, KVLayout
from penstock.compute.backends.reference.backend import Reference
from penstock.compute.models.decoder import build, kv_layer_of
from penstock.compute.models.names import TensorNames
from penstock.core.modelspec import LayerSpec, ModelSpec, RopeSpec

ROPE = RopeSpec(theta=100.0, dim=8)
LAYERS = (
    LayerSpec(rope=ROPE), LayerSpec(rope=ROPE, kv_source=0), LayerSpec(rope=None, window=5),
    LayerSpec(rope=None, window=7, kv_source=2), LayerSpec(rope=ROPE, window=3, kv_source=0),
)
SPEC = ModelSpec(
    vocab_size=30, hidden_size=16, num_heads=4, num_kv_heads=2, head_dim=8, intermediate_size=20, layers=LAYERS, max_position=64,
    qk_norm=True, qkv_bias=True, tied_embeddings=True,
)
LENGTH = 41
BLOCK = 4
Weights = dict[str, np.ndarray]


def weights_of(spec: ModelSpec) -> Weights:
    rng = np.random.default_rng(4)
    program = build(spec, TensorNames())
    return {name: rng.standard_normal(weight.shape).astype(np.float32) * 0.4 for name, weight in program.weights.items()}


def norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + SPEC.norm_eps) * weight


def rotate(x: np.ndarray) -> np.ndarray:
    """x [length, heads, 8]: pairs (i, i + 4) as complex numbers."""
    angles = np.arange(len(x))[:, None] * 100.0 ** (-np.arange(4) / 4)
    turned = (x[..., :4] + 1j * x[..., 4:]) * np.exp(1j * angles)[:, None, :]
    return np.concatenate([turned.real, turned.imag], axis=-1)


def expected_logits(w: Weights, ids: list[int]) -> np.ndarray:
    x = w["embed"][ids].astype(np.float64)
    kept: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for i, layer in enumerate(LAYERS):
        at = f"layers.{i}."
        y = norm(x, w[at + "attention_norm"]) @ w[at + "qkv"].T + w[at + "qkv_bias"]
        y = y.reshape(LENGTH, -1, 8)
        turn = rotate if layer.rope is not None else np.asarray
        if layer.kv_source is None:
            kept[i] = turn(norm(y[:, 4:6], w[at + "k_norm"])), y[:, 6:8]
        q, (k, v) = turn(norm(y[:, :4], w[at + "q_norm"])), kept[i if layer.kv_source is None else layer.kv_source]
        mixed = np.zeros((LENGTH, 4, 8))
        for t in range(LENGTH):
            first = 0 if layer.window is None else max(0, t - layer.window + 1)
            for head in range(4):
                scores = k[first : t + 1, head // 2] @ q[t, head] / np.sqrt(8)
                powers = np.exp(scores - scores.max())
                mixed[t, head] = powers / powers.sum() @ v[first : t + 1, head // 2]
        x = x + mixed.reshape(LENGTH, -1) @ w[at + "o"].T
        gate, up = np.split(norm(x, w[at + "mlp_norm"]) @ w[at + "gate_up"].T, 2, axis=-1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[at + "down"].T
    return norm(x, w["norm"]) @ w["embed"].T


def step(ids: list[int], start: int) -> Batch:
    places = np.arange(start, start + len(ids))
    blocks = np.array([9, 3, 7, 0, 5, 11, 2, 8, 1, 6, 4])
    return Batch(
        np.array(ids), places, blocks[places // BLOCK] * BLOCK + places % BLOCK, np.array([0, len(ids)]), np.array([start + len(ids)]),
        [blocks], np.arange(len(ids)), np.zeros((0, 2), dtype=np.int64))


def test_shared_keys_and_values() -> None:
    ids = np.random.default_rng(0).integers(0, 30, LENGTH).tolist()
    weights, backend = weights_of(SPEC), Reference()
    loaded = backend.load(build(SPEC, TensorNames()), weights, KVLayout(12, BLOCK))
    expected = expected_logits(weights, ids)
    whole = backend.forward(loaded, np.array([ids]))["logits"][0]
    paged = np.concatenate([backend.step(loaded, step(ids[a:b], a)).logits for a, b in ((0, 17), (17, 18), (18, 19), (19, 41))])
    np.testing.assert_allclose(whole, expected, atol=2e-5 * np.abs(expected).max())
    np.testing.assert_allclose(paged, expected, atol=2e-5 * np.abs(expected).max())


def test_layers_that_share_keep_nothing() -> None:
    program = build(SPEC, TensorNames())
    assert kv_layer_of(SPEC) == [0, 0, 1, 1, 0] and SPEC.num_kv_layers == program.kv.num_layers == 2
    assert SPEC.kv_bytes_per_token(4) == 2 * 2 * 16 * 4
    assert program.weights["layers.1.qkv"].shape == (32, 16) and "layers.1.k_norm" not in program.weights
    assert program.weights["layers.1.qkv"].tensors == ("model.layers.1.self_attn.q_proj.weight",)
    assert program.num_parameters() == SPEC.num_parameters()
    assert sum(op.kind == "kv_write" for op in program.ops) == 2


@pytest.mark.parametrize("source", [1, 2, 3, 5, -1])
def test_a_source_must_be_an_earlier_layer_with_keys_of_its_own(source: int) -> None:
    layers = (LAYERS[0], LAYERS[1], replace(LAYERS[1], kv_source=source))
    with pytest.raises(ValueError, match=f"layer 2 shares the KV of layer {source}, which has none of its own before it"):
        build(replace(SPEC, layers=layers), TensorNames())
