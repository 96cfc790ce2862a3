"""A schema that is refused is refused with its place, whatever is wrong with it and however deep it stands."""
from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams
from tests.compute.decoding.grammar.tokens import compiler

COMPILER = compiler()
OUTER = "#/properties/a~1b/items"
COMBINED = {"allOf": [{"anyOf": [{"required": [f"{m}{n}"]} for n in range(9)]} for m in range(9)]}


def why_not(schema: Any) -> str:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(StructuredOutputsParams(json=schema))
    return str(refusal.value)


def within(schema: Any) -> Any:
    """A schema that nothing is valid by unless something is by this one, which stands at OUTER."""
    items = {"type": "array", "minItems": 1, "items": schema}
    return {"type": "object", "properties": {"a/b": items, "other": {"type": "string"}}, "required": ["a/b"]}


@pytest.mark.parametrize(("schema", "inside"), [
    *((schema, "") for schema in (
        {"$schema": 5}, {"$schema": None, "type": "null"},
        {"type": "thing"}, {"type": 5}, {"enum": 5}, {"enum": ["a\1"]}, {"const": ["a\1"]}, {"const": {"x": {"y": 1e23}}}, {"minimum": "x"},
        {"multipleOf": 0}, {"type": "number", "multipleOf": 0.123456789}, {"type": "number", "multipleOf": 1e-300},
        {"type": "integer", "minimum": 10**30}, {"minLength": -1},
        {"type": "string", "minLength": 2, "maxLength": 1}, {"pattern": "("}, {"pattern": "a{30000}"}, {"format": 5}, {"prefixItems": 5},
        {"type": "array", "minItems": 9999}, {"type": "array", "uniqueItems": True}, {"properties": 5}, {"properties": {"a\1": {}}},
        {"patternProperties": {"(": {}}}, {"required": 5}, {"type": "object", "minProperties": 2}, {"dependentRequired": {"a": 5}},
        {"dependencies": 5}, {"anyOf": []}, {"$ref": 5}, {"$ref": "#/nowhere"}, {"$ref": "#nowhere"}, {"$ref": "http://x.example/a"},
        {"$ref": "http://[bad"}, {"$id": "http://[bad"}, {"$dynamicRef": 5}, {"$ref": "#/type", "minLength": 1}, COMBINED,
        {"type": "object", "propertyNames": {"format": "email"}})),
    ({"items": {"$schema": []}}, "/items"),
    ({"items": 5}, "/items"), ({"prefixItems": [{}, 5]}, "/prefixItems/1"), ({"properties": {"x": 5, "y": {}}}, "/properties/x"),
    ({"dependencies": {"x": 5}}, "/dependencies/x"), ({"anyOf": [{}, 5]}, "/anyOf/1"), ({"oneOf": [{}, {"not": 5}]}, "/oneOf/1/not"),
    ({"unevaluatedProperties": False, "properties": {"x": {"type": 5}}}, "/properties/x"),
    ({"unevaluatedProperties": False, "properties": {"x": 5}}, "/properties/x"), ({"not": {"pattern": "("}}, "/not"),
    ({"allOf": [{"$ref": "#/nowhere"}]}, "/allOf/0"), ({"oneOf": [{"pattern": "("}, {"type": "integer"}]}, "/oneOf/0"),
    ({"if": {}, "then": {"properties": {"x": {"items": {"enum": 5}}}}}, "/then/properties/x/items"),
], ids=lambda each: ascii(each)[:40])
def test_the_place_is_that_of_the_innermost_schema(schema: Any, inside: str) -> None:
    said = why_not(within(schema))
    assert said.endswith(f" (at {OUTER}{inside})")
    assert why_not({"$schema": "http://json-schema.org/draft-07/schema#", **within(schema)}).endswith(f" (at {OUTER}{inside})")


def test_what_no_value_is_valid_by_is_told_by_the_innermost_schema_that_stands_in_the_document() -> None:
    assert why_not(within({"type": "array", "items": False, "minItems": 1})) == (
        f"no value is valid by it: type, items and minItems together leave none (at {OUTER})")


def test_a_reference_to_what_is_no_schema_is_told_with_what_it_leads_to() -> None:
    assert why_not({"type": "object", "properties": {"a": {"$ref": "#/type"}}}) == (
        "$ref '#/type' leads to \"object\", which is no schema (at #/properties/a)")
