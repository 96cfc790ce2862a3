"""A weight format from the option to the answer: what is refused, what is told, what is held, and that it is served."""
from pathlib import Path
from typing import Any

import pytest

from penstock.compute.backends import TABLE
from penstock.core.config import EngineConfig
from penstock.core.errors import PenstockError, UsageError
from penstock.core.types import SamplingParams
from penstock.serve.engine.build import Built, build, choose, find
from penstock.serve.engine.describe import describe
from penstock.serve.engine.holding import packed_cache
from penstock.serve.llm import LLM
from tests.tiny import write_model

BACKENDS = sorted(TABLE)
SHAPE = {"hidden_size": 64, "intermediate_size": 96}
PARAMS = SamplingParams(temperature=0, max_tokens=12, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"), **SHAPE)


def config(folder: Path, quant: str, **options: Any) -> EngineConfig:
    return EngineConfig(model=str(folder), quant=quant, **options)


def built(folder: Path, quant: str, backend: str, say: Any = None) -> Built:
    if backend == "cpu":
        pytest.importorskip("penstock._native")
    return build(config(folder, quant, backend=backend), say=say)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("quant", [
    "int8", "int4", "int4:group=64,symmetric=false,head=4", "int8:activations=int8", "int4:activations=int8"])
def test_it_is_served(folder: Path, backend: str, quant: str) -> None:
    if backend == "cpu":
        pytest.importorskip("penstock._native")
    llm = LLM(str(folder), quant=quant, backend=backend)
    answers = llm.generate(["hello there", "one"], PARAMS)
    assert [len(answer.outputs[0].token_ids) for answer in answers] == [12, 12]
    alone = LLM(str(folder), quant=quant, backend=backend).generate(["one"], PARAMS)
    assert alone[0].outputs[0].token_ids == answers[1].outputs[0].token_ids


@pytest.mark.parametrize("quant", ["int8", "int8:activations=int8"])
def test_backends_agree_on_the_first_token(folder: Path, quant: str) -> None:
    pytest.importorskip("penstock._native")
    first = {LLM(str(folder), quant=quant, backend=name, dtype="float32").generate(["hello there"], PARAMS)[0].outputs[0].token_ids[0]
             for name in BACKENDS}
    assert len(first) == 1


def test_what_was_done_is_told(folder: Path) -> None:
    said: list[str] = []
    found = built(folder, "int4:group=64", "reference", said.append)
    expected = "matrices: 6 in 4 bits by 64 columns, 2 in 4 bits by 32 columns, 1 in 8 bits by row"
    assert len(said) == 1 and said[0].startswith(f"--quant int4:group=64: {expected}; ") and expected in found.resolved.reasons["quant"]
    built(folder, "none", "reference", said.append)
    assert len(said) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_cost_of_rounded_activations_is_told(folder: Path, backend: str) -> None:
    said: list[str] = []
    built(folder, "int8:activations=int8", backend, said.append)
    assert "lossy: at 32 places of a built-in text" in said[-1] and said[-1].endswith(" nats")


@pytest.mark.parametrize(("quant", "says"), [
    ("int3", "unknown weight format 'int3'; known: none, int8, int4"), ("int8:bits=3", "no option 'bits'"),
    ("none:activations=int8", "none of this model's is: take int8:activations=int8"),
    ("int4:activations=fp8", "activations=fp8 is not one of none, int8"),
])
def test_what_is_not_known_or_does_nothing_is_refused(folder: Path, quant: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        build(config(folder, quant))


@pytest.mark.parametrize("scheme", ["none", "int8", "int4"])
def test_activations_of_a_model_too_narrow_for_codes_are_refused_with_its_width(tmp_path: Path, scheme: str) -> None:
    narrow = write_model(tmp_path, hidden_size=16, intermediate_size=24, num_attention_heads=1, num_key_value_heads=1)
    said = "none of this model's is: its widest has 24 columns, and 32 is the least; leave out activations=int8"
    with pytest.raises(UsageError, match=said):
        build(config(narrow, f"{scheme}:activations=int8"))


def test_an_option_that_nothing_would_be_dequantized_by_is_refused(folder: Path) -> None:
    native = pytest.importorskip("penstock._native")
    tiles = [name for name in native.kernel_names() if name.startswith("amx")]
    if not tiles:
        pytest.skip("no kernels with tiles can run here")
    backend = f"cpu:kernels={tiles[-1]},dequantize=true"
    for quant in ("none", "int8", "int4", "int4:head=4"):
        asked = config(folder, quant, backend=backend)
        with pytest.raises(UsageError, match="dequantize=true would change nothing: .* this model will have none; leave it out"):
            choose(asked, find(asked))
    asked = config(folder, "int4:symmetric=false", backend=backend)
    assert choose(asked, find(asked)).config.backend == backend


def test_a_description_counts_bits(folder: Path) -> None:
    plain, byte, nibble = (describe(config(folder, quant, backend="reference")) for quant in ("none", "int8", "int4:head=4"))
    assert plain.bits_per_weight == 32 and plain.weight_bytes == plain.parameters * 4
    assert 8 < byte.bits_per_weight < 9 and 4.25 < nibble.bits_per_weight < 5
    assert nibble.weight_bytes * 8 == round(nibble.bits_per_weight * nibble.parameters)
    assert "4 bits by 32 columns" in nibble.reasons["quant"]


def test_products_are_those_of_the_weight_format(folder: Path) -> None:
    pytest.importorskip("penstock._native")
    expected = {"none": "fp32", "int8": "int8", "int4:head=4": "int4", "int4:activations=int8,head=4": "int4:activations=int8",
                "int4:symmetric=false,head=4": "int4 by 32"}
    for quant, name in expected.items():
        asked = config(folder, quant, backend="cpu")
        assert choose(asked, find(asked)).holding.held.product_format == name
    asked = config(folder, "none", backend="cpu", dtype="bfloat16")
    assert choose(asked, find(asked)).holding.held.product_format == "bf16"


def test_products_that_are_not_timed(folder: Path) -> None:
    """Those of the reference backend, and of codes that become numbers on tiles."""
    native = pytest.importorskip("penstock._native")
    for backend in ("reference", *(f"cpu:dequantize=true,kernels={name}" for name in native.kernel_names() if native.has_tiles(name))):
        asked = config(folder, "int4:symmetric=false,head=4", backend=backend)
        assert choose(asked, find(asked)).holding.held.product_format == "", backend


def test_memory_is_planned_for_what_is_held(folder: Path) -> None:
    pytest.importorskip("penstock._native")
    for quant in ("none", "int8", "int4"):
        for backend in BACKENDS:
            asked = config(folder, quant, backend=backend)
            told, held = choose(asked, find(asked)).holding.held.weight_bytes, build(asked).weight_bytes
            assert told <= held < 1.2 * told, (quant, backend)


def test_only_quantized_weights_are_kept(folder: Path, tmp_path: Path) -> None:
    from penstock.compute.models.load.checkpoint import open_checkpoint
    from penstock.compute.models.load.weights import load_weights

    keys = set()
    for quant in ("none", "int8", "int8:activations=int8", "int4"):
        asked = config(folder, quant, backend="reference")
        chosen = choose(asked, find(asked))
        cache = packed_cache(quant, load_weights(chosen.holding.program, open_checkpoint(folder), chosen.dtype, chosen.scheme), tmp_path)
        assert (cache is None) == (quant == "none")
        keys.add(cache and cache.key)
    assert len(keys) == 4


def test_a_model_that_does_not_fit_may_fit_quantized(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.serve.engine import build as module
    from penstock.serve.engine.machine import Machine
    from penstock.serve.engine.resolve import activation_bytes

    pytest.importorskip("penstock._native")
    asked = config(folder, "int4", backend="cpu", kv_tokens=16)
    found = find(asked)
    held = choose(asked, found).holding.held
    monkeypatch.setattr(module, "look", lambda: Machine(activation_bytes(asked, found.spec, held) + held.weight_bytes + 60_000, 1))
    assert build(asked).weight_bytes >= held.weight_bytes
    with pytest.raises(PenstockError, match=r"needs .* KiB for its weights with --dtype float32 --quant none"):
        build(config(folder, "none", backend="cpu", kv_tokens=16))
