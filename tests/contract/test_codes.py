"""Quantized matrices: every backend multiplies with what codes mean, in any company of rows, with rows rounded to int8 or not."""
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from penstock.compute.backends import TABLE
from penstock.compute.backends.contract import Batch, KVLayout
from penstock.compute.program import Program
from penstock.compute.quant import TABLE as SCHEMES
from penstock.compute.quant.codes import SYMMETRIC, UNSIGNED, Codes, Coding
from penstock.compute.weight import Coded
from penstock.core.errors import UsageError
from tests.contract.participants import ORACLE, PARTICIPANTS, Participant, each_participant, native_kernels
from tests.contract.sketch import Sketch
from tests.contract.stories import Story, play

Array = Any
VOCAB = 48
LAYOUT = KVLayout(4, 16)
STORY, TOKENS = Story((((0, 40),),)), [np.random.default_rng(0).integers(0, VOCAB, 40)]
IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
BY_GROUP = [
    Coding(bits, group, scales, mins, values)
    for bits, values in ((8, tuple(range(-8, 8))), (4, tuple(range(-8, 8))), (4, UNSIGNED), (4, IQ4))
    for group in (16, 32, 64, 128) for scales in ("float16", "float32") for mins in (False, True)
] + [Coding(4, group, "int8") for group in (16, 32, 64, 128)] + [
    Coding(6, group, scales, mins) for group in (16, 32, 128) for scales in ("float16", "float32") for mins in (False, True)
] + [
    Coding(bits, group, "int8", mins, values, factor)
    for bits, values in ((8, SYMMETRIC), (6, SYMMETRIC), (4, UNSIGNED), (4, IQ4))
    for group, factor in ((16, 256), (32, 256), (32, 32), (64, 128)) for mins in (False, True)
] + [Coding(4, 256, "float16", False, (-1, 0, 1, 2, *[0] * 12))]
QUANTIZERS = [participant for participant in PARTICIPANTS if participant != ORACLE]
DEQUANTIZING = [Participant(f"cpu:kernels={name},dequantize=true", "bfloat16") for name in native_kernels() if name.startswith("amx")]
WAYS = [*((participant, activations) for participant in QUANTIZERS for activations in ("", "int8")), *((each, "") for each in DEQUANTIZING)]
# What codes are multiplied in has nothing to do with the dtype where the native kernels do it, as a test here says.
OF_CODES = [(each, activations) for each, activations in WAYS
            if each.needs is not None or each.dtype == "float32" or each in DEQUANTIZING]
each_way, each_way_of_codes = (pytest.mark.parametrize("participant, activations", ways, ids=str) for ways in (WAYS, OF_CODES))


@dataclass(frozen=True)
class Case:
    program: Program
    weights: dict[str, Any]
    depth: int = 1  # products one after another: rounding of rows in between differs by backend
    told: dict[str, dict[str, Any]] = field(default_factory=dict)  # what the oracle makes of it, by activations


def coded(coding: Coding, rows: int, columns: int, seed: int = 0) -> Codes:
    """Random codes of about unit length in all: every code occurs."""
    rng = np.random.default_rng(seed)
    low, high, kind = {8: (-128, 128, np.int8), 6: (-32, 32, np.int8), 4: (0, 16, np.uint8)}[coding.bits]
    codes = rng.integers(low, high, (rows, columns)).astype(kind)
    size = columns**-0.5 / (128 if coding.bits == 8 or max(coding.values) > 15 else 32 if coding.bits == 6 else 8)
    shape = rows, columns // coding.group
    if coding.has_units:
        multiples = (rng.integers(1, 16, shape) * rng.choice((-1, 1), shape)).astype(np.int8)
        units = ((1 + rng.random(rows)) * size / 8).astype(np.float32)
        return Codes(codes, 4, coding.group, multiples, None, SYMMETRIC, (units.view(np.uint32) & 0xFFFFFFF0).view(np.float32))
    if coding.factor:
        multiples, mins = ((rng.integers(1, 127, shape) * rng.choice((-1, 1), shape)).astype(np.int8) for _ in range(2))
        factors, min_factors = (((1 + rng.random((rows, columns // coding.factor))) * most / 127).astype(np.float16)
                                for most in (size, columns**-0.5))
        return Codes(codes, coding.bits, coding.group, multiples, mins if coding.mins else None, coding.values, None, factors,
                     min_factors if coding.mins else None)
    scales = ((1 + rng.random(shape)) * rng.choice((-1, 1), shape) * size).astype(coding.scales)
    mins = (rng.standard_normal(shape) * columns**-0.5).astype(coding.scales) if coding.mins else None
    return Codes(codes, coding.bits, coding.group, scales, mins, coding.values)


def table(width: int) -> Array:
    """Rows that bfloat16 holds exactly, of many sizes: what is left to differ is the order of sums."""
    rng = np.random.default_rng(width)
    return (rng.standard_normal((VOCAB, width)) * np.exp(rng.standard_normal((VOCAB, 1)))).astype(ml_dtypes.bfloat16).astype(np.float32)


def linear(codes: Codes, bias: bool = False, rows: Array | None = None) -> Case:
    sketch = Sketch()
    x = sketch.table("x", table(codes.shape[1]) if rows is None else rows)
    names = [sketch.weight("w", codes.dequantize())] + [sketch.weight("b", np.arange(codes.shape[0]) / 16)] * bias
    y = sketch.op("linear", (x,), "y", tuple(names))
    logits = sketch.op("linear", (sketch.op("gather", (x,), "rows"),), "z", tuple(names))
    return Case(sketch.program(out=y, logits=logits), {**sketch.weights, "w": codes})


def matrix(coding: Coding) -> Case:
    return linear(coded(coding, 70, 128))


def biased(coding: Coding) -> Case:
    return linear(coded(coding, 70, max(256, 2 * coding.group)), bias=coding.mins)


def gated(coding: Coding, half: int) -> Case:
    sketch = Sketch()
    codes = coded(coding, 2 * half, 128)
    both = sketch.op("linear", (sketch.table("x", table(128)),), "both", (sketch.weight("w", codes.dequantize()),))
    out = sketch.op("act_mul", (both,), "y", activation="silu")
    return Case(sketch.program(out=out), {**sketch.weights, "w": codes})


def embedding(coding: Coding, width: int = 128) -> Case:
    sketch = Sketch()
    codes = coded(coding, VOCAB, width)
    out = sketch.op("embed", ("tokens",), "x", (sketch.weight("table", codes.dequantize()),), scale=3.0)
    logits = sketch.op("linear", (sketch.op("gather", (out,), "rows"),), "z", ("table",))
    return Case(sketch.program(out=out, logits=logits), {"table": codes}, depth=2)


def experts(coding: Coding, count: int = 5, hidden: int = 128, inner: int = 128) -> Case:
    sketch = Sketch()
    scores = np.random.default_rng(1).permuted(np.tile(np.arange(count) / 2, (VOCAB, 1)), axis=1)
    router = sketch.weight("router", np.eye(count))
    x = sketch.table("x", table(hidden))
    sketch.op("moe_route", (sketch.table("s", scores),), ("weights", "ids"), (router,), num_active=2, renormalize=True)
    gate_up, down = coded(coding, count * 2 * inner, hidden), coded(coding, count * hidden, inner, seed=1)
    names = (sketch.weight("gate_up", gate_up.dequantize().reshape(count, 2 * inner, hidden)),
             sketch.weight("down", down.dequantize().reshape(count, hidden, inner)))
    out = sketch.op("moe_experts", (x, "weights", "ids"), "y", names, activation="silu")
    return Case(sketch.program(out=out), {**sketch.weights, "gate_up": gate_up, "down": down}, depth=2)


@cache
def made(make_case: Callable[..., Case], coding: Coding, *sizes: int) -> Case:
    """The same to everybody who asks."""
    return make_case(coding, *sizes)


def make(participant: Participant, activations: str = "") -> Any:
    plugin, options = TABLE.parse(participant.text)
    if participant.needs is not None:
        pytest.importorskip(participant.needs)
    return plugin(options, dtype=participant.dtype, activations=activations)


def check(participant: Participant, case: Case, activations: str = "", within: float = 2e-5) -> None:
    """`within`: of the largest number, where nothing but the order of sums may differ."""
    found = play(make(participant, activations), case.program, case.weights, STORY, TOKENS)
    if activations not in case.told:
        case.told[activations] = play(make(ORACLE, activations), case.program, case.weights, STORY, TOKENS)
    expected = case.told[activations]
    exact = case.depth == 1 and participant.dtype == "float32"
    for name in ("out", "logits"):
        most = max(1.0, abs(expected[name][0]).max())
        np.testing.assert_allclose(found[name][0], expected[name][0], rtol=0, atol=(within if exact else 2e-2) * most, err_msg=name)


def test_the_backends_take_every_format() -> None:
    for text in {participant.text for participant in PARTICIPANTS if not participant.needs}:
        plugin, options = TABLE.parse(text)
        assert set(plugin(options, dtype="float32").caps.quant_schemes) == set(SCHEMES)


@pytest.mark.parametrize("kernels", native_kernels())
@pytest.mark.parametrize("activations", ["", "int8"])
def test_the_dtype_changes_no_product_of_codes(kernels: str, activations: str) -> None:
    for coding in (Coding(8, 128, "float32"), Coding(8, 32, "float16"), Coding(6, 16, "int8", factor=128), Coding(4, 32, "float16"),
                   Coding(4, 64, "float16", True, UNSIGNED), Coding(4, 32, "int8"), Coding(4, 256, "float16", False, IQ4)):
        wide, narrow = (play(make(Participant(f"cpu:kernels={kernels}", dtype), activations), case.program, case.weights, STORY, TOKENS)
                        for case in [made(biased, coding)] for dtype in ("float32", "bfloat16"))
        for name in ("out", "logits"):
            assert np.array_equal(wide[name][0].view(np.uint32), narrow[name][0].view(np.uint32)), (coding, name)


@each_way_of_codes
def test_groups(participant: Participant, activations: str) -> None:
    for coding in BY_GROUP:
        check(participant, made(biased, coding), activations)


@each_way_of_codes
def test_one_scale_a_row(participant: Participant, activations: str) -> None:
    for rows, columns in ((1, 32), (5, 33), (16, 80), (48, 127), (127, 64), (130, 1030)):
        for bits, mins in ((8, False), (8, True), (4, False)):
            check(participant, linear(coded(Coding(bits, columns, "float32", mins), rows, columns), bias=True), activations)


@each_way
@pytest.mark.parametrize("make_case", [gated, embedding, experts], ids=lambda each: each.__name__)
def test_gates_tables_and_experts(participant: Participant, activations: str, make_case: Callable[..., Case]) -> None:
    for coding in (Coding(8, 128, "float32"), Coding(8, 32, "float16"), Coding(4, 32, "float16"), Coding(4, 64, "float16", True, UNSIGNED),
                   Coding(4, 32, "int8"), Coding(4, 32, "int8", True, UNSIGNED, 64), Coding(8, 16, "int8", factor=128),
                   Coding(6, 16, "int8", factor=128)):
        cases = [made(gated, coding, half) for half in (7, 32, 90)] if make_case is gated else [made(make_case, coding)]
        for case in cases:
            check(participant, case, activations)


@each_way
def test_the_same_bits_in_any_company(participant: Participant, activations: str) -> None:
    tokens = np.random.default_rng(0).integers(0, VOCAB, 40)
    for coding in (Coding(8, 128, "float32"), Coding(8, 16, "float32", True), Coding(4, 32, "float16"),
                   Coding(4, 64, "float16", True, UNSIGNED), Coding(4, 32, "float16", False, IQ4), Coding(4, 32, "int8"),
                   Coding(4, 32, "int8", True, UNSIGNED, 64), Coding(6, 32, "int8", True, factor=64)):
        for case in (made(matrix, coding), made(gated, coding, 40), made(embedding, coding), made(experts, coding)):
            backend = make(participant, activations)
            loaded = backend.load(case.program, case.weights, LAYOUT)
            whole = step(backend, loaded, tokens)
            for count in (1, 3, 7, 13):
                for first in (0, 40 - count):
                    part = step(backend, loaded, tokens[first : first + count])
                    for name in whole:
                        same = part[name].view(np.uint32) == whole[name][first : first + count].view(np.uint32)
                        assert same.all(), (coding, name, count, first)


@each_way_of_codes
@pytest.mark.parametrize("coding", [Coding(4, 32, "int8", True, UNSIGNED, 256), Coding(6, 16, "int8", False, SYMMETRIC, 128)], ids=str)
def test_scales_with_factors_have_the_bits_of_their_products(participant: Participant, activations: str, coding: Coding) -> None:
    tokens = np.random.default_rng(0).integers(0, VOCAB, 40)
    codes = coded(coding, 70, 512)
    products = codes.widened(replace(coding, scales="float32", factor=0))
    for count in (1, 40):
        found, expected = (outputs(make(participant, activations), linear(each), tokens[:count]) for each in (codes, products))
        for name in expected:
            np.testing.assert_array_equal(found[name].view(np.uint32), expected[name].view(np.uint32))


@each_way_of_codes
def test_few_rows_have_the_bits_of_many(participant: Participant, activations: str) -> None:
    """Kernels of their own may make products of many rows: of the largest numbers, long groups and short, one row not finite."""
    tokens = np.random.default_rng(5).permutation(VOCAB)[:40]
    codings = ((Coding(8, 1088, "float32"), 1088), (Coding(8, 32, "float16"), 1024), (Coding(8, 256, "float32", True), 1024),
               (Coding(4, 64, "float16"), 1024), (Coding(4, 64, "float16", True, IQ4), 1024), (Coding(4, 544, "float32"), 1088),
               (Coding(4, 32, "int8"), 1056), (Coding(4, 128, "int8"), 1024))
    for coding, columns in codings:
        rows = np.full((VOCAB, columns), 255, np.float32)
        rows[1::3] *= -1
        rows[2::3] = table(columns)[2::3]
        rows[tokens[3], 7] = np.inf
        codes = coded(coding, 70, columns)
        codes.codes[8], codes.codes[9] = (-128, 127) if coding.bits == 8 else (0, 15)
        case = linear(codes, rows=rows)
        backend = make(participant, activations)
        loaded = backend.load(case.program, case.weights, LAYOUT)
        whole = step(backend, loaded, tokens)["out"]
        for count, end in ((1, 8), (2, 8), (5, 40)):
            for first in range(0, end, count):
                part = step(backend, loaded, tokens[first : first + count])["out"]
                assert np.array_equal(part, whole[first : first + count], equal_nan=True), (coding, first, count)


def outputs(backend: Any, case: Case, tokens: Array, exact: bool = False) -> dict[str, Array]:
    return step(backend, backend.load(case.program, case.weights, LAYOUT), tokens, exact)


def step(backend: Any, loaded: Any, tokens: Array, exact: bool = False) -> dict[str, Array]:
    """Rows of one sequence that has no cache."""
    count = len(tokens)
    batch = Batch(
        tokens, np.arange(count), np.arange(count), np.array([0, count]), np.array([count]), [np.arange(4)], np.arange(count),
        np.zeros((0, 2), np.int64), ("out",), exact=exact)
    found = backend.step(loaded, batch)
    return {"logits": found.logits.copy(), "out": found.buffers["out"].copy()}


@each_participant(*[each for each in PARTICIPANTS if each.dtype == "float32"])
@pytest.mark.parametrize("coding", [Coding(8, 128, "float32"), Coding(4, 32, "float32"), Coding(4, 32, "int8")], ids=str)
def test_rows_of_the_smallest_numbers_are_rounded_too(participant: Participant, coding: Coding) -> None:
    """127 / max |x| is beyond float32 below 3.7e-37."""
    rows = table(128)
    rows *= (np.float32(10.0) ** np.linspace(-44, -34, VOCAB, dtype=np.float32) / abs(rows).max(axis=1))[:, None]
    rows[7] = 0
    grown = np.float32(2.0**100)
    codes = coded(coding, 70, 128)
    codes = replace(codes, units=codes.units * grown) if coding.has_units else replace(codes, scales=codes.scales * grown)
    tokens = np.arange(40)
    found, expected = (outputs(make(each, "int8"), linear(codes, rows=rows), tokens)["out"] for each in (participant, ORACLE))
    plain = rows[tokens].astype(np.float64) @ codes.dequantize().astype(np.float64).T
    step = np.maximum(abs(rows[tokens]).max(axis=1) / 127, 2.0**-126)[:, None]  # between rows' codes
    sizes = step * abs(codes.dequantize().astype(np.float64)).sum(axis=1)
    assert (abs(found - plain) <= 0.5001 * sizes).all() and not found[7].any()
    assert (abs(found - expected) <= 1e-5 * 127 * sizes).all()


@each_participant(*[each for each in PARTICIPANTS if each.dtype == "float32" and not each.needs])
def test_an_exact_step_rounds_no_rows(participant: Participant) -> None:
    case = linear(coded(Coding(8, 128, "float32"), 70, 128))
    tokens = np.arange(9)
    rounded, exact = (outputs(make(participant, "int8"), case, tokens, each)["out"] for each in (False, True))
    assert np.array_equal(exact, outputs(make(participant), case, tokens)["out"])
    most = abs(exact).max()
    assert 1e-4 * most < abs(rounded - exact).max() < 2e-2 * most


@pytest.mark.parametrize("participant", DEQUANTIZING, ids=str)
def test_dequantized_weights_are_rounded_to_bfloat16(participant: Participant) -> None:
    """Halves away from zero. Other kernels multiply with the codes' exact values."""
    tokens, rows = np.arange(40), table(256)
    for group, scales, mins, values in ((32, "float16", False, SYMMETRIC), (64, "float32", True, UNSIGNED),
                                        (128, "float16", True, IQ4)):
        codes = coded(Coding(4, group, scales, mins, values), 70, 256)
        rounded = ((codes.dequantize().view(np.uint32) + 0x8000) & 0xFFFF0000).view(np.float32)
        exact = Participant("cpu:kernels=avx512", "bfloat16")
        found, kept = (outputs(make(each), linear(codes), tokens)["out"] for each in (participant, exact))
        error, before = (abs(each - rows[tokens] @ rounded.T).max() / abs(kept).max() for each in (found, kept))
        assert error < 5e-5 and before > 2e-4, (group, error, before)


@pytest.mark.parametrize("participant", DEQUANTIZING, ids=str)
@pytest.mark.parametrize("has_mins", [False, True])
def test_dequantized_weights_that_are_no_number_stay_none(participant: Participant, has_mins: bool) -> None:
    """A scale or a min in a file may be any NaN, also one whose bits overflow where they are rounded."""
    codes = coded(Coding(4, 32, "float16", has_mins, UNSIGNED), 70, 256)
    broken = [codes.scales, codes.mins] if has_mins else [codes.scales]
    for row, array in enumerate(broken):
        array.view(np.uint16)[2 * row : 2 * row + 2, 3] = 0x7FFF, 0xFFFF
    found = outputs(make(participant), linear(codes), np.arange(40))["out"]
    rows = 2 * len(broken)
    assert np.isnan(found[:, :rows]).all() and np.isfinite(found[:, rows:]).all()


@pytest.mark.skipif(not native_kernels(), reason="the native module was not built here")
def test_dequantizing_needs_tiles_and_rows_that_are_not_rounded() -> None:
    with pytest.raises(UsageError, match="only kernels with AMX tiles multiply so, and these are generic"):
        make(Participant("cpu:kernels=generic,dequantize=true"))
    if DEQUANTIZING:
        with pytest.raises(UsageError, match="activations=int8 with rounded ones: leave one out"):
            make(DEQUANTIZING[0], "int8")


@each_participant(*[each for each in (*QUANTIZERS, *DEQUANTIZING) if each.text.startswith("cpu")])
def test_the_type_of_rows_that_is_told_is_the_one_that_shows(participant: Participant) -> None:
    """Beside a 1, 2^-20 is nothing in 16-bit fixed point; bfloat16 keeps it."""
    backend, value = make(participant), 2.0**-20
    rows = np.zeros((VOCAB, 128), np.float32)
    rows[:, :2] = value, 1
    for coding in (Coding(8, 128, "float32"), Coding(8, 32, "float16"), Coding(4, 32, "float16"), Coding(4, 32, "int8")):
        codes = coded(coding, 64, 128)
        codes.codes[:, 0], codes.codes[:, 1] = (1, 0) if coding.bits == 8 else (coding.values.index(1), coding.values.index(0))
        case = linear(codes, rows=rows)
        found = outputs(backend, case, np.arange(40))["out"][0] / codes.dequantize()[:, 0]
        told = backend.compute_type(Coded(case.program.weights["w"], coding))
        np.testing.assert_allclose(found, {"int16": 0, "bf16": value}[told], rtol=1e-2, err_msg=str(coding))


@pytest.mark.parametrize("kernels", native_kernels())
def test_rounded_rows_are_bytes_but_where_nothing_multiplies_them(kernels: str) -> None:
    coding = Coding(8, 128, "float32")
    weight = linear(coded(coding, 64, 128)).program.weights["w"]
    told = make(Participant(f"cpu:kernels={kernels}", "bfloat16"), "int8").compute_type(Coded(weight, coding))
    assert told == ("int16" if kernels == "avx2" else "int8")


def test_matrices_of_numbers_meet_rows_as_they_are() -> None:
    coding = Coding(8, 128, "float32")
    case = linear(coded(coding, 70, 128))
    plain = replace(case, weights={**case.weights, "w": case.weights["w"].dequantize()})
    for participant in (ORACLE, *[each for each in QUANTIZERS if each.dtype == "float32" and not each.needs]):
        ours, theirs = (outputs(make(participant, each), plain, np.arange(9))["out"] for each in ("", "int8"))
        assert np.array_equal(ours, theirs)


@each_participant(*[each for each, activations in OF_CODES if each in QUANTIZERS and not activations])
def test_sums_of_the_largest_numbers(participant: Participant) -> None:
    """Rows and codes as large as they can be, all of one sign and of both, in groups longer than any that a file has."""
    cases = ((Coding(8, 4096, "float32"), 4096), (Coding(8, 4132, "float32", True), 4132), (Coding(8, 1536, "float32"), 3072),
             (Coding(4, 2080, "float32", True, IQ4), 4160), (Coding(4, 32, "int8"), 4128), (Coding(4, 64, "int8"), 1536))
    for coding, columns in cases:
        codes = coded(coding, 20, columns)
        ends = (-128, 127) if coding.bits == 8 else (0, 15)
        codes.codes[:8] = np.random.default_rng(1).choice(ends, (8, columns))
        codes.codes[8], codes.codes[9] = ends
        if coding.has_units:
            codes.scales[:10] = 15
        rows = np.full((VOCAB, columns), 255, np.float32)
        rows[1::3] *= -1
        rows[2::3] *= np.random.default_rng(2).choice((-1, 1), columns)
        check(participant, linear(codes, rows=rows), within=1e-4)


@each_participant(*[each for each, activations in OF_CODES if each in QUANTIZERS and not activations])
def test_rows_of_numbers_that_differ_by_much(participant: Participant) -> None:
    """Those that are small beside a row's largest may be rounded, to 1/32,768 of it: still less than bfloat16 rounds the largest to."""
    rows = table(1024)
    rows[:, 100] *= 1024
    for coding in (Coding(8, 1024, "float32"), Coding(4, 32, "float16"), Coding(4, 32, "int8")):
        check(participant, linear(coded(coding, 70, 1024), rows=rows), within=2e-3)
