"""A row of 16-bit numbers has the same bits alone as among others, denormals included: where tiles multiply many rows, they take those for
zero, and so must the vectors that multiply a few."""
import ctypes
import itertools
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from penstock.compute.backends.cpu.backend import Cpu, CpuOptions
from penstock.compute.backends.cpu.sampling import NativeSampling
from penstock.compute.program import KVSpec
from tests.compute.backends.cpu.product import Product
from tests.contract.participants import native_kernels
from tests.contract.sketch import Sketch
from tests.contract.stories import LEFT, Story, play

ROWS = 19  # more than a tile has
FACTORS = {"usual": (1.0, 1.0), "weights that are denormal": (2.0**-130, 1.0), "products that are": (2.0**-70, 2.0**-60),
           "products near the border": (2.0**-66, 2.0**-62)}


def numbers(seed: int, shape: tuple[int, ...], factor: float) -> np.ndarray:
    made = np.random.default_rng(seed).standard_normal(shape, dtype=np.float32) * np.float32(factor)
    return (made.view(np.uint32) & 0xFFFF0000).view(np.float32)


@pytest.mark.parametrize("outer", [80, 81, 100])  # a panel of 64 columns and one of 16, 32 or 48
@pytest.mark.parametrize("factors", FACTORS)
@pytest.mark.parametrize("kernels", native_kernels(every=True))
def test_few_rows_of_a_product(kernels: str, factors: str, outer: int) -> None:
    by_weight, by_row = FACTORS[factors]
    weights, rows = numbers(7, (outer, 320), by_weight), numbers(8, (ROWS, 320), by_row)
    product = Product(Cpu(CpuOptions(kernels=kernels), "bfloat16", ""), weights.shape, weights, 1)
    among_others = product.of(rows)
    assert weights.any() and (among_others.any() or "are" in factors)  # those may all be taken for zero
    for cached_bytes, count in itertools.product((0, 1 << 30), range(1, 7)):
        product.loaded.model.set_cached_bytes(cached_bytes)
        assert np.array_equal(product.of(rows[:count]).view(np.uint32), among_others[:count].view(np.uint32))


@pytest.mark.parametrize("by_key, by_value, scale", [(2.0**-64, 1.0, 2.0**126), (1.0, 2.0**-124, 0.1)], ids=["scores", "values"])
@pytest.mark.parametrize("kernels", native_kernels(every=True))
def test_few_rows_of_attention(kernels: str, by_key: float, by_value: float, scale: float) -> None:
    """Products of queries and keys, or of probabilities and values, are denormal; the scale of scores makes theirs matter. A zero may have
    either sign: a flushed one is negative, until a key is added that the row does not see."""
    sketch, dim, vocab = Sketch(KVSpec(1, 1, 48)), 48, 50
    table = np.hstack([numbers(seed, (vocab, dim), factor) for seed, factor in enumerate((by_key, by_key, by_value))])
    sketch.op("split_heads", (sketch.table("qkv", table),), ("q", "k", "v"), heads=(1, 1, 1), head_dim=dim)
    sketch.op("kv_write", ("k", "v"), (), layer=0)
    sketch.op("attention", ("q",), "out", (), layer=0, scale=scale, window=None, softcap=None)
    program, tokens = sketch.program(out="out"), [np.arange(42) % vocab]
    backend = Cpu(CpuOptions(kernels=kernels), "bfloat16")
    whole = play(backend, program, sketch.weights, Story((((0, 42),),), unwritten=LEFT), tokens)["out"][0]
    assert np.isfinite(whole).all() and whole.any()
    for count in range(1, 7):
        parts = play(backend, program, sketch.weights, Story((((0, count),),) * (42 // count), unwritten=LEFT), tokens)["out"][0]
        assert np.array_equal(parts, whole[: len(parts)]), count


@contextmanager
def arithmetic(mxcsr: int) -> Iterator[None]:
    """What the calling thread's vector instructions do with denormals, and how they round: a field of glibc's fenv_t on x86-64."""
    libm, before, changed = ctypes.CDLL("libm.so.6"), (ctypes.c_uint32 * 8)(), (ctypes.c_uint32 * 8)()
    libm.fegetenv(before), libm.fegetenv(changed)
    changed[7] = mxcsr
    libm.fesetenv(changed)
    try:
        yield
    finally:
        libm.fesetenv(before)


def is_unusual() -> bool:
    """Whether this thread flushes denormals, or rounds upward."""
    return bool(np.float32(1e-39) * np.float32(1) == 0 or np.float32(1) + np.float32(1e-9) > 1)


on_x86 = pytest.mark.skipif(sys.platform != "linux" or platform.machine() != "x86_64", reason="sets a register of x86-64")
unusual_arithmetic = pytest.mark.parametrize("mxcsr", [0x9FC0, 0x5F80], ids=["denormals flushed", "rounding upward"])


@on_x86
@unusual_arithmetic
def test_what_the_process_does_to_its_floats_changes_no_bit(mxcsr: int) -> None:
    weights, rows = numbers(7, (700, 32), 1.0), numbers(8, (40, 32), 1.1e-39)
    rows[20:] *= np.float32(2.0**120)
    alone, shared = (Product(Cpu(CpuOptions(kernels="generic"), "float32", ""), weights.shape, weights, threads) for threads in (1, 3))
    expected = alone.of(rows)
    with arithmetic(mxcsr):
        assert is_unusual()
        late = Product(Cpu(CpuOptions(kernels="generic"), "float32", ""), weights.shape, weights, 3)
        found = [product.of(rows) for product in (alone, shared, late)]
        assert is_unusual()
    for each in found:
        assert np.array_equal(each.view(np.uint32), expected.view(np.uint32))


@on_x86
@unusual_arithmetic
def test_nor_what_a_row_of_logits_comes_to(mxcsr: int) -> None:
    """One row is looked at by the thread that asks, many by all."""
    native = pytest.importorskip("penstock._native")
    sampling = NativeSampling(native, native.Model(native.Pool(2, []), "", False, False))
    logits = np.random.default_rng(1).standard_normal((20, 9001), dtype=np.float32) * 3
    logits[10:] = -5
    logits[10:, [50, 100]] = 1e-39, 2e-39  # equals where denormals are zero: then the lower id is the likelier
    expected = sampling.score(logits, None, [3] * 20, 3)
    with arithmetic(mxcsr):
        assert is_unusual()
        many, alone = sampling.score(logits, None, [3] * 20, 3), [sampling.score(logits, [row], [3], 3) for row in range(20)]
    assert many == expected
    assert [each.values[0] for each in alone] == expected.values and [each.ids[0] for each in alone] == expected.ids
