"""Packed weights: the same bytes however rows are handed over, and however the model was started."""
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.backends.packed import PackedCache
from penstock.compute.program import Program
from penstock.compute.quant.codes import Codes
from penstock.compute.quant.int4 import Int4, Int4Options
from penstock.compute.weight import Weight, weight_of
from tests.contract.decoders import PLAIN, SPECS, decoder

pytest.importorskip("penstock._native")
from penstock.compute.backends.cpu.backend import Cpu

Array = Any
SHAPES = {**SPECS, "plain": PLAIN}


def load(program: Program, weights: Any, cache: PackedCache | None = None, threads: int = 2, dtype: str = "bfloat16") -> Any:
    return Cpu(dtype=dtype).load(program, weights, KVLayout(4, 16), threads, cache)


def packed(loaded: Any) -> Array:
    return loaded.model.weights().copy()


def quantized(program: Program, weights: dict[str, Array], **options: Any) -> dict[str, Any]:
    """In four bits where that goes, else by row; small ones as they are."""
    scheme = Int4(Int4Options(**options))
    found: dict[str, Any] = {}
    for name, spec in program.weights.items():
        coding = scheme.coding(spec.shape, table=False) if spec.matrix else None
        found[name] = weights[name] if coding is None else scheme.quantize(weights[name].reshape(-1, spec.shape[-1]), coding)
    return found


def in_pieces(given: Array | Codes, shape: tuple[int, ...], sizes: tuple[int, ...]) -> Weight:
    """The same weight, handed over in pieces of these many rows in turn."""
    whole = weight_of(given, shape)

    def pieces() -> Iterator[Array | Codes]:
        (piece,) = whole.pieces()
        at = turn = 0
        while at < piece.shape[0]:
            end = at + sizes[turn % len(sizes)]
            yield piece.rows(at, end) if isinstance(piece, Codes) else piece[at:end]
            at, turn = end, turn + 1

    return Weight(shape, whole.form, pieces)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("codes", [False, True])
def test_the_same_bytes_in_any_pieces(name: str, codes: bool) -> None:
    program, plain = decoder(SHAPES[name])
    weights = quantized(program, plain) if codes else plain
    expected = packed(load(program, weights))
    for sizes in ((1,), (16, 7), (64,), (5, 100, 3)):
        cut = {each: in_pieces(weights[each], spec.shape, sizes) if len(spec.shape) > 1 else weights[each]
               for each, spec in program.weights.items()}
        for threads in (1, 3):
            assert np.array_equal(packed(load(program, cut, threads=threads)), expected), sizes


@pytest.mark.parametrize("dtype", ["bfloat16", "float32", "float16"])
def test_numbers_of_any_type_are_rounded_alike(dtype: str) -> None:
    program, weights = decoder(SPECS["windows, caps and norms"])
    halves = {name: values.astype(np.float16) for name, values in weights.items()}
    wide = {name: values.astype(np.float32) for name, values in halves.items()}
    assert np.array_equal(packed(load(program, halves, dtype=dtype)), packed(load(program, wide, dtype=dtype)))


def test_a_second_start_finds_the_weights_packed(tmp_path: Path) -> None:
    program, weights = decoder(PLAIN)
    coded = quantized(program, weights)
    cache = PackedCache(tmp_path, "k", min_bytes=0)
    first = packed(load(program, coded, cache))
    assert len(list(tmp_path.iterdir())) == 1

    def never() -> Iterator[Array]:
        raise AssertionError("a matrix was asked for that stands in the cache")

    unread = {
        name: Weight(spec.shape, weight_of(coded[name], spec.shape).form, never) if len(spec.shape) > 1 else coded[name]
        for name, spec in program.weights.items()}
    for threads in (1, 2):
        assert np.array_equal(packed(load(program, unread, cache, threads)), first)
    with pytest.raises(AssertionError, match="asked for"):
        load(program, unread, PackedCache(tmp_path, "other", min_bytes=0))


@pytest.mark.parametrize("damage", ["flip", "zeros", "cut", "longer header"])
def test_a_damaged_file_is_made_again(tmp_path: Path, damage: str) -> None:
    program, weights = decoder(PLAIN)
    coded = quantized(program, weights)
    cache = PackedCache(tmp_path, "k", min_bytes=0)
    first = packed(load(program, coded, cache))
    (path,) = tmp_path.iterdir()
    sound = path.read_bytes()
    content = bytearray(sound)
    if damage == "flip":
        content[-1000] ^= 1
    elif damage == "zeros":
        content[-6000:] = bytes(6000)
    elif damage == "cut":
        del content[-1:]
    else:
        content[8:16] = (2**40).to_bytes(8, "little")
    path.write_bytes(content)
    assert np.array_equal(packed(load(program, coded, cache)), first)
    assert path.read_bytes() == sound


def test_small_models_are_not_kept(tmp_path: Path) -> None:
    program, weights = decoder(PLAIN)
    load(program, quantized(program, weights), PackedCache(tmp_path, "k"))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", SHAPES)
def test_what_a_backend_holds_is_known_before(name: str) -> None:
    program, weights = decoder(SHAPES[name])
    for given in (weights, quantized(program, weights)):
        backend = Cpu(dtype="bfloat16")
        told = backend.held_bytes(program, {key: weight_of(given[key], each.shape).form for key, each in program.weights.items()})
        assert told.keys() == program.weights.keys() and 0 not in told.values()
        assert sum(told.values()) == backend.load(program, given, KVLayout(4, 16), 1).weight_bytes
