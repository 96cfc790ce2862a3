"""The language model of an image-and-text checkpoint: its config is the field text_config, and its tensors stand beside others."""
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from penstock.compute.models import hf
from penstock.compute.models.fields import Fields
from penstock.compute.models.names import TensorNames
from penstock.core.errors import ModelError
from penstock.core.modelspec import ModelSpec

Facts = Callable[[Fields], ModelSpec]
ALIASES = (("model.", "language_model.model."), ("model.", "model.language_model."), ("lm_head.", "language_model.lm_head."))


def of(facts: Facts, defaults: Mapping[str, Any], flat: bool = False) -> Facts:
    """`facts` and `defaults` as of the language model alone. Whether embeddings are tied, and in which dtype all is saved, the outer
    fields may say too, and are believed; what else they repeat of text_config is left to that. `flat`: older configs of the family have
    all fields in one object."""
    def of_outer(fields: Fields) -> ModelSpec:
        text = fields.section("text_config", defaults)
        if text is None and not flat:
            raise ModelError("config.json has no text_config")
        fields.raw("vision_config", None)
        if text is not None:
            fields.leave_to(text)
        spec = facts(text or fields)
        own = {name: fields.raw(name, None) for name in ("dtype", "torch_dtype")}
        tied = fields.flag("tie_word_embeddings", spec.tied_embeddings)
        return replace(spec, tied_embeddings=tied, dtype=hf.dtype(own) if any(own.values()) else spec.dtype)

    return of_outer


def named(names: TensorNames) -> TensorNames:
    """The names of the language model's tensors, where these are so called among the others."""
    return replace(names, aliases=ALIASES)
