"""What is excluded: read with the same care as what is wanted."""
from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams
from tests.compute.decoding.grammar.schema.judge import COMPILER, DRAFT_2019, accepts, valid

ITSELF = {"type": ["object", "integer"], "properties": {"a": {}}}
NUMBERS, KINDS = {"type": "array", "items": {"type": "number"}, "minItems": 4}, list("abcdefgh")
BOXED = [{"required": ["kind", "at"], "properties": {"kind": {"enum": [kind]}, "at": NUMBERS, "box": NUMBERS}} for kind in KINDS]
FORGOTTEN = {"required": ["kind", "parts"], "properties": {"kind": {"emum": ["parts"]}, "parts": NUMBERS, "box": NUMBERS}}
X, UNSPOKEN = {"patternProperties": {"^x": {"type": "integer"}}}, {"type": "object", "unevaluatedProperties": False}
# (schema, values that are let through, values that are not)
CASES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "not what a dynamic reference leads to": (
        {**ITSELF, "$id": "http://a.example/", "$dynamicAnchor": "n", "properties": {"a": {"not": {"$dynamicRef": "#n"}}}},
        [{"a": "x"}, 1, {}], [{"a": 1}, {"a": {}}]),
    "not what a recursive reference leads to": (
        {**DRAFT_2019, **ITSELF, "$recursiveAnchor": True, "properties": {"a": {"not": {"$recursiveRef": "#"}}}},
        [{"a": "x"}, 1, {}], [{"a": 1}, {"a": {}}]),
    "not a pattern of any case": ({"type": "string", "not": {"pattern": "(?i)привет"}}, ["да"], ["ПРИВЕТ", "привет"]),
    "a pattern of any case in names": (
        {"type": "object", "patternProperties": {"(?i)^å": {"type": "integer"}}}, [{"å": 1}, {"b": "x"}], [{"Å": "x"}, {"\u212b": "x"}]),
    "a text beside a pattern of none": ({"type": "string", "pattern": "^$", "not": {"enum": ["é"]}}, [""], ["é"]),
    "no letters of any case": ({"type": "string", "pattern": "(?i)^[^а-я]+$"}, ["abc"], ["ПРИВЕТ", "привет"]),
    "none of many that are not all told apart": (
        {"type": "object", "oneOf": [*BOXED, FORGOTTEN]},
        [{"kind": "a", "at": [1, 2, 3, 4]}, {"kind": "z", "parts": [1, 2, 3, 4]}, {"kind": "h", "at": [1, 2, 3, 4], "box": [1, 2, 3, 4]}],
        [{"kind": "a", "at": [1]}, {"kind": "a", "at": [1, 2, 3, 4], "parts": [1, 2, 3, 4]}, {"kind": "z"}]),
    "none of many, where one of many is excluded": (
        {"type": "object", "not": {"oneOf": BOXED}}, [{}, {"kind": "z"}, {"kind": "a"}], [{"kind": "a", "at": [1, 2, 3, 4]}]),
    "what follows from each of many kinds": (
        {"type": "object", "required": ["kind"], "allOf": [
            {"if": {"properties": {"kind": {"const": kind}}}, "then": {"properties": {kind: {"type": "null"}}, "required": [kind]}}
            for kind in "abcdefghijkl"]},
        [{"kind": "l", "l": None}, {"kind": "a", "a": None}, {"kind": "z"}], [{"kind": "l"}, {"kind": "a", "a": 1}]),
    "names by a pattern that is excluded twice": ({**UNSPOKEN, "not": {"not": X}}, [{}], [{"x": 1}, {"y": 1}]),
    "names by a pattern that is excluded twice, and by one that is not": (
        {**UNSPOKEN, "not": {"not": X}, "patternProperties": {"^xy": {}}}, [{}, {"xy": 1}], [{"x": 1}, {"xy": "a"}]),
    "names by a pattern that is excluded twice, of which something is said": (
        {**UNSPOKEN, "not": {"not": X}, "unevaluatedProperties": {"minimum": 3}}, [{"x": 4}, {"y": "a"}], [{"x": 1}, {"x": "a"}, {"y": 1}]),
}


@pytest.mark.parametrize(("schema", "good", "bad"), CASES.values(), ids=CASES.keys())
def test_what_is_valid_alone_is_let_through(schema: Any, good: list[Any], bad: list[Any]) -> None:
    assert all(valid(schema, value) and accepts(schema, value) for value in good)
    assert not any(valid(schema, value) or accepts(schema, value) for value in bad)


@pytest.mark.parametrize(("schema", "why"), [
    ({"properties": 5}, "properties is 5"), ({"patternProperties": []}, "patternProperties is []"),
    ({"prefixItems": 5}, "prefixItems is 5"),
    ({"type": "objekt"}, 'type is "objekt"'), ({"type": ["objekt"]}, 'type is "objekt"'), ({"enum": "x"}, 'enum is "x"'),
    ({"enum": []}, "enum is []"), ({"uniqueItems": "yes"}, 'uniqueItems is "yes"'), ({"uniqueItems": 1}, "uniqueItems is 1"),
    ({"multipleOf": "x"}, 'multipleOf is "x"'), ({"multipleOf": 0}, "multipleOf is 0"), ({"format": {}}, "format is {}"),
    ({"contains": {}, "minContains": "x"}, 'minContains is "x"'), ({"contains": 5, "maxContains": 1}, "5 stands where a schema is needed"),
    ({"propertyNames": 5}, "5 stands where a schema is needed"), ({"unevaluatedItems": 5}, "5 stands where a schema is needed"),
    ({"unevaluatedProperties": []}, "[] stands where a schema is needed"), ({"required": ["a\1"]}, "control character"),
    ({"dependentRequired": {"a": ["b\1"]}}, "control character"), ({"dependentRequired": {"a\1": ["b"]}}, "control character"),
    ({"dependentSchemas": {"a\1": {"required": ["b"]}}}, "control character"),
])
def test_what_is_malformed_is_refused_whether_it_is_wanted_or_excluded(schema: Any, why: str) -> None:
    for outer in (schema, {"not": schema}, {"oneOf": [{"properties": {"a": {"type": "integer"}}}, schema]}):
        with pytest.raises(RequestError) as refusal:
            COMPILER.compile(StructuredOutputsParams(json=outer))
        assert why in str(refusal.value)
