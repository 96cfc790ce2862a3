"""The architectures of GGUF files that are read: which family each is, what its metadata adds, and what its tensors are called."""
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from penstock.compute.models import hf
from penstock.compute.models.load.gguf_config import Tensors, shared_config
from penstock.compute.models.load.gguf_keys import Keys
from penstock.compute.models.load.gguf_rope import Config, Vector, rope_scaling
from penstock.core.errors import ModelError

Reader = Callable[[Keys, Tensors], Config]
LAYER_NAMES = {  # within a layer: GGUF's name -> config.json's families'
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}
POST_NORMS = {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"}
GLM = {"ffn_up": "mlp.gate_up_proj", "post_attention_norm": "post_self_attn_layernorm", "post_ffw_norm": "post_mlp_layernorm"}
HUNYUAN_NORMS = {"attn_q_norm": "self_attn.query_layernorm", "attn_k_norm": "self_attn.key_layernorm"}
GEMMA_NORMS = {"ffn_norm": "pre_feedforward_layernorm", **POST_NORMS}
SINKS = "self_attn.sinks"  # a tensor that has no `.weight` behind its name
MIXTURE = {"ffn_gate_inp": "mlp.gate"} | {f"ffn_{part}_exps": f"mlp.experts.{{e}}.{part}_proj" for part in ("gate", "up", "down")}
GPT_OSS = {
    "ffn_gate_inp": "mlp.router", "post_attention_norm": "post_attention_layernorm", "attn_sinks": SINKS,
}
MIXTRAL = {"ffn_gate_inp": "block_sparse_moe.gate"} | {
    f"ffn_{part}_exps": f"block_sparse_moe.experts.{{e}}.{ours}" for part, ours in (("gate", "w1"), ("down", "w2"), ("up", "w3"))}


@dataclass(frozen=True, slots=True)
class Architecture:
    """`extra` are the fields beside the shared ones. `paired`: the two rows that rope turns together lie side by side in the queries' and
    keys' weights, and must be laid half a head apart. `norms_plus_one`: norm weights are stored with 1 added."""

    extra: Reader
    names: Mapping[str, str]
    paired: bool = False
    norms_plus_one: bool = False


def architecture(keys: Keys) -> Architecture:
    """Raises ModelError for an unknown one."""
    if keys.architecture not in ARCHITECTURES:
        raise ModelError(f"{keys.where} is of the unknown architecture {keys.architecture!r:.60}; known: {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[keys.architecture]


def config(keys: Keys, tensors: Tensors, vector: Vector) -> dict[str, Any]:
    """What config.json would say. Raises ModelError for metadata that is missing, contradictory, or of what is not supported."""
    found = {**shared_config(keys, tensors, vector), **architecture(keys).extra(keys, tensors)}
    rotated = keys.whole("rope.dimension_count", found["head_dim"])
    if rotated != found["head_dim"] and "partial_rotary_factor" not in found:
        raise keys.wrong("rope.dimension_count", f"{found['head_dim']}, the length of a head's keys")
    keys.check_unread()
    return found


def _plain(name: str) -> Reader:
    return lambda keys, tensors: {"architectures": [name]}


def _llama(keys: Keys, tensors: Tensors) -> Config:
    """Llama; Mistral, which is Llama with a window; Mixtral, which is that with experts."""
    window = keys.whole("attention.sliding_window", 0, least=0) or None
    experts = keys.whole("expert_count", 0, least=0)
    if experts:
        check_experts(keys, tensors, experts)
        return {
            "architectures": ["MixtralForCausalLM"], "sliding_window": window, "num_local_experts": experts,
            "num_experts_per_tok": keys.whole("expert_used_count"),
        }
    if window is not None:
        return {"architectures": ["MistralForCausalLM"], "sliding_window": window}
    return {"architectures": ["LlamaForCausalLM"], "mlp_bias": "blk.0.ffn_gate.bias" in tensors}


def _qwen2(keys: Keys, tensors: Tensors) -> Config:
    """Its biases are taken for granted."""
    return {"architectures": ["Qwen2ForCausalLM"], "attention_bias": False}


def _qwen3_moe(keys: Keys, tensors: Tensors) -> Config:
    layers, experts = keys.whole("block_count"), keys.whole("expert_count")
    check_experts(keys, tensors, experts)
    return {
        "architectures": ["Qwen3MoeForCausalLM"], "num_experts": experts,
        "num_experts_per_tok": keys.whole("expert_used_count"), "moe_intermediate_size": keys.same("expert_feed_forward_length"),
        "norm_topk_prob": True, "mlp_only_layers": [i for i in range(layers) if f"blk.{i}.ffn_gate_inp.weight" not in tensors],
    }


def _granite(keys: Keys, tensors: Tensors) -> Config:
    """What logits are divided by is called their scale; 0 stands for none."""
    if not keys.raw("rope.scaling.finetuned", True):
        raise keys.wrong("rope.scaling.finetuned", "true: without it no layer has positions in this architecture")
    if keys.raw("deepstack_mapping", None) is not None:
        raise keys.wrong("deepstack_mapping", "left out: images are not read")
    scales = {"attention.scale": "attention_multiplier", "embedding_scale": "embedding_multiplier",
              "residual_scale": "residual_multiplier", "logit_scale": "logits_scaling"}
    head_dim = keys.whole("attention.key_length", keys.whole("embedding_length") // keys.same("attention.head_count"))
    found = {field: keys.number(key, 0.0) or (head_dim**-0.5 if key == "attention.scale" else 1.0) for key, field in scales.items()}
    if keys.whole("expert_count", 0, least=0):
        return {"architectures": ["GraniteMoeForCausalLM"], **_mixture(keys, tensors), **found}
    return {"architectures": ["GraniteForCausalLM"], "mlp_bias": "blk.0.ffn_gate.bias" in tensors, **found}


def _olmoe(keys: Keys, tensors: Tensors) -> Config:
    return {"architectures": ["OlmoeForCausalLM"], **_mixture(keys, tensors), "norm_topk_prob": keys.raw("expert_weights_norm", False)}


def _mixture(keys: Keys, tensors: Tensors) -> Config:
    experts = keys.whole("expert_count")
    check_experts(keys, tensors, experts)
    return {"num_local_experts": experts, "num_experts_per_tok": keys.whole("expert_used_count")}


def _olmo2(keys: Keys, tensors: Tensors) -> Config:
    """OLMo 3, too, which is told by its window: there every fourth layer sees all, and what is scaled is these layers' rope."""
    window = keys.whole("attention.sliding_window", 0, least=0)
    if not window:
        return {"architectures": ["Olmo2ForCausalLM"]}
    return {"architectures": ["Olmo3ForCausalLM"], **_every_fourth(keys, window)}


def _exaone4(keys: Keys, tensors: Tensors) -> Config:
    """The model of 64 layers, 32B, has a window of 4096 where the file says none; without one every layer has positions."""
    window = keys.whole("attention.sliding_window", 4096 if keys.whole("block_count") == 64 else 0, least=0)
    return {"architectures": ["Exaone4ForCausalLM"], **_every_fourth(keys, window)}


def _every_fourth(keys: Keys, window: int) -> Config:
    """The layers that see all, unless the file says otherwise."""
    theta = keys.number("rope.freq_base", 10000.0, above=1)
    if keys.number("rope.freq_base_swa", theta) != theta:
        raise keys.wrong("rope.freq_base_swa", f"{theta:g}, as rope.freq_base")
    return {"sliding_window": window or None, "layer_types": _layer_types(keys, window, pattern=4)}


def _ernie(keys: Keys, tensors: Tensors) -> Config:
    """One switch is for all biases: a file with some of them lacks the others."""
    biased = any(name.endswith(".bias") for name in tensors)
    return {"architectures": ["Ernie4_5ForCausalLM"], "use_bias": biased, "attention_bias": False}


def _gpt_oss(keys: Keys, tensors: Tensors) -> Config:
    """What a file does not say: the gate's constants, and that YaRN's corrections are not whole numbers."""
    experts = keys.whole("expert_count")
    check_experts(keys, tensors, experts)
    scaling = rope_scaling(keys, lambda name: None, keys.number("rope.freq_base", 10000.0, above=1))
    return {
        "architectures": ["GptOssForCausalLM"], "sliding_window": keys.whole("attention.sliding_window"), "num_local_experts": experts,
        "num_experts_per_tok": keys.whole("expert_used_count"), "intermediate_size": keys.same("expert_feed_forward_length"),
        "rope_parameters": None, "rope_scaling": scaling and {**scaling, "truncate": False},
    }


def check_experts(keys: Keys, tensors: Tensors, count: int) -> None:
    """Raises ModelError when a router chooses between another number of experts."""
    for name, tensor in tensors.items():
        if name.endswith(".ffn_gate_inp.weight") and tensor.shape[0] != count:
            raise ModelError(f"{keys.where} says {keys.architecture}.expert_count {count}, but {name} is {list(tensor.shape)}")


def _gemma1(keys: Keys, tensors: Tensors) -> Config:
    return {"architectures": ["GemmaForCausalLM"], "hidden_activation": "gelu_pytorch_tanh"}


def _gemma2(keys: Keys, tensors: Tensors) -> Config:
    return {
        "architectures": ["Gemma2ForCausalLM"], **_gemma(keys, pattern=2, largest=46),
        "attn_logit_softcapping": keys.number("attn_logit_softcapping", 50.0) or None,
        "final_logit_softcapping": keys.number("final_logit_softcapping", 30.0) or None,
    }


def _gemma3(keys: Keys, tensors: Tensors) -> Config:
    return {
        "architectures": ["Gemma3ForCausalLM"], **_gemma(keys, pattern=6, largest=62),
        "rope_local_base_freq": keys.number("rope.freq_base_swa", 10000.0),
        "final_logit_softcapping": keys.number("final_logit_softcapping", 0.0) or None,
    }


def _gemma(keys: Keys, pattern: int, largest: int) -> Config:
    """Every `pattern`-th layer sees all. What scores are scaled by is not in the file: by a head's length, except in the model of
    `largest` layers, 27B, where it is by the hidden size over the heads."""
    layers, window = keys.whole("block_count"), keys.whole("attention.sliding_window", 0, least=0)
    heads, hidden = keys.same("attention.head_count"), keys.whole("embedding_length")
    return {
        "hidden_activation": "gelu_pytorch_tanh", "sliding_window": window or None, "layer_types": _layer_types(keys, window, pattern),
        "query_pre_attn_scalar": hidden // heads if layers == largest else keys.whole("attention.key_length", hidden // heads),
    }


def _layer_types(keys: Keys, window: int, pattern: int) -> list[str]:
    """Every `pattern`-th layer sees all, unless the file says otherwise."""
    layers = keys.whole("block_count")
    flags = keys.raw("attention.sliding_window_pattern", pattern)
    if isinstance(flags, int):
        every = keys.whole("attention.sliding_window_pattern", pattern)
        flags = [(i + 1) % every != 0 for i in range(layers)]
    elif not isinstance(flags, np.ndarray) or len(flags) < layers:
        raise keys.wrong("attention.sliding_window_pattern", f"a number, or a flag for each of {layers} layers")
    return [hf.SLIDING if window and flag else hf.FULL for flag in list(flags)[:layers]]


def _glm4(keys: Keys, tensors: Tensors) -> Config:
    return {"architectures": ["Glm4ForCausalLM"], "partial_rotary_factor": _rotated_part(keys)}


def _rotated_part(keys: Keys) -> float:
    """Times a head's length it is rounded down, but not below the count."""
    head_dim = keys.whole("attention.key_length", keys.whole("embedding_length") // keys.same("attention.head_count"))
    return math.nextafter(keys.whole("rope.dimension_count", head_dim) / head_dim, 1.0)


def _phi3(keys: Keys, tensors: Tensors) -> Config:
    return {
        "architectures": ["Phi3ForCausalLM"], "sliding_window": keys.whole("attention.sliding_window", 0, least=0) or None,
        "partial_rotary_factor": _rotated_part(keys),
        "original_max_position_embeddings": keys.whole("rope.scaling.original_context_length", keys.whole("context_length")),
    }


ARCHITECTURES: dict[str, Architecture] = {
    "llama": Architecture(_llama, {**LAYER_NAMES, **MIXTRAL}, paired=True),
    "qwen2": Architecture(_qwen2, LAYER_NAMES),
    "qwen3": Architecture(_plain("Qwen3ForCausalLM"), LAYER_NAMES),
    "qwen3moe": Architecture(_qwen3_moe, {**LAYER_NAMES, **MIXTURE}),
    "gemma": Architecture(_gemma1, LAYER_NAMES, norms_plus_one=True),
    "gemma2": Architecture(_gemma2, {**LAYER_NAMES, **GEMMA_NORMS}, norms_plus_one=True),
    "gemma3": Architecture(_gemma3, {**LAYER_NAMES, **GEMMA_NORMS}, norms_plus_one=True),
    "phi3": Architecture(_phi3, {**LAYER_NAMES, "attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"}),
    "gpt-oss": Architecture(_gpt_oss, {**LAYER_NAMES, **MIXTURE, **GPT_OSS}),
    "granite": Architecture(_granite, LAYER_NAMES, paired=True),
    "granitemoe": Architecture(_granite, {**LAYER_NAMES, **MIXTURE, "ffn_gate_inp": "block_sparse_moe.router.layer"}, paired=True),
    "olmoe": Architecture(_olmoe, {**LAYER_NAMES, **MIXTURE}),
    "olmo2": Architecture(_olmo2, {**LAYER_NAMES, **POST_NORMS}),
    "smollm3": Architecture(_plain("SmolLM3ForCausalLM"), LAYER_NAMES, paired=True),
    "glm4": Architecture(_glm4, {**LAYER_NAMES, **GLM}),
    "ernie4_5": Architecture(_ernie, LAYER_NAMES),
    "exaone4": Architecture(_exaone4, {**LAYER_NAMES, **POST_NORMS}),
    "hunyuan-dense": Architecture(_plain("HunYuanDenseV1ForCausalLM"), {**LAYER_NAMES, **HUNYUAN_NORMS}),
}
