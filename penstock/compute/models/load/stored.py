"""What dtype a checkpoint's weights are stored in, for a config.json that does not say: transformers and vLLM take that of the weights."""
from collections.abc import Mapping
from pathlib import Path

from penstock.compute.models.load.checkpoint import weight_files
from penstock.compute.models.load.tensorfile import TensorFile
from penstock.core.errors import ModelError

DTYPES = {"F64": "float32", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # no dtype here is wider than float32


def most_common(counts: Mapping[str, int]) -> str | None:
    """The dtype that most numbers have. `counts`: numbers by safetensors' word for their type; None where none is known."""
    known = {word: count for word, count in counts.items() if word in DTYPES}
    return DTYPES[max(known, key=lambda word: known[word])] if known else None


def stored_dtype(folder: Path) -> str | None:
    """By the header of a folder's first file of weights. None where it cannot be read: loading says why."""
    try:
        return most_common(TensorFile(min(weight_files(folder))).counts())
    except ModelError:
        return None
