"""Tiny decoders of every kind, with random weights."""
from dataclasses import replace
from typing import Any

import numpy as np

from penstock.compute.models.decoder import build
from penstock.compute.models.names import TensorNames
from penstock.compute.program import Program
from penstock.core.modelspec import ClampedSpec, ExpertsSpec, LayerSpec, ModelSpec, RopeSpec

ROPE = RopeSpec(theta=10000.0, dim=16)
PLAIN = ModelSpec(
    vocab_size=67, hidden_size=48, num_heads=6, num_kv_heads=2, head_dim=16, intermediate_size=80,
    layers=(LayerSpec(rope=ROPE), LayerSpec(rope=ROPE)), max_position=1024)
SPECS = {
    "grouped queries": PLAIN,
    "windows, caps and norms": replace(
        PLAIN, num_heads=4, num_kv_heads=4, norm_offset=1.0, activation="gelu_tanh", qk_norm=True, post_norms=True, tied_embeddings=True,
        embedding_scale=7.0, attention_softcap=5.0, logit_softcap=3.0, layers=(LayerSpec(window=21, rope=ROPE), LayerSpec(rope=ROPE))),
    "mixture of experts": replace(
        PLAIN, num_kv_heads=1, qkv_bias=True, output_bias=True,
        layers=(
            LayerSpec(window=150, rope=ROPE, experts=ExpertsSpec(7, 2, 24, True)),
            LayerSpec(rope=ROPE, experts=ExpertsSpec(3, 3, 40, False)))),
    "sinks and biased experts": replace(
        PLAIN, activation=ClampedSpec(1.702, 1.0), qkv_bias=True, output_bias=True, sinks=True,
        layers=(
            LayerSpec(window=128, rope=ROPE, experts=ExpertsSpec(7, 3, 40, True, projection_bias=True, router_bias=True)),
            LayerSpec(rope=ROPE, experts=ExpertsSpec(3, 2, 24, True, projection_bias=True, router_bias=True)))),
    "norms behind": replace(
        PLAIN, pre_norms=False, post_norms=True, whole_qk_norm=True, qkv_bias=True, layers=(LayerSpec(window=30, rope=ROPE), LayerSpec())),
    "odd sizes and shared keys": replace(
        PLAIN, vocab_size=61, hidden_size=31, num_heads=3, num_kv_heads=1, head_dim=10, intermediate_size=37, mlp_bias=True,
        activation="gelu", logit_scale=0.3,
        layers=(LayerSpec(rope=replace(ROPE, dim=6)), LayerSpec(rope=replace(ROPE, dim=6), kv_source=0), LayerSpec(rope=None))),
}


def decoder(spec: ModelSpec, seed: int = 0) -> tuple[Program, dict[str, Any]]:
    """Sharp enough that a wrong mask or rotation shows."""
    program = build(spec, TensorNames())
    rng = np.random.default_rng(seed)
    weights = {}
    for name, weight in program.weights.items():
        values = rng.standard_normal(weight.shape)
        weights[name] = (values * 2 * weight.shape[-1] ** -0.5 if len(weight.shape) > 1 else 1 + 0.1 * values).astype(np.float32)
    return program, weights
