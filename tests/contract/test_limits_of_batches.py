"""What a backend must not let through, or must not lose."""
import numpy as np
import pytest

from penstock.compute.backends.contract import Batch
from tests.contract import oracle

native = pytest.importorskip("penstock._native")
I64 = np.int64


def model(kernels: str, k: int, group: int, int8: bool = False, numbers=None):
    made = native.Model(native.Pool(1, []), kernels, True, int8)
    made.reserve(64 << 20)
    fields = {"n": 64, "k": k, "k_padded": k, "count": 1, "factor_groups": 0, "has_mins": False}
    table = made.add_matrix({**fields, "format": "f32", "group": k, "scale_bytes": 0, "values": []})
    made.pack(table, [0, 0, -1], np.random.default_rng(0).standard_normal((64, k)).astype(np.float32) if numbers is None else numbers)
    coded = made.add_matrix({**fields, "format": "i4", "group": group, "scale_bytes": 2, "values": list(range(-8, 8))})
    codes = np.random.default_rng(1).integers(0, 16, (64, k), dtype=np.int8)
    made.pack_codes(coded, [0, 0, -1], codes, np.full((64, k // group), 1e-2, np.float16), None)
    rows, out = made.add_buffer(k, False, 0), made.add_buffer(64, False, 1)
    made.add_cache(1, 1, 16, 64, 16)
    made.add_op({"kind": "embed", "out": rows, "matrix": table, "scale": 1.0})
    made.add_op({"kind": "linear", "in": rows, "out": out, "matrix": coded})
    return made, out


def step(made, out: int, tokens: list[int]):
    count = len(tokens)
    found = np.empty((count, 64), np.float32)
    at = np.arange(count, dtype=I64)
    made.step(batch(np.array(tokens, I64), at), [], [(out, found)])
    return found


def batch(tokens, at) -> Batch:
    return Batch(tokens, at, at, np.array([0, len(at)], I64), np.array([len(at)], I64), [np.arange(4, dtype=I64)], np.array([], I64),
                 np.empty((0, 2), I64))


@pytest.mark.parametrize("tokens", [np.array([1], np.int32), np.array([1.0]), np.arange(4)[::2], [1], None])
def test_arrays_that_would_have_to_be_copied_are_refused(tokens):
    made, out = model("generic", 64, 32)
    with pytest.raises(TypeError, match="a batch's tokens are int64, one after another"):
        made.step(batch(tokens, np.arange(1)), [], [(out, np.empty((1, 64), np.float32))])


@pytest.mark.parametrize("token", [-1, 64, 60_000])
def test_a_token_without_an_embedding_is_refused(token):
    made, out = model("generic", 64, 32)
    with pytest.raises(IndexError, match=f"token {token} is not one of the 64"):
        step(made, out, [1, token])


@pytest.mark.parametrize("kernels", [name for name in native.kernel_names() if name in ("generic", "avx2", "avx512")])
@pytest.mark.parametrize("int8", [False, True])
def test_groups_that_do_not_fit_the_memory_for_unpacked_codes(kernels, int8):
    """One scale a row of 8,192 or 16,384 codes: many rows give the bits of one."""
    k = 16384 if int8 else 8192
    made, out = model(kernels, k, k, int8)
    many = step(made, out, list(range(12)))
    assert all(np.array_equal(many[token], step(made, out, [token])[0]) for token in range(12))


@pytest.mark.parametrize("kernels", native.kernel_names())
def test_a_soft_cap_keeps_what_is_no_number(kernels):
    made = native.Model(native.Pool(1, []), kernels, False, False)
    made.reserve(1 << 20)
    fields = {"format": "f32", "k": 16, "k_padded": 16, "group": 16, "scale_bytes": 0, "factor_groups": 0, "count": 1, "has_mins": False,
              "values": []}
    table, head = made.add_matrix({**fields, "n": 64}), made.add_matrix({**fields, "n": 64})
    made.pack(table, [0, 0, -1], np.ones((64, 16), np.float32))
    weights = np.ones((64, 16), np.float32)
    weights[3] = np.nan
    made.pack(head, [0, 0, -1], weights)
    rows, out = made.add_buffer(16, False, 0), made.add_buffer(64, False, 1)
    made.add_cache(1, 1, 16, 64, 16)
    made.add_op({"kind": "embed", "out": rows, "matrix": table, "scale": 1.0})
    made.add_op({"kind": "linear", "in": rows, "out": out, "matrix": head, "cap": 30.0})
    (row,) = step(made, out, [1])
    assert np.isnan(row[3]) and np.isfinite(np.delete(row, 3)).all()


@pytest.mark.parametrize("kernels", native.kernel_names())
@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001])
def test_a_row_with_what_is_no_number_gives_none(kernels, int8, bits):
    """Whatever NaN it is: rounding to bfloat16 must not carry it over into a number, nor rounding to int8 take it for a small one."""
    numbers = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    numbers.view(np.uint32)[5, 7] = bits
    made, out = model(kernels, 64, 32, int8, numbers)
    broken, sound = step(made, out, [5, 6])
    assert np.isnan(broken).all() and np.isfinite(sound).all()


@pytest.mark.parametrize(("fields", "message"), [
    ({"kind": "convolve"}, "convolve is not known here"), ({"kind": "act_mul", "activation": "relu"}, "relu is not known here"),
    ({"kind": "add", "stride": 2}, "add has a field that no operation has")])
def test_operations_that_the_module_does_not_know_are_refused(fields, message):
    with pytest.raises(ValueError, match=message):
        native.Model(native.Pool(1, []), "generic", False, False).add_op(fields)


@pytest.mark.parametrize("kernels", native.kernel_names())
@pytest.mark.parametrize("activation", ["silu", "gelu_tanh"])
def test_gates_as_large_as_floats_are(kernels, activation):
    """They open wholly or close, and one that is no number stays none."""
    large = [-3e38, -1e4, -200, -88.8, -88, -87.5, -20, 0, 20, 87.5, 88.8, 200, 1e4, 1e38, np.inf, np.nan]
    gates = np.array(large + np.linspace(-10, 10, 24).tolist(), np.float32)
    half = len(gates)  # no whole vectors
    made = native.Model(native.Pool(1, []), kernels, True, False)
    made.reserve(1 << 20)
    table = made.add_matrix({"n": 1, "k": 2 * half, "k_padded": 2 * half, "count": 1, "format": "f32", "group": 2 * half,
                             "factor_groups": 0, "has_mins": False, "scale_bytes": 0, "values": []})
    made.pack(table, [0, 0, -1], np.concatenate([gates, np.ones(half, np.float32)])[None])
    both, out = made.add_buffer(2 * half, False, 0), made.add_buffer(half, False, 1)
    made.add_cache(1, 1, 16, 64, 16)
    made.add_op({"kind": "embed", "out": both, "matrix": table, "scale": 1.0})
    made.add_op({"kind": "act_mul", "in": both, "out": out, "activation": activation})
    found = np.empty((1, half), np.float32)
    at = np.arange(1, dtype=I64)
    made.step(batch(at, at), [], [(out, found)])
    with np.errstate(over="ignore"):
        expected = oracle.ACTIVATIONS[activation](gates.astype(np.float64))
    np.testing.assert_allclose(found[0], expected, rtol=1e-6, atol=1e-36 if activation == "silu" else 5e-7)
