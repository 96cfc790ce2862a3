"""What a model's makers recommend is checked once, when it is loaded, and not in every request."""
import json
from pathlib import Path
from typing import Any

import gguf
import pytest

from penstock.core.errors import ModelError
from penstock.serve.engine.recommended import recommended, with_recommended
from tests.serve.text.gguf_makers import write


def folder(path: Path, **values: Any) -> Path:
    (path / "generation_config.json").write_text(json.dumps(values))
    return path


def test_what_samples_is_recommended(tmp_path: Path) -> None:
    values = {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "min_p": None, "eos_token_id": 3}
    assert recommended(folder(tmp_path, do_sample=True, **values)) == {"temperature": 0.6, "top_k": 20, "top_p": 0.95}
    assert recommended(folder(tmp_path, **values)) == recommended(folder(tmp_path)) == {}


def test_who_does_not_draw_is_recommended_penalties_alone(tmp_path: Path) -> None:
    values = {"temperature": 0.7, "repetition_penalty": 1.05}
    assert recommended(folder(tmp_path, do_sample=True, **values)) == values
    for without in ({"do_sample": False}, {}):
        assert recommended(folder(tmp_path, **without, **values)) == {"repetition_penalty": 1.05}
    assert with_recommended(values, {"beam_width": 4, "n": 2}) == {"repetition_penalty": 1.05, "beam_width": 4, "n": 2}
    assert with_recommended(values, {"beam_width": None, "temperature": 0.2}) == {**values, "beam_width": None, "temperature": 0.2}


@pytest.mark.parametrize("values, said", [
    ({"temperature": "0.7"}, 'temperature is "0.7", but must be a finite number of at least 0'), ({"top_p": 5}, "top_p is 5, but must be"),
    ({"top_k": 0.5}, "top_k is 0.5"), ({"repetition_penalty": -1.0}, "repetition_penalty is -1.0"),
])
def test_what_no_request_may_ask_for_is_refused(tmp_path: Path, values: dict[str, Any], said: str) -> None:
    with pytest.raises(ModelError) as caught:
        recommended(folder(tmp_path, do_sample=True, **values))
    assert str(caught.value).startswith(f"{tmp_path / 'generation_config.json'} recommends invalid sampling settings: {said}")


@pytest.mark.parametrize("draws", [1, 0, "false", []])
def test_whether_to_draw_is_true_or_false(tmp_path: Path, draws: Any) -> None:
    with pytest.raises(ModelError, match="generation_config.json says do_sample .*, but it must be true or false"):
        recommended(folder(tmp_path, do_sample=draws, temperature=0.7))


def test_a_gguf_file_that_recommends_it(tmp_path: Path) -> None:
    def cold(writer: gguf.GGUFWriter) -> None:
        writer.add_sampling_temp(-3.0)

    path = write(tmp_path / "x.gguf", cold)
    with pytest.raises(ModelError, match=f"{path} recommends invalid sampling settings: temperature is -3.0, but must be"):
        recommended(path)
