import time
from typing import Any

import pytest

from tests.serve.api.fakes import Running, serve
from tests.serve.api.responses.asking import CALL, LOGPROBS, LOOK, PATH, ask, prompt_of, refused


def test_a_response_is_what_openai_says_it_is(server: Running) -> None:
    server.engine.script = "the old king"
    found = ask(server, instructions="be kind", temperature=0.5, top_p=0.9, metadata={"a": "b"}, user="me", max_output_tokens=50)
    (message,) = found["output"]
    assert found["id"].startswith("resp_") and message["id"].startswith("msg_") and abs(found["created_at"] - time.time()) < 60
    assert found["completed_at"] >= found["created_at"] and isinstance(found["created_at"], int)
    part = {"type": "output_text", "text": "the old king", "annotations": [], "logprobs": []}
    assert message == {"id": message["id"], "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    num_output, num_input = len(server.engine.tokenizer.encode("the old king", False)) + 1, len(server.engine.requests[0].token_ids)
    usage = found.pop("usage")
    assert (usage["input_tokens"], usage["output_tokens"], usage["total_tokens"]) == (num_input, num_output, num_input + num_output)
    assert usage["input_tokens_details"]["cached_tokens"] == usage["output_tokens_details"]["reasoning_tokens"] == 0
    assert {name: value for name, value in found.items() if name not in ("id", "created_at", "completed_at", "output")} == {
        "object": "response", "model": "tiny", "status": "completed", "error": None, "incomplete_details": None, "background": False,
        "instructions": "be kind", "max_output_tokens": 50, "max_tool_calls": None, "metadata": {"a": "b"}, "parallel_tool_calls": True,
        "previous_response_id": None, "prompt_cache_key": None, "reasoning": {"effort": None, "summary": None}, "safety_identifier": None,
        "service_tier": "default", "store": True, "temperature": 0.5, "text": {"format": {"type": "text"}, "verbosity": "medium"},
        "tool_choice": "auto", "tools": [], "top_logprobs": 0, "top_p": 0.9, "truncation": "disabled", "user": "me"}
    assert prompt_of(server) == "<system>be kind</system><user>tell me</user><assistant>"
    assert server.engine.requests[0].request_id == found["id"]


def test_an_answer_that_is_cut_off_is_incomplete(server: Running) -> None:
    found = ask(server, max_output_tokens=3)
    assert (found["status"], found["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert found["completed_at"] is None and found["output"][0]["status"] == "incomplete" and found["usage"]["output_tokens"] == 3


def test_an_answer_without_a_word_has_an_empty_message(server: Running) -> None:
    server.engine.script = ""
    assert ask(server)["output"][0]["content"][0]["text"] == ""


def test_calls_and_text_are_items_in_the_order_in_which_they_came(server: Running) -> None:
    server.engine.script = f"I look. {CALL}{CALL}"
    found = ask(server, tools=[LOOK], tool_choice="auto", max_output_tokens=300)
    assert [item["type"] for item in found["output"]] == ["message", "function_call", "function_call"]
    message, first, second = found["output"]
    assert message["content"][0]["text"] == "I look." and first["id"].startswith("fc_") and first["call_id"] != second["call_id"]
    assert (first["name"], first["arguments"], first["status"]) == ("look", '{"at": "the fox"}', "completed")
    assert found["tools"] == [LOOK] and '"function": {"name": "look"' in prompt_of(server)
    assert len({item["id"] for item in found["output"]}) == 3


@pytest.mark.parametrize("more", [{"stop": ["fox"]}, {"max_output_tokens": 60}])
def test_a_call_that_was_cut_off_is_incomplete(server: Running, more: dict[str, Any]) -> None:
    server.engine.script = '<tool_call>{"name": "look", "arguments": {"at": "' + "the fox" * 20
    found = ask(server, tools=[LOOK], tool_choice="required", **more)
    assert [item["status"] for item in found["output"]] == ["incomplete"] and found["output"][0]["type"] == "function_call"
    assert found["status"] == ("completed" if "stop" in more else "incomplete")


def test_a_demanded_call_that_did_not_begin_is_no_message(server: Running) -> None:
    server.engine.script = "<tool_call>" + " " * 200
    assert ask(server, tools=[LOOK], tool_choice="required", max_output_tokens=4)["output"] == []


@pytest.mark.parametrize(("choice", "holds"), [
    ("required", "start: calls"), ({"type": "function", "name": "look"}, "start: calls"),
    ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]}, "start: calls"),
    ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "look"}]}, "start: answer"),
])
def test_choices_of_tools_are_obeyed(server: Running, choice: Any, holds: str) -> None:
    found = ask(server, tools=[LOOK, {**LOOK, "name": "hear"}], tool_choice=choice)
    rules = server.engine.requests[-1].params.structured_outputs.grammar.text  # type: ignore[union-attr]
    assert rules.startswith(holds) and ("hear" in rules) is (choice == "required") and found["tool_choice"] == choice


def test_a_tools_settings_that_ask_for_nothing_are_let_by(server: Running) -> None:
    ask(server, tools=[{**LOOK, "strict": None, "defer_loading": False, "allowed_callers": ["direct"], "output_schema": None}])
    assert "defer_loading" not in prompt_of(server)


def test_none_leaves_tools_out_of_the_prompt_and_auto_needs_none(server: Running) -> None:
    ask(server, tools=[LOOK], tool_choice="none")
    assert "look" not in prompt_of(server)
    assert ask(server, tool_choice="auto", tools=[])["tool_choice"] == "auto"


def test_reasoning_is_an_item_of_its_own(thinker: Running) -> None:
    thinker.engine.script = "hm a fox|It is red"
    found = ask(thinker, include=[*LOGPROBS, "reasoning.encrypted_content"], top_logprobs=1)
    thought, message = found["output"]
    assert thought == {"id": thought["id"], "type": "reasoning", "summary": [], "status": "completed",
                       "content": [{"type": "reasoning_text", "text": "hm a fox"}]} and thought["id"].startswith("rs_")
    part = message["content"][0]
    assert part["text"] == "It is red" and "".join(row["token"] for row in part["logprobs"]) == "It is red</s>"
    assert found["usage"]["output_tokens_details"]["reasoning_tokens"] == len(thinker.engine.tokenizer.encode("hm a fox|", False))
    thinker.engine.script = "hm hm hm"
    assert [item["type"] for item in ask(thinker, max_output_tokens=2)["output"]] == ["reasoning"]


def test_log_probabilities_are_of_the_text_alone(server: Running) -> None:
    server.engine.script = "I look. " + CALL
    found = ask(server, tools=[LOOK], include=LOGPROBS, top_logprobs=2)
    rows = found["output"][0]["content"][0]["logprobs"]
    assert "".join(row["token"] for row in rows) == "I look." and len(rows[0]["top_logprobs"]) == 2
    assert "logprobs" not in found["output"][1] and found["top_logprobs"] == 2


def test_a_scorer_chooses_the_answer_and_tells_its_score(server: Running) -> None:
    found = ask(server, best_of=3, scorer={"type": "logprob"}, temperature=1, max_output_tokens=5)
    assert len(found["output"]) == 1 and "value" in found["score"] and found["usage"]["output_tokens"] == 15


BAD = {"type": "array", "uniqueItems": True}


@pytest.mark.parametrize(("param", "said", "body"), [
    ("tools[0].type", "web_search", {"tools": [{"type": "web_search"}]}),
    ("tools[1].type", "mcp", {"tools": [LOOK, {"type": "mcp", "server_label": "x"}]}),
    ("tools[0].type", "function", {"tools": ["look"]}),
    ("tools[0].function", "not supported", {"tools": [{"type": "function", "function": {"name": "look"}}]}),
    ("tools[0].name", "a name of letters", {"tools": [{"type": "function"}]}),
    ("tools[1].name", "also the name of tools[0]", {"tools": [LOOK, LOOK]}),
    ("tools[0].strict", "true or false", {"tools": [{**LOOK, "strict": "yes"}]}),
    ("tools[0].defer_loading", "not supported", {"tools": [{**LOOK, "defer_loading": True}]}),
    ("tools[0].parameters.type", "must be \"object\"", {"tools": [{**LOOK, "parameters": {"type": "string"}}]}),
    ("tools[0].parameters", "items that differ", {"tools": [{**LOOK, "strict": True, "parameters": {"properties": {"x": BAD}}}]}),
    ("tools", "a list", {"tools": {}}),
    ("tool_choice", "needs tools", {"tool_choice": "required"}),
    ("tool_choice", "must be", {"tools": [LOOK], "tool_choice": "perhaps"}),
    ("tool_choice", "not one of the tools", {"tools": [LOOK], "tool_choice": {"type": "function", "name": "hear"}}),
    ("tool_choice", "names a function", {"tools": [LOOK], "tool_choice": {"type": "function", "function": {"name": "look"}}}),
    ("tool_choice", "must be", {"tools": [LOOK], "tool_choice": {"type": "web_search_preview"}}),
    ("text.format.type", "must be one of", {"text": {"format": {"type": "xml"}}}),
    ("text.format.json_schema", "not supported", {"text": {"format": {"type": "json_schema", "json_schema": {"schema": {}}}}}),
    ("text.format.schema", "must be a JSON schema", {"text": {"format": {"type": "json_schema", "name": "x"}}}),
    ("text.format.schema", "items that differ", {"text": {"format": {"type": "json_schema", "name": "x", "schema": BAD}}}),
    ("text.verbosity", "no such setting", {"text": {"verbosity": "low"}}), ("text.colour", "not supported", {"text": {"colour": 1}}),
    ("text", "an object", {"text": "json"}),
    ("guided_regex", "both given", {"text": {"format": {"type": "json_object"}}, "guided_regex": "a"}),
    ("reasoning.summary", "as a whole", {"reasoning": {"summary": "detailed"}}), ("reasoning", "an object", {"reasoning": "high"}),
    ("reasoning.effort", "a string", {"reasoning": {"effort": 5}}), ("reasoning.depth", "not supported", {"reasoning": {"depth": 5}}),
    ("chat_template_kwargs", "twice", {"reasoning": {"effort": "low"}, "chat_template_kwargs": {"reasoning_effort": "low"}}),
    ("include", "a list of some of", {"include": ["everything"]}), ("include", "a list of some of", {"include": "all"}),
    ("top_logprobs", "needs include", {"top_logprobs": 2}), ("top_logprobs", "to 20", {"top_logprobs": 21, "include": LOGPROBS}),
    ("max_output_tokens", "at least 1", {"max_output_tokens": 0}),
    ("max_output_tokens", "does not fit", {"max_output_tokens": 5000}),
    ("metadata", "at most 16", {"metadata": {str(at): "" for at in range(17)}}), ("metadata", "strings", {"metadata": {"a": 1}}),
    ("metadata", "512", {"metadata": {"a": "x" * 513}}), ("metadata", "64", {"metadata": {"x" * 65: ""}}),
    ("background", "waits", {"background": True}), ("conversation", "previous_response_id", {"conversation": "conv_1"}),
    ("truncation", "prompts are never cut", {"truncation": "auto"}), ("store", "true or false", {"store": "no"}),
    ("instructions", "a string", {"instructions": ["x"]}), ("previous_response_id", "a string", {"previous_response_id": 5}),
    ("max_tokens", "use max_output_tokens", {"max_tokens": 5}), ("response_format", "use text.format", {"response_format": {}}),
    ("slo", "needs max_output_tokens", {"slo": "e2e=1s", "max_output_tokens": None}),
])
def test_what_cannot_be_obeyed_is_refused_by_name(server: Running, param: str, said: str, body: dict[str, Any]) -> None:
    found, message = refused(server, **body)
    assert found == param and said in message and not server.engine.requests


def test_the_model_must_be_the_one_that_is_served(server: Running) -> None:
    assert refused(server, 404, model="gpt-5") == ("model", "the model \"gpt-5\" is not served here; 'tiny' is")


def test_a_prompt_that_does_not_fit_is_refused_with_its_length(server: Running) -> None:
    param, message = refused(server, input="the fox " * 1100)
    assert param == "input" and "at most 2047 fit" in message
    param, message = refused(server, input=[{"role": "user", "content": ""}] * 3000)
    assert param == "input" and "3000 entries; at most 2048" in message


def test_what_the_template_and_the_server_cannot_do_is_said_of_the_responses_own_fields() -> None:
    running = serve(template="{% for m in messages %}{{ m.content or raise_exception('empty messages[3]') }}{% endfor %}")
    try:
        assert "does not read it" in refused(running, reasoning={"effort": "low"})[1]
        assert refused(running, tools=[LOOK])[0] == "tools"
        param, message = refused(running, input=[{"role": "user", "content": ""}])
        assert param == "input" and "empty messages[3]" in message
        running.desk.parts.chat_template.sources.clear()
        assert refused(running)[0] == "input"
    finally:
        running.stop()


def test_a_full_queue_is_told_with_its_own_status_streamed_or_not(server: Running) -> None:
    server.engine.max_queue = 0
    for on in (False, True):
        response = server.client.post(PATH, json={"input": "x", "stream": on})
        assert response.status_code == 429 and "Retry-After" in response.headers
