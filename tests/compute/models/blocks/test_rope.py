"""Rotary frequencies are transformers', for every kind of scaling, read from either form of config.json."""
import itertools
from typing import Any

import numpy as np
import pytest
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from penstock.compute.models.blocks.rope import frequencies
from penstock.compute.models.families.llama import FAMILY as LLAMA
from penstock.compute.models.families.phi3 import FAMILY as PHI3
from penstock.core.modelspec import RopeSpec

transformers.logging.set_verbosity_error()
SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 64}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def grid(**values: list[Any]) -> list[dict[str, Any]]:
    """Every combination; a value that is None is left out."""
    rows = [dict(zip(values, row, strict=True)) for row in itertools.product(*values.values())]
    return [{name: value for name, value in row.items() if value is not None} for row in rows]


SCALINGS = [
    *grid(rope_type=["linear"], factor=[1.0, 4.0, 2.5]),
    *grid(rope_type=["llama3"], factor=[8.0, 32.0], low_freq_factor=[1.0, 2.0], high_freq_factor=[4.0, 8.0],
          original_max_position_embeddings=[64, 8192, None]),
    *grid(rope_type=["yarn"], factor=[4.0, 40.0, 1.0], original_max_position_embeddings=[64, 4096, None], beta_fast=[None, 16.0],
          beta_slow=[None, 2.0], truncate=[None, False]),
    *grid(rope_type=["yarn"], factor=[4.0], attention_factor=[None, 1.25], mscale=[None, 0.7], mscale_all_dim=[None, 1.3],
          original_max_position_embeddings=[64]),
    *grid(rope_type=["yarn"], factor=[None], original_max_position_embeddings=[64]),
]


def config_of(scaling: dict[str, Any], theta: float, head_dim: int, **more: Any) -> Any:
    if scaling.get("rope_type") == "yarn":
        scaling = {"factor": None, **scaling}  # transformers wants the key; null is "from the lengths"
    return transformers.LlamaConfig(
        **SIZES, head_dim=head_dim, max_position_embeddings=512, rope_parameters={"rope_theta": theta, **scaling}, **more)


def check_same(rope: RopeSpec, config: Any, length: int, kind: str) -> None:
    pytest.importorskip("torch", reason="transformers computes with torch, an extra: pip install '.[torch]'")
    expected, factor = ROPE_INIT_FUNCTIONS[kind](config, "cpu", seq_len=length)
    found, found_factor = frequencies(rope, length)
    np.testing.assert_allclose(found, expected.numpy(), rtol=4e-6, atol=0)  # theirs are float32, smoothed ones with cancellation
    np.testing.assert_allclose(found, expected.numpy(), rtol=0, atol=1e-6)
    assert found_factor == pytest.approx(factor, rel=1e-9)


@pytest.mark.parametrize("theta, head_dim", [(10000.0, 16), (500000.0, 128), (1e6, 80)])
def test_scalings_are_those_of_transformers(theta: float, head_dim: int) -> None:
    for scaling in SCALINGS:
        config = config_of(scaling, theta, head_dim)
        rope = LLAMA.spec(config.to_dict()).layers[0].rope
        assert rope is not None
        check_same(rope, config, 512, scaling["rope_type"])


@pytest.mark.parametrize("factor", [1.0, 2.0, 8.0])
@pytest.mark.parametrize("length", [10, 512, 513, 900, 4096])
def test_dynamic_scaling_is_that_of_the_longest_sequence(factor: float, length: int) -> None:
    config = config_of({"rope_type": "dynamic", "factor": factor}, 10000.0, 32)
    rope = LLAMA.spec(config.to_dict()).layers[0].rope
    assert rope is not None
    check_same(rope, config, length, "dynamic")


@pytest.mark.parametrize("kind", ["longrope", "su", "yarn"])
@pytest.mark.parametrize("partial", [1.0, 0.75, 0.5])
@pytest.mark.parametrize("more", [{}, {"factor": 4.0}, {"factor": 4.0, "attention_factor": 1.19}])
def test_longrope_is_that_of_transformers(kind: str, partial: float, more: dict[str, Any]) -> None:
    pairs = int(16 * partial) // 2
    scaling = {"short_factor": [1.0 + i / 10 for i in range(pairs)], "long_factor": [2.0 + i for i in range(pairs)], **more}
    plain = {**SIZES, **TOKENS, "max_position_embeddings": 512, "original_max_position_embeddings": 64, "rope_theta": 20000.0,
             "partial_rotary_factor": partial, "rope_scaling": {"type": kind, **scaling}}
    config = transformers.Phi3Config(**{**plain, "rope_scaling": {"type": kind, "original_max_position_embeddings": 64, **scaling}})
    rope = PHI3.spec(plain).layers[0].rope
    assert rope is not None and rope.dim == 2 * pairs and rope == PHI3.spec(config.to_dict()).layers[0].rope
    for length in (64, 65, 512):
        check_same(rope, config, length, "longrope")


def test_original_length_beside_the_scaling_wins() -> None:
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 256}
    config = config_of(scaling, 10000.0, 16, original_max_position_embeddings=64)
    rope = LLAMA.spec({**config.to_dict(), "original_max_position_embeddings": 64}).layers[0].rope
    assert rope is not None and rope.original_max_position == 64
    check_same(rope, config, 512, "llama3")


def test_both_forms_say_the_same() -> None:
    scaling = {"factor": 4.0, "original_max_position_embeddings": 64}
    common = {**SIZES, "max_position_embeddings": 512}
    older = LLAMA.spec({**common, "rope_theta": 5000.0, "rope_scaling": {"type": "yarn", **scaling}})
    newer = LLAMA.spec({**common, "rope_parameters": {"rope_type": "yarn", "rope_theta": 5000.0, **scaling}})
    assert older == newer and older.layers[0].rope == RopeSpec(
        theta=5000.0, dim=16, scaling="yarn", factor=4.0, original_max_position=64)


def test_plain_rope_is_the_default() -> None:
    assert LLAMA.spec({**SIZES, "rope_scaling": None}).layers[0].rope == RopeSpec(theta=10000.0, dim=16)
    assert LLAMA.spec({**SIZES, "rope_parameters": {"rope_type": "default", "rope_theta": 7.0}}).layers[0].rope == RopeSpec(7.0, 16)


def test_unknown_scaling_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown rope scaling 'spiral'"):
        frequencies(RopeSpec(dim=16, scaling="spiral"), 512)
    with pytest.raises(ValueError, match="3 factors for 8 frequencies"):
        frequencies(RopeSpec(dim=16, scaling="longrope", original_max_position=64, short_factors=(1.0,) * 3), 64)
