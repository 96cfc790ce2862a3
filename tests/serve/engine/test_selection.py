"""Best of several answers and self-consistency, offline: who comes back, with what, and what it cost."""
import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from penstock import LLM, SamplingParams
from penstock.core.errors import RequestError
from penstock.core.types import Output
from penstock.serve.engine.requests import Delta, Request
from penstock.serve.engine.selecting import AT_ONCE, Selecting, on_thread
from penstock.serve.llm import SCORERS_AT_ONCE, best_of_all
from tests.serve.scorers.rewards import Rewards, rewards
from tests.tiny import write_model

PROMPT = "tell me of the fox"
ALL = SamplingParams(n=6, temperature=1.0, seed=9, max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(str(write_model(tmp_path_factory.mktemp("model"))))


@pytest.fixture(scope="module")
def everyone(llm: LLM) -> Output:
    """All answers, as they are without a choice."""
    return llm.generate(PROMPT, replace(ALL, logprobs=0))[0]


@pytest.fixture
def server() -> Iterator[Rewards]:
    with rewards() as told:
        yield told


def chosen(llm: LLM, **changes: Any) -> Output:
    (output,) = llm.generate(PROMPT, replace(ALL, **changes))
    gauges = llm._engine.gauges()
    assert gauges.num_running == gauges.num_waiting == gauges.kv_blocks_used == 0
    return output


def test_without_a_scorer_the_likeliest_come_back(llm: LLM, everyone: Output) -> None:
    best = sorted(everyone.outputs, key=lambda each: -(each.cumulative_logprob or 0) / 8)
    output = chosen(llm, n=2, best_of=6)
    assert [(each.index, each.token_ids) for each in output.outputs] == [(0, best[0].token_ids), (1, best[1].token_ids)]
    assert all(each.logprobs is None and each.score is None and each.finish_reason == "length" for each in output.outputs)
    assert output.finished and output.finished_s is not None


def test_answers_that_were_chosen_keep_their_logprobs(llm: LLM, everyone: Output) -> None:
    output = chosen(llm, n=1, best_of=6, logprobs=2, prompt_logprobs=1)
    (same,) = [each for each in everyone.outputs if each.token_ids == output.outputs[0].token_ids]
    assert output.outputs[0].cumulative_logprob == same.cumulative_logprob
    assert all(len(row) in (2, 3) for row in output.outputs[0].logprobs or [])
    assert output.prompt_logprobs is not None and len(output.prompt_logprobs) == len(output.prompt_token_ids)


def test_a_reward_function_chooses(llm: LLM, everyone: Output, server: Rewards) -> None:
    server.reply = lambda body: {"scores": [text.count("a") + 10 * text.count("e") for text in body["candidates"]]}
    output = chosen(llm, n=6, scorer={"type": "url", "url": server.url})
    ((_, body),) = server.asked
    assert body == {"prompt": PROMPT, "candidates": [each.text for each in everyone.outputs]}
    told = [each.score.value for each in output.outputs if each.score is not None]
    assert len(told) == 6 and told == sorted(told, reverse=True)
    assert told[0] == max(each.text.count("a") + 10 * each.text.count("e") for each in everyone.outputs)
    assert chosen(llm, n=1, best_of=6, scorer={"type": "url", "url": server.url}).outputs[0].text == output.outputs[0].text


def test_a_prompt_of_token_ids_is_told_as_text(llm: LLM, server: Rewards) -> None:
    llm.generate({"prompt_token_ids": [97, 98]}, replace(ALL, best_of=2, n=1, scorer={"type": "url", "url": server.url}))
    assert server.asked[0][1]["prompt"] == llm.get_tokenizer().decode([97, 98])


def test_several_prompts_are_scored_each_by_itself(llm: LLM, server: Rewards) -> None:
    params = replace(ALL, n=1, best_of=3, scorer={"type": "url", "url": server.url})
    plain = replace(ALL, n=1)
    outputs = llm.generate(["one", "two", "three"], [params, plain, params])
    assert sorted(body["prompt"] for _, body in server.asked) == ["one", "three"]
    assert [output.outputs[0].score is None for output in outputs] == [False, True, False]
    for output, (_, body) in zip([outputs[0], outputs[2]], sorted(server.asked, key=lambda each: each[1]["prompt"]), strict=True):
        assert output.outputs[0].text == max(body["candidates"], key=len)


def test_self_consistency_is_a_vote(llm: LLM, everyone: Output) -> None:
    output = chosen(llm, n=1, self_consistency={"n": 6, "extract": "[a-z]"})
    (answer,) = output.outputs
    extracted = [next((char for char in reversed(each.text) if char in "abcdefghijklmnopqrstuvwxyz"), None) for each in everyone.outputs]
    votes = Counter(each for each in extracted if each is not None)
    assert answer.score is not None and answer.score.details["votes"] == votes
    assert answer.score.value == max(votes.values()) == votes[answer.score.details["extracted"]]
    assert answer.text in [each.text for each in everyone.outputs]


def test_chat_takes_them_too(llm: LLM) -> None:
    params = replace(ALL, n=1, self_consistency={"n": 3})
    (output,) = llm.chat([{"role": "user", "content": "hi"}], params)
    assert output.outputs[0].score is not None and output.outputs[0].score.value >= 1


def test_streamed_text_is_that_of_the_answer_that_was_chosen(llm: LLM) -> None:
    said: list[str] = []
    output, timings = llm.complete(PROMPT, replace(ALL, n=1, best_of=4), on_text=said.append)
    assert "".join(said) == output.outputs[0].text and timings.ttft_s > 0


def test_a_scorer_that_fails_frees_everything(llm: LLM, server: Rewards) -> None:
    server.status = 503
    with pytest.raises(RequestError, match="503"):
        llm.generate([PROMPT, "other"], replace(ALL, n=1, best_of=2, scorer={"type": "url", "url": server.url}))
    assert llm._engine.num_requests() == 0 and llm._engine.gauges().kv_blocks_used == 0
    assert len(llm.generate(PROMPT, ALL)[0].outputs) == 6


class Choosing:
    """A selection that does as it is told."""

    def __init__(self, chosen: Callable[[], list[Delta]]) -> None:
        self.chosen = chosen


def test_when_a_scorer_fails_nobody_waits_for_the_others() -> None:
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()

    def fail() -> list[Delta]:
        assert begun.wait(20)
        raise RequestError("the scorer fails")

    def hang() -> list[Delta]:
        begun.set()
        gate.wait(5)
        ended.set()
        return [Delta(0)]

    with pytest.raises(RequestError, match="the scorer fails"):
        list(best_of_all({"a": Choosing(fail), "b": Choosing(hang)}))  # type: ignore[dict-item]
    assert not ended.is_set()
    gate.set()


def test_as_many_scorers_are_waited_for_together_as_may_be_and_told_in_order() -> None:
    running, most, all_there = [0], [0], threading.Barrier(SCORERS_AT_ONCE)
    lock = threading.Lock()

    def chosen(number: int) -> list[Delta]:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        all_there.wait(20)
        with lock:
            running[0] -= 1
        return [Delta(number)]

    many = 3 * SCORERS_AT_ONCE
    asked = {str(number): Choosing(partial(chosen, number)) for number in range(many)}
    assert list(best_of_all(asked)) == [(str(number), Delta(number)) for number in range(many)]  # type: ignore[arg-type]
    assert most == [SCORERS_AT_ONCE]


@pytest.mark.parametrize(("changes", "param"), [
    ({"scorer": {}}, "scorer.type"), ({"scorer": {"type": "judge"}}, "scorer.type"), ({"scorer": {"type": ["votes"]}}, "scorer.type"),
    ({"scorer": {"type": "logprob", "temperature": 1}}, "scorer.temperature"), ({"scorer": {"type": "url"}}, "scorer.url"),
    ({"scorer": {"type": "url", "url": "nowhere"}}, "scorer.url"),
    ({"self_consistency": {"n": 3, "extract": "("}, "n": 1}, "self_consistency.extract"),
    ({"self_consistency": {"n": 3, "regex": "x"}, "n": 1}, "self_consistency.regex"),
    ({"self_consistency": {"n": 3, "type": "logprob"}, "n": 1}, "self_consistency.type"),
])
def test_what_cannot_be_had_is_refused_before_anything_is_generated(llm: LLM, changes: dict[str, Any], param: str) -> None:
    with llm._recorder.recording() as records, pytest.raises(RequestError) as raised:
        llm.generate(PROMPT, replace(ALL, **changes))
    assert raised.value.param == param and raised.value.status == 400 and not records


def test_the_engine_itself_chooses_nothing(llm: LLM) -> None:
    with pytest.raises(RequestError, match="the best are chosen above it"):
        llm._engine.add(Request("x", (97,), SamplingParams(best_of=2)))
    assert llm._engine.num_requests() == 0


def test_drafts_of_answers_that_were_chosen_are_told(tmp_path_factory: pytest.TempPathFactory, everyone: Output) -> None:
    folder = write_model(tmp_path_factory.mktemp("model"))
    llm = LLM(folder, propose=f"draft_model:model={folder},k=2", draft_control="always")
    output = chosen(llm, n=2, best_of=6)
    likeliest = sorted(everyone.outputs, key=lambda each: -(each.cumulative_logprob or 0))
    assert [each.token_ids for each in output.outputs] == [each.token_ids for each in likeliest[:2]]
    assert all(each.drafting.passes > 0 for each in output.outputs)
    assert output.drafting.passes > sum(each.drafting.passes for each in output.outputs)


def test_a_thread_that_cannot_be_started_costs_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        model_name, max_model_len = "m", 8

        async def submit(self, _: object) -> AsyncIterator[Delta]:
            for delta in ():
                yield delta

    class Slow:
        request, waits_for = None, "others"

        def chosen(self) -> list[Delta]:
            return [Delta(0, done=True)]

    class Always:
        def of(self, _: object) -> Slow:
            return Slow()

    async def main() -> None:
        selecting = Selecting(Engine(), Always())  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", raising)
            for _ in range(AT_ONCE + 1):
                with pytest.raises(RuntimeError, match="can't start new thread"):
                    await asyncio.wait_for(anext(selecting.submit(None)), 5)  # type: ignore[arg-type]
        assert (await asyncio.wait_for(anext(selecting.submit(None)), 5)).done  # type: ignore[arg-type]

    def raising(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    asyncio.run(main())


def test_a_panic_while_answers_are_chosen_from_leaves_nobody_waiting() -> None:
    class Panic(BaseException):
        """As native code may raise it."""

    def panic() -> None:
        raise Panic("index out of bounds")

    with pytest.raises(RuntimeError, match="Panic: index out of bounds"):
        on_thread(panic).result(20)
