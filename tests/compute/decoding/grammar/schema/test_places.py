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

WORDS = ["a", "ab", "abc", "the", "old", "king", 'a"b', "é", "10"]
TEXTS = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}
LISTED = {"type": "array", "items": {"enum": WORDS}, "uniqueItems": True}
OBJECT = {"type": "object", "additionalProperties": False}
SHORT = {"type": "string", "maxLength": 1}


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
    ({"type": "array", "items": TEXTS}, [[["x"], ["x"], ["y", "x"]]], [[["x"], ["x", "x"]]]),
])
def test_only_items_of_one_array_are_compared_and_only_where_they_must_differ(schema: Any, good: list[Any], bad: list[Any]) -> None:
    assert all(valid(schema, each) and accepts(schema, each) for each in good)
    assert not any(valid(schema, each) or accepts(schema, each) for each in bad)


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
    for other in ({"const": "a"}, {"type": "string", "maxLength": 3}, {"type": "string", "pattern": "^a"}):
        with pytest.raises(RequestError, match="items that differ"):
            compared({"anyOf": [TEXTS, {"type": "array", "items": other, "minItems": 2}]})
    assert compared({"anyOf": [TEXTS, {"type": "array", "items": {"type": "integer"}, "minItems": 2}]}) == [Differing()]


def test_within_other_text_selections_are_listed() -> None:
    frame = Rules('frame: "so: " @body')
    assert not compared({**LISTED, "maxItems": 2}, frame=frame)
    with pytest.raises(RequestError, match="items that differ"):
        compared(TEXTS, frame=frame)
    with pytest.raises(RequestError, match="items that differ"):
        COMPILER.compile(StructuredOutputsParams(grammar=f"start: %json {json.dumps(TEXTS)}"))
