import gc
import random
import threading
import weakref

import numpy as np
import pytest

from penstock.compute.decoding.grammar.masks import Masks, Path
from penstock.compute.decoding.masking import RowMasks
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.tokens import SIZE, TOKENS, allowed, compiler, matcher_of

COMPILER = compiler()
WIDTH = COMPILER.vocabulary.width


def path(text: str, drafts: str = "", wanted: Wanted | None = None) -> Path:
    matcher = matcher_of(COMPILER, wanted or Wanted(json_object=True))
    matcher.take(TOKENS.encode(text))
    return Path(matcher, tuple(TOKENS.encode(drafts)))


def test_rows_come_in_the_order_of_paths_with_zero_for_what_is_allowed() -> None:
    paths = [path("{"), path('{"a', 'b": 1'), path("a", wanted=Wanted(regex="ab"))]
    masks = Masks(WIDTH)
    masks.begin(paths)
    bias = masks.take()
    assert bias.shape == (sum(each.num_rows for each in paths), WIDTH) and bias.dtype == np.float32
    first = 0
    for each in paths:
        for done in range(each.num_rows):
            there = path("{")
            assert set(np.unique(bias[first + done])) <= {0, -np.inf}
            there = each.matcher if done == 0 else None
            if there is not None:
                assert np.flatnonzero(bias[first] == 0).tolist() == allowed(there)
        first += each.num_rows


def test_what_a_step_left_behind_is_waited_for() -> None:
    masks = Masks(WIDTH)
    masks.begin([path("{")] * 3)
    masks.begin([path("a", wanted=Wanted(regex="ab"))])
    assert np.flatnonzero(masks.take()[0] == 0).tolist() == [ord("b")]


def test_an_error_is_raised_where_the_masks_are_wanted_and_the_next_step_works() -> None:
    masks = Masks(WIDTH + 32)
    masks.begin([path("{")])
    with pytest.raises(ValueError, match="Invalid buffer size"):
        masks.take()
    masks.begin([])
    assert len(masks.take()) == 0


def test_the_thread_ends_with_its_owner() -> None:
    masks = Masks(WIDTH)
    masks.begin([path("{")])
    masks.take()
    thread, gone = masks._thread, weakref.ref(masks)
    del masks
    gc.collect()
    assert thread is not None and gone() is None
    thread.join(5)
    assert not thread.is_alive() and thread not in threading.enumerate()


@pytest.mark.parametrize("seed", range(3))
def test_masks_are_applied_to_the_rows_that_have_them(seed: int) -> None:
    rng = random.Random(seed)
    rows = sorted(rng.sample(range(6), 3))
    bias = np.where(np.random.default_rng(seed).random((3, WIDTH)) < 0.5, np.float32(0), np.float32(-np.inf))
    logits = np.random.default_rng(seed + 9).standard_normal((6, SIZE)).astype(np.float32)
    masked = logits.copy()
    RowMasks(rows, bias).apply(masked)
    for row in range(6):
        wanted = np.where(bias[rows.index(row), :SIZE] == 0, logits[row], -np.inf) if row in rows else logits[row]
        assert (masked[row] == wanted).all()
    some = sorted(rng.sample(range(6), 4))
    part = logits[some]
    RowMasks(rows, bias).among(some).apply(part)
    assert (part == masked[some]).all()
