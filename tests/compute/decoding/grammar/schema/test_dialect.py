"""Keywords of several drafts side by side: each is obeyed, and none of a later draft lets through what is not valid without it."""
from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams
from tests.compute.decoding.grammar.schema.judge import COMPILER, DRAFT_3, DRAFT_4, DRAFT_7, DRAFT_2019, accepts, valid

ABCD = {"type": "object", "properties": {name: {} for name in "abcd"}, "additionalProperties": False}
LIST, TEXTS = {"type": "array"}, [{"type": "string"}]
CONTAINS = {**LIST, "contains": {"type": "string"}, "minContains": 0}
ALL_ITEMS = {**LIST, "prefixItems": [{"type": ["string", "integer"]}], "items": {"type": "integer"}}
# (schema, values that are let through, values that are not though jsonschema, which ignores one of the keywords, may find them valid)
CASES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "dependentRequired, dependencies": (
        {**ABCD, "dependentRequired": {"c": ["d"]}, "dependencies": {"a": ["b"]}}, [{}, {"a": 1, "b": 1}, {"c": 1, "d": 1}],
        [{"c": 1}, {"a": 1}]),
    "dependencies, dependentRequired of one name": (
        {**ABCD, "dependencies": {"a": ["b"]}, "dependentRequired": {"a": ["d"]}}, [{"c": 1}, {"a": 1, "b": 1, "d": 1}],
        [{"a": 1, "b": 1}, {"a": 1, "d": 1}]),
    "dependentSchemas, dependencies": (
        {**ABCD, "dependentSchemas": {"a": {"required": ["d"]}}, "dependencies": {"a": {"required": ["b"]}, "c": {"maxProperties": 1}}},
        [{"c": 1}, {"a": 1, "b": 1, "d": 1}], [{"a": 1, "b": 1}, {"a": 1, "d": 1}, {"c": 1, "b": 1}]),
    "extends, allOf": ({**DRAFT_3, "type": "string", "extends": {"minLength": 2}, "allOf": [{"maxLength": 3}]}, ["abc"], ["a", "abcd"]),
    "allOf, extends": ({**DRAFT_3, "type": "string", "allOf": [{"maxLength": 3}], "extends": [{"minLength": 2}]}, ["abc"], ["a", "abcd"]),
    "types that are schemas, anyOf": (
        {**DRAFT_3, "type": ["string", {"enum": [1]}], "anyOf": [{"minLength": 2}, {"maxLength": 0}]}, ["ab", "", 1], ["a", 2]),
    "disallow, not": ({**DRAFT_3, "type": ["string", "integer"], "disallow": "integer", "not": {"minLength": 2}}, ["a"], ["abc", 1]),
    "divisibleBy, multipleOf": ({**DRAFT_3, "type": "integer", "divisibleBy": 2, "multipleOf": 3}, [6], [2, 3]),
    "no item contained in draft 7": ({**DRAFT_7, **CONTAINS}, [["a"], ["a", 1]], [[], [2]]),
    "no item contained, and one at most, in draft 7": ({**DRAFT_7, **CONTAINS, "maxContains": 1}, [["a"], ["a", 1]], [[], [2], ["a", "b"]]),
    "no item contained in 2019-09": ({**DRAFT_2019, **CONTAINS, "maxContains": 1}, [["a"], [], [2]], [["a", "b"]]),
    "no item contained in draft 4, which knows neither": ({**DRAFT_4, **CONTAINS}, [["a"], [], [2]], []),
    "prefixItems beside items in draft 7": ({**DRAFT_7, **ALL_ITEMS}, [[], [1], [1, 2]], [["x"], ["x", 1]]),
    "prefixItems beside items in 2019-09": ({**DRAFT_2019, **ALL_ITEMS}, [[], [1], [1, 2]], [["x"], ["x", 1]]),
    "prefixItems beside items in 2020-12": (ALL_ITEMS, [[], ["x"], ["x", 1]], [["x", "y"]]),
    "prefixItems alone in 2019-09": ({**DRAFT_2019, **LIST, "prefixItems": TEXTS}, [["x"], ["x", 1]], [[1]]),
    "prefixItems of which 2019-09 does not speak": (
        {**DRAFT_2019, **LIST, "prefixItems": TEXTS, "unevaluatedItems": {"maxLength": 2}}, [["ab"], ["ab", 1]], [["abc"], [1]]),
    "a list of items of which 2019-09 speaks": (
        {**DRAFT_2019, **LIST, "items": TEXTS, "unevaluatedItems": {"maxLength": 2}}, [["abc"], ["abc", "ab"]], [["abc", "abc"], [1]]),
}


@pytest.mark.parametrize(("schema", "good", "bad"), CASES.values(), ids=CASES.keys())
def test_each_of_the_keywords_is_obeyed(schema: Any, good: list[Any], bad: list[Any]) -> None:
    assert all(valid(schema, value) and accepts(schema, value) for value in good)
    assert not any(accepts(schema, value) for value in bad)


@pytest.mark.parametrize(("schema", "why"), [
    ({**LIST, "items": TEXTS, "prefixItems": [{}]}, "prefixItems stands beside a list in items"),
    ({**DRAFT_7, **LIST, "prefixItems": [{}], "items": TEXTS}, "prefixItems stands beside a list in items"),
    ({"dependentRequired": 5, "dependencies": {"a": ["b"]}}, "dependentRequired is 5, but must be an object"),
    ({"dependencies": {"a": ["b"]}, "dependentRequired": {"a": 5}}, "dependentRequired is 5, but must be a list"),
    ({**DRAFT_3, "extends": {"minLength": 2}, "allOf": 5}, "allOf is 5, but must be a list"),
    ({**DRAFT_7, "contains": {}, "minContains": False}, "minContains is false"),
    ({"type": "object", "not": {"dependencies": {"a": ["b"]}}}, "no value is valid by it"),  # as it says nothing since 2019-09
    ({"type": "integer", "not": {"$recursiveRef": "#/$defs/a"}, "$defs": {"a": {"minimum": 3}}}, "no value is valid by it"),
    ({**DRAFT_7, "type": "integer", "not": {"$dynamicRef": "#/$defs/a"}, "$defs": {"a": {"minimum": 3}}}, "no value is valid by it"),
])
def test_what_cannot_stand_side_by_side_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(StructuredOutputsParams(json=schema))
    assert why in str(refusal.value)
