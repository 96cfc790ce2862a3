"""The sampling parameters that a model's makers recommend."""
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.compute.decoding.params import FILTERS, check_params
from penstock.compute.models.load.gguf import generation_config
from penstock.core.errors import ModelError, RequestError
from penstock.core.types import SamplingParams
from penstock.serve.text.folder import read_json

DRAWING = ("temperature", *FILTERS)  # what only those obey who draw
PENALTIES = ("repetition_penalty",)


def recommended(path: Path) -> dict[str, Any]:
    """What generation_config.json or a GGUF file recommends, as fields of SamplingParams: without do_sample penalties alone. Raises
    ModelError for a broken file, and where no request could ask for the same."""
    where = path if path.is_file() else path / "generation_config.json"
    config = generation_config(path) if path.is_file() else read_json(where)
    draws = config.get("do_sample")
    if draws is not None and not isinstance(draws, bool):
        raise ModelError(f"{where} says do_sample {draws!r:.80}, but it must be true or false")
    names = (*DRAWING, *PENALTIES) if draws else PENALTIES
    found = {name: config[name] for name in names if config.get(name) is not None}
    try:
        check_params(SamplingParams(**found), vocab_size=1)
    except RequestError as error:
        raise ModelError(f"{where} recommends invalid sampling settings: {error}") from None
    return found


def with_recommended(found: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """A request's fields, `given`, and what is recommended for those that it leaves out. A beam search draws nothing."""
    unused = DRAWING if given.get("beam_width") else ()
    return {name: value for name, value in found.items() if name not in unused} | {**given}
