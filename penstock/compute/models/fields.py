"""config.json as a family reads it: every field is checked when it is read, and what nobody has read can be told afterwards.

A field that is absent has the family's default; null counts as absent except where None is a meaning of its own.
"""
import logging
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from penstock.core.errors import ModelError

log = logging.getLogger("penstock.models")

# Fields that change what is computed, with the values that change nothing. A family that knows one reads it; any other is refused.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_cross_attention": (None, False), "alpha": (None,), "attention_bias": (None, False), "attention_multiplier": (None,),
    "attn_logit_softcapping": (None,), "clip_qkv": (None,), "embedding_multiplier": (None, 1, 1.0),
    "final_logit_softcapping": (None,), "full_attention": (None,), "is_causal": (None, True), "is_encoder_decoder": (None, False),
    "layer_types": (None,), "llama_4_scaling_beta": (None, 0, 0.0), "logit_scale": (None, 1, 1.0), "logits_scaling": (None, 1, 1.0),
    "long_mscale": (None, 1, 1.0),
    "mlp_bias": (None, False), "mrope_section": (None,), "num_kv_shared_layers": (None, 0), "partial_rotary_factor": (None, 1, 1.0),
    "per_layer_config": (None, {}), "qk_layernorm": (None, False), "qkv_bias": (None, False), "residual_multiplier": (None, 1, 1.0),
    "rope_interleave": (None, False),
    "rope_interleaved": (None, False), "rope_parameters": (None,), "rope_scaling": (None,), "short_mscale": (None, 1, 1.0),
    "sliding_attention": (None,), "use_bidirectional_attention": (None, False), "use_cla": (None, False),
    "use_qk_norm": (None, False),
}
SINK = "sink"  # any field with this in its name speaks of attention sinks
# Fields that say nothing of what is computed here: of training, of the tokenizer, of other programs.
HARMLESS = frozenset((
    "_attn_implementation", "_name_or_path", "architectures", "attention_dropout", "auto_map", "cache_implementation", "dtype",
    "embd_pdrop", "id2label", "initializer_range", "label2id", "model_type", "original_max_position_embeddings", "output_attentions",
    "output_hidden_states", "output_router_logits", "pretraining_tp", "resid_pdrop", "residual_dropout", "return_dict",
    "router_aux_loss_coef", "router_jitter_noise", "torch_dtype", "transformers_version", "unsloth_fixed", "unsloth_version", "use_cache",
))
MISSING = object()
MOST = (1 << 31) - 1  # of a size, as everywhere in the field
# Of layers, and of a layer's experts: each has tensors of its own, whose names are written out.
MOST_NAMED = dict.fromkeys(("num_hidden_layers", "num_experts", "num_local_experts", "n_routed_experts"), 4096)


class Fields:
    """A JSON object. Its methods raise ModelError when a field is missing or is not what it must be."""

    def __init__(self, config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None, path: str = "",
                 file: str = "config.json") -> None:
        """`path`: of the object in the file, with a dot at its end."""
        self._config = config
        self._defaults = defaults or {}
        self._path = path
        self._file = file
        self._read: set[str] = set()
        self._sections: list[Fields] = []

    def __contains__(self, name: str) -> bool:
        return name in self._config

    def raw(self, name: str, default: Any = MISSING) -> Any:
        """The value as it stands, null included; absent: the family's default, or `default`."""
        self._read.add(name)
        value = self._config.get(name, self._defaults.get(name, default))
        if value is MISSING:
            raise ModelError(f"{self._file} has no {self._path}{name}")
        return value

    def whole(self, name: str, default: Any = MISSING, least: int = 1) -> int:
        value = self._given(name, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise self.wrong(name, f"a whole number of at least {least}")
        if value > (most := MOST_NAMED.get(name, MOST)):
            raise self.wrong(name, f"at most {most}")
        return value

    def number(self, name: str, default: Any = MISSING, above: float = 0.0) -> float:
        value = self._given(name, default)
        if not isinstance(value, int | float) or isinstance(value, bool) or not above < value < math.inf:
            raise self.wrong(name, f"a number above {above:g}")
        return float(value)

    def flag(self, name: str, default: bool = False) -> bool:
        value = self._given(name, default)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def maybe_whole(self, name: str) -> int | None:
        """None where it is null, or absent and without a default."""
        return None if self.raw(name, None) is None else self.whole(name)

    def maybe_number(self, name: str) -> float | None:
        return None if self.raw(name, None) is None else self.number(name)

    def choice(self, name: str, choices: Collection[str], default: Any = MISSING) -> str:
        value = self._given(name, default)
        if not isinstance(value, str) or value not in choices:
            raise self.wrong(name, f"one of {', '.join(choices)}")
        return value

    def items(self, name: str, kinds: type | tuple[type, ...]) -> tuple[Any, ...] | None:
        """A list of values of these kinds; None where it is null or absent."""
        value = self.raw(name, None)
        if value is None:
            return None
        if not isinstance(value, Sequence) or isinstance(value, str) or not all(
                isinstance(item, kinds) and not isinstance(item, bool) for item in value):
            raise self.wrong(name, "a list of plain values")
        return tuple(value)

    def section(self, name: str, defaults: Mapping[str, Any] | None = None) -> "Fields | None":
        """The object in this field; None where it is null, empty or absent."""
        value = self.raw(name, None)
        if value is None or value == {}:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, "an object")
        self._sections.append(Fields(value, defaults, f"{self._path}{name}.", self._file))
        return self._sections[-1]

    def wrong(self, name: str, valid: str) -> ModelError:
        return ModelError(f"{self._file} says {self._path}{name} {shown(self.raw(name, None))}, but it must be {valid}")

    def leave_to(self, section: "Fields") -> None:
        """What stands here and says the same in that section need not be read here, too."""
        self._read |= {name for name, value in self._config.items() if section._config.get(name, MISSING) == value}

    def check_unread(self) -> None:
        """Raises ModelError for a field that would change what is computed but has not been read; logs the names of unknown ones."""
        unknown = []
        for path, name, value in self._unread():
            if (SINK in name and value) or not is_neutral(name, value):
                raise ModelError(f"config.json says {path} {shown(value)}, which is not supported for this architecture")
            if name not in NEUTRAL and name not in HARMLESS and not name.endswith(("_token_id", "_token_index")):
                unknown.append(path)
        if unknown:
            log.info("fields of config.json that are not used: %s", ", ".join(unknown))

    def _unread(self) -> Iterator[tuple[str, str, Any]]:
        yield from ((self._path + name, name, value) for name, value in self._config.items() if name not in self._read)
        for section in self._sections:
            yield from section._unread()

    def _given(self, name: str, default: Any) -> Any:
        value = self.raw(name, default)
        if value is not None:
            return value
        value = self._defaults.get(name, default)
        if value is MISSING or value is None:
            raise ModelError(f"{self._file} has no {self._path}{name}")
        return value


def is_neutral(name: str, value: Any) -> bool:
    """Whether this value of the field changes nothing. True and false are no numbers."""
    return any(value == each and (isinstance(each, bool) or not isinstance(value, bool)) for each in NEUTRAL.get(name, (value,)))


def shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, bool) and value is not None else {True: "true", False: "false", None: "null"}[value]
    return text if len(text) <= 60 else text[:57] + "..."
