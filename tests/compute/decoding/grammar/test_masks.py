import gc
import os
import random
import signal
import threading
import warnings
import weakref

import numpy as np
import pytest

from penstock.compute.decoding.grammar.masks import Masks, Path
from penstock.compute.decoding.grammar.matcher import EVERYTHING, Matcher
from penstock.compute.decoding.masking import RowMasks
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.tokens import TOKENS, allowed, compiler, matcher_of, places

COMPILER = compiler()
WIDTH = COMPILER.vocabulary.width


def path(text: str, drafts: str = "", wanted: Wanted | None = None) -> Path:
    matcher = matcher_of(COMPILER, wanted or Wanted(json_object=True))
    matcher.take(TOKENS.encode(text))
    return Path(matcher, tuple(TOKENS.encode(drafts)))


def test_rows_come_in_the_order_of_paths_with_a_bit_for_what_is_allowed() -> None:
    paths = [path("{"), path('{"a', 'b": 1'), path("a", wanted=Wanted(regex="ab"))]
    masks = Masks(WIDTH)
    masks.begin(paths)
    found = masks.take()
    assert found.shape == (sum(each.num_rows for each in paths), WIDTH // 32) and found.dtype == np.uint32
    first = 0
    for each in paths:
        assert places(found[first]) == allowed(each.matcher)
        first += each.num_rows


def test_what_a_step_left_behind_is_waited_for() -> None:
    masks = Masks(WIDTH)
    masks.begin([path("{")] * 3)
    masks.begin([path("a", wanted=Wanted(regex="ab"))])
    assert places(masks.take()[0]) == [ord("b")]


def test_a_step_whose_masks_failed_and_were_not_taken_leaves_the_next_one_alone() -> None:
    masks = Masks(WIDTH)
    masks.begin([Path(Panicking())])  # type: ignore[arg-type]
    masks.begin([path("a", wanted=Wanted(regex="ab"))])
    assert places(masks.take()[0]) == [ord("b")]


class Slow:
    """A matcher that allows the tokens of `word` when it may go on."""

    def __init__(self, word: int, may_go: threading.Event) -> None:
        self.word = word
        self.may_go = may_go

    def fill(self, mask: np.ndarray) -> None:
        assert self.may_go.wait(20)
        mask[:] = self.word


def test_masks_that_were_not_waited_for_are_not_taken_for_those_of_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    masks, may_go = Masks(32), threading.Event()
    masks.begin([Path(Slow(1, may_go))])  # type: ignore[arg-type]

    def interrupted(_: threading.Event) -> bool:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(threading.Event, "wait", interrupted)
        masks.take()
    may_go.set()
    for word in (2, 3):
        masks.begin([Path(Slow(word, may_go))])  # type: ignore[arg-type]
        assert masks.take().tolist() == [[word]]


def test_a_process_that_was_forked_goes_on() -> None:
    masks, may_go = Masks(32), threading.Event()
    may_go.set()
    masks.begin([Path(Slow(1, may_go))])  # type: ignore[arg-type]
    masks.take()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
        child = os.fork()
    if not child:
        code = 1
        try:
            signal.alarm(20)
            masks.begin([Path(Slow(5, may_go))])  # type: ignore[arg-type]
            code = int(masks.take()[0, 0])
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5


def test_where_the_system_has_no_thread_left_masks_are_computed_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    masks = Masks(WIDTH)
    for start in (refused, refused, threading.Thread.start):
        monkeypatch.setattr(threading.Thread, "start", start)
        masks.begin([path("a", wanted=Wanted(regex="ab"))])
        assert places(masks.take()[0]) == [ord("b")]
    assert masks._thread is not None and masks._thread.is_alive()


@pytest.mark.parametrize("has_begun", [True, False])
def test_an_interrupt_while_the_thread_starts_leaves_nobody_waiting(monkeypatch: pytest.MonkeyPatch, has_begun: bool) -> None:
    def interrupted(self: threading.Thread) -> None:
        if has_begun:
            start(self)
        raise KeyboardInterrupt

    start, masks = threading.Thread.start, Masks(WIDTH)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(threading.Thread, "start", interrupted)
        masks.begin([path("{")])
    again = threading.Thread(target=masks.begin, args=([path("a", wanted=Wanted(regex="ab"))],), daemon=True)
    again.start()
    again.join(20)
    assert not again.is_alive() and places(masks.take()[0]) == [ord("b")]


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_no_failure_of_a_grammar(monkeypatch: pytest.MonkeyPatch, interrupt: type[BaseException]) -> None:
    """Where the masks are computed on the thread that it comes to."""
    def refused(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    def interrupted(*given: object) -> None:
        raise interrupt

    masks, asked = Masks(WIDTH), path("a", wanted=Wanted(regex="ab"))
    monkeypatch.setattr(threading.Thread, "start", refused)
    with monkeypatch.context() as patched, pytest.raises(interrupt):
        patched.setattr(Matcher, "fill", interrupted)
        masks.begin([asked])
    assert asked.matcher.ended is None
    masks.begin([asked])
    assert places(masks.take()[0]) == [ord("b")]


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
def test_among_some_rows_each_keeps_its_own(seed: int) -> None:
    rng = random.Random(seed)
    rows = sorted(rng.sample(range(6), 3))
    masks = RowMasks(rows, np.arange(3 * 5, dtype=np.uint32).reshape(3, 5))
    for size in range(7):
        some = sorted(rng.sample(range(6), size))
        among = masks.among(some)
        assert {some[row]: mask.tolist() for row, mask in zip(among.rows, among.allowed, strict=True)} == {
            row: masks.allowed[rows.index(row)].tolist() for row in some if row in rows}


class Panic(BaseException):
    """As native code may raise it."""


class Panicking:
    """A matcher whose native half is broken."""

    ended: str | None = None

    def fill(self, mask: np.ndarray) -> None:
        raise Panic("index out of bounds")

    def fill_along(self, drafts: object, parents: object, masks: np.ndarray) -> None:
        raise Panic("index out of bounds")


@pytest.mark.parametrize("drafts", [(), (1, 2)])
def test_a_grammar_that_fails_ends_its_own_answer_alone(drafts: tuple[int, ...], caplog: pytest.LogCaptureFixture) -> None:
    masks, good, broken = Masks(WIDTH), path("a", wanted=Wanted(regex="ab")), Panicking()
    masks.begin([Path(broken, drafts), good])  # type: ignore[arg-type]
    found = masks.take()
    assert (found[: 1 + len(drafts)] == EVERYTHING).all() and places(found[1 + len(drafts)]) == [ord("b")]
    assert broken.ended == "abort" and good.matcher.ended is None
    assert caplog.messages == ["a grammar failed: Panic: index out of bounds; the answer that follows it ends"]
    masks.begin([])
    assert masks._thread is not None and masks._thread.is_alive() and len(masks.take()) == 0
