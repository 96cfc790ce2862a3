"""Schemas, with the jsonschema package as the judge: whatever is written is valid, and whatever would be accepted is."""
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams
from tests.compute.decoding.grammar.schema.judge import COMPILER, DRAFT_3, DRAFT_4, DRAFT_7, DRAFT_2019, accepts, valid, written
from tests.compute.decoding.grammar.tokens import TOKENS, matcher_of

A, B = {"type": "object", "required": ["a"]}, {"type": "object", "required": ["b"]}
KINDS = {"properties": {"kind": {"enum": ["x", "y"]}, "a": {"type": "integer"}}, "required": ["kind"]}
TREE = {
    "type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/tree"}}, "v": {}}, "additionalProperties": False}
# (schema, values that are let through, values that are not)
CASES: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "one of two that overlap": ({"oneOf": [A, B]}, [{"a": 1}, {"b": 1}], [{"a": 1, "b": 1}, {}]),
    "one of bounds": ({"type": "number", "oneOf": [{"maximum": 2}, {"maximum": 5}]}, [3, 5], [1, 6]),
    "one of, told apart by what stands around it": (
        {"type": "object", "required": ["k"], "allOf": [{"oneOf": [
            {"properties": {"k": {"const": "a"}, "v": {"type": "integer"}}}, {"properties": {"k": {"const": "b"}}}]}]},
        [{"k": "a", "v": 1}, {"k": "b", "v": "x"}], [{"k": "a", "v": "x"}, {"k": "c"}]),
    "one of a format and any text": ({"oneOf": [{"type": "string", "format": "date"}, {"type": "integer"}]}, [1, "2020-01-02"], [1.5]),
    "not required": ({"type": "object", "not": {"required": ["a", "b"]}}, [{"a": 1}, {}], [{"a": 1, "b": 2}]),
    "not a constant": ({"type": "string", "not": {"enum": ["a", "ab"]}}, ["", "b", "abc"], ["a", "ab"]),
    "not a pattern": ({"type": "string", "not": {"pattern": "^[ab]+$"}}, ["", "abc"], ["ab"]),
    "not a number": ({"type": ["integer", "null"], "not": {"const": 3}}, [2, 4, None], [3]),
    "not a large number": ({"type": "number", "not": {"const": 2**53}}, [1, -2.5, 2**53 + 2], [2**53]),
    "not a large number below zero": (
        {"type": ["number", "null"], "not": {"enum": [-(2**58), 5]}}, [1, 6, -(2**58) - 2**8, None], [5, -(2**58)]),
    "not a number beyond all that are told apart": ({"type": "number", "not": {"enum": [1e300, -1e25]}}, [1, -2.5], [1e300, -1e25]),
    "not an object": ({"not": {"type": "object"}, "type": ["object", "boolean"]}, [True], [{}]),
    "if, then, else": (
        {**KINDS, "if": {"properties": {"kind": {"const": "x"}}}, "then": {"required": ["a"]}, "else": {"properties": {"a": False}},
         "type": "object"}, [{"kind": "x", "a": 1}, {"kind": "y"}], [{"kind": "x"}, {"kind": "y", "a": 1}]),
    "what draft 3 disallows, types and schemas": (
        {**DRAFT_3, "type": ["string", "integer"], "disallow": ["integer", {"enum": ["no"]}]}, ["yes", ""], [3, "no"]),
    "schemas among the types of draft 3": ({**DRAFT_3, "type": ["integer", {"enum": ["a"]}]}, [3, "a"], ["b", 1.5]),
    "dependencies": (
        {**DRAFT_7, "type": "object", "properties": {"a": {}, "b": {}}, "dependencies": {"a": ["b"], "b": {"minProperties": 1}}},
        [{"a": 1, "b": 2}, {"b": 1}, {}], [{"a": 1}]),
    "property names by pattern": ({"type": "object", "propertyNames": {"pattern": "^[ab]+$"}}, [{"ab": 1}, {}], [{"c": 1}]),
    "property names from a list": (
        {"type": "object", "propertyNames": {"enum": ["a", "b"]}, "required": ["a"]}, [{"a": 1}], [{"a": 1, "c": 1}]),
    "patterns that overlap": (
        {"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 3}}, "additionalProperties": False},
        [{"ax": 1}, {"ab": 4}], [{"ab": 1}, {"ax": "y"}, {"c": 1}]),
    "how names begin and how they end": (
        {"type": "object", "patternProperties": {"^x-": {"type": "string"}, "id$": {"type": "integer"}}},
        [{"x-note": "a", "id": 1, "user_id": 2, "age": None}], [{"x-note": 1}, {"user_id": "a"}, {"x-id": 1}, {"x-id": "a"}]),
    "two letters that are found anywhere in names": (
        {"type": "object", "patternProperties": {"k.*": {"type": "integer"}, "m.*": False}, "additionalProperties": {"type": "null"}},
        [{"kit": 1, "a": None}], [{"kit": "x"}, {"ham": 1}, {"milk": 1}, {"a": 1}]),
    "a pattern and a name": (
        {"type": "object", "properties": {"ab": {"type": "integer"}}, "patternProperties": {"^a": {"maximum": 5}}},
        [{"ab": 3}], [{"ab": 7}]),
    "one of patterns": (
        {"type": "string", "oneOf": [
            {"pattern": f"^{kind}(8|16|24|32|40|48|56|64)?(\\[[0-9]*\\])*$"} for kind in ("int", "fixed", "uint", "x?bool")]},
        ["int", "uint8[3]", "xbool[][]"], ["float", "int9"]),
    "one of many texts that are found anywhere": (
        {"type": "string", "oneOf": [{"pattern": kind} for kind in ("NEW", "ON_APPROVAL", "ON_SIGNING", "DONE", "OLD", "REJECTED")]},
        ["NEW", "REJECTED"], ["", "NEW OLD"]),
    "one of kinds by pattern, that hold each other": (
        {"$ref": "#/$defs/rule", "$defs": {"rule": {"oneOf": [
            {"type": "object", "required": ["type"], "properties": {
                "type": {"type": "string", "pattern": f"^{kind}$"}, "in": {"$ref": "#/$defs/rule"}}}
            for kind in ("SEQ", "CHOICE", "ALIAS", "REPEAT", "REPEAT1", "(TOKEN|NEXT)", "FIELD", "PREC", "BLANK", "STRING", "SYMBOL")]}}},
        [{"type": "SEQ", "in": {"type": "NEXT"}}, {"type": "PREC"}], [{"type": "SEQ", "in": {"type": "OTHER"}}, {}, {"type": "SEQS"}]),
    "one of closed kinds, none of which must tell itself": (
        {"oneOf": [{"type": "object", "required": ["label"], "additionalProperties": False, "properties": {
            "type": {"enum": [kind]}, "label": {"type": "string"}, "help": {"type": "string"}, "size": {"type": "number"},
            "needed": {"type": "boolean"}, f"only_{at % 4}": {"type": "string"}}} for at, kind in enumerate("abcdefghijk")]},
        [{"type": "a", "label": "x"}, {"type": "k", "label": "y", "size": 2}],
        [{"label": "x"}, {"type": "a"}, {"type": "z", "label": "x"}]),
    "several at least": (
        {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "minProperties": 2, "additionalProperties": False},
        [{"a": 1, "b": 1}, {"b": 1, "c": 1}, {"a": 1, "c": 1}, {"a": 1, "b": 1, "c": 1}], [{}, {"b": 1}]),
    "looking ahead and behind": (
        {"type": "string", "pattern": "^(?!-)[a-z-]{1,5}(?<!-)$"}, ["a", "a-b"], ["-a", "a-", "-"]),
    "looking ahead": ({"type": "string", "pattern": "^(?!(if|else)$)[a-z]+$"}, ["iff", "x"], ["if", "else", "X"]),
    "the edge of a word": ({"type": "string", "pattern": r"\bfox\b"}, ["a fox!", "fox"], ["foxy"]),
    "anchors behind one another": (
        {"type": "object", "patternProperties": {"^(^a|b$)$": {"type": "integer"}}, "additionalProperties": {"type": "null"}},
        [{"a": 1}, {"b": 2}, {"c": None, "ab": None}], [{"a": None}, {"b": None}, {"c": 1}]),
    "a pattern in two anchors": ({"type": "string", "pattern": "^(^cat$|^dog$)$"}, ["cat", "dog"], ["cats", "", "catdog"]),
    "not a pattern with two anchors": ({"type": "string", "not": {"pattern": "^^a"}}, ["ba", ""], ["a", "ab"]),
    "contains": ({"type": "array", "items": {"type": ["integer", "string"]}, "contains": {"type": "string"}, "minItems": 2},
                 [["a", 1]], [[1, 2], []]),
    "contains none or some": (
        {"type": "array", "contains": {"type": "integer"}, "minContains": 0, "maxContains": 2},
        [[], [1], [1, 2], ["a"], [1, "a"]], [[1, 2, 3]]),
    "what is contained was spoken of": (
        {"type": "array", "contains": {"type": "null"}, "unevaluatedItems": False}, [[None], [None, None]], [[], [None, 1]]),
    "one property that has no schema": (
        {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["x"], "maxProperties": 2},
        [{"x": 1}, {"id": 1, "x": 2}], [{}, {"id": 1}, {"id": 1, "x": 1, "y": 1}]),
    "one property alone that has no schema": (
        {"type": "object", "properties": {"id": {"type": "integer"}}, "patternProperties": {"^x": {"type": "null"}}, "required": ["x"],
         "maxProperties": 1}, [{"x": None}], [{"x": 1}, {"id": 1}]),
    "true and one": ({"enum": [True, 1, 0, "auto", False]}, [True, 1, 0, "auto", False], [2, None]),
    "contains at most": ({"type": "array", "contains": {"const": 1}, "maxContains": 1}, [[1], [1, 2]], [[1, 1], [2]]),
    "few different items": ({"type": "array", "items": {"enum": ["a", "b", "c"]}, "uniqueItems": True, "minItems": 2},
                            [["a", "b"], ["a", "b", "c"]], [["a", "a"], ["a"]]),
    "at least two of the properties": (
        {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": False, "minProperties": 2},
        [{"a": 1, "c": 2}, {"a": 1, "b": 2, "c": 3}], [{"a": 1}, {}]),
    "at most one of the properties": (
        {"type": "object", "properties": {"a": {}, "b": {}}, "additionalProperties": False, "maxProperties": 1}, [{}, {"b": 1}],
        [{"a": 1, "b": 2}]),
    "at most two properties, with a name or without": (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}}, "maxProperties": 2},
        [{}, {"a": 1, "x": 2}, {"b": 1, "x": 2}, {"a": 1, "b": 2}, {"x": 1, "y": 2}],
        [{"a": 1, "b": 2, "x": 3}, {"a": 1, "x": 2, "y": 3}, {"a": "x", "y": 1}]),
    "at least two properties, one of which may have no name": (
        {"type": "object", "properties": {"a": {"type": "integer"}, "b": {}, "c": {}}, "minProperties": 2, "maxProperties": 3},
        [{"a": 1, "x": 2}, {"c": 1, "x": 2, "y": 3}, {"a": 1, "b": 2}, {"a": 1, "c": 2, "x": 3}],
        [{"a": 1}, {"x": 1}, {"a": 1, "b": 1, "c": 1, "x": 1}, {"b": 1, "x": 1, "y": 1, "z": 1}]),
    "no other property was spoken of": (
        {"type": "object", "allOf": [{"properties": {"a": {}}}], "anyOf": [{"properties": {"b": {}}, "required": ["b"]}, {}],
         "unevaluatedProperties": False}, [{"a": 1}, {"a": 1, "b": 2}], [{"c": 1}]),
    "no other item was spoken of": (
        {"type": "array", "prefixItems": [{"type": "string"}], "unevaluatedItems": False}, [["a"], []], [["a", 1]]),
    "listed values say nothing of their items": (
        {"enum": [["a"], [1], []], "unevaluatedItems": {"type": "integer"}}, [[1], []], [["a"]]),
    "listed values say nothing of their properties": (
        {"allOf": [{"enum": [{"a": "x"}, {"a": 1}, {}]}], "unevaluatedProperties": {"type": "integer"}}, [{"a": 1}, {}], [{"a": "x"}]),
    "keywords beside a reference": (
        {"$defs": {"t": {"type": "object", "properties": {"a": {"type": "integer"}}}}, "$ref": "#/$defs/t", "required": ["a"]},
        [{"a": 1}], [{}, {"a": "x"}]),
    "references in circles": ({"$defs": {"tree": TREE}, "$ref": "#/$defs/tree"}, [{"kids": [{"v": 1}, {"kids": []}]}], [{"kids": [1]}]),
    "circles with keywords beside them": (
        {"$defs": {"t": {"type": "object", "properties": {"next": {"$ref": "#/$defs/t", "required": ["v"]}, "v": {"type": "integer"}}}},
         "$ref": "#/$defs/t"}, [{"next": {"v": 1}}], [{"next": {}}, {"next": {"v": "x"}}]),
    "addresses and anchors": (
        {"$id": "http://a.example/root.json", "$defs": {"x": {"$id": "x.json", "$anchor": "here", "type": "integer"}},
         "type": "array", "items": {"anyOf": [{"$ref": "x.json"}, {"$ref": "x.json#here"}, {"$ref": "#/$defs/x"}]}}, [[1, 2]], [["a"]]),
    "an address in an unknown keyword": (
        {"$defs": {"a": {"x": {"deep": {"$id": "http://a.example/", "type": "null"}}}, "b": {"$id": "http://a.example/", "type": "string"},
                   "c": {"note": [{"$id": "http://a.example/", "type": "integer"}]}}, "$ref": "http://a.example/"}, ["a"], [1, None]),
    "an anchor under a name like a keyword": (
        {"type": "object", "properties": {"default": {"$anchor": "here", "type": "integer"}, "b": {"$ref": "#here"}}},
        [{"b": 1}], [{"b": ""}]),
    "a day that there is": (
        {"type": "string", "format": "date"}, ["2024-02-29", "2000-02-29", "2023-12-31"], [1]),
    "draft 4": ({**DRAFT_4, "type": "number", "minimum": 1, "exclusiveMinimum": True, "maximum": 3}, [2, 3], [1, 4]),
    "draft 4, words between the bounds": (
        {**DRAFT_4, "minimum": 1, "anyOf": [{"type": "number"}], "exclusiveMinimum": True}, [2], [1]),
    "a list of items in an older draft": (
        {**DRAFT_2019, "type": "array", "items": [{"type": "string"}], "additionalItems": {"type": "integer"}},
        [["a", 1], []], [["a", "b"], [1]]),
    "cents": ({"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 9}, [0.25, 1.75, 7], [0.333]),
    "integers beyond what a double holds": ({"type": "integer", "minimum": 9007199254740993, "maximum": 9223372036854775807},
                                            [9007199254740994], [9007199254740992, 9223372036854775808]),
    "a bound that is left out": ({"type": "number", "exclusiveMaximum": 1, "minimum": 0.5}, [0.5, 0.75], [1, 0.25]),
    "a format of nobody": ({"type": "string", "format": "shoe-size"}, ["44"], [44]),
    "listed values and their type": ({"type": "string", "enum": ["a", 1, None]}, ["a"], [1, None]),
    "arrays and objects that are listed": ({"enum": [[1, {"a": None}], {}, "x"]}, [[1, {"a": None}], {}, "x"], [[1], {"a": None}, "y"]),
    "nothing but what holds itself": ({"anyOf": [{"$ref": "#/$defs/t"}, {"type": "null"}], "$defs": {"t": {
        "type": "object", "properties": {"t": {"$ref": "#/$defs/t"}}, "required": ["t"]}}}, [None], [{}]),
    "guidance's own options": ({"x-guidance": {"lenient": True}, "type": "string", "minLength": 2}, ["ab"], ["a"]),
    "everything": (True, [1, "a", None, [[]], {"a": {}}], []),
}


@pytest.mark.parametrize(("schema", "good", "bad"), CASES.values(), ids=CASES.keys())
def test_what_is_let_through_and_what_is_not(schema: Any, good: list[Any], bad: list[Any]) -> None:
    for value in good:
        assert valid(schema, value) and accepts(schema, value), value
    for value in bad:
        assert not valid(schema, value) and not accepts(schema, value), value
    made = [written(schema, seed) for seed in range(6)]
    for each in made:
        assert each is None or valid(schema, each[0]), each


@pytest.mark.parametrize(("schema", "why"), [
    ({"type": "array", "items": {"type": ["string", "number"]}, "uniqueItems": True}, "items that differ"),
    ({"type": "object", "minProperties": 3}, "names that differ"),
    ({"$ref": "http://elsewhere.example/a.json"}, "other documents are not fetched"), ({"$ref": "#/$defs/x"}, "leads nowhere"),
    ({"type": "string", "minLength": 3, "maxLength": 2}, "no value is valid"), ({"type": "thing"}, 'type is "thing"'),
    (False, "no value is valid"),
    ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "no value is valid"), ({"minLength": -1}, "minLength is -1"),
    ({"anyOf": []}, "anyOf is []"), ({"properties": []}, "properties is []"), ({"items": 5}, "5 stands where a schema is needed"),
    ({"enum": ["a\0"]}, "control character"), ({"enum": [2**53 + 1]}, "than are read back"), ({"pattern": r"(a)\1"}, "refers back"),
    ({"multipleOf": 0}, "above 0"), ({"multipleOf": 0.123456789}, "checked exactly"), ({"type": "array", "minItems": 9999}, "at most 4000"),
    ({"anyOf": [{"$ref": "#"}]}, "refers to itself"), ({"$ref": "#"}, "refers to itself"), ({"allOf": [{"$ref": "#"}]}, "refers to itself"),
    ({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"type": "null", "$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "refers to itself"),
    ({"type": "object", "propertyNames": {"pattern": "^\\0$"}, "minProperties": 1}, "no value is valid"),
    ({"not": {"patternProperties": {"a": {"type": "null"}}}, "type": "object", "properties": {"a": {}}, "maxProperties": 1,
      "required": ["b"]}, "no value is valid"),
    ({"type": "string", "pattern": "^\\cC$"}, "pattern leaves no string (at #)"),
    ({"type": "string", "pattern": "(?!^)a"}, "looks ahead for its beginning"),
    ({"$ref": "http://[bad"}, "is no address"), ({"$id": "http://[bad", "$ref": "#"}, "is no address"),
    ({"type": "string", "pattern": "((x*?[^\\w]?b{2,}))", "maxLength": 1}, "leave no string"),
    ({"type": "string", "pattern": "a^b"}, "no value is valid"),
    ({"type": "string", "pattern": "aa", "maxLength": 1}, "pattern and maxLength together leave no string"),
    ({"type": "integer", "multipleOf": 123456789}, "123,456,789 remainders; at most 100,000"), ({"minimum": 10**400}, "a double can be"),
    ({"type": "integer", "minimum": 1, "multipleOf": 20000}, "20,000 remainders; at most 10,000"), ({"enum": [1e23]}, "than are read back"),
    ({"allOf": [{"multipleOf": 997}, {"multipleOf": 991}]}, "988,027 remainders"),
    ({"allOf": [{"anyOf": [{"required": [f"{m}{n}"]} for n in range(9)]} for m in range(9)]}, "combinations"),
])
def test_what_cannot_be_obeyed_is_refused(schema: Any, why: str) -> None:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(StructuredOutputsParams(json=schema))
    assert why in str(refusal.value)


DATE, UUID = ({"type": "string", "format": name} for name in ("date", "uuid"))
TOLD = "cannot be excluded, as not, oneOf, if, else or maxContains asks for"
AGREE = f"{TOLD}: validators do not agree on what is of a format; a pattern can be excluded"


@pytest.mark.parametrize(("schema", "why"), [
    ({"not": {"format": "date"}}, f'format "date" (at #/not) {AGREE}'),
    ({"type": "string", "not": {"format": "uuid"}}, f'format "uuid" (at #/not) {AGREE}'),
    ({**DATE, "not": {"format": "date-time"}}, f'format "date-time" (at #/not) {AGREE}'),
    ({"oneOf": [DATE, {"type": "string"}]}, f'format "date" (at #/oneOf/0) {AGREE}'),
    ({"oneOf": [UUID, DATE]}, f'format "date" (at #/oneOf/1) {AGREE}'),
    ({"type": "string", "if": UUID, "then": False}, f'format "uuid" (at #/if) {AGREE}'),
    ({"type": "object", "properties": {"a": {"not": {"format": "date", "minLength": 3}}, "b": {"not": {"format": "time"}}},
      "required": ["b"]}, f'format "time" (at #/properties/b/not) {AGREE}'),
    ({"type": "integer", "not": {"multipleOf": 3}}, f"multipleOf (at #/not) {TOLD}"),
    ({"type": "number", "not": {"type": "integer"}}, f'type "integer" (at #/not) {TOLD}: JSON writes integers and other numbers alike'),
    ({"type": "array", "not": {"uniqueItems": True}}, f"uniqueItems (at #/not) {TOLD}: a grammar cannot compare items"),
    ({"type": "array", "contains": {"format": "uuid"}, "minContains": 0, "maxContains": 0, "minItems": 1},
     f'format "uuid" (at #/contains) {AGREE}'),
    *[(schema, "no value is valid by it, as far as that is known of what it excludes") for schema in (  # whatever formats say
        {"type": "integer", "not": {"format": "date"}}, {"type": "string", "not": {"uniqueItems": True}}, {"not": {"format": "colour"}},
        {"type": "string", "not": {"type": "string"}}, {"not": {}}, {"type": "array", "not": {"uniqueItems": False}},
        {"type": "string", "format": "date", "pattern": "a", "not": {"format": "uuid", "minLength": 3}})],
])
def test_a_keyword_of_which_not_all_that_it_forbids_is_known_is_named_where_that_is_why_nothing_is_left(schema: Any, why: str) -> None:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(StructuredOutputsParams(json=schema))
    assert str(refusal.value).startswith(why)


@pytest.mark.parametrize("schema", [{**DATE, "not": {"const": "2020-01-01"}}, {**UUID, "not": {"pattern": "^a"}}, {"not": DATE}])
def test_formats_beside_what_is_excluded_are_obeyed(schema: Any) -> None:
    assert COMPILER.compile(StructuredOutputsParams(json=schema))


SHORT = {"type": "string", "format": "date", "pattern": "^2", "maxLength": 9}
NONE = "no value is valid by it: "


@pytest.mark.parametrize(("schema", "why"), [
    (SHORT, NONE + "format, pattern and maxLength together leave no string (at #)"),
    ({"type": "array", "items": SHORT, "minItems": 1}, NONE + "format, pattern and maxLength together leave no string (at #/items)"),
    ({"$defs": {"a": {**UUID, "minLength": 40}}, "type": "array", "items": {"$ref": "#/$defs/a"}, "minItems": 1},
     NONE + "format and minLength together leave no string (at #/$defs/a)"),
    ({"type": "object", "properties": {"a/b": {"allOf": [UUID, {"format": "ipv4"}]}}, "required": ["a/b"]},
     NONE + "allOf leaves no string (at #/properties/a~1b)"),
    ({**UUID, "not": {"minLength": 9}}, f"{NONE[:-2]}, as far as that is known of what it excludes: "
     "format and not together leave no string (at #)"),
    ({"anyOf": [{**UUID, "maxLength": 1}, {"type": "string", "format": "ipv4", "maxLength": 3}]}, NONE + "anyOf leaves no string (at #)"),
    ({"type": "integer", "minimum": 5, "maximum": 3}, NONE + "type, minimum and maximum together leave none (at #)"),
    ({"type": "object", "properties": {"a": {"prefixItems": [{"enum": [1], "minimum": 2}], "minItems": 1, "type": "array"}},
      "required": ["a"]}, NONE + "enum and minimum together leave none (at #/properties/a/prefixItems/0)"),
    ({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
     NONE + "type, properties and required together leave none (at #)"),
    (False, "no value is valid by it"),
    ({"type": "string", "pattern": "a", "minLength": 3000, "not": {"pattern": "b"}},
     "its patterns and lengths are too complex together to tell whether any text fits all (at #)"),
])
def test_what_leaves_nothing_is_told_by_its_place_and_its_keywords(schema: Any, why: str) -> None:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(StructuredOutputsParams(json=schema))
    assert str(refusal.value) == why


def test_counts_that_are_never_reached_are_no_limit() -> None:
    for keyword in ("maxLength", "maxItems", "maxProperties"):
        assert COMPILER.compile(StructuredOutputsParams(json={keyword: 2**70}))


@pytest.mark.parametrize("schema", [
    {"$defs": {"a": {"type": "integer"}}, "allOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/a"}, {"allOf": [{"$ref": "#/$defs/a"}]}]},
    {"$defs": {"a": {"type": "array", "items": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}, {"multipleOf": 10**8, "type": "integer"},
])
def test_what_looks_alike_and_can_be_obeyed(schema: Any) -> None:
    assert COMPILER.compile(StructuredOutputsParams(json=schema))


def test_properties_come_in_the_order_of_the_schema() -> None:
    schema = {"type": "object", "properties": {name: {"const": 1} for name in "cab"}, "required": ["a", "b", "c"]}
    for seed in range(3):
        assert list(written({**schema, "additionalProperties": False}, seed)[0]) == ["c", "a", "b"]


def test_objects_can_be_closed_where_the_schema_says_nothing() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    closed = matcher_of(COMPILER, StructuredOutputsParams(json=schema, disable_additional_properties=True))
    closed.take(TOKENS.encode('{"b"'))
    assert closed.ended == "abort"
    assert accepts(schema, {"b": 1})


SCALARS = [None, True, False, 0, 1, 2, 3.5, -1, "", "a", "ab", "b", "c"]
NAMES = ["a", "b", "c"]
VALUES = st.recursive(
    st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=3), max_leaves=5)
LEAVES = st.one_of(
    st.just(True), st.just({}),
    st.sampled_from(["string", "integer", "number", "boolean", "null", "array", "object"]).map(lambda name: {"type": name}),
    st.lists(st.sampled_from(SCALARS), min_size=1, max_size=3).map(lambda values: {"enum": values}),
    VALUES.map(lambda value: {"const": value}),
    st.sampled_from([
        {"minimum": 1}, {"exclusiveMaximum": 2}, {"multipleOf": 2}, {"minLength": 1}, {"maxLength": 1}, {"pattern": "^a"}, {"pattern": "b"},
        {"minItems": 1}, {"maxItems": 2}, {"required": ["a"]}, {"required": ["b", "c"]}, {"minProperties": 1}, {"maxProperties": 1},
        {"additionalProperties": False}, {"dependentRequired": {"a": ["b"]}}, {"propertyNames": {"pattern": "^[ab]"}}]))


def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    several = st.lists(inner, min_size=1, max_size=3)
    named = st.dictionaries(st.sampled_from(NAMES), inner, max_size=3)
    return st.one_of(
        st.sampled_from(["allOf", "anyOf", "oneOf"]).flatmap(lambda word: several.map(lambda listed: {word: listed})),
        inner.map(lambda each: {"not": each}),
        st.tuples(inner, inner, inner).map(lambda three: dict(zip(("if", "then", "else"), three, strict=True))),
        named.map(lambda schemas: {"type": "object", "properties": schemas}), inner.map(lambda each: {"type": "array", "items": each}),
        st.tuples(named, inner).map(lambda two: {"properties": two[0], "additionalProperties": two[1]}),
        inner.map(lambda each: {"patternProperties": {"^[ab]": each}}), several.map(lambda listed: {"prefixItems": listed}),
        inner.map(lambda each: {"contains": each}), st.tuples(inner, inner).map(lambda two: merged(*two)))


def merged(a: Any, b: Any) -> Any:
    return {**a, **b} if isinstance(a, dict) and isinstance(b, dict) else a


@settings(max_examples=400)
@given(st.recursive(LEAVES, larger, max_leaves=5), st.lists(VALUES, min_size=1, max_size=6), st.integers(0, 99))
def test_any_schema_lets_through_what_is_valid_alone(schema: Any, values: list[Any], seed: int) -> None:
    try:
        COMPILER.compile(StructuredOutputsParams(json=schema))
    except RequestError:
        return
    for value in values:
        assert valid(schema, value) or not accepts(schema, value), value
    made = written(schema, seed)
    assert made is None or valid(schema, made[0]), made
