"""Arrays whose items are compared while they are written: any selection, in any order, and where they are found."""
import itertools
import json
from collections.abc import Sequence
from typing import Any

import pytest

from penstock.compute.decoding.grammar.schema.places import Differing
from penstock.core.errors import RequestError
from penstock.core.types import Rules, StructuredOutputsParams
from tests.compute.decoding.grammar.schema.judge import COMPILER, accepts, valid, written
from tests.compute.decoding.grammar.tokens import TOKENS, allowed, matcher_of

WORDS = ["a", "ab", "abc", "the", "old", "king", 'a"b', "é", "10"]
TEXTS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
LISTED = {"type": "array", "items": {"enum": WORDS}, "uniqueItems": True}
OBJECT = {"type": "object", "additionalProperties": False}
SHORT = {"type": "string", "maxLength": 1}
UNIQUE = {"type": "array", "uniqueItems": True}
KEYED = {**OBJECT, "properties": {"x": {"const": 1}, "key": {"type": "string"}}, "required": ["key"]}
NAMED = {**OBJECT, "properties": {"name": {"type": "string"}, "is": {"type": "boolean"}}, "required": ["name", "is"]}
FIXED = {**KEYED, "properties": {"is": {"const": 1}, "name": {"const": "a"}, **KEYED["properties"]}, "required": ["is", "name"]}


def test_of_listed_texts_every_selection_in_any_order_is_allowed_and_no_other() -> None:
    """More selections than a grammar would list."""
    assert all(accepts(LISTED, list(chosen)) for size in (0, 1, 2) for chosen in itertools.permutations(WORDS, size))
    assert accepts(LISTED, WORDS) and accepts(LISTED, WORDS[::-1]) and not accepts(LISTED, ["ab", "a", "ab"])
    assert accepts({**LISTED, "minItems": 9}, WORDS) and not accepts({**LISTED, "maxItems": 2}, WORDS[:3])
    with pytest.raises(RequestError, match="no value is valid"):
        accepts({**LISTED, "minItems": 10}, [])


@pytest.mark.parametrize("schema", [
    {**TEXTS, "minItems": 4}, {**TEXTS, "items": SHORT, "minItems": 8}, {**LISTED, "minItems": 9}, {**LISTED, "minItems": 2},
    {**OBJECT, "properties": {"tags": {**TEXTS, "minItems": 2}, "x": {}}, "required": ["tags"]},
    {"type": "array", "items": {**TEXTS, "items": SHORT, "minItems": 3}, "minItems": 2, "maxItems": 3},
    {**OBJECT, "patternProperties": {"^[ab]$": {**LISTED, "minItems": 3}}, "required": ["a", "b"]},
    {"anyOf": [{**TEXTS, "minItems": 3}, {"type": "array", "items": {"type": "string"}, "minItems": 4}, {"type": "null"}]},
    {"$ref": "#/$defs/a", "$defs": {"a": {**OBJECT, "properties": {"t": {**LISTED, "minItems": 3}, "in": {"$ref": "#/$defs/a"}},
                                          "required": ["t"]}}},
    {**UNIQUE, "items": {"type": "string", "pattern": "^[ab]{2}$"}, "minItems": 4},
    {**UNIQUE, "items": {"type": "string", "pattern": "^b*a$"}}, {**UNIQUE, "items": {"type": "object"}, "minItems": 3},
    {**UNIQUE, "items": {"type": ["object", "string", "null", "boolean"]}, "minItems": 4},
    {**UNIQUE, "items": KEYED, "minItems": 3}, {**UNIQUE, "items": {**KEYED, "required": []}, "minItems": 3},
    {**UNIQUE, "items": {**OBJECT, "properties": {"x": {"const": 1}, "in": {"type": ["object", "null"]}}}, "minItems": 3},
    {**UNIQUE, "items": {"anyOf": [NAMED, KEYED, {"type": "array", "items": {"type": "null"}}]}, "minItems": 4},
    {**UNIQUE, "items": {**OBJECT, "properties": {"t": {**UNIQUE, "items": KEYED, "minItems": 2}}, "required": ["t"]}, "minItems": 2},
    {"prefixItems": [{"type": "array", "items": SHORT, "minItems": 2}, {**TEXTS, "items": SHORT, "minItems": 5}], "minItems": 2,
     "items": False, "type": "array"},
])
def test_what_is_written_is_valid(schema: Any) -> None:
    made = [found for seed in range(8) if (found := written(schema, seed)) is not None]
    assert made and all(valid(schema, value) for value, *_ in made)


@pytest.mark.parametrize(("schema", "good", "bad"), [
    ({**OBJECT, "properties": {"tags": TEXTS, "words": {"type": "array", "items": {"type": "string"}}}},
     [{"tags": ["x", "y"], "words": ["x", "x"]}, {"tags": ["x"]}], [{"tags": ["x", "x"]}, {"tags": ["x", "y", "x"], "words": []}]),
    ({"type": "object", "properties": {"tags": TEXTS}}, [{"else": {"tags": ["x", "x"]}}], [{"tags": ["x", "x"], "else": 1}]),
    ({**OBJECT, "properties": {'"}]': TEXTS, "b\\": {"type": "string"}}},
     [{'"}]': ["x", "y"], "b\\": '["x","x"]'}], [{'"}]': ['"', '"']}, {'"}]': ["\\", "", "\\"]}]),
    ({**UNIQUE, "items": {"type": "object"}}, [[{}, {"a": 1}, {"a": {"b": [1, 2]}}, {"a": True}, {"b": 1, "a": [{"b": 2}]}]],
     [[{}, {}], [{"a": 1, "b": [1]}, {"b": [1.0], "a": 1}], [{"a": {}}, {}, {"a": {}}], [{"a": None}, {"a": None}]]),
    ({**UNIQUE, "items": KEYED}, [[{"x": 1, "key": ""}, {"key": ""}, {"key": "b"}, {"x": 1, "key": "the"}]],
     [[{"key": "the old"}, {"key": "a"}, {"key": "the old"}], [{"x": 1, "key": ""}, {"x": 1, "key": ""}]]),
    ({**UNIQUE, "items": {**KEYED, "required": []}}, [[{}, {"x": 1}, {"key": ""}, {"x": 1, "key": ""}]],
     [[{}, {}], [{"x": 1}, {}, {"x": 1}]]),
    ({**UNIQUE, "items": {"type": ["array", "string", "null", "boolean"], "items": {"type": ["null", "array"]}}},
     [[None, True, False, [], [None], [None, None], [[]], "null", "", "a"]],
     [[None, None], [True, "a", True], [[], []], ["a", [None, []], "b", [None, []]], ["a", None, "a"], [[[None]], False, [[None]]]]),
    ({**UNIQUE, "items": {**OBJECT, "properties": {"in": {**OBJECT, "properties": {"x": {}, "of": {"type": ["object", "null"]}}}}}},
     [[{}, {"in": {}}, {"in": {"x": 1}}, {"in": {"of": None}}, {"in": {"of": {}}}, {"in": {"x": 1, "of": {}}}]],
     [[{"in": {}}, {"in": {}}], [{"in": {"of": None}}, {"in": {"of": None}}], [{"in": {"of": {"a": 1}}}, {}, {"in": {"of": {"a": 1}}}]]),
    ({**UNIQUE, "items": {"type": "string", "pattern": "^[0-9]+x$"}}, [["1x", "2x", "12x", "11x"]], [["12x", "1x", "12x"]]),
    ({**UNIQUE, "items": {"type": "string", "pattern": "^[ab]{390}$"}}, [["a" * 390, "b" * 390]], [["a" * 390, "a" * 390]]),
    ({"type": "array", "items": TEXTS}, [[["x"], ["x"], ["y", "x"]]], [[["x"], ["x", "x"]]]),
])
def test_only_items_of_one_array_are_compared_and_only_where_they_must_differ(schema: Any, good: list[Any], bad: list[Any]) -> None:
    assert all(valid(schema, each) and accepts(schema, each) for each in good)
    assert not any(valid(schema, each) or accepts(schema, each) for each in bad)


@pytest.mark.parametrize(("items", "text", "never"), [
    ({"type": "object"}, '[{"age":"the"},{"age":"the', ['"}']), ({"type": "object"}, '[{"the":10},{"the":10', ["}"]),
    ({"type": "object"}, '[{"a":{"old":"king"}},{"a":{"old":"king"}', ["}"]), ({"type": "object"}, "[{},{", ["}"]),
    (KEYED, '[{"key":""},{"key":"', ['"', '"}']),
    ({**OBJECT, "properties": {"t": TEXTS, "in": {**KEYED, "required": ["x", "key"]}}, "required": ["t", "in"]},
     '[{"t":[],"in":{"x":1,"key":"a"}},{"t":[],"in":{"x":1,"key":"a', ['"', '"}']),
    ({"type": ["null", "object"]}, "[null,", ["null", "n"]),
    ({"type": ["array", "string"], "items": {"type": "boolean"}}, "[[],[true],[true", ["]"]),
])
def test_a_token_that_would_end_an_item_like_one_before_is_not_allowed_and_whatever_is_allowed_can_be_taken(
    items: Any, text: str, never: list[str],
) -> None:
    wanted = StructuredOutputsParams(json={**UNIQUE, "items": items})
    ids, matcher = TOKENS.encode(text), matcher_of(COMPILER, wanted)
    assert matcher.take(ids) == len(ids)
    choices = allowed(matcher)
    assert choices and not {TOKENS.token_bytes(token) for token in choices} & {each.encode() for each in never}
    for token in choices:
        other = matcher_of(COMPILER, wanted)
        other.take([*ids, token])
        assert other.ended != "abort", TOKENS.token_bytes(token)


def test_objects_are_compared_however_deeply_they_are_nested() -> None:
    value: dict[str, Any] = {}
    for _ in range(450):
        value = {"a": value}
    assert not accepts({**UNIQUE, "items": {"type": "object"}}, [value, value])
    assert accepts({**UNIQUE, "items": {"type": "object"}}, [value, {"a": value}])


def test_properties_behind_the_last_that_goes_on_without_end_are_not_compared() -> None:
    """There, an object could come to where nothing differs any more."""
    schema = {**UNIQUE, "items": NAMED}
    assert accepts(schema, [{"name": "a", "is": True}, {"name": "b", "is": True}])
    never_written = [{"name": "a", "is": True}, {"name": "a", "is": False}]
    assert valid(schema, never_written) and not accepts(schema, never_written)


@pytest.mark.parametrize("items", [
    {}, {"type": "integer"}, {"type": ["string", "number"]}, {**OBJECT, "properties": {"a": {"type": "integer"}}},
    {**OBJECT, "properties": {"name": {"type": "string"}, "is": {"type": "boolean"}}}, {"type": "array", "maxItems": 2},
    {**OBJECT, "properties": {"in": NAMED}}, {"type": "string", "format": "uri"}, {"type": "object", "maxProperties": 3},
    {"anyOf": [{**OBJECT, "properties": {"a": {"type": "string"}}}, {"type": "object", "required": ["b"]}]},
    {"anyOf": [{**OBJECT, "properties": {"name": {"type": "string"}}}, FIXED]},
])
def test_items_that_could_come_to_where_nothing_may_follow_are_refused_where_they_stand(items: Any) -> None:
    schema = {**OBJECT, "properties": {"a": {**UNIQUE, "items": KEYED}, "b": {**UNIQUE, "items": items}}}
    with pytest.raises(RequestError, match=r"a grammar cannot compare; .* \(at #/properties/b\)"):
        compared(schema)


def test_where_items_cannot_be_compared_they_are_selected_and_others_compared_all_the_same() -> None:
    mixed = {"anyOf": [LISTED, {"type": "array", "items": {"enum": ["a"]}, "minItems": 2}]}
    schema = {**OBJECT, "properties": {"a": TEXTS, "b": mixed}, "required": ["a", "b"]}
    assert compared(schema) == [Differing()] and accepts(schema, {"a": ["x", "y"], "b": ["a", "ab"]})
    assert not accepts(schema, {"a": ["x", "x"], "b": ["a"]})


def compared(schema: Any, **more: Any) -> Sequence[Differing]:
    places = COMPILER.compile(StructuredOutputsParams(json=schema, **more)).places
    return [place.items for place in places if place.items is not None]


def test_nothing_is_followed_where_nothing_has_to_be() -> None:
    assert not compared({"type": "array", "items": {"type": "string"}}) and not compared({**TEXTS, "maxItems": 1})
    assert compared({**OBJECT, "properties": {"a": TEXTS, "b": TEXTS}}) == [Differing(), Differing()]
    assert compared({**TEXTS, "items": SHORT}) == [Differing(most=1)]


def test_where_an_answer_could_come_to_an_end_that_nothing_may_follow_selections_are_listed_as_elsewhere() -> None:
    """An array of two alike may stand where listed items must differ."""
    mixed = {"anyOf": [LISTED, {"type": "array", "items": {"enum": ["a"]}, "minItems": 2}]}
    assert not compared(mixed) and accepts(mixed, ["a", "ab"]) and accepts(mixed, ["a", "a"]) and not accepts(mixed, ["ab", "ab"])
    assert not compared({"anyOf": [LISTED, {**LISTED, "uniqueItems": False, "minItems": 10}]})
    for other in ({"const": "a"}, {"type": "string", "maxLength": 3}, {"type": "string", "pattern": "^a$"}):
        with pytest.raises(RequestError, match="items that differ"):
            compared({"anyOf": [TEXTS, {"type": "array", "items": other, "minItems": 2}]})
        kinds = ({"anyOf": [text, {"required": ["k"], "type": "object", "properties": {"k": {"const": text}}}]} for text in (other, SHORT))
        with pytest.raises(RequestError, match="items that differ"):
            compared({"anyOf": [{**UNIQUE, "items": items} for items in kinds]})
    assert compared({"anyOf": [TEXTS, {"type": "array", "items": {"type": "integer"}, "minItems": 2}]}) == [Differing()]


def test_within_other_text_selections_are_listed() -> None:
    frame = Rules('frame: "so: " @body')
    assert not compared({**LISTED, "maxItems": 2}, frame=frame)
    with pytest.raises(RequestError, match="items that differ"):
        compared(TEXTS, frame=frame)
    with pytest.raises(RequestError, match="items that differ"):
        COMPILER.compile(StructuredOutputsParams(grammar=f"start: %json {json.dumps(TEXTS)}"))
