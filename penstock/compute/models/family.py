"""What a family file states: how to read its config.json, and the names of its tensors."""
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from penstock.compute.models.fields import Fields
from penstock.compute.models.names import TensorNames
from penstock.core.errors import ModelError
from penstock.core.modelspec import ModelSpec

Config = Mapping[str, Any]
QUANTIZATION = ("quantization_config", "compression_config")


@dataclass(frozen=True, slots=True)
class Family:
    """`defaults` are what transformers takes where config.json is silent, of the fields that no tensor's shape would give away. `stored`:
    methods of quantization whose checkpoints are planned with."""

    facts: Callable[[Fields], ModelSpec]
    names: TensorNames = TensorNames()
    defaults: Config = field(default_factory=lambda: MappingProxyType({}))
    stored: tuple[str, ...] = ()

    def spec(self, config: Config) -> ModelSpec:
        """Raises ModelError on a config that lacks a field, has one out of its range, or asks for what is not supported."""
        refuse_quantized(config, self.stored)
        fields = Fields({name: value for name, value in config.items() if name not in QUANTIZATION}, self.defaults)
        spec = self.facts(fields)
        fields.check_unread()
        return spec


def refuse_quantized(config: Config, stored: tuple[str, ...] = ()) -> None:
    for name in QUANTIZATION:
        given = config.get(name)
        method = given.get("quant_method") if isinstance(given, Mapping) else None
        if given and method not in stored:
            raise ModelError(
                f"the checkpoint is quantized with {method or name}, which is not supported yet;"
                " use the original in float32, float16 or bfloat16")
