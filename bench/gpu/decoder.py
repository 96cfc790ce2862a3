"""A decoder of a known shape in torch, as a fused engine runs it: nine kernels a layer, captured into one graph. Weights are random.

For timing alone: a sequence's cache is one piece, and a step writes to its end. `check` holds it against transformers.
"""
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, silu

from gpu.probes import attention
from penstock.core.modelspec import ModelSpec

torch._dynamo.config.recompile_limit = 64  # one, more, and other strides of sequences and rows, for each model


@torch.compile(dynamic=True)
def norm(x: Tensor, residual: Tensor, weight: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(normed, sum) of x and the residual, which are summed first."""
    total = (x + residual).float()
    return (total * torch.rsqrt(total.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype), total.to(x.dtype)


@torch.compile(dynamic=True)
def gated(both: Tensor) -> Tensor:
    gate, up = both.chunk(2, dim=-1)
    return silu(gate.float()).to(both.dtype) * up


@torch.compile(dynamic=True)
def rotate(x: Tensor, weight: Tensor, angles: Tensor, eps: float) -> Tensor:
    """x [B, R, heads, D], angles [R, D / 2]; weight [D] is of the heads' norm, empty where there is none."""
    wide = x.float()
    if weight.numel():
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps) * weight.float()
    cos, sin = angles.cos()[None, :, None, :], angles.sin()[None, :, None, :]
    left, right = wide.chunk(2, dim=-1)
    return torch.cat((left * cos - right * sin, right * cos + left * sin), dim=-1).to(x.dtype)


@torch.compile(dynamic=True)
def place(qkv: Tensor, keys: Tensor, values: Tensor, norms: tuple[Tensor, Tensor], angles: Tensor, eps: float) -> Tensor:
    """qkv [B, R, heads, D] of queries, keys and values; these two go to `keys` and `values` [B, R, KV heads, D]. Returns queries."""
    count = keys.shape[2]
    keys.copy_(rotate(qkv[:, :, -2 * count : -count], norms[1], angles, eps))
    values.copy_(qkv[:, :, -count:])
    return rotate(qkv[:, :, : -2 * count], norms[0], angles, eps)


class Layer:
    def __init__(self, spec: ModelSpec, normed_heads: bool, dtype: torch.dtype) -> None:
        size, wide = spec.hidden_size, spec.num_heads * spec.head_dim

        def matrix(out: int, inner: int) -> Tensor:
            return torch.empty(out, inner, device="cuda", dtype=dtype).normal_(0, inner**-0.5)

        def ones(count: int) -> Tensor:
            return torch.rand(count, device="cuda", dtype=dtype) + 0.5

        self.qkv = matrix(wide + 2 * spec.num_kv_heads * spec.head_dim, size)
        self.o, self.gate_up, self.down = matrix(size, wide), matrix(2 * spec.intermediate_size, size), matrix(size, spec.intermediate_size)
        self.before, self.between = ones(size), ones(size)
        of_heads = spec.head_dim if normed_heads else 0
        self.heads = (ones(of_heads), ones(of_heads))


class Decoder:
    def __init__(self, spec: ModelSpec, normed_heads: bool = False, dtype: torch.dtype = torch.bfloat16) -> None:
        self.spec, self.dtype = spec, dtype
        self.layers = [Layer(spec, normed_heads, dtype) for _ in spec.layers]
        self.table = torch.empty(spec.vocab_size, spec.hidden_size, device="cuda", dtype=dtype).normal_(0, spec.hidden_size**-0.5)
        self.last = torch.rand(spec.hidden_size, device="cuda", dtype=dtype) + 0.5

    def caches(self, count: int, depth: int) -> list[tuple[Tensor, Tensor]]:
        """Of each layer, [count, depth, KV heads, D]: keys, values."""
        shape = (count, depth, self.spec.num_kv_heads, self.spec.head_dim)
        return [(torch.randn(shape, device="cuda", dtype=self.dtype), torch.randn(shape, device="cuda", dtype=self.dtype))
                for _ in self.layers]

    def step(self, tokens: Tensor, caches: list[tuple[Tensor, Tensor]]) -> Tensor:
        """tokens [B, R], the last of each sequence: all of it, or one. Logits [B, vocabulary] of the last row, the same table behind as
        before."""
        count, rows = tokens.shape
        depth, spec = caches[0][0].shape[1], self.spec
        eps, theta, half = spec.norm_eps, theta_of(spec), spec.head_dim // 2
        positions = torch.arange(depth - rows, depth, device="cuda", dtype=torch.float32)
        angles = positions[:, None] * theta ** (-torch.arange(half, device="cuda", dtype=torch.float32) / half)
        x, residual = self.table[tokens], torch.zeros((), device="cuda", dtype=self.dtype)
        residual = residual.expand_as(x)
        for layer, (keys, values) in zip(self.layers, caches, strict=True):
            h, residual = norm(x, residual, layer.before, eps)
            qkv = linear(h, layer.qkv).view(count, rows, -1, spec.head_dim)
            q = place(qkv, keys[:, depth - rows :], values[:, depth - rows :], layer.heads, angles, eps)
            seen = attention(q.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), causal=rows > 1)
            h, residual = norm(linear(seen.transpose(1, 2).reshape(count, rows, -1), layer.o), residual, layer.between, eps)
            x = linear(gated(linear(h, layer.gate_up)), layer.down)
        return linear(norm(x[:, -1], residual[:, -1], self.last, eps)[0], self.table)


def theta_of(spec: ModelSpec) -> float:
    rope = spec.layers[0].rope
    assert rope is not None
    return rope.theta


def check(spec: ModelSpec, normed_heads: bool) -> float:
    """How far the logits of a prompt and of the token after it are from transformers' with the same weights, in float32: the norm of the
    difference over that of the logits."""
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

    torch.backends.cuda.matmul.allow_tf32 = False
    ours = Decoder(spec, normed_heads, torch.float32)
    told: dict[str, Any] = {
        "vocab_size": spec.vocab_size, "hidden_size": spec.hidden_size, "intermediate_size": spec.intermediate_size,
        "num_hidden_layers": len(spec.layers), "num_attention_heads": spec.num_heads, "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim, "rms_norm_eps": spec.norm_eps, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta_of(spec)}}
    config, kind = (Qwen3Config(**told), Qwen3ForCausalLM) if normed_heads else (LlamaConfig(**told), LlamaForCausalLM)
    theirs = kind(config).to("cuda", torch.float32).eval()
    wide, narrow = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    state = {"model.embed_tokens.weight": ours.table, "model.norm.weight": ours.last, "lm_head.weight": ours.table}
    for index, layer in enumerate(ours.layers):
        q, k, v = layer.qkv.split((wide, narrow, narrow))
        gate, up = layer.gate_up.chunk(2)
        named = {
            "self_attn.q_proj": q, "self_attn.k_proj": k, "self_attn.v_proj": v, "self_attn.o_proj": layer.o, "mlp.gate_proj": gate,
            "mlp.up_proj": up, "mlp.down_proj": layer.down, "input_layernorm": layer.before, "post_attention_layernorm": layer.between}
        if normed_heads:
            named |= {"self_attn.q_norm": layer.heads[0], "self_attn.k_norm": layer.heads[1]}
        state |= {f"model.layers.{index}.{name}.weight": tensor for name, tensor in named.items()}
    theirs.load_state_dict(state, strict=True)
    tokens = torch.randint(0, spec.vocab_size, (2, 34), device="cuda")
    caches = ours.caches(2, 34)
    prompt = [(keys[:, :33], values[:, :33]) for keys, values in caches]
    with torch.inference_mode():
        wanted = theirs(tokens).logits[:, -2:]
        found = torch.stack((ours.step(tokens[:, :33], prompt), ours.step(tokens[:, 33:], caches)), dim=1)
    return float((found - wanted).norm() / wanted.norm())
