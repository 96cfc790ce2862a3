"""Programs that each step gives numbers beside its tokens: heads on another model's hidden states."""
from dataclasses import replace

import numpy as np
import pytest

from penstock.compute.backends.contract import KVLayout
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
