import logging
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGUFValueType as Type

from penstock.compute.models.families import TABLE
from penstock.compute.models.load.gguf import GgufCheckpoint
from penstock.compute.models.load.gguf_rope import by_factors, llama3
from penstock.core.errors import ModelError
from tests.compute.models.load.gguf_makers import KINDS, SIZE, add_tensor, close, converted, tensors_of, write_config

YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}
LLAMA = {**SIZE, "architectures": ["LlamaForCausalLM"]}
QWEN3 = {**SIZE, "architectures": ["Qwen3ForCausalLM"]}
MOE = {**SIZE, "architectures": ["Qwen3MoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
GEMMA2 = {**SIZE, "architectures": ["Gemma2ForCausalLM"], "tie_word_embeddings": True, "sliding_window": 16}
GEMMA3 = {**GEMMA2, "architectures": ["Gemma3ForCausalLM"]}
GRANITE = {**SIZE, "architectures": ["GraniteForCausalLM"]}
PHI3 = {**SIZE, "architectures": ["Phi3ForCausalLM"], "head_dim": 16}
Keys = dict[str, tuple[Type, Any] | None]  # None: the key is left out


def write(path: Path, config: dict[str, Any], keys: Keys | None = None, extra: dict[str, np.ndarray] | None = None) -> Path:
    """A file whose metadata are those of `config`, but for `keys` (without the architecture's name), and more tensors."""
    kind = KINDS[config["architectures"][0]]
    writer = gguf.GGUFWriter(path, kind)
    write_config(writer, config)
    for name, value in (keys or {}).items():
        key = name if name.startswith(("tokenizer.", "general.")) else f"{kind}.{name}"
        writer.kv_data[0].pop(key, None)
        if value is not None:
            writer.add_key_value(key, value[1], value[0], Type.UINT32 if value[0] is Type.ARRAY else None)
    for name, values in {**converted(config, tensors_of(config)), **(extra or {})}.items():
        add_tensor(writer, name, values)
    return close(writer)


def spec(config: Any, **changes: Any) -> Any:
    return TABLE.load(config["architectures"][0]).spec({**config, **changes})


def number(value: float) -> tuple[Type, Any]:
    return Type.FLOAT32, value


def whole(value: int) -> tuple[Type, Any]:
    return Type.UINT32, value


def llama3_factors(dim: int, theta: float, scaling: dict[str, Any]) -> np.ndarray:
    """As the converter computes them, in float32."""
    freqs = np.float32(1) / theta ** (np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim))
    low, high, factor = scaling["low_freq_factor"], scaling["high_freq_factor"], scaling["factor"]
    turns = np.float32(scaling["original_max_position_embeddings"]) / (np.float32(2 * math.pi) / freqs)
    smooth = (turns - np.float32(low)) / np.float32(high - low)
    between = 1 / ((1 - smooth) / np.float32(factor) + smooth)
    return np.where(turns > high, np.float32(1), np.where(turns < low, np.float32(factor), between)).astype(np.float32)


@pytest.mark.parametrize("dim, theta, factor, original", [
    (64, 500000.0, 32.0, 8192), (128, 500000.0, 8.0, 8192), (64, 500000.0, 32.0, 256), (128, 1e6, 16.0, 131072), (32, 10000.0, 2.5, 64),
])
def test_llama_3s_scaling_is_found_again(tmp_path: Path, dim: int, theta: float, factor: float, original: int) -> None:
    scaling = {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": original}
    config = {**LLAMA, "head_dim": dim, "rope_theta": theta}
    factors = llama3_factors(dim, theta, scaling)
    checkpoint = GgufCheckpoint(write(tmp_path / "x.gguf", config, extra={"rope_freqs.weight": factors}))
    assert checkpoint.config["rope_scaling"] == scaling and "rope_freqs.weight" not in checkpoint.names()
    assert spec(checkpoint.config) == spec(config, rope_scaling=scaling)


def test_other_factors_are_taken_as_they_are() -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.5, "high_freq_factor": 6.0, "original_max_position_embeddings": 100}
    for factors in (llama3_factors(64, 10000.0, scaling).tolist(), [1.0 + i for i in range(32)], [1.0] * 16 + [3.0] * 16):
        assert llama3(factors, 10000.0) is None
        found = spec(LLAMA, head_dim=64, rope_scaling=by_factors(factors)).layers[0].rope
        assert found.long_factors == tuple(factors) and found.attention_factor == 1.0


@pytest.mark.parametrize("config, keys, scaling", [
    (LLAMA, {"rope.scaling.type": (Type.STRING, "linear"), "rope.scaling.factor": number(4.0)}, {"rope_type": "linear", "factor": 4.0}),
    (LLAMA, {"rope.scaling.factor": number(4.0)}, {"rope_type": "linear", "factor": 4.0}),
    (LLAMA, {"rope.scale_linear": number(2.5)}, {"rope_type": "linear", "factor": 2.5}),
    (LLAMA, {"rope.scaling.type": (Type.STRING, "linear"), "rope.scaling.factor": number(1.0)}, None),
    (LLAMA, {"rope.scaling.type": (Type.STRING, "none"), "rope.scaling.factor": number(4.0)}, None),
    (QWEN3, {"rope.scaling.type": (Type.STRING, "yarn"), "rope.scaling.factor": number(4.0),
             "rope.scaling.original_context_length": whole(128)}, YARN),
    (QWEN3, {"rope.scaling.type": (Type.STRING, "yarn"), "rope.scaling.factor": number(4.0), "rope.scaling.yarn_attn_factor": number(1.2),
             "rope.scaling.original_context_length": whole(128), "rope.scaling.yarn_beta_fast": number(16.0),
             "rope.scaling.yarn_beta_slow": number(2.0)}, {**YARN, "beta_fast": 16.0, "beta_slow": 2.0, "attention_factor": 1.2}),
])
def test_scaled_positions(tmp_path: Path, config: dict[str, Any], keys: Keys, scaling: dict[str, Any] | None) -> None:
    checkpoint = GgufCheckpoint(write(tmp_path / "x.gguf", config, keys))
    assert spec(checkpoint.config) == spec(config, rope_scaling=scaling)


def test_long_positions(tmp_path: Path) -> None:
    short, long = (np.linspace(1, stop, 8, dtype=np.float32) for stop in (2, 9))
    keys: Keys = {"rope.scaling.original_context_length": whole(64), "rope.scaling.attn_factor": number(1.19)}
    extra = {"rope_factors_short.weight": short, "rope_factors_long.weight": long}
    checkpoint = GgufCheckpoint(write(tmp_path / "x.gguf", PHI3, keys, extra))
    scaling = {"rope_type": "longrope", "short_factor": short.tolist(), "long_factor": long.tolist(), "attention_factor": 1.19}
    assert spec(checkpoint.config) == spec(PHI3, rope_scaling=scaling, original_max_position_embeddings=64, sliding_window=None)
    partial = GgufCheckpoint(write(tmp_path / "y.gguf", PHI3, {"rope.dimension_count": whole(12)}))
    assert spec(partial.config) == spec(PHI3, partial_rotary_factor=0.75, sliding_window=None)
    uneven = GgufCheckpoint(write(tmp_path / "z.gguf", {**PHI3, "head_dim": 44}, {"rope.dimension_count": whole(30)}))
    assert 44 * (30 / 44) < 30 == spec(uneven.config).layers[0].rope.dim


def test_gemma_2_by_default(tmp_path: Path) -> None:
    checkpoint = GgufCheckpoint(write(tmp_path / "x.gguf", GEMMA2))
    assert spec(checkpoint.config) == spec(GEMMA2, query_pre_attn_scalar=32)


@pytest.mark.parametrize("config, layers, scale", [(GEMMA2, 3, 32), (GEMMA2, 46, 16), (GEMMA3, 46, 32), (GEMMA3, 62, 16)])
def test_the_largest_gemma_scales_scores_otherwise(tmp_path: Path, config: dict[str, Any], layers: int, scale: int) -> None:
    config = {**config, "num_hidden_layers": layers}
    assert GgufCheckpoint(write(tmp_path / "x.gguf", config)).config["query_pre_attn_scalar"] == scale


@pytest.mark.parametrize("keys, sliding", [
    ({}, [True, True, True]), ({"attention.sliding_window": None}, [False] * 3), ({"attention.sliding_window": whole(0)}, [False] * 3),
    ({"attention.sliding_window_pattern": whole(2)}, [True, False, True]),
    ({"attention.sliding_window_pattern": (Type.ARRAY, [True, True, False])}, [True, True, False]),
])
def test_gemma_3s_windows(tmp_path: Path, keys: Keys, sliding: list[bool]) -> None:
    checkpoint = GgufCheckpoint(write(tmp_path / "x.gguf", GEMMA3, keys))
    assert [layer.window for layer in spec(checkpoint.config).layers] == [16 if each else None for each in sliding]


def test_granite_by_default_and_what_is_refused(tmp_path: Path) -> None:
    """Without factors they are one, but for that of scores."""
    assert spec(GgufCheckpoint(write(tmp_path / "x.gguf", GRANITE)).config) == spec(GRANITE, attention_multiplier=32**-0.5)
    refused: Keys = {"rope.scaling.finetuned": (Type.BOOL, False), "deepstack_mapping": (Type.ARRAY, [0, 1])}
    for key, value in refused.items():
        with pytest.raises(ModelError, match=rf"granite.{key} .*, but it must be"):
            GgufCheckpoint(write(tmp_path / f"{key}.gguf", GRANITE, {key: value}))


def test_olmo_3s_layers_have_one_base(tmp_path: Path) -> None:
    config = {**SIZE, "architectures": ["Olmo3ForCausalLM"], "sliding_window": 16}
    same: Keys = {"rope.freq_base_swa": number(config["rope_theta"])}
    assert spec(GgufCheckpoint(write(tmp_path / "x.gguf", config, same)).config) == spec(config)
    with pytest.raises(ModelError, match=r"olmo2.rope.freq_base_swa .*, but it must be 10000, as rope.freq_base"):
        GgufCheckpoint(write(tmp_path / "y.gguf", config, {"rope.freq_base_swa": number(500.0)}))


@pytest.mark.parametrize("said", [None, False, True])
def test_whether_olmoes_expert_weights_sum_to_one(tmp_path: Path, said: bool | None) -> None:
    """Not, unless the file says so."""
    config = {**SIZE, "architectures": ["OlmoeForCausalLM"], "num_experts": 4, "num_experts_per_tok": 2}
    keys: Keys = {} if said is None else {"expert_weights_norm": (Type.BOOL, said)}
    found = spec(GgufCheckpoint(write(tmp_path / "x.gguf", config, keys)).config)
    assert found == spec(config, norm_topk_prob=bool(said)) and found.layers[0].experts.renormalize is bool(said)


def test_lists_with_the_same_number_for_each_layer(tmp_path: Path) -> None:
    keys: Keys = {"feed_forward_length": (Type.ARRAY, [96, 96, 96]), "attention.head_count_kv": (Type.ARRAY, [2, 2, 2])}
    assert spec(GgufCheckpoint(write(tmp_path / "x.gguf", LLAMA, keys)).config) == spec(LLAMA)


def test_heads_without_a_length_of_their_own(tmp_path: Path) -> None:
    config = {**LLAMA, "head_dim": 16}
    path = write(tmp_path / "x.gguf", config, {"attention.key_length": None, "attention.value_length": None})
    assert spec(GgufCheckpoint(path).config) == spec(config)


REFUSED: list[tuple[dict[str, Any], Keys, str]] = [
    (LLAMA, {"general.architecture": None}, "has no general.architecture"),
    (LLAMA, {"general.architecture": (Type.STRING, "mamba")}, "is of the unknown architecture 'mamba'; known: llama, qwen2, qwen3"),
    (LLAMA, {"general.architecture": (Type.STRING, "m" * 9999)}, f"is of the unknown architecture '{'m' * 59}; known: llama, qwen2, qwen3"),
    (LLAMA, {"block_count": None}, "has no llama.block_count"),
    (LLAMA, {"block_count": whole(2)}, "says llama.block_count 2, but has tensors of 3 layers"),
    (LLAMA, {"block_count": whole(2**32 - 1)}, "says llama.block_count 4294967295, but has tensors of 3 layers"),
    (LLAMA, {"context_length": None}, "has no llama.context_length"),
    (LLAMA, {"context_length": (Type.STRING, "512")}, "llama.context_length '512', but it must be a whole number of at least 1"),
    (LLAMA, {"embedding_length": whole(128)}, "has token_embd.weight [40, 64], but llama.embedding_length is 128"),
    (LLAMA, {"embedding_length": whole(0)}, "says llama.embedding_length 0, but it must be a whole number of at least 1"),
    (LLAMA, {"attention.head_count": whole(0)}, "says llama.attention.head_count 0"),
    (LLAMA, {"attention.head_count": whole(65)}, "says llama.attention.head_count 65, but it must be at most 64"),
    (LLAMA, {"attention.value_length": whole(16)}, "says llama.attention.value_length 16, but it must be 32"),
    (LLAMA, {"attention.layer_norm_rms_epsilon": None}, "has no llama.attention.layer_norm_rms_epsilon"),
    (LLAMA, {"rope.dimension_count": whole(16)}, "says llama.rope.dimension_count 16, but it must be 32"),
    (LLAMA, {"rope.freq_base": number(math.nan)}, "says llama.rope.freq_base nan, but it must be a finite number"),
    (LLAMA, {"rope.freq_base": number(-1.5)}, "says llama.rope.freq_base -1.5, but it must be above 1"),
    (LLAMA, {"rope.scaling.type": (Type.STRING, "spiral")}, "'spiral', but it must be one of none, linear, yarn, longrope"),
    (LLAMA, {"rope.scaling.type": (Type.STRING, "longrope")}, "but lacks rope_factors_short.weight or rope_factors_long.weight"),
    (LLAMA, {"feed_forward_length": (Type.ARRAY, [96, 80, 96])}, "says llama.feed_forward_length 80, 96 for different layers"),
    (LLAMA, {"vocab_size": whole(41)}, "has 41 tokens, but its token_embd.weight has 40 rows"),
    (LLAMA, {"attention.causal": (Type.BOOL, False)}, "says llama.attention.causal False, which is not supported"),
    (LLAMA, {"attn_logit_softcapping": number(30.0)}, "says llama.attn_logit_softcapping 30.0, which is not supported"),
    (LLAMA, {"residual_scale": number(0.5)}, "says llama.residual_scale 0.5, which is not supported"),
    (QWEN3, {"attention.sliding_window": whole(16)}, "says qwen3.attention.sliding_window 16, which is not supported"),
    (LLAMA, {"logit_scale": (Type.ARRAY, [1, 1])}, "says llama.logit_scale array([1, 1], dtype=uint32), which is not supported"),
    (LLAMA, {"attention.clamp_kqv": (Type.ARRAY, [0])}, "llama.attention.clamp_kqv array([0], dtype=uint32), which is not supported"),
    (QWEN3, {"rope.dimension_sections": (Type.ARRAY, [8, 4, 4, 0])}, "qwen3.rope.dimension_sections"),
    (MOE, {"expert_count": whole(8)}, "says qwen3moe.expert_count 8, but blk.0.ffn_gate_inp.weight is [4, 64]"),
    (MOE, {"expert_gating_func": whole(2)}, "says qwen3moe.expert_gating_func 2, which is not supported"),
    (GEMMA3, {"attention.sliding_window_pattern": whole(0)}, "gemma3.attention.sliding_window_pattern 0, but it must be a whole number"),
    (GEMMA3, {"attention.sliding_window_pattern": (Type.ARRAY, [True])}, "a number, or a flag for each of 3 layers"),
]


@pytest.mark.parametrize("config, keys, said", REFUSED, ids=[said[:40] for *_, said in REFUSED])
def test_metadata_that_is_refused(tmp_path: Path, config: dict[str, Any], keys: Keys, said: str) -> None:
    check_refused(lambda: GgufCheckpoint(write(tmp_path / "x.gguf", config, keys)), str(tmp_path / "x.gguf"), said)


def check_refused(call: Callable[[], Any], *said: str) -> None:
    with pytest.raises(ModelError) as caught:
        call()
    message = str(caught.value)
    assert "\n" not in message and all(part in message for part in said), message


def test_tensors_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    factors = {"rope_freqs.weight": np.ones(16, np.float32)}
    check_refused(lambda: GgufCheckpoint(write(path, LLAMA, {"rope.scaling.factor": number(2.0)}, factors)), "rope_freqs.weight beside")
    ones = {"rope.freq_base": number(1.0)}
    check_refused(lambda: GgufCheckpoint(write(path, LLAMA, ones, factors)), "says llama.rope.freq_base 1.0, but it must be above 1")
    spiral: Keys = {"rope.scaling.type": (Type.STRING, "spiral")}
    check_refused(lambda: GgufCheckpoint(write(path, LLAMA, spiral, factors)), "'spiral', but it must be one of none, linear")
    square = {"rope_freqs.weight": np.ones((4, 4), np.float32)}
    check_refused(lambda: GgufCheckpoint(write(path, LLAMA, extra=square)), "rope_freqs.weight", "is F32 [4, 4], not a vector of F32")
    zero = {"rope_freqs.weight": np.zeros(16, np.float32)}
    check_refused(lambda: GgufCheckpoint(write(path, LLAMA, extra=zero)), "holds factors that are not above 0 and finite")
    writer = gguf.GGUFWriter(path, "llama")
    write_config(writer, LLAMA)
    add_tensor(writer, "blk.0.attn_norm.weight", np.ones(64, np.float32))
    check_refused(lambda: GgufCheckpoint(close(writer)), "has no tensor token_embd.weight")


def test_keys_that_nobody_knows_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "penstock.models"):
        GgufCheckpoint(write(tmp_path / "x.gguf", LLAMA, {"mystery": whole(1), "logit_scale": number(1.0)}))
    assert "that is not used: llama.mystery" in caplog.text and "logit_scale" not in caplog.text


def test_layers_of_exaone_4_that_see_all(tmp_path: Path) -> None:
    """Every fourth, or those that the file names. Where it says no window, the model of 64 layers has one."""
    config = {**SIZE, "architectures": ["Exaone4ForCausalLM"], "num_hidden_layers": 5, "sliding_window": 16}
    flags = (Type.ARRAY, [True, False, True, False, False])
    for keys, windows in (({}, (16, 16, 16, None, 16)), ({"attention.sliding_window_pattern": flags}, (16, None, 16, None, None)),
                          ({"attention.sliding_window": None}, (None,) * 5)):
        layers = spec(GgufCheckpoint(write(tmp_path / "x.gguf", config, keys)).config).layers
        assert tuple(layer.window for layer in layers) == windows
        assert [layer.rope is not None for layer in layers] == [window is not None or not any(windows) for window in windows]
    small = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 1, "num_key_value_heads": 1, "vocab_size": 8}
    large = GgufCheckpoint(write(tmp_path / "y.gguf", {**config, **small, "num_hidden_layers": 64, "sliding_window": None})).config
    assert [layer.window for layer in spec(large).layers] == [4096, 4096, 4096, None] * 16
    with pytest.raises(ModelError, match="exaone4.rope.freq_base_swa"):
        GgufCheckpoint(write(tmp_path / "x.gguf", config, {"rope.freq_base_swa": number(5.0)}))


def test_hunyuans_alpha_is_a_larger_base(tmp_path: Path) -> None:
    config = {**SIZE, "architectures": ["HunYuanDenseV1ForCausalLM"]}
    base = 10000.0 * 1000.0 ** (32 / 30)
    keys = {"rope.freq_base": number(base), "rope.scaling.type": (Type.STRING, "none"), "rope.scaling.factor": number(1.0),
            "rope.scaling.original_context_length": whole(262144), "context_length": whole(262144)}
    ours = spec(GgufCheckpoint(write(tmp_path / "x.gguf", config, keys)).config)
    theirs = spec(config, rope_scaling={"type": "dynamic", "alpha": 1000.0, "factor": 1.0})
    assert ours.layers[0].rope.theta == pytest.approx(theirs.layers[0].rope.theta, rel=1e-7)
