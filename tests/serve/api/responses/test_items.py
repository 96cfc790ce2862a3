from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.serve.api.responses.items import read_items
from penstock.serve.api.responses.transcript import transcribed
from tests.serve.api.fakes import FakeEngine, Running, serve, tiny_tokenizer
from tests.serve.api.responses.asking import CALL, LOOK, PATH, ask, prompt_of, refused, stream

ASKED = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look!"}]}
CALLED = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "look", "arguments": '{"at": 1}', "status": "completed"}
SEEN = {"type": "function_call_output", "call_id": "c1", "output": "a fox"}
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}],
           "encrypted_content": None}
SAID = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "phase": None,
        "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]}
TOOL_CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}


def messages(*items: dict[str, Any]) -> list[dict[str, Any]]:
    read = read_items({"input": list(items)}, (), "x")
    return transcribed([(str(at), item) for at, item in enumerate(read)], "system").messages


def test_items_become_the_messages_that_a_chat_would_have() -> None:
    assert messages(ASKED, THOUGHT, SAID, CALLED, SEEN, {**SAID, "content": "Red."}) == [
        {"role": "user", "content": "look!"},
        {"role": "assistant", "reasoning_content": "hm", "content": "I look.", "tool_calls": [TOOL_CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "a fox"},
        {"role": "assistant", "content": "Red."}]


def test_calls_in_a_row_are_one_message_and_so_is_what_is_said_beside_them() -> None:
    other = {**CALLED, "call_id": "c2", "arguments": ""}
    called = {**TOOL_CALL, "id": "c2", "function": {"name": "look", "arguments": "{}"}}
    (found,) = messages(CALLED, other, SAID)
    assert [call["id"] for call in found["tool_calls"]] == ["c1", "c2"] and found["tool_calls"][1] == called
    assert found["content"] == "I look."
    assert [part["text"] for part in messages(SAID, CALLED, SAID)[0]["content"]] == ["I look.", "I look."]
    assert messages(CALLED, THOUGHT, other)[1] == {"role": "assistant", "reasoning_content": "hm", "tool_calls": [called]}


def test_messages_that_were_said_one_by_one_stay_so() -> None:
    assert len(messages(SAID, SAID)) == 2


def test_reasoning_that_nothing_followed_is_a_message() -> None:
    summed = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "a"}, {"type": "summary_text", "text": "b"}]}
    alone = {"role": "assistant", "content": "", "reasoning_content": "hm\na\nb"}
    assert messages(THOUGHT, summed, ASKED) == [alone, {"role": "user", "content": "look!"}]
    assert messages(ASKED, THOUGHT, summed)[1] == alone
    assert messages({"type": "reasoning", "summary": []}, ASKED) == [{"role": "user", "content": "look!"}]


def test_parts_stay_apart_where_there_are_several() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b", "cache_control": {"type": "ephemeral"}}]
    assert messages({"role": "user", "content": parts}) == [
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]}]
    assert messages({"role": "developer", "content": []}) == [{"role": "system", "content": []}]


def test_items_without_ids_get_some() -> None:
    read = read_items({"input": [{"role": "user", "content": "x"}, CALLED, SEEN, {"type": "reasoning", "summary": []}]}, (), "abc")
    assert [item["id"] for item in read] == ["msg_abc-in0", "fc_1", "fco_abc-in2", "rs_abc-in3"]


WHERE = "input[1]"


@pytest.mark.parametrize(("param", "said", "item"), [
    (WHERE, "must be an item", "x"), (WHERE, "must be an item", None), (WHERE, "must be an item", []), (f"{WHERE}.type", "not null", {}),
    (f"{WHERE}.type", "web_search_call", {"type": "web_search_call", "id": "x"}), (f"{WHERE}.type", "not 5", {"type": 5, "role": "user"}),
    (f"{WHERE}.type", "send the item itself", {"type": "item_reference", "id": "x"}),
    (f"{WHERE}.type", "not []", {"type": [], "role": "user"}),
    (f"{WHERE}.role", "one of user", {"type": "message", "content": "x", "role": "tool"}),
    (f"{WHERE}.role", "one of user", {"role": {}, "content": "x"}), (f"{WHERE}.role", "not null", {"role": None, "content": "x"}),
    (f"{WHERE}.role", "not null", {"type": "message", "content": "x"}),
    (f"{WHERE}.content", "not null", {"role": "user"}), (f"{WHERE}.content", "not 5", {"role": "user", "content": 5}),
    (f"{WHERE}.content[0]", "text only, not \"input_image\"", {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}),
    (f"{WHERE}.content[0]", "not \"refusal\"", {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}),
    (f"{WHERE}.content[0]", "not \"x\"", {"role": "user", "content": ["x"]}),
    (f"{WHERE}.content[0]", "not {}", {"role": "user", "content": [{}]}),
    (f"{WHERE}.content[0]", "not [1]", {"role": "user", "content": [{"type": [1], "text": "x"}]}),
    (f"{WHERE}.content[1].text", "a string", {"role": "user", "content": [ASKED["content"][0], {"type": "input_text"}]}),  # type: ignore[index]
    (f"{WHERE}.content[0].colour", "not supported", {"role": "user", "content": [{"type": "input_text", "text": "", "colour": 1}]}),
    (f"{WHERE}.name", "not supported", {"role": "user", "content": "x", "name": "Ann"}),
    (f"{WHERE}.phase", "not supported", {"role": "assistant", "content": "x", "phase": "commentary"}),
    (f"{WHERE}.id", "a string", {"role": "user", "content": "x", "id": 5}),
    (f"{WHERE}.status", "one of in_progress", {"role": "user", "content": "x", "status": "done"}),
    (f"{WHERE}.call_id", "a string", {**CALLED, "call_id": None}), (f"{WHERE}.name", "a string", {**CALLED, "name": 5}),
    (f"{WHERE}.arguments", "a string", {**CALLED, "arguments": {}}), (f"{WHERE}.arguments", "not JSON", {**CALLED, "arguments": "{"}),
    (f"{WHERE}.arguments", "object as text", {**CALLED, "arguments": "[1]"}),
    (f"{WHERE}.arguments", "not JSON", {**CALLED, "arguments": "[" * 9999}),
    (f"{WHERE}.arguments", "NaN is no JSON number", {**CALLED, "arguments": '{"at": NaN}'}),
    (f"{WHERE}.namespace", "not supported", {**CALLED, "namespace": "x"}),
    (f"{WHERE}.call_id", "which no function_call before it has", SEEN), (f"{WHERE}.call_id", "a string", {**SEEN, "call_id": None}),
    (f"{WHERE}.output", "not null", {"type": "function_call_output", "call_id": "c1"}),
    (f"{WHERE}.output[0]", "text only", {**SEEN, "output": [{"type": "input_file", "file_id": "x"}]}),
    (f"{WHERE}.encrypted_content", "not supported", {**THOUGHT, "encrypted_content": "gAAA"}),
    (f"{WHERE}.summary[0]", "summary_text", {"type": "reasoning", "summary": [{"type": "text", "text": "x"}]}),
    (f"{WHERE}.content", "not 5", {"type": "reasoning", "content": 5}),
])
def test_an_item_that_cannot_be_read_is_refused_by_its_place(server: Running, param: str, said: str, item: Any) -> None:
    found, message = refused(server, input=[ASKED, item])
    assert found == param and said in message and param in message and not server.engine.requests


@pytest.mark.parametrize("given", [None, [], {}, 5, True])
def test_input_is_text_or_items(server: Running, given: Any) -> None:
    assert refused(server, input=given)[0] == "input"


def test_an_output_may_come_before_no_call_of_its_own(server: Running) -> None:
    assert refused(server, input=[SEEN, CALLED])[0] == "input[0].call_id"
    ask(server, input=[CALLED, {**SEEN, "output": [{"type": "input_text", "text": "a fox"}]}])
    assert "<tool>a fox</tool>" in prompt_of(server)


def test_instructions_and_a_developers_item_both_show_in_a_template_that_has_one_system_message() -> None:
    template = "{{ messages[0].content }}{% for m in messages[1:] if m.role == 'user' %}|{{ m.content }}{% endfor %}"
    running = serve(FakeEngine(tiny_tokenizer(template)))
    try:
        ask(running, instructions="be kind", input=[{"role": "developer", "content": "be brief"}, ASKED])
        assert prompt_of(running) == "be kind\n\nbe brief|look!"
        param, message = refused(running, instructions="be kind", input=[ASKED, {"role": "system", "content": "be brief"}])
        assert param == "input" and message.startswith("input[1].content cannot be given to this model")
        _, message = refused(running, input=[ASKED, CALLED, SEEN])
        assert message.startswith("input[1].tool_calls[0] cannot be given to this model")
    finally:
        running.stop()


def test_instructions_that_the_template_does_not_show_are_refused_by_name() -> None:
    running = serve(FakeEngine(tiny_tokenizer("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")))
    try:
        param, message = refused(running, instructions="be kind", input="look!")
        assert param == "instructions" and message.startswith("instructions cannot be given to this model")
        ask(running, input="look!")
    finally:
        running.stop()


def test_marks_are_obeyed_and_faulty_ones_named(server: Running) -> None:
    marked = {"type": "input_text", "text": "once upon a time", "cache_control": {"type": "ephemeral", "ttl": "1h"}}
    found = ask(server, input=[{"role": "user", "content": [marked]}, ASKED])
    assert [mark.ttl_s for mark in server.engine.requests[0].marks] == [3600]
    wrong = {"role": "user", "content": "x", "cache_control": {"type": "for ever"}}
    param, message = refused(server, instructions="be kind", input=[CALLED, SEEN, wrong])
    assert param == "input" and "input[2].cache_control" in message
    for _ in range(5):  # a mark is spent with the response that it came with
        found = ask(server, input=[{"role": "user", "content": [marked]}], previous_response_id=found["id"], max_output_tokens=1)
    assert len(server.engine.requests[-1].marks) == 1


def test_a_conversation_goes_on_with_the_output_as_it_came(thinker: Running) -> None:
    """As agents do that keep it themselves: everything that came goes back, and is what previous_response_id has."""
    thinker.engine.script = "hm|I look. " + CALL
    first = stream(thinker, tools=[LOOK], store=True, max_output_tokens=200)[-1]["response"]
    seen = {"type": "function_call_output", "call_id": first["output"][2]["call_id"], "output": "a fox"}
    thinker.engine.script = "Red.|"
    ask(thinker, input=[{"role": "user", "content": "tell me"}, *first["output"], seen], tools=[LOOK])
    sent = prompt_of(thinker)
    assert "<assistant>hm|I look." in sent and '"arguments": {"at": "the fox"}' in sent and "<tool>a fox</tool>" in sent
    ask(thinker, input=[seen], previous_response_id=first["id"], tools=[LOOK])
    assert prompt_of(thinker) == sent


@pytest.mark.parametrize("arguments", ['{"at": "the f', ""])
def test_a_call_that_was_cut_off_is_refused_with_what_to_do(arguments: str) -> None:
    with pytest.raises(RequestError, match=r"input\[0\].arguments is not whole, because the call was cut off; leave the item out"):
        read_items({"input": [{**CALLED, "arguments": arguments, "status": "incomplete"}]}, (), "x")
    assert read_items({"input": [{**CALLED, "status": "incomplete"}]}, (), "x")  # a stop string ended it behind its arguments
    assert read_items({"input": [{**CALLED, "status": "incomplete", "arguments": '{"at": {"x": 1, "x": 2}}'}]}, (), "x")


def test_an_id_that_is_taken_or_empty_is_replaced(server: Running) -> None:
    fake = {"role": "user", "content": "hm", "id": "fake"}
    first = ask(server, input=[fake, fake, {**fake, "id": ""}, {**fake, "id": "own"}])
    second = ask(server, input=[fake], previous_response_id=first["id"])
    seen: list[str] = []
    path, query = f"{PATH}/{second['id']}/input_items", {"limit": "1", "order": "asc"}
    while (page := server.client.get(path, params=query).json())["data"]:
        seen.append(page["last_id"])
        query["after"] = seen[-1]
        assert len(seen) <= 6
    assert len({*seen}) == 6 and "" not in seen and [seen[0], seen[3]] == ["fake", "own"]
