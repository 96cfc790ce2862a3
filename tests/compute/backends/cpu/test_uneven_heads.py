"""Layers with more query heads than the last: what one thread computes, several compute in parts."""
import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.program import KVSpec
from tests.contract.sketch import Sketch
from tests.contract.stories import Share, batch_of

pytest.importorskip("penstock._native")
from penstock.compute.backends.cpu.backend import Cpu

DIM, VOCAB, LENGTH = 16, 64, 2500  # a context of several spans


@pytest.mark.parametrize("heads", [(8, 1), (1, 8), (64, 2)])
def test_threads_change_nothing(heads: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    sketch = Sketch(KVSpec(2, 1, DIM))
    tables = [sketch.table(f"x{layer}", rng.standard_normal((VOCAB, (count + 2) * DIM))) for layer, count in enumerate(heads)]
    for layer, (table, count) in enumerate(zip(tables, heads, strict=True)):
        sketch.op("split_heads", (table,), (f"q{layer}", f"k{layer}", f"v{layer}"), heads=(count, 1, 1), head_dim=DIM)
        sketch.op("kv_write", (f"k{layer}", f"v{layer}"), (), layer=layer)
        sketch.op("attention", (f"q{layer}",), f"out{layer}", layer=layer, scale=0.25, window=None, softcap=None)
    program, tokens, table = sketch.program(out0="out0", out1="out1"), rng.integers(0, VOCAB, LENGTH), np.arange(160)
    found = []
    for threads in (1, 3):
        backend = Cpu(dtype="float32")
        loaded = backend.load(program, sketch.weights, KVLayout(160, 16), threads)
        backend.step(loaded, batch_of([Share(tokens[:-2], 0, table)], 16))
        found.append(backend.step(loaded, batch_of([Share(tokens[-2:], LENGTH - 2, table)], 16, ("out0", "out1"))).buffers)
    for name, alone in found[0].items():
        assert np.isfinite(alone).all() and np.array_equal(alone, found[1][name])
