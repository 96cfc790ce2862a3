import gguf
import numpy as np
import pytest
from gguf import quants
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.compute.models.load import gguf_blocks, gguf_grids
from penstock.compute.models.load import gguf_points as points
from penstock.compute.models.load.gguf_blocks import Format, codes, dequantize
from penstock.compute.models.load.gguf_types import FORMATS, GIVEN_UP, UNREAD
from penstock.compute.quant.microscaled import LARGEST

QUANTIZED = [number for number, kind in FORMATS.items() if kind.unpack is not None]
WITH_FACTORS = {"Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "IQ3_S"}
WITH_FLOATS = {"MXFP4", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS"}
ids = [kind.name for kind in FORMATS.values() if kind.unpack is not None]


def random_rows(kind: Format, count: int, blocks: int, seed: int = 0) -> np.ndarray:
    """Bytes of all values in all fields, but for scales that are no finite number."""
    rows = np.random.default_rng(seed).integers(0, 256, (count, blocks * kind.block_bytes), dtype=np.uint8)
    stored = rows.reshape(-1).view(kind.layout)
    for name in ("d", "m", "dmin"):
        if name in (kind.layout.names or ()):
            stored[name][~np.isfinite(stored[name])] = 1.5
    if "e" in (kind.layout.names or ()):
        stored["e"] = np.minimum(stored["e"], LARGEST)
    if kind.name == "IQ1_M":
        stored["scales"][:, 3] &= 0xBFFF  # the upper four bits are those of a float16
    return rows


def same_bits(ours: np.ndarray, theirs: np.ndarray) -> bool:
    return ours.dtype == theirs.dtype == np.float32 and ours.shape == theirs.shape and bool((ours.view("u4") == theirs.view("u4")).all())


@pytest.mark.parametrize("number", QUANTIZED, ids=ids)
def test_every_byte_means_what_ggml_makes_of_it(number: int) -> None:
    kind = FORMATS[number]
    rows = random_rows(kind, 96, 4)
    assert all(len(set(column)) > 50 for column in rows.T), "a field that never varies tests nothing"
    expected = quants.dequantize(rows, gguf.GGMLQuantizationType(number))
    assert same_bits(codes(kind, rows).dequantize(), expected)
    assert same_bits(dequantize(kind, rows), expected)


@given(number=st.sampled_from(QUANTIZED), data=st.data())
@settings(max_examples=60, deadline=None)
def test_any_block(number: int, data: st.DataObject) -> None:
    kind = FORMATS[number]
    size = kind.block_bytes
    row = np.frombuffer(data.draw(st.binary(min_size=size, max_size=size)), np.uint8).reshape(1, size)
    with np.errstate(all="ignore"):
        expected = quants.dequantize(row, gguf.GGMLQuantizationType(number))
        found = codes(kind, row).dequantize()
    finite = np.isfinite(expected)
    assert same_bits(found[finite], expected[finite])


@pytest.mark.parametrize("number", [number for number in QUANTIZED if "d" in (FORMATS[number].layout.names or ())])
def test_zero_scales_of_both_signs(number: int) -> None:
    kind = FORMATS[number]
    for zero in (0.0, -0.0):
        rows = random_rows(kind, 8, 2)
        rows.reshape(-1).view(kind.layout)["d"] = zero
        assert same_bits(codes(kind, rows).dequantize(), quants.dequantize(rows, gguf.GGMLQuantizationType(number)))


@pytest.mark.parametrize("number", QUANTIZED, ids=ids)
def test_codes_have_the_layout_that_backends_take(number: int) -> None:
    kind = FORMATS[number]
    found = codes(kind, random_rows(kind, 5, 3))
    assert (found.shape, found.bits, found.group) == ((5, 3 * kind.block), kind.bits, kind.group)
    assert found.codes.dtype == (np.uint8 if kind.bits == 4 else np.int8)
    least, most = {8: (-128, 127), 6: (-32, 31), 4: (0, 15)}[found.bits]
    assert found.codes.min() >= least and found.codes.max() <= most
    has_factor = kind.name in WITH_FACTORS
    scales_dtype = np.int8 if has_factor else np.float32 if kind.name in WITH_FLOATS else np.float16
    for scales in (found.scales, found.mins):
        if scales is not None:
            assert scales.shape == (5, found.shape[1] // kind.group) and scales.dtype == scales_dtype
    has_factors = [each is not None for each in (found.factors, found.min_factors)]
    assert has_factors == [has_factor, has_factor and found.mins is not None]
    for factors in (found.factors, found.min_factors):
        if factors is not None:
            assert factors.shape == (5, 3) and factors.dtype == np.float16


@pytest.mark.parametrize("number", QUANTIZED, ids=ids)
def test_a_few_rows_at_a_time(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = FORMATS[number]
    rows = random_rows(kind, 7, 2)
    whole = codes(kind, rows)
    monkeypatch.setattr(gguf_blocks, "CHUNK", 3 * 2 * kind.block)
    parts = codes(kind, rows)
    np.testing.assert_array_equal(whole.codes, parts.codes)
    np.testing.assert_array_equal(whole.scales, parts.scales)
    assert same_bits(dequantize(kind, rows), whole.dequantize())


def test_sizes_and_names_are_ggmls() -> None:
    for number, kind in FORMATS.items():
        theirs = gguf.GGMLQuantizationType(number)
        assert (theirs.name, gguf.GGML_QUANT_SIZES[theirs]) == (kind.name, (kind.block, kind.block_bytes))
    newer = {41: "Q1_0", 42: "Q2_0"}  # than some releases of the package
    assert {kind.value: kind.name for kind in gguf.GGMLQuantizationType if kind not in FORMATS} | newer | GIVEN_UP == UNREAD
    assert set(FORMATS).isdisjoint(UNREAD)


@pytest.mark.parametrize(("name", "text", "values", "size"), [
    ("IQ2_XXS", points.IQ2_XXS, gguf_grids.TWO, 8), ("IQ2_XS", points.IQ2_XS, gguf_grids.TWO, 8),
    ("IQ2_S", points.IQ2_S, gguf_grids.TWO, 8), ("IQ3_XXS", points.IQ3_XXS, gguf_grids.THREE, 4),
    ("IQ3_S", points.IQ3_S, gguf_grids.THREE_S, 4), ("IQ1_S", points.IQ1_S, (-1, 0, 1), 8)], ids=lambda each: str(each)[:7])
def test_every_point_of_a_grid_is_ggmls(name: str, text: str, values: tuple[int, ...], size: int) -> None:
    theirs = getattr(quants, name)
    theirs.init_grid()
    found = gguf_grids.grid(text, size, 2 if size == 8 else 3)
    np.testing.assert_array_equal(np.array(values)[found], theirs.grid.reshape(theirs.grid_shape))


def test_signs_are_made_even_as_ggml_does() -> None:
    assert gguf_grids.even_signs().tobytes() == quants.IQ2_XXS.ksigns
