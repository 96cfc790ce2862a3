"""Texts as they are: what a grammar writes of them is valid by their schema; jsonschema is the judge."""
import json
import random
from typing import Any

import jsonschema
import pytest

from penstock.compute.decoding.grammar.schema.formats import KNOWN, KNOWN_TEXTS
from penstock.core.errors import RequestError
from penstock.core.types import Rules, StructuredOutputsParams
from tests.compute.decoding.grammar.tokens import TOKENS, compiler, matcher_of, write

COMPILER = compiler()
SCHEMAS: dict[str, Any] = {
    "lengths": {"minLength": 2, "maxLength": 5}, "pattern": {"pattern": "^[a-c<]{2,}$", "maxLength": 9},
    "some": {"enum": ["a\n\"b\"", "/\\", ""]},
    "both": {"allOf": [{"pattern": "b"}, {"pattern": "^[ab]+$"}], "maxLength": 6}, "not": {"maxLength": 3, "not": {"pattern": "[a-z]"}},
    "word": {"type": ["null", "boolean"]}, "true": {"const": True}, "either": {"anyOf": [{"const": "x"}, {"type": "null"}]},
    "referred": {"$ref": "#/$defs/short"}, **{name: {"format": name, "maxLength": 99} for name in sorted(KNOWN | {"date"})},
}
DOCUMENT = {"properties": SCHEMAS, "$defs": {"short": {"maxLength": 2, "type": "string"}}}


def rules(name: str, *left_out: str, kinds: tuple[str, ...] = ("string", "null", "boolean"), document: Any = DOCUMENT) -> Rules:
    beside = {"type": list(kinds), **({"not": {"anyOf": [{"pattern": each} for each in left_out]}} if left_out else {})}
    part = json.dumps(["f", f"#/properties/{name}", beside])
    return Rules(f'start: "<" TEXT ">"\nTEXT: (%text {part} | "?") "\\n</p>"', (("f", json.dumps(document)),))


@pytest.mark.parametrize("name", SCHEMAS)
def test_what_is_written_is_valid(name: str) -> None:
    words = name in ("word", "true", "either")
    wanted = StructuredOutputsParams(grammar=rules(name) if words else rules(name, "</p>", kinds=("string",)))
    texts = {write(matcher_of(COMPILER, wanted), random.Random(seed)) for seed in range(12)} - {None, "<?\n</p>>"}
    assert texts
    for text in texts:
        assert text is not None and text.startswith("<") and text.endswith("\n</p>>")
        inner = text[1:-6]
        assert "</p>" not in inner
        value = {"null": None, "true": True, "false": False}.get(inner, inner) if words else inner
        checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
        jsonschema.Draft202012Validator({**DOCUMENT, **SCHEMAS[name]}, format_checker=checker).validate(value)


@pytest.mark.parametrize(("text", "fits"), [
    ("nul", True), ("null", True), ("nulls", True), ("None", False), ("1", False), ("1 a", False), ("a1", True), ("", True), ("a\n", True),
    ("a</p>", False), ("</p", True), ("x" * 2000, True), ("true", True), ("日本 \x00", True)])
def test_what_is_left_out(text: str, fits: bool) -> None:
    document = {"properties": {"t": {"type": ["string", "null"]}}}
    wanted = StructuredOutputsParams(grammar=rules("t", "</p>", "^None$", "^[0-9]", document=document))
    ids = TOKENS.encode(f"<{text}\n</p>>")
    matcher = matcher_of(COMPILER, wanted)
    assert (matcher.take(ids) == len(ids)) is fits


def test_all_formats_that_llguidance_knows_have_texts() -> None:
    assert KNOWN_TEXTS.keys() == KNOWN


@pytest.mark.parametrize(("schema", "said"), [
    ({"pattern": "^a$", "minLength": 3}, "together leave no string (at #/properties/t)"),
    ({"type": "integer"}, "type leaves none (at #/properties/t)"),
    ({"pattern": "("}, "a parenthesis is not closed (at #/properties/t)"), ({"minLength": 10**9}, "minLength could be at most"),
])
def test_what_cannot_be_written_is_refused_with_its_place(schema: Any, said: str) -> None:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(StructuredOutputsParams(grammar=rules("t", kinds=("string",), document={"properties": {"t": schema}})))
    assert said in str(refusal.value)


def test_no_grammar_of_a_users_has_any() -> None:
    for text in ('%text {"type": "string"}', '%text ["f", "#", {}]'):
        with pytest.raises(RequestError):
            COMPILER.compile(StructuredOutputsParams(grammar=f"start: A\nA: {text}"))
