"""What is too long for any answer is impossible: refused where nothing else is left, and left out where something is."""
import json
import random
from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.tokens import MAX_LEN, compiler, matcher_of, write

COMPILER = compiler()
ROOM = 5 * MAX_LEN  # characters
NARROW = compiler(max_len=8)  # 40 characters
HUGE = 10**9


def why_not(schema: Any) -> str:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(Wanted(json=schema))
    return str(refusal.value)


@pytest.mark.parametrize(("schema", "keywords", "least", "could"), [
    ({"type": "string", "minLength": HUGE}, "type and minLength", HUGE + 2, f"minLength could be at most {ROOM - 2:,}"),
    ({"type": "string", "minLength": ROOM - 1}, "type and minLength", ROOM + 1, f"minLength could be at most {ROOM - 2:,}"),
    ({"type": "string", "minLength": 2**70}, "type and minLength", 2**70 + 2, f"minLength could be at most {ROOM - 2:,}"),
    ({"type": "string", "not": {"maxLength": HUGE}}, "type and not", HUGE + 3, ""),
    ({"type": "array", "minItems": HUGE}, "type and minItems", 2 * HUGE + 1, f"minItems could be at most {ROOM // 2 - 1:,}"),
    ({"type": "array", "items": {"type": "null"}, "minItems": HUGE}, "type, items and minItems", 5 * HUGE + 1,
     f"minItems could be at most {(ROOM - 1) // 5:,}"),
    ({"type": "array", "contains": {"const": 1}, "minContains": HUGE}, "type and contains", 2 * HUGE + 1, ""),
    ({"type": "object", "minProperties": HUGE}, "type and minProperties", 5 * HUGE + 1,
     f"minProperties could be at most {(ROOM - 1) // 5:,}"),
    ({"type": "object", "properties": {"n": {}, "m": {}}, "minProperties": HUGE}, "type, properties and minProperties", 5 * HUGE + 1,
     f"minProperties could be at most {(ROOM - 1) // 5:,}"),
    ({"type": "array", "minItems": 4000, "items": {"type": "array", "minItems": 4000}}, "type, minItems and items", 4000 * 8002 + 1,
     "minItems could be at most 6"),
    ({"type": "object", "properties": {name: {"type": "string", "minLength": 20_000} for name in "xyz"}, "required": ["x", "y", "z"]},
     "type, properties and required", 3 * 20_007 + 1, ""),
])
def test_what_no_answer_has_room_for_is_refused_with_the_number_that_would_fit(schema: Any, keywords: str, least: int, could: str) -> None:
    said = why_not({"type": "object", "properties": {"a": schema}, "required": ["a"]})
    assert said == (f"a value that is valid by {keywords} has at least {least:,} characters, but an answer that fits into this model's "
                    f"context has at most {ROOM:,}{'; ' if could else ''}{could} (at #/properties/a)")


@pytest.mark.parametrize("schema", [
    {"minLength": HUGE}, {"type": ["string", "null"], "minLength": HUGE}, {"anyOf": [{"type": "string", "minLength": HUGE}, {"const": 7}]},
    {"type": "object", "properties": {"a": {"type": "string", "minLength": HUGE}, "b": {"const": 7}}, "additionalProperties": False},
    {"type": "array", "items": {"type": "string", "minLength": HUGE}}, {"type": "array", "minItems": 1, "items": {
        "anyOf": [{"const": 7}, {"type": "array", "minItems": HUGE}, {"type": "object", "minProperties": HUGE}]}},
    {"type": "array", "items": {"type": "null"}, "minItems": 7}, {"type": "string", "minLength": 38},
    {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"n": {"anyOf": [{"$ref": "#/$defs/n"}, {"const": 7}]}},
                                    "required": ["n"], "additionalProperties": False}}},
])
def test_what_fits_is_obeyed_and_what_does_not_is_never_begun(schema: Any) -> None:
    """In 40 characters."""
    wanted = Wanted(json=schema, disable_any_whitespace=True)
    found = [write(matcher_of(NARROW, wanted), random.Random(seed)) for seed in range(6)]
    assert any(each is not None for each in found)
    for each in filter(None, found):
        value = json.loads(each)
        assert not isinstance(value, str) or "minLength" in schema and len(value) >= 38


def test_one_more_than_fits_is_refused() -> None:
    for schema in ({"type": "array", "items": {"type": "null"}, "minItems": 8}, {"type": "string", "minLength": 39}):
        with pytest.raises(RequestError, match="has at most 40"):
            NARROW.compile(Wanted(json=schema))


@pytest.mark.parametrize(("wanted", "what"), [
    (Wanted(regex="(ab){21,}|a{50}"), "each text that it matches"), (Wanted(choice=["a" * 42, "b" * 50]), "each choice"),
    (Wanted(grammar='start: "x" %json {"type": "string", "minLength": 40}'), "a value that is valid by type and minLength"),
])
def test_regexes_choices_and_schemas_of_grammars_are_measured_as_well(wanted: Wanted, what: str) -> None:
    with pytest.raises(RequestError) as refusal:
        NARROW.compile(wanted)
    assert str(refusal.value).startswith(
        f"{what} has at least 42 characters, but an answer that fits into this model's context has at most 40")


def test_what_may_be_short_is_obeyed_beside_what_is_too_long() -> None:
    assert NARROW.compile(Wanted(regex="(ab){21,}|a{40}")) and NARROW.compile(Wanted(choice=["a" * 42, "b" * 40]))
