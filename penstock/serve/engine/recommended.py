"""The sampling parameters that a model's makers recommend."""
from pathlib import Path
from typing import Any

from penstock.compute.decoding.params import check_params
from penstock.compute.models.load.gguf import generation_config
from penstock.core.errors import ModelError, RequestError
from penstock.core.types import SamplingParams
from penstock.serve.text.folder import read_json

SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty")


def recommended(path: Path) -> dict[str, Any]:
    """What generation_config.json or a GGUF file recommends, as fields of SamplingParams. Raises ModelError for a broken file, and where
    no request could ask for the same."""
    where = path if path.is_file() else path / "generation_config.json"
    config = generation_config(path) if path.is_file() else read_json(where)
    if not config.get("do_sample", False):
        return {}
    found = {name: config[name] for name in SAMPLING_FIELDS if config.get(name) is not None}
    try:
        check_params(SamplingParams(**found), vocab_size=1)
    except RequestError as error:
        raise ModelError(f"{where} recommends invalid sampling settings: {error}") from None
    return found
