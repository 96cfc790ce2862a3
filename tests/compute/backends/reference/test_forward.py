"""Whole sequences without a cache: the same numbers as paged steps, and gradients that finite differences confirm."""
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.backends.reference.backend import Reference, ReferenceOptions
from penstock.core.modelspec import ModelSpec
from tests.contract.decoders import PLAIN, SPECS, decoder
from tests.contract.stories import Story, play

LENGTH = 140


def reference(arrays: str, dtype: str = "float32", **options: Any) -> Reference:
    if arrays != "numpy":
        pytest.importorskip(arrays)
    return Reference(ReferenceOptions(arrays), dtype, **options)


@pytest.mark.parametrize("arrays", ["numpy", "torch"])
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_without_a_cache_the_numbers_are_the_same(arrays: str, spec: ModelSpec) -> None:
    backend = reference(arrays)
    program, weights = decoder(spec)
    tokens = np.random.default_rng(1).integers(0, spec.vocab_size, (2, LENGTH))
    loaded = backend.load(program, weights, KVLayout(0, 1))
    dense = backend.forward(loaded, backend.arrays.index(tokens), ("logits", "hidden"))
    paged = play(backend, program, weights, Story((((0, LENGTH), (1, 50)), ((1, LENGTH - 50),))), list(tokens))
    for name, made in dense.items():
        assert made.shape == (2, LENGTH, spec.vocab_size if name == "logits" else spec.hidden_size)
        np.testing.assert_allclose(backend.arrays.give(made), np.stack(paged[name]), atol=1e-4, rtol=0)


@pytest.mark.parametrize("name", SPECS)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    torch = pytest.importorskip("torch")
    backend = reference("torch")
    program, weights = decoder(SPECS[name])
    tokens = torch.from_numpy(np.random.default_rng(2).integers(0, program.vocab_size, (2, 9)))
    loaded = backend.load(program, weights, KVLayout(0, 1))
    # Finite differences need more digits than float32 has.
    loaded.weights = {each: weight.double().requires_grad_() for each, weight in loaded.weights.items()}

    def loss() -> Any:
        logits = backend.forward(loaded, tokens)["logits"][:, :-1]
        return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), tokens[:, 1:].reshape(-1))

    loss().backward()
    generator = torch.Generator().manual_seed(0)
    for each, weight in loaded.weights.items():
        direction = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        slope = float((weight.grad * direction).sum())
        step = 5e-3 / float(direction.norm())  # no token is sent to other experts for it
        with torch.no_grad():
            weight += step * direction
            above = float(loss())
            weight -= 2 * step * direction
            below = float(loss())
            weight += step * direction
        assert (above - below) / (2 * step) == pytest.approx(slope, rel=0.05, abs=0.02 * float(weight.grad.norm()) + 1e-4), each


def test_serving_keeps_no_gradients() -> None:
    torch = pytest.importorskip("torch")
    backend = reference("torch")
    program, weights = decoder(PLAIN)
    loaded = backend.load(program, weights, KVLayout(0, 1))
    loaded.weights = {name: weight.requires_grad_() for name, weight in loaded.weights.items()}
    made = backend.forward(loaded, torch.zeros((1, 3), dtype=torch.int64))["logits"]
    assert made.requires_grad
    assert isinstance(play(backend, program, weights, Story((((0, 3),),)), [np.zeros(3, dtype=int)])["logits"][0], np.ndarray)


def test_an_op_can_be_replaced_for_training() -> None:
    calls = []

    def fused(run: Any, op: Any, inputs: list[Any], weights: list[Any]) -> Any:
        calls.append(op.inputs)
        return inputs[0] + inputs[1]

    backend = reference("numpy", fused={"add": fused})
    program, weights = decoder(PLAIN)
    tokens = np.arange(6)[None, :]
    made = backend.forward(backend.load(program, weights, KVLayout(0, 1)), tokens)["logits"]
    plain = reference("numpy")
    assert np.array_equal(made, plain.forward(plain.load(program, weights, KVLayout(0, 1)), tokens)["logits"])
    assert len(calls) == 4
