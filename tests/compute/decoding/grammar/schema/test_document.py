"""A schema that stands in another document: its references, its drafts and its places are that document's."""
import json
from typing import Any

import jsonschema
import pytest

from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.schema.document import Document, reference_to
from penstock.compute.decoding.grammar.syntax import DOCUMENT, part_of
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams
from tests.compute.decoding.grammar.tokens import TOKENS, compiler, matcher_of

COMPILER = compiler()
DRAFT_4 = {"$schema": "http://json-schema.org/draft-04/schema#"}
LIST = {
    "type": ["array", "null"], "items": {"$ref": "#"},
    "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"$ref": "#/properties/a"}}}


def accepts(schema: Any, value: Any) -> bool:
    matcher = matcher_of(COMPILER, StructuredOutputsParams(json=schema))
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


def test_a_document_alone_asks_for_nothing() -> None:
    assert accepts({DOCUMENT: LIST}, "x") and not accepts({DOCUMENT: LIST, "type": "array"}, "x")


@pytest.mark.parametrize(("schema", "why"), [
    (part_of({"items": {"properties": {"a": {"type": 5}}}}), "type is 5, but must be a list of strings (at #/items/properties/a)"),
    (part_of({"items": {"type": 5}}, "#/items"), "type is 5, but must be a list of strings (at #/items)"),
    (part_of({"$ref": "#/nowhere"}), "$ref '#/nowhere' leads nowhere in the schema (at #)"),
    (part_of({}, "#/nowhere"), "$ref '#/nowhere' leads nowhere in the schema"),
    (part_of({}, 5), "a reference is 5, but must be a string"),  # type: ignore[arg-type]
    (part_of({"type": "array", "minItems": 1}, type="null"), "no value is valid by it: type and minItems together leave none (at #)"),
    (part_of([]), "[] stands where a schema is needed"), ({DOCUMENT: 5, "type": "null"}, "5 stands where a schema is needed"),
], ids=lambda each: ascii(each)[:40])
def test_what_is_refused_is_told_with_its_place_in_the_document(schema: Any, why: str) -> None:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(StructuredOutputsParams(json=schema))
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
    {"$ref": "#/$defs/a", "$defs": {"a": {"type": 5}}}, {**DRAFT_4, "$ref": "#/$defs/a", "minimum": 3, "$defs": {"a": {"type": 5}}},
])
def test_a_root_that_is_nothing_but_a_reference_is_what_it_leads_to(schema: Any) -> None:
    assert Document(schema, Effort()).part("#").schema == {"type": 5}
    with pytest.raises(RequestError, match=r"\(at #/\$defs/a\)"):
        COMPILER.compile(StructuredOutputsParams(json=schema))
