"""Answers that follow a grammar: judged by json and re, the same bits alone and in any company, drafted or not."""
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock import LLM, SamplingParams, StructuredOutputsParams
from penstock.compute.decoding import propose
from penstock.core.errors import RequestError
from penstock.core.types import Output
from penstock.serve.engine.requests import Delta
from tests.serve.engine.crowds import crowded
from tests.tiny import write_heads, write_model

TIGHT: dict[str, Any] = {"kv_tokens": 256, "block_size": 4, "max_num_batched_tokens": 19}
ALWAYS = {"draft_control": "always"}
ASKED = {"draft_model": ":model={other}"}  # what a proposer must be told
WAYS: dict[str, dict[str, Any]] = {
    "crowded": {},
    "preempted": {"kv_tokens": 256, "block_size": 4},
    "preempted and chunked": TIGHT,
    "small chunks": {"max_num_batched_tokens": 7},
    "no prefix cache": {"prefix_cache": False},
    "reference": {"backend": "reference"},
    **{f"drafted by {name}": {"propose": name + ASKED.get(name, ""), **ALWAYS} for name in propose.TABLE},
    **{f"drafted by {name}, preempted and chunked": {"propose": name + ASKED.get(name, ""), **ALWAYS, **TIGHT} for name in propose.TABLE},
    "drafted from little, preempted and chunked": {"propose": "ngram:least=1,n=3", **ALWAYS, **TIGHT},
    "drafted by the model itself": {"propose": "draft_model:model={folder},k=3", **ALWAYS, **TIGHT},
    "drafted freely": {"propose": "suffix:likely=0", **ALWAYS},
    "drafted as far as it pays": {"propose": "auto"},
}
RECORD = {
    "type": "object", "properties": {
        "kind": {"enum": ["a_rather_long_word", "another_long_word"]}, "size": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 1}, "uniqueItems": True, "minItems": 2, "maxItems": 4}},
    "required": ["kind", "size", "tags"], "additionalProperties": False}
STRUCTURES = [
    StructuredOutputsParams(json=RECORD), StructuredOutputsParams(regex=r"(fox|king) [0-9]{2}, the (end|beginning)"),
    StructuredOutputsParams(choice=["yes, it is so", "no", "yes, it may be"]), StructuredOutputsParams(json_object=True),
    StructuredOutputsParams(grammar='start: ("<item>" WORD "</item>")+\nWORD: /[a-c]{1,3}/'), None,
    StructuredOutputsParams(
        grammar='root ::= "the name of the item is " [a-c] " and its colour " ("red" | "green") (", as it was before")?'),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_heads(write_model(tmp_path_factory.mktemp("model")))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of the same tokens, which seldom agrees."""
    return write_model(tmp_path_factory.mktemp("other"), seed=1)


def requests() -> list[tuple[str, SamplingParams]]:
    rng = random.Random(3)
    made = []
    for number in range(21):
        prompt = "the old fox went over a river to see his friend " * (number % 3) + "".join(rng.choices("abcdef ", k=rng.randint(1, 40)))
        made.append((prompt, SamplingParams(
            max_tokens=rng.randint(20, 90), temperature=0.0 if number % 4 == 0 else 1.0, top_p=0.9 if number % 5 == 0 else 1.0, seed=number,
            repetition_penalty=1.3 if number % 7 == 0 else 1.0, logit_bias={97: 5.0} if number % 6 == 1 else None, logprobs=2,
            structured_outputs=STRUCTURES[number % len(STRUCTURES)])))
    return made


def said(output: Output) -> Any:
    answer = output.outputs[0]
    return answer.text, answer.finish_reason, answer.stop_reason, answer.token_ids, answer.logprobs


@pytest.fixture(scope="module")
def alone(folder: Path) -> list[Any]:
    llm = LLM(str(folder), prefix_cache=False)
    return [said(llm.generate(prompt, params)[0]) for prompt, params in requests()]


def test_what_ended_is_what_was_wanted_and_what_was_cut_off_begins_so(alone: list[Any]) -> None:
    ended = 0
    for (_, params), (text, reason, *_) in zip(requests(), alone, strict=True):
        wanted = params.structured_outputs
        if wanted is None:
            continue
        if reason == "length":
            assert wanted.json_object is None or text.startswith("{")
            continue
        ended += 1
        assert reason == "stop"
        if wanted.json is not None:
            value = json.loads(text)
            assert list(value) == ["kind", "size", "tags"] and value["kind"] in RECORD["properties"]["kind"]["enum"]
            assert len(set(value["tags"])) == len(value["tags"]) > 1
        elif wanted.regex is not None:
            assert re.fullmatch(wanted.regex, text)
        elif wanted.choice is not None:
            assert text in wanted.choice
        elif wanted.json_object is not None:
            assert isinstance(json.loads(text), dict)
        else:
            item = r"the name of the item is [a-c] and its colour (red|green)(, as it was before)?"
            assert re.fullmatch(rf"(<item>[a-c]{{1,3}}</item>)+|{item}", text)
    assert ended >= 8


@pytest.mark.parametrize("options", WAYS.values(), ids=WAYS.keys())
def test_same_bits_as_alone(folder: Path, other: Path, alone: list[Any], options: dict[str, Any]) -> None:
    if "propose" in options:
        options = {**options, "propose": options["propose"].format(folder=folder, other=other)}
    llm = LLM(str(folder), **options)
    for i, output in crowded(llm, requests()):
        if options.get("backend") == "reference":
            assert said(output)[0] == alone[i][0], f"request {i}"
        else:
            assert said(output) == alone[i], f"request {i}"
    if "kv_tokens" in options:
        assert llm._engine._scheduler.counters.preemptions > 0


def test_what_must_come_skips_the_model_without_any_proposer(folder: Path) -> None:
    wanted = StructuredOutputsParams(regex="<begin>[ab]</and then the end>")
    params = SamplingParams(max_tokens=80, temperature=0, structured_outputs=wanted)
    answer = LLM(str(folder)).generate("x", params)[0].outputs[0]
    assert re.fullmatch("<begin>[ab]</and then the end>", answer.text)
    assert answer.drafting.num_accepted > 20 and answer.drafting.passes <= 3


def test_what_must_come_in_a_grammar_of_a_users_skips_the_model_and_changes_nothing(folder: Path) -> None:
    grammar = 'start: "the beginning of it: " /[ab]/ ", and this is its end" /a*/ "a"'
    llm = LLM(str(folder))
    for temperature, ends in ((0.0, {}), (1.0, {}), (1.0, {"ignore_eos": True}), (1.0, {"stop_token_ids": [ord("d")]})):
        params = SamplingParams(max_tokens=60, temperature=temperature, seed=4, logprobs=1, **ends)
        forced, plain = [llm.generate("x", replace(params, structured_outputs=StructuredOutputsParams(grammar=option + grammar)))[0]
                         for option in ("", '%llguidance {"no_forcing": true}\n')]
        assert said(forced) == said(plain) and plain.outputs[0].drafting.passes == 0
        drafting, num_tokens = forced.outputs[0].drafting, len(forced.outputs[0].token_ids)
        assert num_tokens - drafting.num_accepted < num_tokens / (2 if ends else 3)


def test_what_must_come_in_a_grammar_of_a_users_is_drafted_only_where_it_is_alone_in_its_steps(folder: Path) -> None:
    wanted = StructuredOutputsParams(grammar='start: "the beginning of it: " /[ab]/ ", and this is its end"')
    params = SamplingParams(max_tokens=60, temperature=0, structured_outputs=wanted)
    llm = LLM(str(folder))
    passes = [[output.outputs[0].drafting.passes for output in llm.generate(prompts, params)] for prompts in (["x"], ["x", "y"], ["z"])]
    assert passes[0][0] > 0 and passes[1] == [0, 0] and passes[2] == passes[0]


def test_every_choice_of_a_request_follows_the_grammar_by_itself(folder: Path) -> None:
    params = SamplingParams(n=4, max_tokens=40, seed=1, structured_outputs=StructuredOutputsParams(regex="[a-z]{6}"))
    answers = LLM(str(folder)).generate("x", params)[0].outputs
    texts = {answer.text for answer in answers}
    assert len(texts) > 1 and all(re.fullmatch("[a-z]{6}", text) for text in texts)
    assert all(answer.finish_reason == "stop" for answer in answers)


def test_an_answer_that_is_complete_with_its_last_token_has_stopped(folder: Path) -> None:
    wanted = StructuredOutputsParams(regex="abcdef")
    llm = LLM(str(folder))
    for most, reason, text in ((6, "stop", "abcdef"), (5, "length", "abcde"), (60, "stop", "abcdef")):
        answer = llm.generate("x", SamplingParams(max_tokens=most, structured_outputs=wanted))[0].outputs[0]
        assert (answer.finish_reason, answer.text, answer.stop_reason) == (reason, text, None)


def test_what_is_longer_than_the_context_holds_in_the_longest_tokens_is_refused(folder: Path) -> None:
    llm = LLM(str(folder), max_model_len=40)
    tokenizer, vocab_size = llm.get_tokenizer(), llm._built.spec.vocab_size
    texts = (tokenizer.token_bytes(token) for token in range(vocab_size) if token not in tokenizer.special_ids)
    room = 40 * max(map(len, texts))
    for most in (room - 2, room - 1):
        wanted = StructuredOutputsParams(json={"type": "string", "minLength": most})
        if most == room - 2:
            assert llm._built.grammars.compile(wanted)
        else:
            with pytest.raises(RequestError, match=f"has at most {room:,}; minLength could be at most {room - 2:,} "):
                llm.generate("x", SamplingParams(structured_outputs=wanted))


def test_stop_strings_and_stop_tokens_end_an_answer_before_its_grammar_does(folder: Path) -> None:
    llm, wanted = LLM(str(folder)), StructuredOutputsParams(regex="abc, def, ghi")
    answer = llm.generate("x", SamplingParams(max_tokens=40, stop=[", g"], structured_outputs=wanted))[0].outputs[0]
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("abc, def", "stop", ", g")
    token = llm.get_tokenizer().encode("f", add_special_tokens=False)[-1]
    answer = llm.generate("x", SamplingParams(max_tokens=40, stop_token_ids=[token], structured_outputs=wanted))[0].outputs[0]
    assert (answer.text, answer.finish_reason, answer.stop_reason) == ("abc, de", "stop", token)


def test_log_probabilities_are_those_of_the_model_itself(folder: Path) -> None:
    llm = LLM(str(folder))
    params = SamplingParams(max_tokens=12, temperature=0, logprobs=1, structured_outputs=StructuredOutputsParams(regex="[0-9]{8}"))
    answer = llm.generate("the old fox", params)[0].outputs[0]
    ids = llm.get_tokenizer().encode("the old fox")
    again = llm.generate({"prompt_token_ids": [*ids, *answer.token_ids]}, SamplingParams(max_tokens=1, prompt_logprobs=1))[0]
    for at, (token, entries) in enumerate(zip(answer.token_ids, answer.logprobs or [], strict=True), len(ids)):
        wanted = (again.prompt_logprobs or [])[at]
        assert wanted is not None and entries[token].logprob == wanted[token].logprob
    assert any(max(entries.values(), key=lambda each: each.logprob) is not entries[token]
               for token, entries in zip(answer.token_ids, answer.logprobs or [], strict=True))


def test_no_bias_and_no_penalty_brings_back_what_is_forbidden(folder: Path) -> None:
    wanted = StructuredOutputsParams(choice=["b"])
    bias = {token: 100.0 for token in range(97, 123) if token != 98} | {98: -100.0}
    params = SamplingParams(max_tokens=4, logit_bias=bias, repetition_penalty=3.0, structured_outputs=wanted)
    assert LLM(str(folder)).generate("bbbb", params)[0].outputs[0].text == "b"


@pytest.mark.parametrize(("more", "param"), [
    ({"min_tokens": 2}, "min_tokens"), ({"beam_width": 2, "temperature": 0}, "beam_width"),
])
def test_what_cannot_go_with_a_grammar_is_refused_by_name(folder: Path, more: dict[str, Any], param: str) -> None:
    params = SamplingParams(structured_outputs=StructuredOutputsParams(json_object=True), **more)
    with pytest.raises(RequestError) as refusal:
        LLM(str(folder)).generate("x", params)
    assert refusal.value.param == param and "structured output" in str(refusal.value)


def test_a_bad_structure_is_refused_before_anything_is_generated(folder: Path) -> None:
    llm = LLM(str(folder))
    with pytest.raises(RequestError, match="items that differ"):
        bad = StructuredOutputsParams(json={"type": "array", "items": {"type": "integer"}, "uniqueItems": True})
        llm.generate(["x", "y"], [SamplingParams(), SamplingParams(structured_outputs=bad)])
    assert not llm._engine.num_requests()


# Wide objects, behind a choice that nothing but the model makes.
WIDE = StructuredOutputsParams(grammar='start: "0" | "y" %json ' + json.dumps(
    {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(3000)}}))


def favouring(llm: LLM, *letters: str) -> dict[int, float]:
    return {llm.get_tokenizer().encode(letter, add_special_tokens=False)[-1]: 100.0 for letter in letters}


def test_a_grammar_that_becomes_too_complex_ends_its_own_request_and_no_other(folder: Path) -> None:
    llm = LLM(str(folder))
    others = [(prompt, params) for prompt, params in requests() if params.structured_outputs is not None]
    before = [said(llm.generate(prompt, params)[0]) for prompt, params in others]
    given_up = SamplingParams(max_tokens=40, seed=1, logit_bias=favouring(llm, "y"), structured_outputs=WIDE)
    made = [llm._request(prompt, params) for prompt, params in [("x", given_up), *others]]
    for request in made:
        llm._engine.add(request)
    deltas: list[tuple[str, Delta]] = []
    while llm._engine.num_requests():
        deltas += llm._engine.step() or []
    first, *rest = [[delta for request_id, delta in deltas if request_id == request.request_id] for request in made]
    assert first[-1].finish_reason == "abort" and "".join([delta.text for delta in first]).startswith("y")
    for found, (text, reason, _, tokens, _) in zip(rest, before, strict=True):
        assert "".join([delta.text for delta in found]) == text and found[-1].finish_reason == reason
        assert [token for delta in found for token in delta.token_ids] == tokens
    again = SamplingParams(max_tokens=3, structured_outputs=StructuredOutputsParams(regex="ab"))
    assert llm.generate("x", again)[0].outputs[0].text == "ab"
    llm._engine.check_integrity()


def test_offline_such_an_answer_is_an_error_and_no_result(folder: Path) -> None:
    llm = LLM(str(folder))
    given_up = SamplingParams(max_tokens=40, logit_bias=favouring(llm, "y"), structured_outputs=WIDE)
    whole = SamplingParams(max_tokens=40, logit_bias=favouring(llm, "0"), structured_outputs=WIDE)
    for params in (given_up, replace(given_up, n=2), replace(given_up, n=1, best_of=2)):
        with pytest.raises(RequestError, match="could not be followed any further") as refusal:
            llm.generate("x", params)
        assert refusal.value.code == "grammar_too_complex" and not llm._engine.num_requests()
    assert llm.generate("x", whole)[0].outputs[0].text == "0"
    llm._engine.check_integrity()


def test_offline_such_an_answer_takes_no_other_with_it(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    llm = LLM(str(folder))
    params = [SamplingParams(max_tokens=40, logit_bias=favouring(llm, letter), structured_outputs=WIDE) for letter in "0y0"]
    found = llm.generate(["x"] * 3, params)
    assert [each.outputs[0].finish_reason for each in found] == ["stop", "abort", "stop"] and found[2].outputs[0].text == "0"
    assert '1 of 3 answers end with "abort": the answer\'s grammar could not be followed' in caplog.text


def test_such_an_answer_is_not_among_the_best_of_several(folder: Path) -> None:
    llm = LLM(str(folder))
    params = SamplingParams(max_tokens=40, seed=5, n=1, best_of=12, logit_bias=favouring(llm, "0", "y"), structured_outputs=WIDE)
    assert [each.text for each in llm.generate("x", params)[0].outputs] == ["0"]
    reasons = [each.finish_reason for each in llm.generate("x", replace(params, n=11))[0].outputs]
    assert set(reasons) == {"stop", "abort"} and reasons == sorted(reasons, reverse=True)
