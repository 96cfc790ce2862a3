"""Where a family's tensors lie in a GGUF file: names, rows of joined tensors, and the order of rows."""
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from penstock.compute.models.load.gguf_architectures import Architecture
from penstock.compute.models.load.gguf_config import EMBEDDINGS, HEAD, Tensors
from penstock.compute.models.load.gguf_rope import Config

WHOLE = {EMBEDDINGS: "model.embed_tokens.weight", HEAD: "lm_head.weight", "output_norm.weight": "model.norm.weight"}
CONSUMED = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")  # these are in the config
LAYER = re.compile(r"blk\.(\d+)\.(.+)\.(weight|bias)")
LONE_EXPERT = re.compile(r"ffn_(gate|up|down)\.(\d+)")  # of older files: a tensor for each expert


@dataclass(frozen=True, slots=True)
class Piece:
    """A family's tensor: `count` rows of a GGUF file's tensor, from `first` on. A vector's values count as its rows."""

    tensor: str
    first: int
    count: int
    inner: int | None = None  # columns; None: a vector
    heads: int = 0  # above 0: its rows are those of so many heads, in pairs that rope turns together
    minus_one: bool = False

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.count,) if self.inner is None else (self.count, self.inner)


def pieces(tensors: Tensors, kind: Architecture, config: Config) -> dict[str, Piece]:
    """The families' tensors by name. A tensor that has no place in the architecture keeps its own name."""
    found: dict[str, Piece] = {}
    for name, tensor in tensors.items():
        if name not in CONSUMED:
            rows = tensor.shape[0] if len(tensor.shape) == 1 else tensor.shape[-2]
            piece = Piece(name, 0, rows, None if len(tensor.shape) == 1 else tensor.shape[-1])
            number = tensor.shape[0] if len(tensor.shape) == 3 else 0
            found |= _placed(piece, number, kind, config)
    return found


def _placed(piece: Piece, experts: int, kind: Architecture, config: Config) -> Mapping[str, Piece]:
    """`piece` is the whole tensor, or with `experts` the first of so many."""
    piece = replace(piece, minus_one=kind.norms_plus_one and piece.tensor.endswith("norm.weight"))
    if piece.tensor in WHOLE:
        return {WHOLE[piece.tensor]: piece}
    layer = LAYER.fullmatch(piece.tensor)
    if layer is None:
        return {piece.tensor: piece}
    at, stem, suffix = f"model.layers.{layer[1]}.", layer[2], layer[3]
    lone = LONE_EXPERT.fullmatch(stem)
    if lone and f"ffn_{lone[1]}_exps" in kind.names:
        return {f"{at}{kind.names[f'ffn_{lone[1]}_exps'].format(e=lone[2])}.{suffix}": piece}
    found = {}
    for part, rows in _split(stem, piece, kind, config):
        if part not in kind.names:
            return {piece.tensor: piece}
        for e in range(experts or 1):
            found[f"{at}{kind.names[part].format(e=e)}.{suffix}"] = replace(rows, first=rows.first + e * piece.count)
    return found


def _split(stem: str, piece: Piece, kind: Architecture, config: Config) -> Iterator[tuple[str, Piece]]:
    """The tensors of which this one is made, and the order of their rows."""
    heads, kv_heads, head_dim = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    counts = {"attn_q": heads, "attn_k": kv_heads, "attn_v": kv_heads}
    if stem == "attn_qkv" and stem not in kind.names:
        parts = [(name, count * head_dim) for name, count in counts.items()]
    elif stem == "ffn_gate_up_exps":
        parts = [("ffn_gate_exps", piece.count // 2), ("ffn_up_exps", piece.count // 2)]
    else:
        parts = [(stem, piece.count)]
    first = piece.first
    for name, count in parts:
        turned = counts.get(name, 0) if kind.paired and name != "attn_v" else 0
        yield name, replace(piece, first=first, count=count, heads=turned)
        first += count
