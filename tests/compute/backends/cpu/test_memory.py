"""Memory that the native backend takes from the system, and when."""
import resource
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.timing import touch
from penstock.core.modelspec import ExpertsSpec, LayerSpec, ModelSpec, RopeSpec
from tests.contract.decoders import PLAIN, decoder
from tests.contract.stories import Share, batch_of

pytest.importorskip("penstock._native")
from penstock.compute.backends.cpu.backend import Cpu

STATM = Path("/proc/self/statm")


def resident_bytes() -> int:
    return int(STATM.read_text().split()[1]) * resource.getpagesize()


@pytest.mark.skipif(not STATM.exists(), reason="reads /proc")
def test_one_token_takes_no_huge_pages_of_each_layer() -> None:
    """Its keys and values in all layers lie side by side: half a megabyte, where two huge pages a layer would be 128."""
    program, weights = decoder(replace(PLAIN, layers=PLAIN.layers * 16))
    backend = Cpu(dtype="bfloat16")
    loaded = backend.load(program, weights, KVLayout(8192, 16), 1)
    before = resident_bytes()
    touch(backend, loaded)
    assert resident_bytes() - before < 32 << 20


@pytest.mark.skipif(not STATM.exists(), reason="reads /proc")
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("experts", [None, ExpertsSpec(4, 2, 512, True)])
def test_rows_take_what_is_told_of_them(dtype: str, experts: ExpertsSpec | None) -> None:
    rows, layer = 2048, LayerSpec(rope=RopeSpec(dim=64), experts=experts)
    program, weights = decoder(ModelSpec(64, 512, 8, 2, 64, 2048, (layer,), rows))
    backend = Cpu(dtype=dtype)
    loaded = backend.load(program, weights, KVLayout(rows // 16, 16), 1)
    tokens, blocks = np.arange(rows) % 64, np.arange(rows // 16)
    backend.step(loaded, batch_of([Share(tokens[:16], 0, blocks)], 16))
    before = resident_bytes() + rows * loaded.kv_bytes_per_token
    backend.step(loaded, batch_of([Share(tokens, 0, blocks)], 16))
    assert 0.75 < (resident_bytes() - before) / (rows * backend.row_bytes(program)) < 1.1


@pytest.mark.skipif(not STATM.exists(), reason="reads /proc")
@pytest.mark.parametrize(("head", "held"), [(24, 32), (100, 112)])
def test_heads_are_kept_in_whole_vectors(head: int, held: int) -> None:
    program, weights = decoder(replace(PLAIN, head_dim=head, layers=(LayerSpec(rope=RopeSpec(dim=head)),)))
    backend = Cpu(dtype="bfloat16")
    loaded = backend.load(program, weights, KVLayout(2048, 16), 1)
    assert loaded.kv_bytes_per_token == 2 * PLAIN.num_kv_heads * held * 2
    before, data = resident_bytes(), np.zeros((2, 1, 1, 16, PLAIN.num_kv_heads, head), np.float32)
    for block in range(2048):
        backend.write_blocks(loaded, [block], data)
    assert resident_bytes() - before == pytest.approx(loaded.kv_bytes_per_token * 2048 * 16, rel=0.1)
