"""Torch's fused ops make of whole sequences what the plain ones do."""
import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.backends.reference.backend import Reference, ReferenceOptions
from tests.contract.decoders import SPECS, decoder

torch = pytest.importorskip("torch", reason="torch is an extra: pip install '.[torch]'")


@pytest.mark.parametrize("name", SPECS)
def test_the_same_logits(name: str) -> None:
    from penstock.study.compress.fused import FUSED

    program, weights = decoder(SPECS[name])
    tokens = torch.from_numpy(np.random.default_rng(3).integers(0, program.vocab_size, (2, 40)))
    plain, fused = (Reference(ReferenceOptions(arrays="torch"), dtype="float32", fused=ops) for ops in ({}, FUSED))
    expected, found = (each.forward(each.load(program, weights, KVLayout(0, 1)), tokens)["logits"] for each in (plain, fused))
    np.testing.assert_allclose(found.numpy(), expected.numpy(), atol=1e-4, rtol=0)
    assert np.abs(expected.numpy()).max() > 0.1
