"""Where a family's tensors lie in a GGUF file: names, rows of joined tensors, and the order of rows."""
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from penstock.compute.models.load.gguf_architectures import SINKS, Architecture
from penstock.compute.models.load.gguf_config import EMBEDDINGS, HEAD, Tensors
from penstock.compute.models.load.gguf_rope import FACTORS, Config

GLOBAL = {EMBEDDINGS: "model.embed_tokens.weight", HEAD: "lm_head.weight", "output_norm.weight": "model.norm.weight"}
HEADS = {"attn_q": "num_attention_heads", "attn_k": "num_key_value_heads", "attn_v": "num_key_value_heads"}
LAYER = re.compile(r"blk\.(\d+)\.(.+)\.(weight|bias)")
FAMILY_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
EXPERTS_BIAS = "_exps.bias"  # a vector for each expert
EXPERT = re.compile(r"(?<=\.experts\.)\d+")
LONE_EXPERT = re.compile(r"(ffn_(?:gate|up|down))\.(\d+)")  # of older files: a tensor for each expert


@dataclass(frozen=True, slots=True)
class Piece:
    """A family's tensor: `count` rows of a GGUF file's tensor, from `first` on. A vector's values count as its rows."""

    tensor: str
    first: int
    count: int
    inner: int | None  # columns; None: a vector
    minus_one: bool = False
    heads: int = 0  # above 0: its rows are those of so many heads, in pairs that rope turns together

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count,) if self.inner is None else (self.count, self.inner)


def pieces(tensors: Tensors, kind: Architecture, config: Config) -> dict[str, Piece]:
    """The families' tensors by name. A tensor that has no place in the architecture keeps its own name."""
    found: dict[str, Piece] = {}
    for name, tensor in tensors.items():
        if name in FACTORS:  # these are in the config
            continue
        *outer, rows, inner = tensor.shape if len(tensor.shape) > 1 and not name.endswith(EXPERTS_BIAS) else (*tensor.shape, 0)
        whole = Piece(name, 0, math.prod(outer) * rows, inner or None, kind.norms_plus_one and name.endswith("norm.weight"))
        if name in GLOBAL:
            found[GLOBAL[name]] = whole
        else:
            found |= _in_layer(whole, tuple(outer), kind, config) or {name: whole}
    return found


def spelled(name: str, kind: Architecture) -> str:
    """What a file of this architecture would call a family's tensor, an expert's being part of that of all; `name` where there is none."""
    names = {ours: theirs for theirs, ours in GLOBAL.items()}
    layer = FAMILY_LAYER.fullmatch(f"{name}.weight" if name.endswith(SINKS) else name)
    if layer is None:
        return names.get(name, name)
    stem = {ours: theirs for theirs, ours in kind.names.items()}.get(EXPERT.sub("{e}", layer[2]))
    return name if stem is None else f"blk.{layer[1]}.{stem}.{layer[3]}"


def _in_layer(whole: Piece, outer: tuple[int, ...], kind: Architecture, config: Config) -> dict[str, Piece]:
    """Empty where the architecture has no such tensor. `outer`: the sizes before a matrix's, one of which are experts."""
    layer = LAYER.fullmatch(whole.tensor)
    if layer is None or len(outer) > 1:
        return {}
    stem, number = layer[2], None
    lone = LONE_EXPERT.fullmatch(stem)
    if lone is not None:
        stem, number = f"{lone[1]}_exps", lone[2]
    found = {}
    for part, piece in _parts(stem, whole, kind, config):
        template = kind.names.get(part)
        if template is None or ("{e}" in template) != (len(outer) == 1 or lone is not None):
            return {}
        experts = range(outer[0]) if outer else (number,)
        for at, e in enumerate(experts):
            rows = replace(piece, first=piece.first + at * (piece.count // len(experts)), count=piece.count // len(experts))
            found[f"model.layers.{layer[1]}.{template.format(e=e)}" + (f".{layer[3]}" if template != SINKS else "")] = rows
    return found


def _parts(stem: str, whole: Piece, kind: Architecture, config: Config) -> Iterator[tuple[str, Piece]]:
    """The tensors of which this one is made (queries, keys and values may be one), and the order of their rows."""
    rows = {name: config[heads] * config["head_dim"] for name, heads in HEADS.items()}
    parts = {stem: whole.count}
    if stem == "attn_qkv" and stem not in kind.names and sum(rows.values()) == whole.count:
        parts = rows
    first = whole.first
    for name, count in parts.items():
        turned = kind.paired and name != "attn_v" and rows.get(name) == count
        yield name, replace(whole, first=first, count=count, heads=config[HEADS[name]] if turned else 0)
        first += count
