"""Programs that each step gives numbers beside its tokens: heads on another model's hidden states."""
from dataclasses import replace

import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
from penstock.compute.program import KVSpec
from tests.contract.participants import PARTICIPANTS, Participant
from tests.contract.sketch import Sketch
from tests.contract.stories import Share, batch_of

ROWS, WIDTH, OUT = 5, 48, 80


@pytest.mark.parametrize("participant", PARTICIPANTS, ids=str)
def test_what_a_step_is_given_is_read_row_by_row(participant: Participant) -> None:
    """The input is read twice, with a buffer between that could have taken its place."""
    rng = np.random.default_rng(0)
    table, first, second = (rng.standard_normal(shape).astype(np.float32) for shape in ((ROWS, WIDTH), (WIDTH, WIDTH), (OUT, WIDTH)))
    first /= 8
    states = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)
    sketch = Sketch()
    given, embedded = sketch.input("states", WIDTH), sketch.table("embedded", table)
    mixed = sketch.op("linear", (given,), "mixed", (sketch.weight("first", first),))
    total = sketch.op("add", (sketch.op("add", (mixed, embedded), "both"), given), "total")
    logits = sketch.op("linear", (sketch.op("gather", (total,), "rows"),), "logits", (sketch.weight("second", second),))
    backend = participant.make()
    loaded = backend.load(sketch.program(logits=logits), sketch.weights, KVLayout(1, 16))
    batch = batch_of([Share(np.arange(ROWS), 0, np.array([0]), (0, 3, 4))], 16)
    found = backend.step(loaded, replace(batch, inputs={"states": states})).logits
    expected = ((states @ first.T + table + states) @ second.T)[[0, 3, 4]]
    assert np.abs(found - expected).max() <= 2 * participant.tolerance * np.abs(expected).max()
    with pytest.raises((ValueError, KeyError), match="states"):
        backend.step(loaded, batch)


@pytest.mark.parametrize("participant", PARTICIPANTS, ids=str)
def test_a_program_without_a_table_takes_any_tokens(participant: Participant) -> None:
    sketch = Sketch()
    doubled = sketch.op("linear", (sketch.input("states", WIDTH),), "doubled", (sketch.weight("twice", 2 * np.eye(WIDTH)),))
    backend = participant.make()
    loaded = backend.load(sketch.program(logits=sketch.op("gather", (doubled,), "logits")), sketch.weights, KVLayout(1, 16))
    states = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH) / 16
    batch = replace(batch_of([Share(np.arange(ROWS), 0, np.array([0]), range(ROWS))], 16), inputs={"states": states})
    assert np.array_equal(backend.step(loaded, batch).logits, 2 * states)


@pytest.mark.parametrize("participant", PARTICIPANTS, ids=str)
def test_what_a_step_is_given_is_left_as_it_was(participant: Participant) -> None:
    """Heads that are normed and rotated stand in the caller's memory."""
    given = np.random.default_rng(0).standard_normal((ROWS, 4 * 16)).astype(np.float32)
    sketch = Sketch(KVSpec(1, 1, 16))
    sketch.table("any", np.ones((ROWS, 1)))
    sketch.op("split_heads", (sketch.input("states", 4 * 16),), ("q", "k", "v"), heads=(2, 1, 1), head_dim=16)
    for name in "qk":
        sketch.op("rope", (name, "positions"), name + "_turned", inv_freq=(1.0, 0.5), scale=1.0)
    sketch.op("kv_write", ("k_turned", "v"), (), layer=0)
    out = sketch.op("attention", ("q_turned",), "out", layer=0, scale=0.25, window=None, softcap=None)
    backend = participant.make()
    loaded = backend.load(sketch.program(out=out), sketch.weights, KVLayout(1, 16))
    batch = batch_of([Share(np.arange(ROWS), 0, np.array([0]))], 16, ("out",))
    states = given.copy()
    once, again = (backend.step(loaded, replace(batch, inputs={"states": states})).buffers["out"].copy() for _ in range(2))
    assert np.array_equal(states, given) and np.array_equal(once, again)
