"""What a family file states: how to read its config.json, and the names of its tensors."""
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from penstock.compute.models.names import TensorNames
from penstock.core.modelspec import ModelSpec

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Family:
    spec: Callable[[Config], ModelSpec]  # raises ModelError on a config that it does not understand
    names: TensorNames = TensorNames()
