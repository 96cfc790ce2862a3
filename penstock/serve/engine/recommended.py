"""The sampling parameters that a model's makers recommend."""
from pathlib import Path
from typing import Any

from penstock.compute.models.load.gguf import generation_config
from penstock.serve.text.folder import read_json

SAMPLING_FIELDS = ("temperature", "top_k", "top_p", "min_p", "typical_p", "repetition_penalty")


def recommended(path: Path) -> dict[str, Any]:
    """What generation_config.json or a GGUF file recommends, as fields of SamplingParams. Raises ModelError for a broken file."""
    config = generation_config(path) if path.is_file() else read_json(path / "generation_config.json")
    if not config.get("do_sample", False):
        return {}
    return {name: config[name] for name in SAMPLING_FIELDS if config.get(name) is not None}
