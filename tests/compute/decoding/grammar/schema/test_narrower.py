"""Valid values that no grammar writes, beside some that it does."""
from typing import Any

import pytest

from tests.compute.decoding.grammar.schema.judge import DRAFT_3, DRAFT_4, DRAFT_2019, accepts, valid

# What is valid, and left out: because its author cannot have meant it, or because validators do not agree on it.
NARROWER: dict[str, tuple[Any, list[Any], list[Any]]] = {
    "a word of a later draft": ({**DRAFT_4, "const": 1, "type": "integer"}, [1], [2]),
    "int32": ({"type": "integer", "format": "int32"}, [2147483647], [2147483648]),
    "a day that there is not": (
        {"type": "string", "format": "date"}, ["2024-02-29"], ["2023-02-29", "1900-02-29", "0000-01-01", "2024-04-31"]),
    "a moment of a day that there is not": (
        {"type": "string", "format": "date-time"}, ["2024-02-29T23:59:59.5Z", "2024-01-01T00:00:00+05:30"],
        ["2023-02-29T00:00:00Z", "2023-02-28T00:00:00", "2023-02-28T24:00:00Z"]),
    "another property, in words of 2019": (
        {**DRAFT_2019, "type": "object", "properties": {"a": {}}, "allOf": [{"additionalProperties": {"type": "string"}}],
         "unevaluatedProperties": False}, [{}], []),
    "a pointer": ({"type": "string", "format": "json-pointer"}, ["", "/a/0"], ["a"]),
    "a time in draft 3": (
        {**DRAFT_3, "type": "string", "format": "time"}, ["09:15:00", "23:59:59"], ["09:15:00Z", "9:15:00", "24:00:00", "09:15"]),
    "a time in later drafts": ({"type": "string", "format": "time"}, ["09:15:00Z", "09:15:00.5+01:00"], ["09:15:00", "09:15Z"]),
    "a colour in draft 3": ({**DRAFT_3, "type": "string", "format": "color"}, ["#a1b2c3", "#ABC", "teal"], ["#abcd", "mauve", "ABC", ""]),
    "an IRI": (
        {"type": "string", "format": "iri"}, ["https://a-1.example:8080/straße/x?q=ä&r#ß", "urn:isbn:0451450523", "ldap://a", "tag:日本"],
        ["//a/b", "/path", "a", "", "http:", "http://", "http:///x", "http://a b", "http://a/\u200fb", "http://a/\u00a0", "http://a/\u1680",
         "http://1.2.3.4.5/", "http://1:2:3/", "http://a:99999/", "a:/%zz", "\\\\a\\b"]),
    "an IRI reference": (
        {"type": "string", "format": "iri-reference"}, ["//a/größe", "?q", "ä", ""], ["http://a b", "x\u202e", "1:2", "\\a"]),
    "mail": (
        {"type": "string", "format": "email"}, ["ann@mail.example.org", "o'neil+x@a-1.io"],
        ["ann@localhost", "ann@a.b", "ann@[10.0.0.1]", '"a b"@example.org', "ann@a--b.org", "a" * 65 + "@example.org"]),
    "mail in other scripts": (
        {"type": "string", "format": "idn-email"}, ["jörg.groß@example.org", "ann@example.org", "ж" * 10 + "@a.example"],
        ["jörg@örtchen", "ann@localhost", "ж" * 33 + "@a.example"]),
    "a URI": (
        {"type": "string", "format": "uri"}, ["https://[2001:db8::7]:80/a?b#c", "file:///tmp/x", "mailto:ann@example.org", "a:/b"],
        ["a:", "a:?b", "a:#b", "/b"]),
    "addresses that are listed": ({"enum": ["root@localhost", "a:"], "format": "email"}, ["root@localhost", "a:"], []),
    "a URI template": (
        {"type": "string", "format": "uri-template"}, ["/a/{b}", "{?x*,y:30}", "%20"], ["it's", "{x:3000}", "{", "a b"]),
    "a relative pointer": (
        {"type": "string", "format": "relative-json-pointer"}, ["0", "10/a", "25#"], ["01", "105", "/a", "-1"]),
    "cents that floating point cannot check": ({"type": "number", "multipleOf": 0.01}, [0.25, 7], [0.1, 0.11]),
    "cents by the thousand": ({"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 11}, [0.25, 7], [0.1, 0.11]),
    "cents in many places": (
        {"prefixItems": [{"type": "number", "multipleOf": 0.01, "minimum": 0, "maximum": 9 + at / 1000} for at in range(40)]},
        [[0.25, 7], [0.25] * 39 + [0.11]], [[0.11], [7, 0.11]]),
    "a dot and another line break": ({"type": "string", "pattern": "^.$"}, ["x"], ["\u2028"]),
}


@pytest.mark.parametrize(("schema", "good", "left_out"), NARROWER.values(), ids=NARROWER.keys())
def test_some_valid_values_are_left_out(schema: Any, good: list[Any], left_out: list[Any]) -> None:
    assert all(valid(schema, value) and accepts(schema, value) for value in good)
    assert all(valid(schema, value) and not accepts(schema, value) for value in left_out)
