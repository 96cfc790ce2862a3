"""A schema that stands in another document: its references, its drafts and its places are that document's."""
import json
from typing import Any

import jsonschema
import pytest

from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.lark import Lark
from penstock.compute.decoding.grammar.schema.document import Document, reference_to
from penstock.core.errors import RequestError
from penstock.core.types import Rules, StructuredOutputsParams
from tests.compute.decoding.grammar.tokens import TOKENS, compiler, matcher_of

COMPILER = compiler()
DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
LIST = {
    "type": ["array", "null"], "items": {"$ref": "#"},
    "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"$ref": "#/properties/a"}}}


def part_of(document: Any, reference: Any = "#", **beside: Any) -> StructuredOutputsParams:
    rules = Rules(f"start: %json {json.dumps(['a name', reference, beside])}", (("another", "5"), ("a name", json.dumps(document))))
    return StructuredOutputsParams(grammar=rules)


def accepts(wanted: StructuredOutputsParams, value: Any) -> bool:
    matcher = matcher_of(COMPILER, wanted)
    ids = TOKENS.encode(json.dumps(value))
    return matcher.take([*ids, TOKENS.eos_token_ids[0]]) >= len(ids) and matcher.ended == "stop"


@pytest.mark.parametrize(("document", "reference", "beside"), [
    (LIST, "#", {}), (LIST, "#", {"type": "array"}), (LIST, "#", {"minItems": 1}), (LIST, "#/items", {}), (LIST, "#/properties/b", {}),
    (LIST, "#/properties/b", {"maximum": 3}), (LIST, "#", {"anyOf": [{"type": "null"}, {"$ref": "#/properties/a"}]}),
    ({"$id": "http://a.example/x", **LIST}, "#/properties/a", {}), ({"$id": "http://a.example/x", **LIST}, "x", {"type": "array"}),
    ({**DRAFT_4, **LIST, "properties": {"a": {"type": "integer", "minimum": 1, "exclusiveMinimum": True}}}, "#/properties/a", {}),
    ({"$defs": {"a": {"$anchor": "here", "type": "integer"}}}, "#here", {}), (True, "#", {"type": "integer"}),
    ({"properties": {"a": True}}, "#/properties/a", {}),
])
def test_a_part_of_a_document_is_what_the_document_says_of_it(document: Any, reference: str, beside: dict[str, Any]) -> None:
    values = [None, [], [[]], [[None]], [1], 1, 2, 5, "x"]
    whole = Document(document, Effort())
    judge = jsonschema.validators.validator_for(document, jsonschema.Draft202012Validator)(document)
    found = whole.part(reference).schema
    judged = [judge.evolve(schema=found).is_valid(value) and judge.evolve(schema=beside).is_valid(value) for value in values]
    assert [accepts(part_of(document, reference, **beside), value) for value in values] == judged


def test_no_keyword_of_a_schema_leads_to_another_document() -> None:
    """A name that only we know would be obeyed in silence."""
    schema = {"x-penstock-document": {"type": "integer"}, "$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}}
    found = StructuredOutputsParams(json=schema)
    assert accepts(found, None) and not accepts(found, 1)


@pytest.mark.parametrize("grammar", ['start: %json ["a", "#", {}]', 'start: %json ["a"]', "start: %json []"])
def test_a_schema_beside_a_grammar_is_none_of_a_users(grammar: str) -> None:
    """Also where its frame has some."""
    frame = Rules('frame: %json ["a", "#", {}] | @body', (("a", '{"type": "null"}'),))
    for beside in (None, frame):
        with pytest.raises(RequestError, match="but a JSON schema is an object, true or false"):
            COMPILER.compile(StructuredOutputsParams(grammar=grammar, frame=beside))
    matcher = matcher_of(COMPILER, StructuredOutputsParams(choice=["x"], frame=frame))
    assert matcher.take(TOKENS.encode("null")) and matcher.ended == "stop"


def test_a_document_of_many_parts_is_read_once() -> None:
    document = {"properties": {f"p{at}": {"const": at} for at in range(1000)}}
    parts = " ".join(f'%json ["f", "#/properties/p{at}", {{}}]' for at in range(1000))
    effort = Effort()
    wanted = StructuredOutputsParams(grammar=Rules(f"start: {parts}", (("f", json.dumps(document)),)))
    assert Lark().grammar(wanted, effort, 10_000).text.count("%json") == 1000
    assert sum(effort.spent.values()) < 500_000


@pytest.mark.parametrize(("wanted", "why"), [
    (part_of({"items": {"properties": {"a": {"type": 5}}}}), "type is 5, but must be a list of strings (at #/items/properties/a)"),
    (part_of({"items": {"type": 5}}, "#/items"), "type is 5, but must be a list of strings (at #/items)"),
    (part_of({"$ref": "#/nowhere"}), "$ref '#/nowhere' leads nowhere in the schema (at #)"),
    (part_of({}, "#/nowhere"), "$ref '#/nowhere' leads nowhere in the schema"),
    (part_of({}, 5), "a reference is 5, but must be a string"),
    (part_of({"type": "array", "minItems": 1}, type="null"), "no value is valid by it: type and minItems together leave none (at #)"),
    (part_of([]), "[] stands where a schema is needed"), (part_of(5, type="null"), "5 stands where a schema is needed"),
], ids=lambda each: ascii(each)[:40])
def test_what_is_refused_is_told_with_its_place_in_the_document(wanted: StructuredOutputsParams, why: str) -> None:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(wanted)
    assert str(refusal.value) == why


@pytest.mark.parametrize("name", ["a", "a/b", "a~b", "a~1b", "a%20b", "%", "a b", "a#b", "größe", "a\tb", "a\nb", "\x7f", "", "a?b", "\\"])
def test_the_reference_to_a_schema_leads_to_it(name: str) -> None:
    inner = {"type": "null"}
    document = {"$defs": {name: {"prefixItems": [{}, inner]}}}
    reference = reference_to(document, [inner])
    assert Document(document, Effort()).part(reference).schema is inner
    assert jsonschema.Draft202012Validator({"$ref": reference, **document}).is_valid(None)
    assert not jsonschema.Draft202012Validator({"$ref": reference, **document}).is_valid(1)


@pytest.mark.parametrize("schema", [
    {"$id": "schemas/x.json", "$ref": "#/$defs/a", "$defs": {"a": {"type": "null"}}},
    {"$id": "http://x.example/a/", "$ref": "sub/b", "$defs": {"b": {"$id": "sub/b", "type": "null"}}},
    {**DRAFT_4, "id": "a/b", "items": {"$ref": "b#/definitions/c"}, "definitions": {"c": {"type": "null"}}},
])
def test_an_address_is_relative_to_those_around_it_once(schema: Any) -> None:
    judge = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)(schema)
    values = [None, [], [None], [1], 1]
    assert [accepts(StructuredOutputsParams(json=schema), value) for value in values] == [judge.is_valid(value) for value in values]


@pytest.mark.parametrize("index", ["²", "00", "-1", "1" * 5000, "1"])
def test_a_reference_into_a_list_has_an_index(index: str) -> None:
    with pytest.raises(RequestError, match="leads nowhere in the schema"):
        COMPILER.compile(StructuredOutputsParams(json={"$ref": f"#/allOf/{index}", "allOf": [{"type": "null"}]}))


@pytest.mark.parametrize("schema", [
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": 5}}}, {**DRAFT_4, "$ref": "#/$defs/a", "minimum": 3, "$defs": {"a": {"type": 5}}},
])
def test_a_root_that_is_nothing_but_a_reference_is_what_it_leads_to(schema: Any) -> None:
    assert Document(schema, Effort()).part("#").schema == {"type": 5}
    with pytest.raises(RequestError, match=r"\(at #/\$defs/a\)"):
        COMPILER.compile(StructuredOutputsParams(json=schema))
