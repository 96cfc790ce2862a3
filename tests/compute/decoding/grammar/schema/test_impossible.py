"""Parts that nothing is valid by: left out where they may be, refused where they must be there."""
from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams
from tests.compute.decoding.grammar.schema.judge import COMPILER, accepts, valid, written

IMPOSSIBLE: list[tuple[Any, str]] = [
    ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength and maxLength together leave none"),
    ({"type": "string", "pattern": "^aaa$", "maxLength": 2}, "pattern and maxLength together leave no string"),
    ({"type": "string", "pattern": "^(aa)+$", "minLength": 3, "maxLength": 3}, "pattern, minLength and maxLength together leave no string"),
    ({"type": "string", "format": "date", "maxLength": 2}, "format and maxLength together leave no string"),
    ({"type": "string", "format": "uuid", "minLength": 40}, "format and minLength together leave no string"),
    ({"type": "string", "format": "ipv4", "pattern": "x"}, "format and pattern together leave no string"),
    ({"type": "string", "allOf": [{"format": "ipv4"}, {"format": "ipv6"}]}, "allOf leaves no string"),
]


@pytest.mark.parametrize(("schema", "why"), IMPOSSIBLE)
def test_an_impossible_part_is_left_out_or_told(schema: Any, why: str) -> None:
    left_out: list[tuple[Any, list[Any]]] = [
        ({"type": "object", "properties": {"c": schema, "d": {"type": "boolean"}}, "additionalProperties": False}, [{"d": True}, {}]),
        ({"type": "object", "properties": {"d": {"type": "null"}}, "additionalProperties": schema}, [{"d": None}, {}]),
        ({"type": "object", "patternProperties": {"^x": schema}, "maxProperties": 1}, [{"y": 1}, {}]),
        ({"type": "array", "items": schema}, [[]]),
        ({"type": "array", "prefixItems": [{"type": "null"}], "items": schema}, [[None], []]),
        ({"anyOf": [schema, {"type": "boolean"}]}, [True]),
        ({"oneOf": [schema, {"type": "boolean"}]}, [True]),
    ]
    for around, good in left_out:
        assert all(valid(around, each) and accepts(around, each) for each in good)
        assert all((found := written(around, seed)) is None or valid(around, found[0]) for seed in range(3))
    needed: list[tuple[Any, str]] = [
        (schema, "#"), ({"type": "array", "items": schema, "minItems": 1}, "#/items"),
        ({"type": "object", "properties": {"c": schema}, "required": ["c"]}, "#/properties/c")]
    for around, place in needed:
        with pytest.raises(RequestError) as refusal:
            COMPILER.compile(StructuredOutputsParams(json=around))
        assert why.removesuffix(" none").removesuffix(" no string") in str(refusal.value)
        assert str(refusal.value).endswith(f"(at {place})")


@pytest.mark.parametrize("schema", [
    {"type": "string", "pattern": "^a{2,4}$", "minLength": 3, "maxLength": 3}, {"type": "string", "format": "uuid", "maxLength": 36},
    {"type": "string", "format": "date", "pattern": "^2"}, {"type": "string", "pattern": "^(aa)*$", "minLength": 3, "maxLength": 4},
])
def test_what_is_possible_is_written(schema: Any) -> None:
    assert all((found := written(schema, seed)) is None or valid(schema, found[0]) for seed in range(3))


UNIQUE = {"type": "array", "uniqueItems": True}
FROM_1_TO_4, ABC = {"type": "integer", "minimum": 1, "maximum": 4}, {"type": "string", "pattern": "^[abc]$"}


@pytest.mark.parametrize(("schema", "good", "bad"), [
    ({"items": FROM_1_TO_4, "minItems": 2, "maxItems": 3}, [[1, 2], [2, 3, 4]], [[1, 1], [1], [1, 2, 3, 4]]),
    ({"items": {**FROM_1_TO_4, "multipleOf": 2}}, [[], [2, 4]], [[2, 2], [2, 3]]),
    ({"items": ABC}, [["a", "c"], []], [["a", "a"], ["d"]]),
    ({"items": {"type": "string", "pattern": "^[ab]{1,2}$", "maxLength": 1}}, [["a", "b"]], [["a", "a"], ["ab"]]),
    ({"items": {"anyOf": [FROM_1_TO_4, {"type": "null"}, {"type": "boolean"}]}}, [[1, 2, None], [False, True]], [[1, 1], [None, None]]),
    ({"prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False}, [[7, "x"], [7], []], [[7, 7], [7, "x", 1]]),
    ({"prefixItems": [{"type": "integer"}], "items": ABC, "maxItems": 2}, [[7, "a"], [7]], [[7, "a", "b"]]),
    ({"prefixItems": [{"enum": ["a", "b"]}, {"enum": ["c", 1]}, {"type": "boolean"}], "items": False}, [["a", "c", True]], [["a", "a"]]),
])
def test_items_that_differ(schema: Any, good: list[Any], bad: list[Any]) -> None:
    schema = {**UNIQUE, **schema}
    assert all(valid(schema, each) and accepts(schema, each) for each in good)
    assert not any(accepts(schema, each) for each in bad)
    assert all((found := written(schema, seed)) is None or valid(schema, found[0]) for seed in range(4))


@pytest.mark.parametrize("schema", [
    {"items": {"type": "integer"}, "minItems": 2}, {"items": {"type": "string", "format": "uri"}}, {"items": {}},
    {"items": {"type": "integer", "minimum": 0, "maximum": 999}},
    {"prefixItems": [{"type": "integer"}, {"type": ["string", "number"]}], "items": False}, {"prefixItems": [{"type": "integer"}]},
    {"prefixItems": [{"enum": ["a", "b"]}, {"enum": ["b", "c"]}], "items": False},
])
def test_items_that_cannot_be_compared_are_refused(schema: Any) -> None:
    with pytest.raises(RequestError, match="uniqueItems asks for items that differ"):
        COMPILER.compile(StructuredOutputsParams(json={**UNIQUE, **schema}))
