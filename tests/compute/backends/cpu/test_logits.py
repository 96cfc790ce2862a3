"""Memory of logits is taken again, and never while somebody looks at it."""
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from tests.contract.decoders import PLAIN, decoder
from tests.contract.stories import Share, batch_of

pytest.importorskip("penstock._native")
from penstock.compute.backends.cpu import backend


@pytest.fixture
def logits() -> Any:
    """Of some tokens, of which each gets a row."""
    cpu, (program, weights) = backend.Cpu(dtype="float32"), decoder(PLAIN)
    loaded = cpu.load(program, weights, KVLayout(40, 16))
    return lambda *tokens: cpu.step(loaded, batch_of([Share(np.array(tokens), 0, np.arange(40), range(len(tokens)))], 16)).logits


def address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def test_the_next_step_takes_the_memory_that_nobody_holds(logits: Any) -> None:
    found = logits(1, 2)
    before = address(found)
    del found
    assert all(address(logits(3, each)) == before for each in range(9))


def test_fewer_rows_take_it_too_unless_it_is_large_and_they_are_far_fewer(logits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    before = address(logits(*range(16)))
    assert all(address(logits(*range(count))) == before for count in (16, 1, 9, 20, 3))
    monkeypatch.setattr(backend, "SMALL_SPARE", 0)
    assert [address(logits(*range(count))) == before for count in (16, 1)] == [True, False]
    assert logits(*range(9)).shape == (9, 67)


@pytest.mark.parametrize("view", [
    lambda x: x, lambda x: x[1], lambda x: x[:, 3:5][:1].T, lambda x: x.view(np.uint32)[0, :7], memoryview, lambda x: [x.reshape(-1)[5:9]],
    lambda x: np.from_dlpack(x)[1:]])
def test_what_is_held_stays_as_it_was(logits: Any, view: Any) -> None:
    held = view(logits(1, 2))
    kept = [np.array(each) for each in np.atleast_1d(held)]
    for token in range(3, 9):
        logits(token, token)
    assert all(np.array_equal(a, b) for a, b in zip(np.atleast_1d(held), kept, strict=True))


def test_many_rows_are_not_kept(logits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "SMALL_SPARE", 0)
    many = [logits(*[token] * (backend.MOST_SPARE + 1)) for token in (1, 2)]
    assert not np.shares_memory(*many) and many[0].shape == (backend.MOST_SPARE + 1, 67)
