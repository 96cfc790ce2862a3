"""What a family file states: how to read its config.json, and the names of its tensors."""
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from penstock.compute.models.fields import Fields
from penstock.compute.models.names import TensorNames
from penstock.compute.models.quantized import QUANTIZATION, quantization_of
from penstock.core.modelspec import ModelSpec

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    """`defaults` are what transformers takes where config.json is silent, of the fields that no tensor's shape would give away."""

    facts: Callable[[Fields], ModelSpec]
    names: TensorNames = TensorNames()
    defaults: Config = field(default_factory=lambda: MappingProxyType({}))

    def spec(self, config: Config) -> ModelSpec:
        """Of a quantized checkpoint, too: see `quantized`. Raises ModelError on a config that lacks a field, has one out of its range, or
        asks for what is not supported."""
        quantization_of(config)
        fields = Fields({name: value for name, value in config.items() if name not in QUANTIZATION}, self.defaults)
        spec = self.facts(fields)
        fields.check_unread()
        return spec
