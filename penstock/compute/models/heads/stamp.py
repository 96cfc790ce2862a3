"""What tells the model that heads were trained for: kept in their file, compared when they are loaded."""
import hashlib
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from penstock.core.errors import UsageError
from penstock.core.modelspec import GatingSpec, ModelSpec

# Keys of a file's metadata. `MODEL` is for people; a file may lack it.
KIND, TARGET, SHAPE, MODEL = "penstock.kind", "penstock.target", "penstock.shape", "penstock.model"
# Facts that the first stamps did not know, with what says that a model has none of it: such a model's stamp is what it was.
LATER: Mapping[str, Any] = {
    "latent": None, "shared_size": 0, "shared_gate": False, "gating": asdict(GatingSpec()), "projection_bias": False, "router_bias": False,
    "sinks": False, "logit_scale": 1.0, "qk_norm_last": False, "whole_qk_norm": False, "pre_norms": True,
}


def fingerprint(spec: ModelSpec) -> str:
    """Of the shape facts, whatever its weights are stored in: 32 hex digits."""
    return hashlib.blake2b(repr(_known(asdict(replace(spec, dtype="")))).encode(), digest_size=16).hexdigest()


def described(spec: ModelSpec, name: str) -> str:
    """`name` as the user gave it; of a path its last part is told."""
    return (f"{Path(name).resolve().name if Path(name).exists() else name} ({spec.num_layers} layers, hidden size {spec.hidden_size:,}, "
            f"{spec.vocab_size:,} tokens)")


def check(metadata: Mapping[str, str], file: Path, kind: str, spec: ModelSpec, name: str) -> None:
    """Raises UsageError unless the file's heads are of this kind and were trained for a model of this shape. `name`: as in `described`."""
    if (held := metadata.get(KIND, kind)) != kind:
        raise UsageError(f"{file} holds {held} heads, not those of {kind}")
    if metadata.get(TARGET) == fingerprint(spec):
        return
    trained = metadata.get(MODEL, "a model of another shape") if TARGET in metadata else "no model that it tells of"
    raise UsageError(f"{file} holds heads trained for {trained}, but heads fit one model alone, here {described(spec, name)}: "
                     f"`penstock train-heads {name} --kind {kind} --text TEXTS --out FOLDER` makes some for it")


def _known(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {name: _known(value) for name, value in facts.items() if name not in LATER or value != LATER[name]}
    return tuple(map(_known, facts)) if isinstance(facts, tuple) else facts
