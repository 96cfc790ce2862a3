"""Weights on their way to a backend: which form each takes, that none is read before it is wanted, and that codes stay exact."""
import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from penstock.compute.models.load import weights as module
from penstock.compute.models.load.checkpoint import open_checkpoint
from penstock.compute.models.load.tensorfile import TensorFile
from penstock.compute.models.load.weights import Forming, load_weights, tables_of
from penstock.compute.quant.codes import UNSIGNED, Codes, Coding
from penstock.compute.quant.int4 import Int4, Int4Options
from penstock.compute.quant.int8 import Int8, Int8Options
from penstock.compute.quant.native import best_rounding
from penstock.compute.quant.none import Stored
from penstock.compute.quant.rounding import Numpy
from penstock.core.errors import ModelError
from tests.compute.models.load.makers import CONFIG, program_of, tensors_of, write_folder
from tests.contract.decoders import SPECS, decoder
from tests.contract.test_codes import coded

Array = Any
WIDE = {**CONFIG, "hidden_size": 64, "intermediate_size": 96, "vocab_size": 70}
Q4_K, Q6_K = Coding(4, 32, "int8", True, UNSIGNED, 64), Coding(6, 16, "int8", factor=64)
Q8_0 = Coding(8, 32, "float16")


class Memory:
    """A checkpoint of arrays and codes that tells what was asked of it."""

    where, config = "memory", {"tie_word_embeddings": False}

    def __init__(self, tensors: dict[str, Array | Codes]) -> None:
        self.tensors = tensors
        self.read: list[str] = []
        self.released = 0

    def names(self) -> Any:
        return self.tensors.keys()

    def spelled(self, name: str) -> str:
        return name

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.tensors[name].shape)

    def tensor(self, name: str) -> Array:
        self.read.append(name)
        return self.tensors[name]

    def coding(self, name: str) -> Coding | None:
        return self.tensors[name].coding if isinstance(self.tensors[name], Codes) else None

    def rows(self, name: str, start: int, stop: int) -> Array | Codes:
        self.read.append(name)
        tensor = self.tensors[name]
        return tensor.rows(start, stop) if isinstance(tensor, Codes) else tensor[start:stop]

    def fingerprint(self) -> bytes:
        return b""

    def release(self) -> None:
        self.released += 1


def with_codes(codings: dict[str, Coding]) -> Memory:
    """The tensors of WIDE, those whose names end so as codes."""
    tensors: dict[str, Any] = tensors_of(WIDE)
    for seed, name in enumerate(tensors):
        for ending, coding in codings.items():
            if name.endswith(ending + ".weight"):
                tensors[name] = coded(coding, *tensors[name].shape, seed=seed)
    return Memory(tensors)


def meaning(checkpoint: Memory, *names: str) -> Array:
    tensors = [checkpoint.tensors[f"model.layers.0.{name}.weight"] for name in names]
    return np.concatenate([each.dequantize() if isinstance(each, Codes) else each for each in tensors])


def test_nothing_is_read_before_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE", 64 * 64)
    checkpoint = with_codes({})
    weights = load_weights(program_of(WIDE), checkpoint, "bfloat16")
    weight = weights["layers.0.gate_up"]
    pieces = weight.pieces()
    assert not checkpoint.read
    sizes = []
    for piece in pieces:
        sizes.append(len(piece))
        assert len(checkpoint.read) == len(sizes) and checkpoint.released == len(sizes) - 1
    assert sizes == [64, 32, 64, 32] and checkpoint.released == 4
    assert set(checkpoint.read) == {"model.layers.0.mlp.gate_proj.weight", "model.layers.0.mlp.up_proj.weight"}


@pytest.mark.parametrize("name, expected", [
    ("grouped queries", {"embed", "lm_head"}), ("windows, caps and norms", {"embed"}), ("odd sizes and shared keys", {"embed", "lm_head"}),
])
def test_the_tables_are_found(name: str, expected: set[str]) -> None:
    assert tables_of(decoder(SPECS[name])[0]) == expected


def test_a_scheme_codes_matrices_and_nothing_else() -> None:
    program, _ = decoder(SPECS["mixture of experts"])
    forms = Forming("bfloat16", Int4()).forms(program)
    for name, weight in program.weights.items():
        if name in ("embed", "lm_head") or (weight.matrix and weight.shape[-1] % 32):
            assert forms[name] == (Coding(8, weight.shape[-1], "float32") if weight.shape[-1] >= 32 else "bfloat16"), name
        elif weight.matrix:
            assert forms[name] == Coding(4, 32, "int8"), name
        else:
            assert forms[name] == "bfloat16", name
    assert {len(weight.shape) for name, weight in program.weights.items() if isinstance(forms[name], Coding)} == {2, 3}


@pytest.mark.parametrize("codings, expected", [
    ({"q_proj": Q4_K, "k_proj": Q4_K, "v_proj": Q6_K}, Coding(6, 16, "int8", True, factor=64)),
    ({"q_proj": Q4_K, "k_proj": Q4_K, "v_proj": Q4_K}, Q4_K),
    ({"q_proj": Q8_0, "k_proj": Q6_K, "v_proj": Q8_0}, Coding(8, 16, "float32")),
])
def test_parts_of_several_codings_are_joined_exactly(codings: dict[str, Coding], expected: Coding) -> None:
    checkpoint = with_codes(codings)
    weight = load_weights(program_of(WIDE), checkpoint, "bfloat16")["layers.0.qkv"]
    assert weight.form == expected and all(piece.coding == expected for piece in weight.pieces())
    np.testing.assert_array_equal(
        weight.numbers(np.float32), meaning(checkpoint, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"))


def test_codes_beside_numbers_become_numbers() -> None:
    checkpoint = with_codes({"gate_proj": Q8_0})
    weight = load_weights(program_of(WIDE), checkpoint, "bfloat16")["layers.0.gate_up"]
    assert weight.form == "bfloat16"
    expected = meaning(checkpoint, "mlp.gate_proj", "mlp.up_proj").astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(weight.numbers(ml_dtypes.bfloat16), expected)


def test_codes_stay_where_the_scheme_asks_for_the_same_and_are_rounded_again_where_not() -> None:
    checkpoint = with_codes({"down_proj": Coding(4, 32, "float16")})
    stored = checkpoint.tensors["model.layers.0.mlp.down_proj.weight"]
    (kept,) = load_weights(program_of(WIDE), checkpoint, "bfloat16", Int4())["layers.0.down"].pieces()
    assert np.array_equal(kept.codes, stored.codes) and np.array_equal(kept.scales, stored.scales)
    unsigned = Int4(Int4Options(symmetric=False))
    narrow = load_weights(program_of(WIDE), with_codes({"down_proj": Q4_K}), "bfloat16", unsigned)["layers.0.down"]
    assert [piece.coding for piece in narrow.pieces()] == [Coding(4, 32, "float16", True, UNSIGNED)]
    (rounded,) = load_weights(program_of(WIDE), checkpoint, "bfloat16", Int8())["layers.0.down"].pieces()
    expected = Int8().quantize(stored.dequantize(), rounded.coding)
    assert np.array_equal(rounded.codes, expected.codes) and rounded.coding == Coding(8, 96, "float32")


@pytest.mark.parametrize("kind", [Int8, Int4])
@pytest.mark.parametrize("threads", [0, 2], ids=["numpy", "native"])
def test_float64_is_coded_as_float32(kind: Any, threads: int) -> None:
    scheme = kind(rounding=best_rounding(threads) if threads else Numpy())
    numbers = np.random.default_rng(5).standard_normal((8, 64))
    coding = scheme.coding(numbers.shape, table=False)
    found, expected = (Forming("bfloat16", scheme).rows(numbers.astype(dtype), coding) for dtype in (np.float64, np.float32))
    np.testing.assert_array_equal(found.dequantize(), expected.dequantize())
    with pytest.raises(ValueError, match="not finite"):
        Forming("bfloat16", scheme).rows(numbers * 1e300, coding)


def test_numbers_are_rounded_once_from_what_is_stored() -> None:
    """Not to the dtype first."""
    tensors = {name: values * np.float32(1 + 2.0**-12) for name, values in tensors_of(WIDE).items()}
    (piece,) = load_weights(program_of(WIDE), Memory(tensors), "bfloat16", Int8())["layers.0.o"].pieces()
    expected = Int8().quantize(tensors["model.layers.0.self_attn.o_proj.weight"], piece.coding)
    assert np.array_equal(piece.codes, expected.codes) and np.array_equal(piece.scales, expected.scales)


@pytest.mark.parametrize("scheme, bad, says", [
    (Int8(), np.nan, r"^layers\.0\.o holds numbers that are not finite"),
    (Int4(Int4Options(symmetric=False)), 1e9, r"^layers\.0\.o holds .* beyond what scales of float16 reach"),
    (Int4(), np.inf, r"^layers\.0\.o holds numbers that are not finite"),
])
def test_what_cannot_be_coded_is_named(scheme: Any, bad: float, says: str) -> None:
    tensors = tensors_of(WIDE)
    tensors["model.layers.0.self_attn.o_proj.weight"][3, 5] = bad
    weights = load_weights(program_of(WIDE), Memory(tensors), "bfloat16", scheme)
    with pytest.raises(ModelError, match=says):
        list(weights["layers.0.o"].pieces())


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_vectors_beside_codes_are_exact(dtype: str) -> None:
    checkpoint = with_codes({"down_proj": Q8_0})
    norm = checkpoint.tensors["model.norm.weight"] = 1 + np.arange(1, 65, dtype=np.float32) * np.float32(2**-20)
    weight = load_weights(program_of(WIDE), checkpoint, dtype, Int4())["norm"]
    assert weight.form == "float32" and np.array_equal(weight.numbers(np.float32), norm)
    plain = load_weights(program_of(WIDE), with_codes({}), dtype, Int4())["norm"]
    assert plain.form == dtype  # without codes in the checkpoint: as asked


def test_a_fingerprint_is_that_of_the_content_and_the_forms(tmp_path: Path) -> None:
    program, tensors = program_of(WIDE), tensors_of(WIDE)
    folder = write_folder(tmp_path, WIDE, tensors)

    def told(scheme: Any = None) -> str:
        return load_weights(program, open_checkpoint(folder), "bfloat16", scheme).fingerprint()

    first, coded = told(), told(Int8())
    assert first == told() == told(Stored()) and len({first, coded, told(Int4())}) == 3
    assert coded == told(Int8(Int8Options(activations="int8")))  # the weights are the same
    (folder / "config.json").write_text(json.dumps({**WIDE, "torch_dtype": "float32"}))
    assert told() == first
    write_folder(tmp_path, WIDE, {**tensors, "lm_head.weight": -tensors["lm_head.weight"]})
    assert told() != first


def test_a_file_whose_time_is_put_back_is_another(tmp_path: Path) -> None:
    path = write_folder(tmp_path, WIDE, tensors_of(WIDE)) / "model.safetensors"
    told, content = path.stat(), bytearray(path.read_bytes())
    first = TensorFile(path).fingerprint()
    content[-1000] ^= 1  # in none of the samples
    copy = tmp_path / "copy"
    copy.write_bytes(content)
    os.utime(copy, ns=(told.st_atime_ns, told.st_mtime_ns))
    os.replace(copy, path)
    assert path.stat().st_mtime_ns == told.st_mtime_ns and TensorFile(path).fingerprint() != first
