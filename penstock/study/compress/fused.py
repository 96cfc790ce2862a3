"""Ops in torch's fused form, for the reference backend's `fused`: whole sequences that stand one after another, without a cache."""
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from penstock.compute.backends.reference import attention as plain
from penstock.compute.backends.reference.kernels import act_mul as plain_act_mul
from penstock.compute.program import Op


def per_head(x: Tensor, length: int) -> Tensor:
    """[B * length, heads, dim] -> [B, heads, length, dim]"""
    return x.view(-1, length, *x.shape[1:]).transpose(1, 2)


def per_row(x: Tensor) -> Tensor:
    """[B, heads, length, dim] -> [B * length, heads * dim]"""
    return x.transpose(1, 2).flatten(2).flatten(0, 1)


def attention(run: Any, op: Op, inputs: list[Tensor], weights: list[Tensor]) -> Tensor:
    """Causal; sinks, a soft cap and a window that is shorter than the sequences are left to the plain form."""
    k, v = run.stored[op.attrs["layer"]]
    window = op.attrs["window"]
    if weights or op.attrs["softcap"] is not None or (window is not None and window < run.length):
        how = plain.Attention(op.attrs["scale"], window, op.attrs["softcap"], *weights)
        return plain.dense(run.xp, inputs[0], k, v, run.length, how)
    v = v.contiguous()
    q, k, v = (per_head(x.to(v.dtype), run.length) for x in (inputs[0], k, v))
    return per_row(F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=op.attrs["scale"], enable_gqa=True))


def norm(run: Any, op: Op, inputs: list[Tensor], weights: list[Tensor]) -> Tensor:
    weight = weights[0] + op.attrs["offset"] if op.attrs["offset"] else weights[0]
    weight = weight * op.attrs["scale"] if op.attrs["scale"] != 1 else weight
    return F.rms_norm(inputs[0], (inputs[0].shape[-1],), weight.to(inputs[0].dtype), op.attrs["eps"])


def act_mul(run: Any, op: Op, inputs: list[Tensor], weights: list[Tensor]) -> Tensor:
    if op.attrs["activation"] != "silu":
        return plain_act_mul(run.xp, inputs[0], op.attrs["activation"])
    gate, up = inputs[0].chunk(2, dim=-1)
    return F.silu(gate) * up


FUSED = {"attention": attention, "rms_norm": norm, "act_mul": act_mul}
