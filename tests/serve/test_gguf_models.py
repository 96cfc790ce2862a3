"""A GGUF file everywhere where a folder is: the same tokens and log-probabilities as the folder that it was made of."""
import json
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
from gguf import GGMLQuantizationType as Kind
from safetensors.numpy import load_file

from penstock import LLM, SamplingParams
from penstock.core.config import EngineConfig
from penstock.core.errors import ModelError
from penstock.core.types import Output
from penstock.serve.engine.build import choose, find
from penstock.serve.engine.describe import describe
from penstock.serve.engine.resolve import choose_dtype
from tests.compute.models.load.gguf_makers import SIZE, tensors_of, write_gguf
from tests.serve.text.gguf_makers import byte_level_metadata
from tests.tiny import TEMPLATE, write_model

PARAMS = SamplingParams(max_tokens=12, temperature=0, ignore_eos=True, logprobs=3)
PROMPTS = ["In the time then", "été 12"]


MERGES = [("t", "h"), ("th", "e"), ("Ġ", "the"), ("Ġ", "t"), ("Ġt", "i"), ("i", "n")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, with a few merges."""
    found = write_model(tmp_path_factory.mktemp("models") / "folder", intermediate_size=64)
    written = json.loads((found / "tokenizer.json").read_text())
    vocab = {token: i for token, i in written["model"]["vocab"].items() if i < 258}
    written["model"] |= {"vocab": vocab | {left + right: 258 + i for i, (left, right) in enumerate(MERGES)}, "merges": MERGES}
    (found / "tokenizer.json").write_text(json.dumps(written))
    return found


def convert(folder: Path, kind: Kind) -> Path:
    backend = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))

    def tokenizer(writer: gguf.GGUFWriter) -> None:
        byte_level_metadata(writer, backend, "gpt-2", 300)
        writer.add_bos_token_id(256)
        writer.add_eos_token_id(257)
        writer.add_add_bos_token(True)
        writer.add_chat_template(TEMPLATE)
        writer.add_sampling_temp(0.7)

    config = json.loads((folder / "config.json").read_text())
    tensors = load_file(folder / "model.safetensors")
    return write_gguf(folder.parent / f"{kind.name}.gguf", config, tensors, kind, tokenizer)


def told(outputs: list[Output]) -> list[Any]:
    return [(each.prompt_token_ids, each.outputs[0].token_ids, each.outputs[0].text, each.outputs[0].logprobs) for each in outputs]


def test_the_same_tokens_as_the_folder(folder: Path) -> None:
    ours, theirs = LLM(convert(folder, Kind.F32)), LLM(folder)
    assert told(ours.generate(PROMPTS, PARAMS)) == told(theirs.generate(PROMPTS, PARAMS))
    talk = [{"role": "user", "content": "hello"}]
    assert told(ours.chat(talk, PARAMS)) == told(theirs.chat(talk, PARAMS))
    assert ours.get_default_sampling_params() == SamplingParams(temperature=0.7)


def test_a_quantized_file_is_served(folder: Path) -> None:
    llm = LLM(convert(folder, Kind.Q8_0))
    near, exact = (each.generate(PROMPTS, PARAMS)[0].outputs[0] for each in (llm, LLM(folder)))
    assert len(near.token_ids) == 12 and near.token_ids[0] == exact.token_ids[0]


def test_it_is_described(folder: Path) -> None:
    ours, theirs = (describe(EngineConfig(model=str(path))) for path in (convert(folder, Kind.F32), folder))
    same = ("architecture", "num_layers", "parameters", "dtype", "weight_bytes", "kv_bytes_per_token", "max_model_len")
    assert [getattr(ours, name) for name in same] == [getattr(theirs, name) for name in same]


def test_a_quantized_file_takes_bfloat16_where_the_backend_does(folder: Path) -> None:
    path = str(convert(folder, Kind.Q8_0))
    config = EngineConfig(model=path, backend="reference")
    found = find(config)
    chosen = choose(config, found)
    assert (chosen.dtype, chosen.holding.held.dtype) == ("bfloat16", "float32")  # numpy computes in float32
    assert choose_dtype(config, found.spec, ("float32",))[0] == "float32"
    pytest.importorskip("penstock._native")
    ours, exact = (describe(EngineConfig(model=path, backend="cpu", dtype=dtype)) for dtype in ("auto", "float32"))
    assert (ours.dtype, ours.kv_dtype, exact.dtype, exact.kv_dtype) == ("bfloat16", "bfloat16", "float32", "float32")
    assert ours.kv_bytes_per_token * 2 == exact.kv_bytes_per_token and ours.weight_bytes == exact.weight_bytes


def test_a_file_cut_short_is_refused(folder: Path) -> None:
    whole = convert(folder, Kind.F32).read_bytes()
    short = folder.parent / "short.gguf"
    short.write_bytes(whole[:-100])
    with pytest.raises(ModelError, match=f"short.gguf is cut short: it has {len(whole) - 100} bytes, but its tensors take"):
        LLM(short)


def test_metadata_that_a_family_refuses_is_the_files(tmp_path: Path) -> None:
    config = {**SIZE, "architectures": ["Qwen3ForCausalLM"]}
    path = write_gguf(tmp_path / "x.gguf", {**config, "num_key_value_heads": 3}, tensors_of(config))
    said = f"the metadata of {path}, read as a config.json, is refused: .* no multiple of its 3 key-value heads"
    with pytest.raises(ModelError, match=said):
        find(EngineConfig(model=str(path)))
