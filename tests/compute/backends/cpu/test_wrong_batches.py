"""Batches whose numbers contradict each other are refused, where a step would read or write beyond an array."""
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from penstock.compute.backends.contract import Batch, KVLayout
from tests.contract.decoders import PLAIN, decoder
from tests.contract.sketch import Sketch
from tests.contract.stories import Share, batch_of

pytest.importorskip("penstock._native")
from penstock.compute.backends.cpu.backend import Cpu

FAR = 10**9
GOOD = batch_of([Share(np.arange(5), 0, np.arange(8), range(5)), Share(np.arange(3), 0, np.arange(4, 8), ())], 16)
CHAIN = np.array([-1, 0, 1, 2, 3, -1, 0, 1], np.int32)
TREE = replace(GOOD, positions=np.array([0, 1, 1, 2, 3, 0, 1, 2]), parents=np.array([-1, 0, 0, 1, 3, -1, 0, 1], np.int32))


def at(array: Any, index: int, value: int) -> Any:
    changed = array.copy()
    changed[index] = value
    return changed


WRONG: dict[str, tuple[Batch, str]] = {
    "few positions": (replace(GOOD, positions=GOOD.positions[:2]), "positions are 2, not 8"),
    "few slots": (replace(GOOD, slots=GOOD.slots[:2]), "slots are 2, not 8"),
    "a slot too far": (replace(GOOD, slots=at(GOOD.slots, 2, FAR)), "slot 1000000000 is not one of the 128"),
    "a slot below 0": (replace(GOOD, slots=at(GOOD.slots, 2, -1)), "slot -1 is not one of the 128"),
    "logits of no row": (replace(GOOD, logit_rows=np.array([8])), "row 8 is not one of the 8"),
    "a block too far": (replace(GOOD, block_tables=[np.array([8]), GOOD.block_tables[1]]), "block 8 is not one of the 8"),
    "no blocks": (replace(GOOD, block_tables=[np.zeros(0, np.int64), GOOD.block_tables[1]]), "a context of 5 tokens takes 1 blocks, not 0"),
    "few tables": (replace(GOOD, block_tables=GOOD.block_tables[:1]), "index out of range"),
    "few row starts": (replace(GOOD, row_starts=GOOD.row_starts[:2]), "row_starts are 2, not 3"),
    "rows that are not there": (replace(GOOD, row_starts=np.array([0, 5, FAR])), "rows from 5 to 1000000000 of 8"),
    "rows of nobody": (replace(GOOD, row_starts=np.array([0, 5, 7])), "sequences have 7 rows, and the step 8"),
    "rows left out": (replace(GOOD, row_starts=np.array([1, 5, 8])), "begin at 1, not 0"),
    "a context without its rows": (replace(GOOD, contexts=np.array([4, 3])), "a context of 4 tokens is shorter than its 5 rows"),
    "a context of 33 bits": (replace(GOOD, contexts=np.array([5 + 2**32, 3])), "length 4294967301 is not one of the 2147482623"),
    "a context too near 31 bits": (replace(GOOD, contexts=np.array([2**31 - 1024, 3])), "length 2147482624 is not one of the 2147482623"),
    "a position too far": (replace(GOOD, positions=at(GOOD.positions, 2, FAR)), "position 1000000000 is not one of the 5"),
    "a position below 0": (replace(GOOD, positions=at(GOOD.positions, 2, -1)), "position -1 is not one of the 5"),
    "few parents": (replace(GOOD, parents=CHAIN[:2]), "parents are 2, not 8"),
    "a parent too far": (replace(TREE, parents=at(TREE.parents, 2, 4)), "row 2 of a draft tree cannot follow row 4"),
    "a parent below -1": (replace(TREE, parents=at(TREE.parents, 2, -2)), "row 2 of a draft tree cannot follow row -2"),
    "a tree of one depth": (replace(TREE, parents=at(TREE.parents, 3, -1)), "row 3 of a draft tree is at position 2, not 0"),
}


@pytest.fixture(scope="module")
def backend() -> Any:
    return Cpu(dtype="float32")


@pytest.fixture(scope="module")
def loaded(backend: Any) -> Any:
    return backend.load(*decoder(PLAIN), KVLayout(8, 16), 1)


@pytest.mark.parametrize("name", WRONG)
def test_wrong_batches_are_refused(backend: Any, loaded: Any, name: str) -> None:
    batch, words = WRONG[name]
    with pytest.raises((ValueError, IndexError), match=words):
        backend.step(loaded, batch)


RIGHT = {"plain": GOOD, "chain": replace(GOOD, parents=CHAIN), "tree": TREE,
         "a table longer than needed": replace(GOOD, block_tables=[np.array([0, FAR]), np.array([4])])}


@pytest.mark.parametrize("batch", RIGHT.values(), ids=RIGHT.keys())
def test_right_ones_are_not(backend: Any, loaded: Any, batch: Batch) -> None:
    assert np.isfinite(backend.step(loaded, batch).logits).all()


def test_buffers_are_those_of_the_model(backend: Any, loaded: Any) -> None:
    backend.step(loaded, GOOD)
    model, logits = loaded.model, np.empty((5, PLAIN.vocab_size), np.float32)
    model.result(loaded.logits, logits)
    with pytest.raises(IndexError, match="buffer 1000 is not one of"):
        model.result(1000, logits)
    with pytest.raises(ValueError, match=f"numbers are {4 * PLAIN.vocab_size}, not {5 * PLAIN.vocab_size}"):
        model.result(loaded.logits, logits[:4])
    with pytest.raises(IndexError, match="buffer -1 is not one of"):
        model.step(GOOD, [-1], [])
    with pytest.raises(ValueError, match=f"numbers are {4 * PLAIN.vocab_size}, not {5 * PLAIN.vocab_size}"):
        model.step(GOOD, [], [(loaded.logits, logits[:4])])


def test_tokens_are_rows_of_every_table(backend: Any) -> None:
    sketch = Sketch()
    large, small = sketch.table("large", np.ones((9, 4))), sketch.table("small", np.ones((8, 4)))
    program = sketch.program(out=large, logits=sketch.op("gather", (small,), "logits"))
    loaded = backend.load(program, sketch.weights, KVLayout(8, 16), 1)
    assert backend.step(loaded, replace(GOOD, tokens=at(GOOD.tokens, 3, 7))).logits.shape == (5, 4)
    with pytest.raises(IndexError, match="token 8 is not one of the 8"):
        backend.step(loaded, replace(GOOD, tokens=at(GOOD.tokens, 3, 8)))


def test_a_cache_without_blocks_holds_no_slot(backend: Any) -> None:
    loaded = backend.load(*decoder(PLAIN), KVLayout(0, 16), 1)
    with pytest.raises(IndexError, match="slot 0 is not one of the 0"):
        backend.step(loaded, GOOD)


def test_operations_name_what_the_model_has(loaded: Any) -> None:
    for field, words in (("in", "buffer"), ("matrix2", "matrix"), ("bias", "vector"), ("rope_table", "rope table"), ("layer", "layer")):
        for index in (1000, -2):
            with pytest.raises(IndexError, match=f"{words} {index} is not one of the"):
                loaded.model.add_op({"kind": "linear", field: index})
