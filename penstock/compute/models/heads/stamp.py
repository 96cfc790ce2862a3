"""What tells the model that heads were trained for: kept in their file, compared when they are loaded."""
import hashlib
from dataclasses import asdict, replace

from penstock.core.modelspec import ModelSpec

KIND, TARGET, SHAPE = "penstock.kind", "penstock.target", "penstock.shape"  # keys of a file's metadata


def fingerprint(spec: ModelSpec) -> str:
    """Of the shape facts, whatever its weights are stored in: 32 hex digits."""
    return hashlib.blake2b(repr(asdict(replace(spec, dtype=""))).encode(), digest_size=16).hexdigest()
