"""Memory that the native backend takes from the system, and when."""
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.timing import touch
from tests.contract.decoders import PLAIN, decoder

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
