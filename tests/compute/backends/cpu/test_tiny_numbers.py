"""A row of 16-bit numbers has the same bits alone as among others, denormals included: where tiles multiply many rows, they take those for
zero, and so must the vectors that multiply a few."""
import itertools

import numpy as np
import pytest

from penstock.compute.backends.cpu.backend import Cpu, CpuOptions
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
