import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from penstock.core.errors import RequestError
from penstock.serve.api.body import MAX_DEPTH, parse_object
from penstock.serve.api.fields import BY_ENDPOINT
from penstock.serve.api.values import Values
from tests.serve.api.fakes import Running

GARBAGE = [
    (b"", "empty"), (b"  \n", "empty"), (b"{", "not JSON"), (b"[]", "an array"), (b"null", "null"), (b"5", "a number"),
    (b'"a"', "a string"),
    (b"true", "a boolean"), (b"\xff\xfe\x00", "UTF-8"), (b'{"model": "a"', "not JSON"), (b"a=b&c=d", "not JSON"), (b'{"a": NaN}', "NaN"),
    (b'{"a": -Infinity}', "-Infinity"), (b'{"a": 1e999}', "too large"), (b'{"a": ' + b"9" * 5000 + b"}", "digits"),
    (b'{"model":' + b"[" * 5000, ""), (b'{"a":' + b"[" * 300 + b"]" * 300 + b"}", "nested"),
    (b'{"a": 1, "b": 2, "a": 3}', "'a' stands twice"),
    (b'{"a": {"b": {"c": 1, "c": 1}}}', "'c' stands twice"), (rb'{"prompt": "x\ud800y"}', "prompt"), (rb'{"\udc00": 1}', "surrogate"),
    (rb'{"messages": [{"role": "user", "content": ["\ud83d"]}]}', "messages"), (b'{"a": 1} {"b": 2}', "not JSON"),
    (b"\x00" * 100, "not JSON"),
]


@pytest.mark.parametrize(("body", "says"), GARBAGE, ids=range(len(GARBAGE)))
def test_what_is_no_request_is_a_400_that_says_why(http: httpx.Client, server: Running, body: bytes, says: str) -> None:
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/tokenize", "/detokenize"):
        response = http.post(path, content=body, headers={"Content-Type": "application/json"})
        error = response.json()["error"]
        assert response.status_code == 400 and says in error["message"] and error["type"] == "invalid_request_error"
        assert error.keys() == {"message", "type", "param", "code"} and "Traceback" not in response.text
    assert not server.engine.requests


@pytest.mark.parametrize(("body", "param"), [
    (rb'{"a": 1, "b": {"c": ["x\ud800"]}}', "b"), (rb'{"a": {"\udc00": 1}}', "a"), (rb'{"\udc00": 1}', None),
])
def test_half_a_character_is_refused_with_its_field(body: bytes, param: str | None) -> None:
    with pytest.raises(RequestError, match="has half of a surrogate pair") as refusal:
        parse_object(body)
    assert refusal.value.param == param


def test_what_is_allowed_is_read_as_it_is() -> None:
    text = '{"a": [1, -2.5, true, null, "\\ud83d\\ude42 日本"], "b": {"c": {}}}'
    assert parse_object(text.encode()) == {"a": [1, -2.5, True, None, "🙂 日本"], "b": {"c": {}}}
    deep = b'{"a":' + b"[" * (MAX_DEPTH - 1) + b"]" * (MAX_DEPTH - 1) + b"}"
    assert list(parse_object(deep)) == ["a"]


KEYS = ["type", "role", "content", "function", "name", "x"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"), max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=6,
)


texts = st.dictionaries(st.sampled_from(KEYS), json_values, max_size=4).map(json.dumps)


@given(texts)
def test_every_object_is_read_as_it_is(text: str) -> None:
    assert parse_object(text.encode()) == json.loads(text)


@given(texts.map(str.encode), st.integers(0, 200), st.binary(max_size=3) | st.binary(max_size=200), st.integers(0, 3) | st.just(1000))
def test_a_spoiled_object_is_refused_or_read_as_json_reads_it(data: bytes, at: int, put: bytes, dropped: int) -> None:
    spoiled = data[:at] + put + data[at + dropped :]
    try:
        found = parse_object(spoiled)
    except RequestError as error:
        assert error.status == 400 and str(error)
    else:
        assert found == json.loads(spoiled) and isinstance(found, dict)


@pytest.mark.parametrize("endpoint", ["chat", "completions", "embeddings", "tokenize", "detokenize"])
@examples(max_examples=60)
@given(data=st.data())
def test_random_values_are_answered_or_refused_never_failed(shared: Running, endpoint: str, data: st.DataObject) -> None:
    bases: dict[str, tuple[str, dict[str, Any]]] = {
        "chat": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 2}),
        "completions": ("/v1/completions", {"prompt": "x", "max_tokens": 2}), "embeddings": ("/v1/embeddings", {"input": "x"}),
        "tokenize": ("/tokenize", {"prompt": "x"}), "detokenize": ("/detokenize", {"tokens": [5]}),
    }
    path, base = bases[endpoint]
    changes = data.draw(st.dictionaries(st.sampled_from(sorted(BY_ENDPOINT[endpoint])), json_values, min_size=1, max_size=2))
    response = shared.client.post(path, content=json.dumps({**base, **changes}), headers={"Content-Type": "application/json"})
    assert response.status_code in (200, 400, 404), f"{changes}: {response.text}"
    if response.status_code != 200:
        error = response.json()["error"]
        assert any(name in error["message"] for name in (*changes, *base)), f"{changes}: {error}"


def test_values_are_of_their_type() -> None:
    values = Values({"i": 3, "f": 2.5, "whole": 4.0, "t": True, "s": "x", "l": ["a", 1], "none": None, "big": 10**400})
    assert values.integer("i", 0) == 3 and values.integer("whole", 0) == 4 and values.integer("none", 7) == 7
    assert values.number("i", 0.0) == 3.0 and values.boolean("t", False) and values.text("s", "") == "x" and values.texts("s") == ("x",)
    wrong: list[Any] = [
        lambda: values.integer("f", 0), lambda: values.integer("t", 0), lambda: values.integer("i", 0, high=2),
        lambda: values.number("t", 0.0), lambda: values.choice("s", "a", ("a", "b")),
        lambda: values.number("s", 0.0), lambda: values.boolean("i", False), lambda: values.text("i", ""), lambda: values.texts("l"),
        lambda: values.mapping("l"), lambda: values.token_ids("l", 9), lambda: values.token_ids("s", 9),
        lambda: values.number("big", 0.0),
    ]
    for read in wrong:
        with pytest.raises(RequestError, match="must be") as refused:
            read()
        assert refused.value.param is not None and refused.value.param in str(refused.value)
