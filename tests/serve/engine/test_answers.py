"""What a request comes to: n, best_of, beams, stops, embeddings, aborts."""
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import LLM, SamplingParams
from penstock.compute.decoding.search.beam import BeamSearch, Hypothesis
from penstock.core.errors import RequestError, UsageError
from penstock.serve.engine.choice import Choice
from penstock.serve.engine.requests import Request
from tests.tiny import write_model


@pytest.fixture(scope="module")
def llm(tmp_path_factory: pytest.TempPathFactory) -> LLM:
    return LLM(str(write_model(tmp_path_factory.mktemp("model"))))


def free(llm: LLM) -> None:
    gauges = llm._engine.gauges()
    assert gauges.num_running == gauges.num_waiting == gauges.kv_blocks_used == 0
    llm._engine.check_integrity()


def test_n_answers_share_the_prompt_and_the_first_is_that_of_one(llm: LLM) -> None:
    params = SamplingParams(n=4, temperature=1.0, seed=5, max_tokens=12)
    output = llm.generate("tell me of the fox", params)[0]
    assert [each.index for each in output.outputs] == [0, 1, 2, 3]
    assert len({each.text for each in output.outputs}) == 4
    one = llm.generate("tell me of the fox", SamplingParams(temperature=1.0, seed=5, max_tokens=12))[0]
    assert one.outputs[0].token_ids == output.outputs[0].token_ids
    free(llm)


def test_answers_of_several_requests_on_the_servers_seed_are_all_drawn_differently(tmp_path: Path) -> None:
    seeded = LLM(str(write_model(tmp_path)), seed=0)
    params = SamplingParams(n=4, temperature=1.0, max_tokens=24, ignore_eos=True)
    found = [each.token_ids for output in seeded.generate(["the fox"] * 4, params) for each in output.outputs]
    assert len(set(map(tuple, found))) == 16
    again = LLM(str(tmp_path), seed=0)
    assert [each.token_ids for output in again.generate(["the fox"] * 4, params) for each in output.outputs] == found


def test_n_answers_of_one_token(llm: LLM) -> None:
    output = llm.generate("abc", SamplingParams(n=3, temperature=1.0, seed=1, max_tokens=1))[0]
    assert [len(each.token_ids) for each in output.outputs] == [1, 1, 1]
    free(llm)


def test_best_of_returns_the_likeliest(llm: LLM) -> None:
    params = SamplingParams(n=5, temperature=1.0, seed=9, max_tokens=6, logprobs=0, ignore_eos=True)
    all_of_them = llm.generate("abc", params)[0].outputs
    best = llm.generate("abc", replace(params, n=2, best_of=5))[0].outputs
    mean = sorted(sum(row[token].logprob for token, row in zip(each.token_ids, each.logprobs, strict=True)) / 6 for each in all_of_them)
    got = [each.cumulative_logprob / 6 for each in best]
    assert got == pytest.approx(mean[:-3:-1])
    free(llm)


def test_beams_are_the_likeliest_of_all_continuations(llm: LLM) -> None:
    """A wide beam finds the likeliest pair of tokens."""
    wide = llm.generate("xy", SamplingParams(beam_width=128, n=1, temperature=0, max_tokens=2, ignore_eos=True))[0].outputs[0]
    rows = llm.generate("xy", SamplingParams(temperature=0, max_tokens=1, logprobs=20, ignore_eos=True))[0]
    firsts = rows.outputs[0].logprobs[0]
    ids = llm.get_tokenizer().encode("xy")
    best, pair = -math.inf, None
    for first, entry in firsts.items():
        params = SamplingParams(temperature=0, max_tokens=1, logprobs=1, ignore_eos=True)
        then = llm.generate({"prompt_token_ids": [*ids, first]}, params)[0]
        token, row = then.outputs[0].token_ids[0], then.outputs[0].logprobs[0]
        if entry.logprob + row[token].logprob > best:
            best, pair = entry.logprob + row[token].logprob, [first, token]
    assert wide.token_ids == pair
    free(llm)


def test_beam_search_returns_n_distinct_answers_in_falling_order(llm: LLM) -> None:
    params = SamplingParams(beam_width=4, n=3, temperature=0, max_tokens=8, logprobs=2, ignore_eos=True)
    outputs = llm.generate("the fox", params)[0].outputs
    for each in outputs:
        for token, row in zip(each.token_ids, each.logprobs, strict=True):
            assert 2 <= len(row) <= 3 and max(row.values(), key=lambda said: said.logprob).rank == 1 and token in row
    scores = [each.cumulative_logprob for each in outputs]
    assert scores == sorted(scores, reverse=True) and len({tuple(each.token_ids) for each in outputs}) == 3
    free(llm)


@pytest.mark.parametrize("params", [SamplingParams(max_tokens=4, ignore_eos=True),
                                    SamplingParams(beam_width=3, temperature=0, max_tokens=4, ignore_eos=True)])
def test_a_first_token_has_its_time_from_the_step_that_chose_it(llm: LLM, params: SamplingParams) -> None:
    """A search tells of it, as of all others, at the end."""
    engine, begun_s, ended_s, usage, queued_s = llm._engine, llm._engine.clock.now(), [], None, []
    engine.add(Request("r", tuple(llm.get_tokenizer().encode("abc")), params, arrival_s=begun_s))
    while usage is None:
        deltas = engine.step() or []
        ended_s.append(engine.clock.now() - begun_s)
        usage = next((delta.usage for _, delta in deltas if delta.usage is not None), None)
        queued_s += [delta.queued_s for _, delta in deltas]
    assert usage.queued_s is not None and usage.prefilled_s is not None
    assert len(ended_s) == 4 and 0 <= usage.queued_s <= usage.prefilled_s <= ended_s[0]
    assert queued_s == ([None] if params.beam_width else [usage.queued_s, None, None, None])
    free(llm)


def test_beam_search_survives_preemption(tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    params = SamplingParams(beam_width=4, n=2, temperature=0, max_tokens=20, ignore_eos=True)
    prompts = ["the fox went over the river", "an old man", "far away by the sea they lived and"]
    roomy = [[each.token_ids for each in output.outputs] for output in LLM(str(folder)).generate(prompts, params)]
    llm = LLM(str(folder), kv_tokens=120, block_size=4, max_num_batched_tokens=13)
    assert [[each.token_ids for each in output.outputs] for output in llm.generate(prompts, params)] == roomy
    assert llm._engine._scheduler.counters.preemptions > 0
    free(llm)


def test_stop_string_cuts_text_and_frees_at_once(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    whole = llm.generate("the sea", params)[0].outputs[0]
    stop = whole.text[5:8]
    cut = llm.generate("the sea", replace(params, stop=[stop]))[0].outputs[0]
    assert cut.text == whole.text[: whole.text.index(stop)] and cut.finish_reason == "stop" and cut.stop_reason == stop
    assert len(cut.token_ids) < len(whole.token_ids)
    kept = llm.generate("the sea", replace(params, stop=[stop], include_stop_str_in_output=True))[0].outputs[0]
    assert kept.text == cut.text + stop
    free(llm)


def test_stop_token_is_not_shown(llm: LLM) -> None:
    whole = llm.generate("the sea", SamplingParams(temperature=0, max_tokens=6, ignore_eos=True))[0].outputs[0]
    token = whole.token_ids[3]
    cut = llm.generate("the sea", SamplingParams(temperature=0, max_tokens=6, ignore_eos=True, stop_token_ids=[token]))[0].outputs[0]
    at = whole.token_ids.index(token)
    assert cut.token_ids == whole.token_ids[: at + 1] and cut.finish_reason == "stop" and cut.stop_reason == token
    assert whole.text.startswith(cut.text) and cut.text != whole.text


def test_a_stop_token_ends_a_beam_as_it_ends_any_answer(llm: LLM) -> None:
    params = SamplingParams(beam_width=1, temperature=0, max_tokens=6, ignore_eos=True)
    token = llm.generate("the sea", params)[0].outputs[0].token_ids[2]
    kept, cut = (llm.generate("the sea", replace(params, stop_token_ids=[token], include_stop_str_in_output=shown))[0].outputs[0]
                 for shown in (True, False))
    assert kept.token_ids == cut.token_ids and kept.token_ids[-1] == token
    assert (kept.finish_reason, kept.stop_reason) == (cut.finish_reason, cut.stop_reason) == ("stop", token)
    assert kept.text == llm.get_tokenizer().decode(kept.token_ids) and len(cut.text) < len(kept.text)


def test_embeddings_are_unit_vectors_of_the_prompt_alone(llm: LLM) -> None:
    one, other = llm.embed(["a cat", "a dog"])
    assert len(one.embedding) == 32 and math.isclose(sum(x * x for x in one.embedding), 1.0, rel_tol=1e-9)
    assert one.embedding != other.embedding and llm.embed("a cat")[0].embedding == one.embedding
    free(llm)


def test_prompt_logprobs_cover_the_prompt(llm: LLM) -> None:
    output = llm.generate("a cat sat", SamplingParams(temperature=0, max_tokens=2, prompt_logprobs=2))[0]
    assert output.prompt_logprobs[0] is None and len(output.prompt_logprobs) == len(output.prompt_token_ids)
    for token, row in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True):
        assert row[token].logprob <= 0 and len(row) >= 2


def test_what_cannot_be_served_is_refused_with_the_numbers(llm: LLM) -> None:
    with pytest.raises(RequestError, match=r"300 tokens.*256"):
        llm.generate({"prompt_token_ids": [5] * 300})
    with pytest.raises(RequestError, match=r"max_tokens is 250.*leaves 246"):
        llm.generate({"prompt_token_ids": [5] * 10}, SamplingParams(max_tokens=250))
    with pytest.raises(RequestError, match="300"):
        llm.generate({"prompt_token_ids": [300]})
    with pytest.raises(RequestError, match="empty"):
        llm.generate({"prompt_token_ids": []})
    with pytest.raises(UsageError, match="colour"):
        LLM("brook", colour="red")
    free(llm)


def test_max_tokens_none_fills_the_context(llm: LLM) -> None:
    output = llm.generate({"prompt_token_ids": [5] * 10}, SamplingParams(max_tokens=None, temperature=0, ignore_eos=True))[0]
    assert len(output.outputs[0].token_ids) == 246 and output.outputs[0].finish_reason == "length"


def test_interrupted_generate_frees_everything(llm: LLM) -> None:
    step, calls = llm._engine.step, []

    def broken() -> object:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return step()

    llm._engine.step = broken
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a", "b", "c"], SamplingParams(max_tokens=20, n=2))
    llm._engine.step = step
    free(llm)


def test_a_step_that_is_interrupted_ends_the_prefix_cache(llm: LLM) -> None:
    params = SamplingParams(temperature=0, max_tokens=20, ignore_eos=True)
    expected = llm.generate("a tale of old", params)[0].outputs[0].token_ids
    runner, calls = llm._engine._runner, []
    execute = runner.execute

    def interrupted(plan: object) -> object:
        result = execute(plan)
        calls.append(plan)
        if len(calls) == 10:
            raise KeyboardInterrupt
        return result

    runner.execute = interrupted
    assert llm._engine.gauges().kv_blocks_cached > 0
    with pytest.raises(KeyboardInterrupt):
        llm.generate("a tale of old", params)
    del runner.execute
    assert llm._engine.gauges().kv_blocks_cached == 0
    free(llm)
    assert llm.generate("a tale of old", params)[0].outputs[0].token_ids == expected


def test_a_batch_that_waits_for_company_is_not_polled(tmp_path: Path) -> None:
    llm = LLM(str(write_model(tmp_path)), batching="dynamic:size=8,window_ms=60")
    step, idle = llm._engine.step, []

    def counted() -> object:
        deltas = step()
        if deltas is None:
            idle.append(1)
        return deltas

    llm._engine.step = counted
    assert len(llm.generate("alone", SamplingParams(max_tokens=2, ignore_eos=True))[0].outputs[0].token_ids) == 2
    assert 1 <= len(idle) <= 5


def test_a_step_looks_only_at_those_in_it_and_at_each_a_few_times(tmp_path: Path) -> None:
    """Not at all that wait, nor at all that are in the step for each that ends with it."""
    class Unwalked(dict[str, Any]):
        def items(self) -> Any:
            raise AssertionError("all that wait were looked at")

        __iter__ = keys = values = items

    class Name(str):
        num_compared = 0
        __hash__ = str.__hash__

        def __eq__(self, other: object) -> bool:
            Name.num_compared += 1
            return str.__eq__(self, other)

    engine = LLM(write_model(tmp_path), max_num_seqs=64, kv_tokens=64 * 32)._engine
    engine._queued = Unwalked()
    for number in range(96):
        engine.add(Request(Name(number), (1, 2, number), SamplingParams(max_tokens=2, ignore_eos=True)))
    ended = []
    while engine.num_requests():
        ended += [request_id for request_id, delta in engine.step() or [] if delta.done]
    assert len(set(ended)) == 96 and not len(engine._queued)
    assert Name.num_compared < 10 * 96


def test_when_one_request_cannot_be_added_none_stays(llm: LLM) -> None:
    add, added = llm._engine.add, []

    def fail_third(request: object) -> None:
        added.append(request)
        if len(added) == 3:
            raise MemoryError
        add(request)

    llm._engine.add = fail_third
    with pytest.raises(MemoryError):
        llm.generate(["a", "b", "c"], SamplingParams(max_tokens=4))
    llm._engine.add = add
    free(llm)
    assert llm._engine.num_requests() == 0


def test_whoever_asked_is_told_why_an_answer_could_not_be_made(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> str:
        raise LookupError("no such merge")

    with monkeypatch.context() as patched, pytest.raises(RequestError, match="the engine failed at this request") as caught:
        patched.setattr(Choice, "push", fail)
        llm.generate(["a", "b"], SamplingParams(max_tokens=4))
    assert isinstance(caught.value.__cause__, LookupError)
    free(llm)
    assert len(llm.generate("a", SamplingParams(max_tokens=4, ignore_eos=True))[0].outputs[0].token_ids) == 4


def test_a_search_that_finds_too_few_answers_ends_all_choices(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    class Poor(BeamSearch):
        def best(self, num: int) -> list[Hypothesis]:
            return super().best(1)

    monkeypatch.setattr(llm._engine._desk, "search", Poor)
    outputs = llm.generate("abc", SamplingParams(beam_width=3, n=3, temperature=0, max_tokens=4, ignore_eos=True))[0].outputs
    assert [len(each.token_ids) for each in outputs] == [4, 0, 0] and [each.finish_reason for each in outputs] == ["length", "stop", "stop"]
    free(llm)
