"""Deltas that wait for later ones, where their reader is patient."""
import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.core.config import EngineConfig
from penstock.core.drafting import Drafting
from penstock.core.errors import RequestError
from penstock.core.types import SamplingParams
from penstock.serve.engine.build import build
from penstock.serve.engine.loop import Loop
from penstock.serve.engine.mailbox import Item, Mailbox, joined
from penstock.serve.engine.requests import Delta, Request, Usage
from tests.tiny import write_model


def said(*places: tuple[int, str, tuple[int, ...]], **last: object) -> list[Delta]:
    found = [Delta(index, text, tokens) for index, text, tokens in places]
    return [*found[:-1], replace(found[-1], **last)]


def mailbox(patience_s: float) -> Mailbox:
    loop = asyncio.new_event_loop()
    loop.close()
    return Mailbox(loop, asyncio.Queue(), patience_s=patience_s)


def test_each_choice_says_in_one_delta_what_it_said_in_several() -> None:
    usage, drafting = Usage(3, 5), Drafting(1, 2, (1,), (1,))
    first = replace(Delta(0, "a", (1,), drafted=()), prompt_logprobs=(None,), queued_s=0.5)
    rest = said((1, "x", (7,)), (0, "b", (2, 3)), (0, "", (4,)), finish_reason="stop", stop_reason="z", done=True, usage=usage,
                drafting=drafting)
    deltas = [first, rest[0], replace(rest[1], drafted=(1,)), replace(rest[2], drafted=(0,))]
    assert joined(deltas) == [
        Delta(1, "x", (7,)),
        Delta(0, "ab", (1, 2, 3, 4), (), (None,), "stop", "z", done=True, usage=usage, drafted=(2, 3), drafting=drafting, queued_s=0.5)]


def test_a_patient_reader_gets_the_first_delta_at_once_and_later_ones_together() -> None:
    box, deltas = mailbox(1.0), said(*[(0, c, (i,)) for i, c in enumerate("abcdef")])
    found = [list(box.ready(delta, now_s)) for delta, now_s in zip(deltas, (5.0, 5.5, 5.9, 6.1, 6.2, 7.2), strict=True)]
    assert found == [[deltas[0]], [], [], [Delta(0, "bcd", (1, 2, 3))], [], [Delta(0, "ef", (4, 5))]]


def test_the_first_of_each_choice_is_not_held() -> None:
    """Else what it says first would have no time that it took."""
    box = mailbox(9.0)
    found = [list(box.ready(delta, 5.0)) for delta in said((0, "a", (1,)), (0, "b", (2,)), (1, "x", (7,)), (2, "y", (8,)), (1, "z", (9,)))]
    assert found == [[Delta(0, "a", (1,))], [], [Delta(0, "b", (2,)), Delta(1, "x", (7,))], [Delta(2, "y", (8,))], []]


@pytest.mark.parametrize("last", [Delta(0, "c", (3,), finish_reason="length"), Delta(0, done=True)])
def test_nothing_waits_once_an_answer_has_ended(last: Delta) -> None:
    box = mailbox(9.0)
    box.ready(Delta(0, "a", (1,)), 0.0)
    assert not box.ready(Delta(0, "b", (2,)), 0.1)
    (found,) = box.ready(last, 0.2)
    assert isinstance(found, Delta) and found.token_ids == (2, *last.token_ids) and (found.finish_reason, found.done) == (
        last.finish_reason, last.done)


def test_what_was_said_before_an_error_comes_before_it() -> None:
    box, error = mailbox(9.0), RequestError("no")
    for text in "abc":
        box.ready(Delta(0, text), 0.0)
    found: list[Item] = list(box.ready(error, 0.1))
    assert found == [Delta(0, "bc"), error]


def test_others_do_not_wait() -> None:
    box = mailbox(0.0)
    assert [list(box.ready(delta, 0.0)) for delta in said((0, "a", ()), (0, "b", ()))] == [[Delta(0, "a")], [Delta(0, "b")]]


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loop]:
    folder: Path = write_model(tmp_path_factory.mktemp("model"))
    made = Loop(build(EngineConfig(model=str(folder), max_num_seqs=8)).engine)
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("params", [
    SamplingParams(max_tokens=40, ignore_eos=True, seed=3, n=3, logprobs=2), SamplingParams(max_tokens=30, seed=1, prompt_logprobs=1),
    SamplingParams(max_tokens=20, temperature=0, beam_width=2, n=2)])
def test_patience_changes_nothing_of_an_answer(loop: Loop, params: SamplingParams) -> None:
    async def answer(request: Request) -> list[Delta]:
        return [delta async for delta in loop.submit(request)]

    once = Request("once", tuple(range(10, 30)), params)
    each = asyncio.run(answer(once))
    together = asyncio.run(answer(replace(once, request_id="together", salt="other", patience_s=60.0)))
    assert len(together) <= 4 * params.n and (len(each) > 10 * params.n or params.beam_width)
    by_choice = [[sorted(joined(found), key=lambda delta: delta.index)] for found in (each, together)]
    assert by_choice[0] == by_choice[1]
