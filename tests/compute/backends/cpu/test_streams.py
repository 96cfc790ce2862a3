"""Attention gives the same bits whether it reads the KV cache as a stream (as on Zen 5) or several tiles at once (as elsewhere)."""
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.backends.cpu.backend import Cpu, CpuOptions, Loaded
from penstock.core.modelspec import LayerSpec, RopeSpec
from tests.contract.decoders import PLAIN, decoder
from tests.contract.participants import native_kernels
from tests.contract.stories import Story, play, tokens_for

LAYERS = (LayerSpec(rope=RopeSpec(theta=10000.0, dim=16)), LayerSpec(rope=None, window=150))
# Head dimensions narrower than a register block, as wide, wider, and not a multiple of one; one to six rows share a head of keys.
SPECS = {
    f"{heads} by {dim}": replace(PLAIN, num_heads=heads, num_kv_heads=kv_heads, head_dim=dim, layers=LAYERS)
    for heads, kv_heads, dim in ((2, 2, 128), (4, 2, 128), (3, 1, 128), (5, 1, 144), (6, 1, 48), (2, 1, 256), (2, 1, 24))}


class Streaming(Cpu):
    def __init__(self, kernels: str, dtype: str, distance: int) -> None:
        super().__init__(CpuOptions(kernels=kernels), dtype)
        self.distance = distance

    def load(self, program: Any, weights: Any, kv: KVLayout, *rest: Any, **more: Any) -> Loaded:
        loaded = super().load(program, weights, kv, *rest, **more)
        loaded.model.set_cache_prefetch(self.distance)
        return loaded


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("kernels", native_kernels())
@pytest.mark.parametrize("name", SPECS)
def test_same_bits(name: str, kernels: str, dtype: str) -> None:
    slow = kernels == "amx_emulated"  # a window is passed and several tiles of keys are read, but not many; how far ahead changes nothing
    first, later = (160, 30) if slow else (300, 100)
    story = Story((((0, first), (1, 1)), ((0, 1), (1, 1)), ((0, 2), (1, 40)), ((0, 1),), ((0, 3),), ((0, 1), (1, later)), ((0, 1), (1, 1))))
    program, weights = decoder(SPECS[name])
    tokens = tokens_for(story, PLAIN.vocab_size)
    distances = (0, 16384) if slow else (0, 1, 16384, 1 << 20)
    plain, *streamed = (play(Streaming(kernels, dtype, each), program, weights, story, tokens)["logits"] for each in distances)
    for logits in streamed:
        for one, other in zip(plain, logits, strict=True):
            assert np.isfinite(one).all()
            assert (one.view(np.uint32) == other.view(np.uint32)).all()
