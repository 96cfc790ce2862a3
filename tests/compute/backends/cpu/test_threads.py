"""Steps of all sizes in quick succession on more threads than processors: those that come late to a step look at nothing of the next.

The thread sanitizer runs this too (scripts/sanitize).
"""
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import Batch, KVLayout
from penstock.core.types import SamplingParams
from tests.contract.decoders import SPECS, decoder
from tests.contract.stories import Share, batch_of

pytest.importorskip("penstock._native")
from penstock.compute.backends.cpu.backend import Cpu

BLOCKS = 10  # of 16 slots, for each sequence


def batches(vocab: int) -> Iterator[Batch]:
    """Of one to five sequences, as prompts or parts of them, rounded or exact, with logits or without."""
    rng = np.random.default_rng(0)
    for i in range(60):
        shares = []
        for s in range(int(rng.integers(1, 6))):
            rows = int(rng.choice([1, 1, 1, 3, 17, 60]))
            table = np.arange(BLOCKS * s, BLOCKS * (s + 1))
            shares.append(Share(rng.integers(0, vocab, rows), 0, table, range(rows) if i % 2 else ()))
        yield replace(batch_of(shares, 16), exact=bool(i % 3))


def run(name: str, activations: str, threads: int) -> list[Any]:
    """Logits, and tokens drawn from them."""
    backend, (program, weights) = Cpu(activations=activations), decoder(SPECS[name])
    loaded = backend.load(program, weights, KVLayout(5 * BLOCKS, 16), threads)
    hot = loaded.sampling.drawing(SamplingParams(temperature=1.0), 7)
    found = []
    for batch in batches(SPECS[name].vocab_size):
        logits = backend.step(loaded, batch).logits
        tokens = loaded.sampling.choose(logits, None, [hot] * len(logits), [0] * len(logits)) if len(logits) else []
        found.append((logits.tobytes(), tokens))
    return found


@pytest.mark.parametrize("activations", ["", "int8"])
@pytest.mark.parametrize("name", SPECS)
def test_threads_change_nothing(name: str, activations: str) -> None:
    assert run(name, activations, 5) == run(name, activations, 1)


def test_a_model_goes_while_others_of_its_pool_stay() -> None:
    """Late threads may still walk over a step of one that has been dropped, though another ran since: the address sanitizer sees that."""
    program, weights = decoder(SPECS["grouped queries"])
    backend = Cpu()
    stays = backend.load(program, weights, KVLayout(BLOCKS, 16), 5)
    batch = batch_of([Share(np.arange(3), 0, np.arange(BLOCKS), range(3))], 16)
    expected = backend.step(stays, batch).logits
    for _ in range(100):
        goes = backend.load(program, weights, KVLayout(BLOCKS, 16), 5)
        backend.step(goes, batch)
        found = backend.step(stays, batch).logits
        del goes
        assert np.array_equal(found, expected)
