"""What a GGUF file's metadata says of its model, as the config.json from which the families read.

The fields are those of `families/`; what a file leaves out is what llama.cpp takes then, as far as its converter relies on it.
"""
import math
import re
from collections import Counter
from collections.abc import Mapping

from penstock.compute.models.load.gguf_keys import Keys
from penstock.compute.models.load.gguf_rope import Config, Vector, rope_scaling
from penstock.compute.models.load.ggufile import Tensor
from penstock.core.errors import ModelError

Tensors = Mapping[str, Tensor]
LAYER = re.compile(r"blk\.\d{1,9}\.")
EMBEDDINGS, HEAD = "token_embd.weight", "output.weight"
DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}


def shared_config(keys: Keys, tensors: Tensors, vector: Vector) -> Config:
    """The fields that all architectures have. Raises ModelError for what is missing, or contradicts itself."""
    heads, hidden = keys.same("attention.head_count"), keys.whole("embedding_length")
    if heads > hidden:
        raise keys.wrong("attention.head_count", f"at most {hidden}, the embedding's length")
    head_dim = keys.whole("attention.key_length", hidden // heads)
    if keys.whole("attention.value_length", head_dim) != head_dim:
        raise keys.wrong("attention.value_length", f"{head_dim}, the length of a head's keys")
    found = {
        "vocab_size": vocab_size(keys, tensors, hidden), "hidden_size": hidden, "intermediate_size": keys.same("feed_forward_length"),
        "num_hidden_layers": num_layers(keys, tensors), "num_attention_heads": heads,
        "num_key_value_heads": keys.same("attention.head_count_kv", heads), "head_dim": head_dim,
        "max_position_embeddings": keys.whole("context_length"), "rms_norm_eps": keys.number("attention.layer_norm_rms_epsilon"),
        "rope_theta": keys.number("rope.freq_base", 10000.0, above=1), "tie_word_embeddings": HEAD not in tensors,
        "torch_dtype": dtype(tensors),
        "attention_bias": any(f"blk.0.{name}.bias" in tensors for name in ("attn_q", "attn_qkv")),
    }
    scaling = rope_scaling(keys, vector, found["rope_theta"])
    return found if scaling is None else {**found, "rope_scaling": scaling}


def num_layers(keys: Keys, tensors: Tensors) -> int:
    """Raises ModelError when the tensors are those of fewer or more layers than the metadata says."""
    there = {int(name.split(".")[1]) for name in tensors if LAYER.match(name)}
    count = int(keys.whole("block_count"))
    if len(there) != count or max(there) >= count:
        raise ModelError(f"{keys.where} says {keys.architecture}.block_count {count}, but has tensors of {len(there)} layers")
    return count


def vocab_size(keys: Keys, tensors: Tensors, hidden: int) -> int:
    """The rows of the table of embeddings. Raises ModelError when the list of tokens has another length, or the rows have."""
    if EMBEDDINGS not in tensors:
        raise ModelError(f"{keys.where} has no tensor {EMBEDDINGS}")
    shape = tensors[EMBEDDINGS].shape
    if len(shape) != 2 or shape[1] != hidden:
        raise ModelError(f"{keys.where} has {EMBEDDINGS} {list(shape)}, but {keys.architecture}.embedding_length is {hidden}")
    tokens = keys.metadata.length("tokenizer.ggml.tokens")
    count = keys.whole("vocab_size", shape[0]) if tokens is None else tokens
    if count != shape[0]:
        raise ModelError(f"{keys.where} has {count} tokens, but its {EMBEDDINGS} has {shape[0]} rows")
    return shape[0]


def types(tensors: Tensors) -> tuple[str, ...]:
    """The types of the matrices, those that hold most weights first."""
    counts: Counter[str] = Counter()
    for tensor in tensors.values():
        if len(tensor.shape) > 1:
            counts[tensor.format.name] += math.prod(tensor.shape)
    return tuple(kind for kind, _ in counts.most_common())


def dtype(tensors: Tensors) -> str:
    """The dtype that most matrices have; bfloat16 where these are quantized, which stay as they are: rows and the KV cache take it."""
    return DTYPES.get(next(iter(types(tensors)), "F32"), "bfloat16")
