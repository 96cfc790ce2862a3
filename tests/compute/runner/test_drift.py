"""What rounding activations costs is measured: nothing where nothing is rounded, something where it is."""
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.backends.reference.backend import Reference
from penstock.compute.quant.int8 import Int8, by_row
from penstock.compute.runner import drift
from tests.contract.decoders import PLAIN, decoder

TOKENS = list(range(3, 50))


def measured(activations: str) -> drift.Drift:
    program, weights = decoder(PLAIN)
    coded = {name: Int8().quantize(values, by_row(values.shape[1])) if program.weights[name].matrix else values
             for name, values in weights.items()}
    backend = Reference(activations=activations)
    return drift.rounding_drift(backend, backend.load(program, coded, KVLayout(4, 16)), TOKENS)


def test_rows_as_they_are_do_not_drift() -> None:
    assert measured("") == drift.Drift(0.0, 32, 32)


def test_rounded_rows_drift_a_little() -> None:
    found = measured("int8")
    assert 1e-6 < found.kl < 0.05 and 24 <= found.kept <= found.places == 32


def test_distributions_add_up_to_one() -> None:
    logits = np.random.default_rng(0).standard_normal((5, 40)).astype(np.float32) * 30
    np.testing.assert_allclose(np.exp(drift.log_softmax(logits)).sum(axis=1), 1, rtol=1e-5)


@pytest.mark.parametrize(("parameters", "context", "slots", "expected"), [
    (7 * 10**6, 1024, 10**6, 128), (6 * 10**8, 1024, 10**6, 128), (4 * 10**9, 1024, 10**6, 25), (7 * 10**10, 1024, 10**6, 16),
    (7 * 10**6, 1024, 48, 48), (7 * 10**6, 24, 10**6, 24),
])
def test_large_models_and_short_contexts_take_fewer_tokens(parameters: int, context: int, slots: int, expected: int) -> None:
    spec: Any = SimpleNamespace(num_parameters=lambda: parameters, max_position=context)
    assert drift.num_tokens(spec, slots) == expected
