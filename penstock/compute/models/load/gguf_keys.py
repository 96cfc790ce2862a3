"""The metadata of a GGUF file's architecture, `llama.block_count` and the like; what nobody has read can be told afterwards."""
import logging
import math
from collections.abc import Mapping
from typing import Any

from penstock.compute.models.load.gguf_metadata import MISSING, Metadata
from penstock.core.errors import ModelError

log = logging.getLogger("penstock.models")
ARCHITECTURE = "general.architecture"
# Keys that change what is computed, with the values that change nothing. An architecture that knows one reads it; any other is refused.
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "attention.causal": (True,), "attention.clamp_kqv": (0.0,), "attention.max_alibi_bias": (0.0,), "attention.scale": (0.0,),
    "attention.sliding_window": (0,), "attn_logit_softcapping": (0.0,), "embedding_scale": (0.0, 1.0), "expert_count": (0,),
    "expert_gating_func": (0, 1), "expert_group_count": (0, 1), "expert_shared_count": (0,), "expert_shared_feed_forward_length": (0,),
    "expert_weights_norm": (True,), "expert_weights_scale": (0.0, 1.0), "final_logit_softcapping": (0.0,),
    "leading_dense_block_count": (0,), "logit_scale": (0.0, 1.0), "nextn_predict_layers": (0,), "residual_scale": (0.0, 1.0),
    "rope.scaling.alpha": (0.0,), "rope.scaling.attn_factor": (0.0, 1.0), "rope.scaling.yarn_ext_factor": (0.0, 1.0),
    "rope.scaling.yarn_log_multiplier": (0.0,), "swin_norm": (False,), "use_parallel_residual": (False,),
}
REFUSED = ("rope.dimension_sections", "attention.key_length_swa", "attention.value_length_swa", "rope.dimension_count_swa")


class Keys:
    """Getters raise ModelError when a value is missing (and has no default), or is not what it must be."""

    def __init__(self, metadata: Metadata) -> None:
        self.metadata = metadata
        self.where = metadata.where
        self.architecture: str = metadata.text(ARCHITECTURE)
        self._read: set[str] = set()

    def whole(self, name: str, default: Any = MISSING, least: int = 1) -> Any:
        return self.metadata.whole(self._key(name), default, least)

    def number(self, name: str, default: Any = MISSING, above: float = -math.inf) -> Any:
        value = self.metadata.number(self._key(name), default)
        if value is not default and value <= above:
            raise self.wrong(name, f"above {above:g}")
        return value

    def text(self, name: str, default: Any = MISSING) -> Any:
        return self.metadata.text(self._key(name), default)

    def raw(self, name: str, default: Any = MISSING) -> Any:
        return self.metadata.get(self._key(name), default)

    def same(self, name: str, default: Any = MISSING) -> Any:
        """A whole number, or a list with one for each layer that are all the same."""
        value = self.raw(name, default)
        if value is default or isinstance(value, int):
            return self.whole(name, default)
        found = sorted(set(self.metadata.numbers(self._key(name), "iu").tolist()))
        if len(found) != 1 or found[0] < 1:
            raise ModelError(f"{self.where} says {self._key(name)} {', '.join(map(str, found[:4]))} for different layers, not one for all")
        return found[0]

    def wrong(self, name: str, valid: str) -> ModelError:
        return self.metadata.wrong(self._key(name), valid)

    def check_unread(self) -> None:
        """Raises ModelError for a key that would change what is computed but has not been read; logs the names of unknown ones."""
        unknown = []
        for key in self.metadata:
            name = key.removeprefix(self.architecture + ".")
            if name == key or name in self._read:
                continue
            if name in REFUSED or (name in NEUTRAL and not neutral(name, self.metadata.get(key))):
                raise ModelError(f"{self.where} says {key} {self.metadata.get(key)!r:.60}, which is not supported for this architecture")
            if name not in NEUTRAL:
                unknown.append(key)
        if unknown:
            log.info("metadata of %s that is not used: %s", self.where, ", ".join(unknown))

    def _key(self, name: str) -> str:
        self._read.add(name)
        return f"{self.architecture}.{name}"


def neutral(name: str, value: Any) -> bool:
    """Whether this value of a key of NEUTRAL changes nothing. A list, as of numbers for each layer, is none of the values."""
    return isinstance(value, bool | int | float) and value in NEUTRAL[name]
