"""Reading a Hugging Face config.json: the fields that most families share."""
from collections.abc import Collection, Mapping
from typing import Any

from penstock.compute.models.fields import Fields
from penstock.core.errors import ModelError
from penstock.core.modelspec import DTYPE_BYTES

ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_python": "gelu",
    "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu_fast": "gelu_tanh",
}
FULL, SLIDING = "full_attention", "sliding_attention"
Config = Mapping[str, Any]


def architecture(config: Config, known: Collection[str]) -> str:
    """The architecture that config.json names, one of `known`. Raises ModelError when it names none, or another."""
    names = config.get("architectures")
    if not isinstance(names, list) or not names:
        raise ModelError(f"config.json names no architecture; known: {', '.join(known)}")
    for name in names:
        if isinstance(name, str) and name in known:
            return name
    raise ModelError(f"unknown architecture {names[0]!r} in config.json; known: {', '.join(known)}")


def told_dtype(config: Config) -> Any:
    """What config.json says that the checkpoint was saved in, itself or its text_config; None: nothing."""
    inner = config.get("text_config")
    parts = (config, inner if isinstance(inner, Mapping) else {})
    return next((part[name] for part in parts for name in ("dtype", "torch_dtype") if part.get(name) is not None), None)


def dtype(config: Config) -> str:
    """What the checkpoint was saved in; float32 where nothing is said. Raises ModelError unless it is one of the dtypes known here."""
    told = told_dtype(config)
    told = "float32" if told is None else told
    name = told.removeprefix("torch.") if isinstance(told, str) else ""
    if name not in DTYPE_BYTES:
        raise ModelError(f"config.json says dtype {told!r:.80}; known: {', '.join(DTYPE_BYTES)}")
    return name


def head_dim(fields: Fields) -> int:
    """By null, as by silence where the family has no other default, the hidden size over the heads."""
    derived = max(1, fields.whole("hidden_size") // fields.whole("num_attention_heads"))
    return derived if fields.raw("head_dim", None) is None else fields.whole("head_dim")


def shape(fields: Fields, activation: str = "hidden_act") -> dict[str, Any]:
    """The arguments of ModelSpec that every family has; `activation` is the field that names it. Raises ModelError."""
    heads = fields.whole("num_attention_heads")
    kv_heads = heads if fields.raw("num_key_value_heads", None) is None else fields.whole("num_key_value_heads")
    if heads % kv_heads:
        raise ModelError(f"config.json says {heads} attention heads, which is no multiple of its {kv_heads} key-value heads")
    return {
        "vocab_size": fields.whole("vocab_size"), "hidden_size": fields.whole("hidden_size"), "num_heads": heads, "num_kv_heads": kv_heads,
        "head_dim": head_dim(fields), "intermediate_size": fields.whole("intermediate_size"),
        "max_position": fields.whole("max_position_embeddings", 2048), "norm_eps": fields.number("rms_norm_eps", 1e-6),
        "activation": ACTIVATIONS[fields.choice(activation, ACTIVATIONS, "silu")],
        "tied_embeddings": fields.flag("tie_word_embeddings"),
        "dtype": dtype({name: fields.raw(name, None) for name in ("dtype", "torch_dtype")}),
    }


def layer_types(fields: Fields) -> tuple[str, ...] | None:
    """`full_attention` or `sliding_attention` for each layer; None where config.json does not list them. Raises ModelError."""
    count, types = fields.whole("num_hidden_layers"), fields.items("layer_types", str)
    if types is None:
        return None
    strange = next((kind for kind in types if kind not in (FULL, SLIDING)), None)
    if strange is not None:
        raise ModelError(f"config.json says layer type {strange!r}; known: {FULL}, {SLIDING}")
    if len(types) != count:
        raise ModelError(f"config.json lists {len(types)} layer_types for {count} layers")
    return types


def windows(types: tuple[str, ...], window: int | None) -> tuple[int | None, ...]:
    """The window of each layer, in tokens; None: it sees all. Raises ModelError when a layer slides but there is no window."""
    if window is None and SLIDING in types:
        raise ModelError(f"config.json says {SLIDING} for layer {types.index(SLIDING)}, but gives no sliding_window to use")
    return tuple(window if kind == SLIDING else None for kind in types)


def one_window(fields: Fields, window: int | None) -> int | None:
    """The window of all layers. Raises ModelError when layer_types says otherwise."""
    types, expected = layer_types(fields), FULL if window is None else SLIDING
    if types is not None and set(types) != {expected}:
        raise ModelError(f"config.json says {' and '.join(sorted(set(types)))} in layer_types, but only {expected} is supported with"
                         f" sliding_window {'null' if window is None else window} in this architecture")
    return window


def switched_window(fields: Fields) -> int | None:
    """`sliding_window`, where `use_sliding_window` switches it on."""
    window = fields.maybe_whole("sliding_window")
    return window if fields.flag("use_sliding_window") else None


def upper_windows(fields: Fields) -> tuple[int | None, ...]:
    """Layers from `max_window_layers` on slide, unless layer_types says otherwise."""
    window, first = switched_window(fields), fields.whole("max_window_layers", 28, least=0)
    derived = tuple(SLIDING if window is not None and i >= first else FULL for i in range(fields.whole("num_hidden_layers")))
    return windows(layer_types(fields) or derived, window)
