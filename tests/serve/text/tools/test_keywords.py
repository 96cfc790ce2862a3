"""Arguments as keywords: what they express of a function's parameters, and what is refused."""
from typing import Any

import pytest

from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams
from penstock.serve.text.tools.keywords import keywords
from penstock.serve.text.tools.rules import Function, rules_of
from tests.compute.decoding.grammar.tokens import TOKENS, compiler, matcher_of

COMPILER = compiler()
DRAFT_3 = {"$schema": "http://json-schema.org/draft-03/schema#"}


def accepts(parameters: Any, text: str, promised: bool = True) -> bool:
    function = Function("f", parameters, promised=promised)
    rules = rules_of("\n".join(['start: "(" f ")"', *keywords(function, "f")]), [function])
    matcher = matcher_of(COMPILER, StructuredOutputsParams(grammar=rules))
    ids = TOKENS.encode(f"({text})")
    return matcher.take(ids) == len(ids) and matcher.ended == "stop"


@pytest.mark.parametrize(("parameters", "good", "bad"), [
    ({}, [""], ["a=1"]),
    ({"properties": {"a": {}, "b": {}, "c": {}}, "required": ["b"]}, ["b=1", "a=1, b=2", "b=1, c=2", "a=1, b=2, c=3"],
     ["", "a=1", "c=1", "b=1, a=2", "a=1, c=2", "b=1, ", ", b=1"]),
    ({"properties": {"a": {}, "b": {}}}, ["", "a=1", "b=1", "a=1, b=2"], ["b=1, a=2", "a=1b=2"]),
    ({"required": ["a"], "additionalProperties": {"type": "integer"}}, ["a=1"], ['a="x"', ""]),
    ({"required": ["a"]}, ['a="x"', "a=[null]"], [""]),
    ({"properties": {"a": False, "b": True}}, ["", "b=1"], ["a=1", "a=1, b=1"]),
    ({**DRAFT_3, "properties": {"a": {"type": "string", "required": True}, "b": {"type": ["integer", {"enum": ["x"]}]}}},
     ['a="s"', 'a="s", b=2', 'a="s", b="x"'], ["", "b=2", 'a="s", b="y"']),
    ({"title": "T", "$comment": "c", "$id": "http://a.example/t", "properties": {"größe": {"type": "null"}}}, ["größe=null"], ["größe=1"]),
    ({"properties": {"from": {"const": 1}, "to-day": {}}, "required": ["from"]}, ["from=1", "from=1, to-day=2"], ["from=2", "to-day=2"]),
], ids=lambda each: ascii(each)[:40])
def test_properties_come_in_their_order_and_those_that_are_required_always(parameters: Any, good: list[str], bad: list[str]) -> None:
    assert all(accepts(parameters, text) for text in good)
    assert not any(accepts(parameters, text) for text in bad)


def test_a_thousand_properties_are_as_many_rules_and_no_more() -> None:
    parameters = {"properties": {f"p{at}": {"const": at} for at in range(1000)}}
    assert len("\n".join(keywords(Function("f", parameters), "f"))) < 400_000
    some = {"properties": {f"p{at}": {"const": at} for at in range(200)}, "required": ["p90"]}
    assert accepts(some, "p7=7, p90=90, p199=199") and not accepts(some, "p7=7, p199=199")


@pytest.mark.parametrize(("parameters", "good", "bad"), [
    ({"properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["b"], "minProperties": 2},
     ["", "a=null", 'a="x", b=[1]', "b={}"], ["b=1, a=2", "c=1"]),
    ({"$ref": "#/$defs/a", "anyOf": [{}], "properties": {"a b": {}, "if": {}, "c": {}}, "$defs": {"a": {}}}, ["", "c=1", "if=1"],
     ["a b=1"]),
    ({"$ref": "#/$defs/a", "$defs": {"a": {"properties": {"b": {"type": "null"}}}}}, ["", "b=1"], ["a=1"]),
    ({"properties": []}, [""], ["a=1"]), ({"$ref": "#/nowhere"}, [""], ["a=1"]), (None, [""], ["a=1"]),
], ids=lambda each: ascii(each)[:40])
def test_arguments_that_are_not_promised_to_be_valid_may_be_anything(parameters: Any, good: list[str], bad: list[str]) -> None:
    assert all(accepts(parameters, text, promised=False) for text in good)
    assert not any(accepts(parameters, text, promised=False) for text in bad)


CANNOT = ", which keyword arguments, the model's format, cannot express"


@pytest.mark.parametrize(("name", "parameters", "message"), [
    ("f", {"type": "object", "patternProperties": {"a": {}}}, f"have 'patternProperties' among their keywords{CANNOT}"),
    ("f", {"properties": {"a": {}, "a b": {}}}, f'have the name "a b"{CANNOT}'),
    ("f", {"properties": {"a-": {}}}, f'have the name "a-"{CANNOT}'),
    ("f", {"anyOf": [{"required": ["a"]}]}, f"have 'anyOf' among their keywords{CANNOT}"),
    ("f", {"type": "string"}, f'have the type "string"{CANNOT}'),
    ("f", {"$ref": "#/$defs/a", "$defs": {"a": {"oneOf": [{}]}}}, f"have 'oneOf' among their keywords{CANNOT}"),
    ("f", {"$ref": "#/$defs/a", "minProperties": 1, "$defs": {"a": {}}}, f"have '$ref' among their keywords{CANNOT}"),
    ("f", {"$ref": "#/$defs/a", "$defs": {"a": True}}, f"have '$ref' among their keywords{CANNOT}"),
    ("f", {"$ref": "#"}, f"have '$ref' among their keywords{CANNOT}"),
    ("f", {"$ref": "#", "type": "object"}, f"have '$ref' among their keywords{CANNOT}"),
    ("f", {"$ref": "#/$defs/a", "type": "null", "$defs": {"a": {}}}, f'have the type "null"{CANNOT}'),
    ("f", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b", "type": ["array"]}, "b": {}}}, f'have the type ["array"]{CANNOT}'),
    ("f", {"$ref": "#/$defs/a", "type": "object", "$defs": {"a": {"type": "array"}}}, f'have the type "array"{CANNOT}'),
    ("f", {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/nowhere", "type": "object"}}},
     "cannot be obeyed: $ref '#/nowhere' leads nowhere in the schema (at #/$defs/a)"),
    ("f", {"$ref": "#/nowhere"}, "cannot be obeyed: $ref '#/nowhere' leads nowhere in the schema (at #)"),
    ("f", {"$ref": "http://x.example/y"},
     "cannot be obeyed: $ref 'http://x.example/y' leads out of the schema, and other documents are not fetched (at #)"),
    ("f", {"properties": []}, "cannot be obeyed: properties is [], but must be an object (at #)"),
    ("f", {"$ref": "#/$defs/a", "$defs": {"a": {"required": "b"}}},
     'cannot be obeyed: required is "b", but must be a list of strings (at #/$defs/a)'),
    ("f", {"$ref": "#/$defs/a", "$defs": {f"a{at}": {} for at in range(40_000)}},
     "cannot be obeyed: it takes more than 100,000 steps to compile, most of them for properties, items, listed values and references; "
     "a smaller one would do"),
])
def test_what_keyword_arguments_cannot_express_is_refused(name: str, parameters: Any, message: str) -> None:
    with pytest.raises(RequestError) as refusal:
        keywords(Function(name, parameters, "tools[7].function"), "f")
    assert str(refusal.value) == f"the parameters of the function {name!r} {message}"
    assert refusal.value.param == "tools[7].function.parameters"


@pytest.mark.parametrize("name", ["f-", "-f", "a..b", "a.-b", "7f", "a.7"])
def test_a_function_is_called_by_a_name_that_can_be_told_from_other_text(name: str) -> None:
    with pytest.raises(RequestError, match=f"the name of the function '{name}' cannot be called in the model's format") as refusal:
        keywords(Function(name, None, "tools[7].function"), "f")
    assert refusal.value.param == "tools[7].function.name"
