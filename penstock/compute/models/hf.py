"""Reading a Hugging Face config.json: the fields that most families share."""
from collections.abc import Mapping
from typing import Any

from penstock.core.errors import ModelError
from penstock.core.modelspec import RopeSpec

ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh"}
DTYPES = ("float32", "float16", "bfloat16")
Config = Mapping[str, Any]


def head_dim(config: Config) -> int:
    given = config.get("head_dim")
    return int(given) if given else int(config["hidden_size"]) // int(config["num_attention_heads"])


def dtype(config: Config) -> str:
    name = str(config.get("dtype") or config.get("torch_dtype") or "float32").removeprefix("torch.")
    if name not in DTYPES:
        raise ModelError(f"config.json says dtype {name!r}; known: {', '.join(DTYPES)}")
    return name


def shape(config: Config) -> dict[str, Any]:
    """The arguments of ModelSpec that every family has. Raises ModelError on a missing field or an unknown activation."""
    try:
        activation = config.get("hidden_act") or config.get("hidden_activation") or "silu"
        if activation not in ACTIVATIONS:
            raise ModelError(f"config.json says activation {activation!r}; known: {', '.join(ACTIVATIONS)}")
        return dict(
            vocab_size=config["vocab_size"], hidden_size=config["hidden_size"], num_heads=config["num_attention_heads"],
            num_kv_heads=config.get("num_key_value_heads") or config["num_attention_heads"], head_dim=head_dim(config),
            intermediate_size=config["intermediate_size"], max_position=config.get("max_position_embeddings", 2048),
            norm_eps=config.get("rms_norm_eps", 1e-6), activation=ACTIVATIONS[activation],
            tied_embeddings=bool(config.get("tie_word_embeddings", False)), dtype=dtype(config),
        )
    except KeyError as error:
        raise ModelError(f"config.json has no {error.args[0]!r}") from None


def rope(config: Config, default_theta: float = 10000.0) -> RopeSpec:
    """Both forms: `rope_theta` with `rope_scaling`, and `rope_parameters`. Raises ModelError on an unknown kind of scaling."""
    given = dict(config.get("rope_parameters") or config.get("rope_scaling") or {})
    theta = given.pop("rope_theta", None) or config.get("rope_theta") or default_theta
    return RopeSpec(theta=theta, dim=head_dim(config))
