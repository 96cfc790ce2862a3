"""What a request says of its answer's structure, on its way to the engine."""
import threading
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from penstock.core.types import StructuredOutputsParams
from penstock.serve.api import structure
from penstock.serve.text.reasoning.think import ThinkParser
from penstock.serve.text.tools.hermes import HermesParser
from penstock.serve.text.tools.llama3_json import Llama3JsonParser
from penstock.serve.text.tools.pythonic import PythonicParser
from penstock.serve.text.tools.qwen3_coder import Qwen3CoderParser
from tests.serve.api.fakes import FakeEngine, Running, send, serve, tiny_tokenizer, wait_for

HELLO = [{"role": "user", "content": "tell me"}]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
BAD = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True}
WORSE = {"type": "object", "properties": {"x": BAD}}
SHORT = {"type": "string", "format": "date", "pattern": "^2", "maxLength": 9}
JSON_ONLY = {"whitespace_pattern": " ?", "disable_any_whitespace": True, "disable_additional_properties": True}


def look(strict: bool | None = None, parameters: Any = SCHEMA, name: str = "look") -> dict[str, Any]:
    function = {"name": name, "parameters": parameters, "strict": strict}
    return {"type": "function", "function": {key: value for key, value in function.items() if value is not None}}


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    running = serve(FakeEngine(tiny_tokenizer(), max_model_len=1024), parts={"tool_parser": HermesParser})
    yield running
    running.stop()


def chat(http: httpx.Client, **more: Any) -> httpx.Response:
    return http.post("/v1/chat/completions", json={"messages": HELLO, "max_tokens": 4, **more})


def wanted(server: Running, **more: Any) -> StructuredOutputsParams:
    """What reaches the engine."""
    before = len(server.engine.requests)
    response = chat(server.client, **more)
    assert response.status_code == 200, response.text
    (request,) = server.engine.requests[before:]
    assert (request.grammar is None) is (request.params.structured_outputs is None)
    return request.params.structured_outputs  # type: ignore[return-value]


def text_of(rules: Any) -> str:
    """Rules, and the schemas beside them."""
    return "\n".join([rules.text, *dict(rules.schemas).values()])


def refused(http: httpx.Client, **more: Any) -> tuple[str, str]:
    response = chat(http, **more)
    assert response.status_code == 400, response.text
    return response.json()["error"]["param"], response.json()["error"]["message"]


def of_schema(schema: Any, **more: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **more}}}


def test_response_format_says_what_the_answer_must_be(server: Running) -> None:
    assert wanted(server, response_format={"type": "text"}) is None and wanted(server, response_format=None) is None
    assert wanted(server, response_format={"type": "json_object"}).json_object is True
    for strict in (True, False, None):
        assert wanted(server, **of_schema({"type": "integer"}, strict=strict, description="d")).json == '{"type": "integer"}'
    for name in (None, "any name/1"):
        assert wanted(server, **of_schema({"type": "integer"}, name=name)).json == '{"type": "integer"}'
    assert wanted(server, tools=[look(name="math.factorial")], tool_choice="required").grammar


def test_structured_outputs_are_vllms(server: Running) -> None:
    found = wanted(server, structured_outputs={"json": SCHEMA, "disable_any_whitespace": True, "disable_fallback": True, "regex": None})
    assert found.json is not None and found.disable_any_whitespace and not found.disable_additional_properties
    assert wanted(server, structured_outputs={"regex": "a+", "json_object": False}).regex == "a+"
    assert wanted(server, structured_outputs={"json": {}, "whitespace_pattern": " ?"}).whitespace_pattern == " ?"


def test_options_of_json_that_ask_for_nothing_are_harmless_everywhere(server: Running) -> None:
    """As clients send them who send every field."""
    for unset in (None, False):
        options = dict.fromkeys(JSON_ONLY, unset) | {"whitespace_pattern": None, "json_object": unset, "json": None}
        for asked in ({"regex": "a"}, {"choice": ["a"]}, {"grammar": 'start: "a"'}, {"json_object": True}, {"json": {}}):
            found = wanted(server, structured_outputs={**options, **asked})
            assert found is not None and found == wanted(server, structured_outputs=asked)
    assert wanted(server, guided_regex="a", guided_whitespace_pattern=None).regex == "a"


@pytest.mark.parametrize(("more", "param", "message"), [
    ({"response_format": "json"}, "response_format", "an object"),
    ({"response_format": {"type": "xml"}}, "response_format.type", "one of text, json_object, json_schema"),
    ({"response_format": {}}, "response_format.type", "not null"),
    ({"response_format": {"type": "json_object", "schema": {}}}, "response_format.schema", "has type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema", "is missing"),
    *(({"tools": [look(name=name)]}, "tools[0].function.name", message) for name, message in {
        "a b!": "digits, underscores, dots and dashes, not \"a b!\"", "": "a name of letters", "caf\u00e9": "a name",
        "a\n": "a name", "b" * 65: "has 65 characters; at most 64"}.items()),
    *(({"tools": [look(parameters={"type": kind})]}, "tools[0].function.parameters.type", "must be \"object\"")
      for kind in ("string", None, ["array", "null"])),
    (of_schema(None), "response_format.json_schema.schema", "must be a JSON schema"),
    (of_schema({}, colour=1), "response_format.json_schema.colour", "not supported"),
    (of_schema({}, strict="yes"), "response_format.json_schema.strict", "true or false"),
    (of_schema(BAD), "response_format.json_schema.schema", "items that differ"),
    ({"structured_outputs": {}}, "structured_outputs", "must have one of json, json_object, regex, choice, grammar, not nothing"),
    ({"structured_outputs": {"regex": "a", "choice": ["a"]}}, "structured_outputs", "not regex and choice"),
    ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag", "not supported"),
    ({"structured_outputs": {"regex": "(a"}}, "structured_outputs.regex", "not closed"),
    ({"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": 1}}, "structured_outputs.disable_any_whitespace", "true or false"),
    ({"guided_choice": "ab"}, "guided_choice", "list of one string or more"), ({"guided_json": "{"}, "guided_json", "not JSON"),
    ({"guided_grammar": "start: x"}, "guided_grammar", "unknown name"),
    ({"guided_whitespace_pattern": " "}, "guided_whitespace_pattern", "only"),
    *(({"structured_outputs": {**asked, option: value}}, f"structured_outputs.{option}", f"{option} is of use only with json")
      for asked in ({"regex": "a"}, {"choice": ["a"]}, {"grammar": 'start: "a"'}) for option, value in JSON_ONLY.items()),
    *(({**asked, "guided_whitespace_pattern": " ?"}, "guided_whitespace_pattern", "is of use only with json")
      for asked in ({"guided_regex": "a"}, {"guided_choice": ["a"]}, {"guided_grammar": 'start: "a"'})),
    ({"structured_outputs": {"choice": ["a"], **JSON_ONLY}, "tools": [look()], "tool_choice": "required"},
     "structured_outputs.whitespace_pattern", "is of use only"),
    ({"structured_outputs": {"json": {}, "whitespace_pattern": "[a-z]*"}}, "structured_outputs.whitespace_pattern", "white space alone"),
    ({"structured_outputs": {"json_object": True, **JSON_ONLY}}, "structured_outputs.whitespace_pattern", "cannot go with"),
    ({"guided_json": {}, "guided_whitespace_pattern": "[a-z]*"}, "guided_whitespace_pattern", "white space alone"),
    ({"structured_outputs": {"grammar": "start: \n  x"}}, "structured_outputs.grammar", "line 2, column 4"),
    ({"structured_outputs": {"regex": "a?(?:(?<!a)b)c|d"}}, "structured_outputs.regex", "lookbehind in a group"),
    (of_schema(SHORT), "response_format.json_schema.schema", "format, pattern and maxLength together leave no string (at #)"),
    ({"tools": [look(True, {"type": "object", "properties": {"day": SHORT}, "required": ["day"]})]}, "tools[0].function.parameters",
     "leave no string (at #/properties/day)"),
    (of_schema({"type": "object", "properties": {"a": {"type": "string", "minLength": 10**9}}, "required": ["a"]}),
     "response_format.json_schema.schema", "(at #/properties/a)"),
    ({"structured_outputs": {"grammar": 'start: %json "a"'}}, "structured_outputs.grammar", "a JSON schema is an object"),
    ({"guided_regex": "a", "response_format": {"type": "json_object"}}, "guided_regex", "both given"),
    ({"guided_regex": "a", "min_tokens": 2}, "min_tokens", "structured output"),
    ({"guided_regex": "a", "use_beam_search": True, "best_of": 2, "temperature": 0}, "beam_width", "structured output"),
    ({"tools": [look(True, WORSE)]}, "tools[0].function.parameters", "items that differ"),
    ({"tools": [look(name="ok"), look(None, WORSE)], "tool_choice": "required"}, "tools[1].function.parameters", "items that differ"),
])
def test_a_bad_or_unsupported_structure_is_refused_with_its_field_and_the_reason(
        server: Running, more: dict[str, Any], param: str, message: str) -> None:
    found, said = refused(server.client, **more)
    assert found == param and message in said and param.partition(".")[0] in said and not server.engine.requests


def test_completions_have_structures_too(server: Running) -> None:
    body = {"prompt": ["a", "b"], "max_tokens": 3, **of_schema({"type": "null"})}
    assert server.client.post("/v1/completions", json=body).status_code == 200
    assert [request.params.structured_outputs.json for request in server.engine.requests] == ['{"type": "null"}'] * 2  # type: ignore[union-attr]
    assert server.engine.requests[0].grammar is server.engine.requests[1].grammar
    response = server.client.post("/v1/completions", json={**body, **of_schema(BAD)})
    assert response.status_code == 400 and response.json()["error"]["param"] == "response_format.json_schema.schema"


def test_calls_are_demanded_or_limited(server: Running) -> None:
    both = [look(), look(name="hear")]
    assert wanted(server, tools=both) is None and wanted(server, tools=both, tool_choice="auto", parallel_tool_calls=True) is None
    required = text_of(wanted(server, tools=both, tool_choice="required").grammar)
    assert required.startswith("start: calls\n") and '\\"look\\"' in required and '\\"hear\\"' in required and "call)*" in required
    named = text_of(wanted(server, tools=both, tool_choice={"type": "function", "function": {"name": "hear"}}).grammar)
    assert '\\"look\\"' not in named and "call)*" not in named
    limited = text_of(wanted(server, tools=both, parallel_tool_calls=False).grammar)
    assert limited.startswith("start: answer\n") and '"a"' not in limited and "call)*" not in limited
    strict = text_of(wanted(server, tools=[look(True), look(None, WORSE, "hear")]).grammar)
    assert strict.startswith("start: answer\n") and '"a"' in strict and "uniqueItems" not in strict
    one = {"mode": "required", "tools": [{"type": "function", "function": {"name": "look"}}]}
    allowed = {"type": "allowed_tools", "allowed_tools": one}
    assert '\\"hear\\"' not in text_of(wanted(server, tools=both, tool_choice=allowed).grammar)


def test_an_answer_may_be_a_call_or_follow_its_format(server: Running) -> None:
    found = wanted(server, tools=[look()], response_format={"type": "json_object"})
    assert found.json_object is True and text_of(found.frame).startswith("frame: calls | @body\n")
    demanded = wanted(server, tools=[look()], tool_choice="required", response_format={"type": "json_object"})
    assert text_of(demanded.grammar).startswith("start: calls")
    assert wanted(server, tools=[look()], tool_choice="none", response_format={"type": "json_object"}).frame is None


def test_a_call_that_a_grammar_makes_sure_of_is_told_of_before_it_is_complete(server: Running) -> None:
    server.engine.script = '<tool_call>\n{"name": "look", "arguments": {"a": 12'
    (choice,) = chat(server.client, tools=[look()], tool_choice="required", max_tokens=100).json()["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": '{"a": 12'} and not choice["message"]["content"]
    (choice,) = chat(server.client, tools=[look()], max_tokens=100).json()["choices"]
    assert "tool_calls" not in choice["message"] and choice["message"]["content"] == server.engine.script


def test_json_that_was_asked_for_may_look_like_the_beginning_of_a_call() -> None:
    running = serve(FakeEngine(tiny_tokenizer(), max_model_len=1024), parts={"tool_parser": Llama3JsonParser})
    try:
        running.engine.script = '{"name": "search", "parameters": {"q": "x"}, "description": "finds things"}'
        body: dict[str, Any] = {"response_format": {"type": "json_object"}, "tools": [look()], "max_tokens": 200}
        message = chat(running.client, **body).json()["choices"][0]["message"]
        assert message["content"] == running.engine.script and "tool_calls" not in message
    finally:
        running.stop()


def test_a_model_that_reasons_may_do_so_before_its_structure() -> None:
    running = serve(FakeEngine(tiny_tokenizer(), max_model_len=1024), parts={"reasoning_parser": ThinkParser, "tool_parser": HermesParser})
    try:
        found = wanted(running, response_format={"type": "json_object"})
        assert text_of(found.frame).startswith("frame: reasoning @body\nreasoning: (")
        found = wanted(running, response_format={"type": "json_object"}, tools=[look()])
        assert text_of(found.frame).startswith("frame: before_calls calls | reasoning @body\n") and '\\"look\\"' in text_of(found.frame)
        found = wanted(running, tools=[look()], tool_choice="required")
        assert found.grammar is not None and text_of(found.frame).startswith("frame: before_calls @body\n")
    finally:
        running.stop()


@pytest.mark.parametrize(("functions", "param", "message"), [
    ([look(True, {"type": "object", "minProperties": 1})], "tools[0].function.parameters", "have 'minProperties' among their keywords"),
    ([look(True, name="ok"), look(True, {"$ref": "#/nowhere"})], "tools[1].function.parameters", "leads nowhere in the schema (at #)"),
    ([look(True, name="ok"), look(True, WORSE)], "tools[1].function.parameters", "items that differ, which a grammar cannot compare"),
    ([look(True, name="ok"), look(True, {"type": "object", "properties": {"a": {"type": "string", "pattern": "^a$", "minLength": 3}}})],
     "tools[1].function.parameters", "pattern and minLength together leave no string (at #/properties/a)"),
    ([look(name="o-k"), look(name="not-ok-")], "tools[1].function.name", "the name of the function 'not-ok-' cannot be called"),
])
def test_what_keyword_arguments_cannot_express_is_refused_with_its_field(functions: list[Any], param: str, message: str) -> None:
    running = serve(FakeEngine(tiny_tokenizer(), max_model_len=1024), parts={"tool_parser": PythonicParser})
    try:
        found, said = refused(running.client, tools=functions, parallel_tool_calls=False)
        assert found == param and message in said
    finally:
        running.stop()


@pytest.mark.parametrize("more", [{}, {"tool_choice": "required"}, {"stream": True}], ids=str)
def test_arguments_between_tags_are_of_the_types_that_their_function_says(more: dict[str, Any]) -> None:
    running = serve(FakeEngine(tiny_tokenizer(), max_model_len=1024), parts={"tool_parser": Qwen3CoderParser})
    try:
        running.engine.script = "<tool_call>\n<function=look>\n<parameter=a>\n12\n</parameter>\n</function>\n</tool_call>"
        response = chat(running.client, tools=[look(), look(name="b")], max_tokens=200, **more)
        assert response.status_code == 200 and '\\"a\\": 12}' in response.text and "</" not in response.text
        found, said = refused(running.client, tools=[look(True, {"type": "object", "properties": {"s": SHORT}})])
        assert found == "tools[0].function.parameters" and "#/properties/s" in said
    finally:
        running.stop()


def test_an_answer_whose_grammar_cannot_be_followed_further_is_an_error(server: Running) -> None:
    server.engine.give_up_after = 2
    for n in (1, 2):
        assert "too complex" in refused(server.client, guided_regex="a+", n=n)[1]
    response = chat(server.client, guided_regex="a+", stream=True)
    assert response.status_code == 200 and "grammar_too_complex" in response.text and "finish_reason\":\"" not in response.text
    assert chat(server.client).status_code == 503


def test_a_server_without_grammars_says_so() -> None:
    running = serve(parts={"grammars": None})
    try:
        assert refused(running.client, response_format={"type": "json_object"})[0] == "response_format"
    finally:
        running.stop()


def test_others_are_served_while_grammars_are_compiled_and_slow_ones_are_given_up(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, began, stopped = server.desk.parts.grammars, threading.Semaphore(0), threading.Semaphore(0)
    compile_ = type(compiler).compile

    def slowly(self: Any, asked: StructuredOutputsParams, pause: Any = None) -> Any:
        if asked.choice == ("slow",):
            began.release()
            try:
                for _ in range(100_000):
                    pause()
            finally:
                stopped.release()
        return compile_(self, asked, pause)

    def ask_slowly() -> None:
        body = {"messages": HELLO, "max_tokens": 2, "guided_choice": ["slow"]}
        answers.append(httpx.post(server.url + "/v1/chat/completions", json=body, timeout=20))

    monkeypatch.setattr(type(compiler), "compile", slowly)
    monkeypatch.setattr(structure, "COMPILE_S", 1.0)
    answers: list[httpx.Response] = []
    waiting = [threading.Thread(target=ask_slowly) for _ in range(4)]
    waiting[0].start()
    assert began.acquire(timeout=10)
    assert chat(server.client, guided_choice=["other"]).status_code == 200 and chat(server.client).status_code == 200
    for thread in waiting[1:]:
        thread.start()
    assert began.acquire(timeout=10) and chat(server.client).status_code == 200
    for thread in waiting:
        thread.join(20)
    refused = [answer for answer in answers if answer.status_code == 400]
    assert len(refused) >= 2 and all(answer.json()["error"]["param"] == "guided_choice" for answer in refused)
    assert all("takes longer than 1 s" in answer.json()["error"]["message"] for answer in refused)
    for answer in answers:
        if answer not in refused:
            assert answer.status_code == 429 and "Retry-After" in answer.headers
    assert stopped.acquire(timeout=10) and stopped.acquire(timeout=10)  # nobody waits for what was refused
    monkeypatch.undo()
    assert chat(server.client, guided_choice=["slow"]).status_code == 200


def slow_schemas(number: int) -> list[Any]:
    return [look(True, {"type": "object", "properties": {f"slow{at}": {"type": "integer"}}}, f"f{at}") for at in range(number)]


def test_all_grammars_of_a_request_together_have_as_long_as_one(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = server.desk.parts.grammars
    compile_, num_compiled = type(compiler).compile, [0]

    def slowly(self: Any, asked: StructuredOutputsParams, pause: Any = None) -> Any:
        num_compiled[0] += 1
        time.sleep(0.4)
        return compile_(self, asked, pause)

    monkeypatch.setattr(type(compiler), "compile", slowly)
    monkeypatch.setattr(structure, "COMPILE_S", 1.0)
    response = chat(server.client, tools=slow_schemas(6), tool_choice="required")
    assert response.status_code == 429 and response.headers["Retry-After"] == "1" and 2 <= num_compiled[0] <= 4
    assert f"tools[{num_compiled[0]}].function.parameters: the grammars before it" in response.json()["error"]["message"]
    before = num_compiled[0]
    assert chat(server.client, tools=slow_schemas(6), tool_choice="required").status_code == 429
    assert before < num_compiled[0] <= before + 4  # those that are ready take no time


@pytest.mark.parametrize(("path", "more"), [
    ("/v1/chat/completions", {"messages": HELLO, "tools": slow_schemas(3), "tool_choice": "required"}),
    ("/v1/completions", {"prompt": "x", "guided_choice": ["new"]})])
def test_nothing_is_compiled_for_a_client_that_hung_up(
        path: str, more: dict[str, Any], server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    began, stopped = threading.Semaphore(0), threading.Semaphore(0)

    def for_ever(self: Any, asked: StructuredOutputsParams, pause: Any = None) -> Any:
        began.release()
        try:
            while True:
                pause()
        finally:
            stopped.release()

    monkeypatch.setattr(type(server.desk.parts.grammars), "compile", for_ever)
    connection = send(server, path, more)
    assert began.acquire(timeout=10)
    connection.close()
    assert stopped.acquire(timeout=5)  # and not after COMPILE_S
    wait_for(lambda: not server.desk.drain._stops)
    assert not began.acquire(timeout=0.1)


def test_no_more_than_two_grammars_are_compiled_at_once(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler, lock = server.desk.parts.grammars, threading.Lock()
    compile_, now, most = type(compiler).compile, [0], [0]

    def counted(self: Any, asked: StructuredOutputsParams, pause: Any = None) -> Any:
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        try:
            for _ in range(20):
                pause()
            return compile_(self, asked, pause)
        finally:
            with lock:
                now[0] -= 1

    monkeypatch.setattr(type(compiler), "compile", counted)
    codes: list[int] = []

    def ask(number: int) -> None:
        body = {"messages": HELLO, "max_tokens": 2, "guided_choice": [f"number {number}"]}
        codes.append(httpx.post(server.url + "/v1/chat/completions", json=body, timeout=20).status_code)

    asking = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(20)
    assert codes == [200] * 8 and most[0] == 2


def test_what_takes_too_many_steps_is_refused_with_the_part_that_did(server: Running) -> None:
    heavy = {"type": "object", "properties": {"ok": {"type": "integer"}, "a/b": {
        "type": "object", "patternProperties": {f"^a{{{number}}}b": {"minimum": number} for number in range(80)}}}}
    response = chat(server.client, **of_schema(heavy))
    error = response.json()["error"]
    assert response.status_code == 400 and error["code"] == "grammar_too_complex"
    assert "more than 1,000,000 steps" in error["message"] and "patterns" in error["message"]
    wide = {"type": "object", "properties": {f"p{number}": {"type": "integer"} for number in range(3000)}}
    for stream in (False, True):
        response = chat(server.client, **of_schema(wide), stream=stream)
        assert response.status_code == 400 and response.json()["error"]["code"] == "grammar_too_complex"
    assert not server.engine.requests


def test_a_format_that_cannot_be_obeyed_is_refused_also_where_there_are_only_calls(shared: Running) -> None:
    param, message = refused(shared.client, tools=[look()], tool_choice="required", **of_schema(BAD))
    assert param == "response_format.json_schema.schema" and "items that differ" in message
    assert wanted(shared, tools=[look()], tool_choice="required", **of_schema(SCHEMA)).json is None
