"""Whatever of an LLM's work is interrupted, and wherever: its books are right afterwards, and it answers as before."""
import random
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from penstock import LLM, SamplingParams
from penstock.decide.kv.manager import KVManager
from penstock.serve.engine.engine import Engine
from penstock.serve.engine.sampled import Sampled
from tests.tiny import write_model

NUM_BLOCKS = 16
WHERE = ("penstock.decide.", "penstock.serve.engine.", "penstock.compute.runner.")  # modules with books
GREEDY = SamplingParams(temperature=0, max_tokens=10, ignore_eos=True)
MIXED = [GREEDY, replace(GREEDY, n=3, temperature=1.0, seed=7), replace(GREEDY, beam_width=2, n=2), replace(GREEDY, prompt_logprobs=1)]
PROMPTS = ["a tale of old", "a tale of the sea", "the fox", "a tale of old kings"]


@pytest.fixture
def llm(tmp_path: Path) -> LLM:
    return LLM(str(write_model(tmp_path)), kv_tokens=NUM_BLOCKS * 16, propose="ngram")


def answers(llm: LLM) -> list[tuple[int, ...]]:
    return [tuple(each.token_ids) for output in llm.generate(PROMPTS, MIXED) for each in output.outputs]


def check_free(llm: LLM) -> None:
    gauges = llm._engine.gauges()
    assert gauges.num_running == gauges.num_waiting == gauges.kv_blocks_used == llm._engine.num_requests() == 0
    llm._engine.check_integrity()


def check_whole(llm: LLM, expected: list[tuple[int, ...]]) -> None:
    """It answers as before, and a request that takes the whole cache goes through."""
    assert answers(llm) == expected
    check_free(llm)
    long = llm.generate({"prompt_token_ids": [5] * (NUM_BLOCKS * 16 - 40)}, replace(GREEDY, max_tokens=20))[0]
    assert len(long.outputs[0].token_ids) == 20
    check_free(llm)


def raising_at(number: int, function: Callable[..., Any], before: Callable[..., None] = lambda *_: None) -> Callable[..., Any]:
    """`function`, whose call `number` (from 1) is interrupted, after `before` has done a part of it."""
    calls = []

    def called(*args: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == number:
            before(*args)
            raise KeyboardInterrupt
        return function(*args, **options)

    return called


def leak(kv: KVManager, *_: Any) -> None:
    for _ in range(3):
        kv.pool.allocate(1)


@pytest.mark.parametrize(("owner", "name", "number", "before"), [
    (Engine, "_settle", 1, None), (KVManager, "grow", 1, leak), (KVManager, "grow", 6, leak), (KVManager, "admit", 2, leak),
    (KVManager, "commit", 3, None), (KVManager, "free", 2, None), (Sampled, "start", 2, None), (Sampled, "begin", 2, None)])
def test_an_interruption_leaves_nothing(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, owner: type, name: str, number: int, before: Callable[..., None] | None
) -> None:
    expected = answers(llm)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, raising_at(number, getattr(owner, name), before or (lambda *_: None)))
        with pytest.raises(KeyboardInterrupt):
            answers(llm)
    check_free(llm)
    check_whole(llm, expected)


@pytest.mark.parametrize("name", ["abort", "clear"])
def test_a_second_interruption_while_the_first_is_cleared_up_leaves_nothing_to_the_next_call(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    expected = answers(llm)

    def on_delta(_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Engine, name, raising_at(2, getattr(Engine, name)))  # the first `clear` is that before the call
        with pytest.raises(KeyboardInterrupt):
            llm.generate(PROMPTS, MIXED, on_delta=on_delta)
    assert llm._engine.num_requests() > 0
    check_whole(llm, expected)


def test_an_interruption_in_the_middle_of_an_abort_leaves_nothing_to_the_next_call(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = answers(llm)

    def on_delta(_: object) -> None:
        raise ValueError("no more")

    with monkeypatch.context() as patch:
        patch.setattr(KVManager, "free", raising_at(2, KVManager.free))
        with pytest.raises(KeyboardInterrupt):
            llm.generate(PROMPTS, MIXED, on_delta=on_delta)
    check_whole(llm, expected)
    check_free(llm)


def test_what_a_callback_raises_leaves_the_prefix_cache(llm: LLM) -> None:
    def on_delta(_: object) -> None:
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        llm.generate({"prompt_token_ids": list(range(60))}, GREEDY, on_delta=on_delta)
    check_free(llm)
    assert llm._engine.gauges().kv_blocks_cached == 3


def test_the_runner_forgets_what_was_interrupted(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in (1, 2, 4):
        with monkeypatch.context() as patch:
            patch.setattr(Engine, "_collect", raising_at(number, Engine._collect))
            with pytest.raises(KeyboardInterrupt):
                answers(llm)
    llm.generate("a", replace(GREEDY, max_tokens=1))
    assert len(llm._engine._runner._cached) == 1


class Interrupter:
    """Raises KeyboardInterrupt at the line `number` that is run of modules with books; 0: counts them alone."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.num_lines = 0

    def __enter__(self) -> "Interrupter":
        self._before = sys.gettrace()
        sys.settrace(self._enter)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _enter(self, frame: FrameType, event: str, arg: object) -> Any:
        return self._line if frame.f_globals.get("__name__", "").startswith(WHERE) else None

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            self.num_lines += 1
            if self.num_lines == self.left:
                raise KeyboardInterrupt
        return self._line


def test_no_line_is_a_bad_one_to_interrupt(llm: LLM) -> None:
    expected = answers(llm)
    with Interrupter(0) as counted:
        answers(llm)
    draw = random.Random(5)
    for number in [draw.randrange(1, counted.num_lines) for _ in range(40)]:
        with pytest.raises(KeyboardInterrupt), Interrupter(number):
            answers(llm)
        check_free(llm)
    check_whole(llm, expected)
