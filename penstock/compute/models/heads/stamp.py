"""What tells the model that heads were trained for: kept in their file, compared when they are loaded."""
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import Any

from penstock.core.modelspec import GatingSpec, ModelSpec

KIND, TARGET, SHAPE = "penstock.kind", "penstock.target", "penstock.shape"  # keys of a file's metadata
# Facts that the first stamps did not know, with what says that a model has none of it: such a model's stamp is what it was.
LATER: Mapping[str, Any] = {"latent": None, "shared_size": 0, "gating": asdict(GatingSpec())}


def fingerprint(spec: ModelSpec) -> str:
    """Of the shape facts, whatever its weights are stored in: 32 hex digits."""
    return hashlib.blake2b(repr(_known(asdict(replace(spec, dtype="")))).encode(), digest_size=16).hexdigest()


def _known(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {name: _known(value) for name, value in facts.items() if name not in LATER or value != LATER[name]}
    return tuple(map(_known, facts)) if isinstance(facts, tuple) else facts
