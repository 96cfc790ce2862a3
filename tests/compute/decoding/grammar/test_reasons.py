"""What is told of grammars that llguidance refuses: in our words, with the user's own lines, and nothing of its insides."""
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.compute.decoding.grammar.patterns.language import MOST_NODES
from penstock.compute.decoding.grammar.reasons import LIMITS, told
from penstock.compute.decoding.grammar.written import Written
from penstock.core.errors import RequestError
from penstock.core.types import Rules
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.tokens import compiler

COMPILER = compiler()
PAGE = (Path(__file__).parents[4] / "docs" / "structured.md").read_text(encoding="utf-8")
EMPTY = '%json {"type": "string",\n"format": "ipv4", "maxLength": 3}'
FRAME = Rules('frame: "<" @body ">"')


def why_not(**wanted: Any) -> str:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(Wanted(**wanted))
    return str(refusal.value)


@pytest.mark.parametrize("frame", [None, FRAME])
@pytest.mark.parametrize(("grammar", "where"), [
    ("start: x", "(in what begins at line 1, column 8)"), ('start: "a" b\nb: c\nc: d', "(in what begins at line 3, column 4)"),
    ('%llguidance {}\nstart: "a"\nfoo', "(line 3, column 4)"), ("start: a;", "(line 1, column 9)"),
    ('start: "éé" "a', "(line 1, column 15)"), ("start: /a", "(line 1, column 10)"), ("start: /a\n\n", "(line 1, column 10)"),
    ("start: foo\r\nfoo: bar\r\n", "begins at line 2, column 6)"),
    ('start: %json {\n"type":\n "integer"} "é" )', "(line 3, column 16)"),
    ('start: %json {} %json {\n} foo\n\nfoo: %json {"type":\n"integer"} bar', "(in what begins at line 4, column 6)"),
    (f'start: "a"\nfoo: {EMPTY.replace("3", "30")}\n\nbar: foo\nstart: ")', "(line 6, column 10)"),
    (f'start: "a" {EMPTY}\n', "(at #, line 1, column 12)"),
    (f'start: foo\nfoo: %json {{"type": "integer"}} | {EMPTY}\n', "leave no string (at #, line 2, column 34)"),
])
def test_lines_are_those_that_the_user_wrote(grammar: str, where: str, frame: Rules | None) -> None:
    assert why_not(grammar=grammar, frame=frame).endswith(where)


def test_lines_are_those_of_the_ebnf() -> None:
    """Of what Lark it became nothing is told."""
    assert why_not(grammar='root ::= "a" x\n\nx ::= "b" y (\n  "c")\ny ::= <no-token> "d"') == (
        'the tokenizer has no special token "<no-token>" (in what begins at line 5, column 7)')


# What its messages have and ours have not: its parts, its spelling of regexes and schemas, its errors' form, lines of a grammar.
THEIRS = re.compile(
    r"\n|json-schema:|\$defs/\w*\d|Regex \(|\(And|SearchRegex|\(Regex|Unsatisf|satisf|lexer|parser|parse|panic|assert|backtrace|x-guidance"
    r"|ValueError|[Tt]oken '|Expected|expecting|unknown field|following|\d\(\d+\)|\d+ \| |\(in regex\)|%nested|not supported yet|\\x\{")
FAULTY = [
    *({"json": schema} for schema in (
        {"type": "string", "format": "date", "maxLength": 9}, {"type": "string", "format": "email", "maxLength": 2},
        {"type": "string", "pattern": "^a{5}$", "minLength": 7, "maxLength": 9},
        {"allOf": [{"format": "ipv4"}, {"format": "ipv6"}], "type": "string"},
        {"type": "object", "patternProperties": {"^a": {"type": "string", "format": "uri", "maxLength": 1}}, "minProperties": 1,
         "additionalProperties": False},
        {"type": "object", "propertyNames": {"format": "ipv4"}}, {"type": "string", "minLength": 2**32},
        {"type": "object", "minProperties": 2**70},
        {"allOf": [{"pattern": each} for each in "abcdefghij"], "type": "string", "minLength": 100, "maxLength": 200})),
    *({"regex": regex} for regex in (
        "(a", "[z-a]", "*", r"\1", "a++", "(?>a)", r"\p{Foo}", "(?i-s:a)", "(?(1)a|b)", "[", "(?x) a", r"a\ud800", "$a", "(?P<x>a)(?P=x)",
        "(?=.*a)(?=.*b)(?=.*c)(?=.*d)(?=.*e)(?=.*f)[a-z]{1000}", "a(?=b)", "(?<=a)b")),
    *({"grammar": grammar} for grammar in (
        'start: "a', "start: /(a/", 'x: "a"', 'start: A\nA: b\nb: "x"', 'start: "a" ("b"', 'start: "a"{3,1}', 'start: "a"{0,0}',
        "start: /a(?=b)/", r"start: /\1/", r"start: /\p{Foo}/", r"start: /\b/", "start: /$^/", "start: /a{99999999999}/",
        "start: <[999999]>", "start: <foo>", "start: <[3-1]>", "start: <[a]>", "start: <[]>", "start: @foo", "start: @7",
        'start: "a"{-1,2}', "start: A\nA: @foo", "start: A\nA: <foo>", 'start: A\nA: %json {"type": "integer"}', "start: %regex {}",
        "%import common.FOO\nstart: FOO", "%declare X\nstart: X", '%override start: "a"', 'start: "z".."a"', 'start: "aa".."zz"',
        'start: %lark { start: "a" }', 'start: "a"..b', "start: /a/l", 'start: %regex {"foo": 1}',
        'start{1}: "a"', 'start.5: "a"', 'start: "a"\nstart: "b"', 'A: "a"\nA: "b"\nstart: A', 'start[foo=1]: "a"', 'start[lazy=1]: "a"',
        'start[lazy]: x "b"\nx: "a"', 'start[lazy, suffix="a"]: "a"', 'start: x::y\nx::y: "a"', "start: [a-z]", 'root = "a"', 'start → "a"',
        'start: "a" & "b"', "start: a{b}", '%llguidance {"no_forcing": 1}\nstart: "a"', '%llguidance {\nstart: "a"', '{"grammars": []}',
        "start: " + "(" * 99 + '"a"' + ")" * 99, 'start: "x" %if foo(1)', 'start: a::0\na::_: "x" %if is_zeros([0:4]) | a::incr([0:4])',
        'start: "a" %ignore', 'start: "\ud800"', f"start: {EMPTY}", "root ::= [z-a]", "root ::= <[5-3]>")),
    {"choice": ["\ud800"]}, {"choice": ["a"], "frame": Rules(f"frame: @body {EMPTY}")},
]


@pytest.mark.parametrize("wanted", FAULTY, ids=lambda wanted: ascii(wanted)[:60])
def test_nothing_of_its_insides_is_told(wanted: dict[str, Any]) -> None:
    for frame in (FRAME, None):
        said = why_not(**{"frame": frame, **wanted})
        assert not (found := THEIRS.search(said)), found
        assert 8 < len(said) < 480


@pytest.mark.parametrize(("error", "said"), [
    ("panic: assertion failed: s.1.is_null()\n<backtrace>\n   0: <unknown>", "it cannot be obeyed"), ("", "it cannot be obeyed"),
    ("at 2(8): something new about lexemes\n   1 | %llguidance {}\n   2 | start: x\n              ^\n", "it cannot be obeyed"),
    ("2(8): something new about lexemes\n   1 | %llguidance {}\n", "it cannot be read"),
    ('at 2(8): invalid regex "1 | 2(" (in regex): regex parse error:\n    1 | 2(\n         ^\nerror: unclosed group\n   2 | x\n   3 |\n',
     'the regex "1 | 2(" cannot be read: unclosed group'),
    ('at 2(8): invalid regex "Too many items(" (in regex): regex parse error:\n    Too many items(\n          ^\nerror: unclosed group\n',
     'the regex "Too many items(" cannot be read: unclosed group'),
    ('3(8): Expected token \':\', found "string..." (at "Too many items" ("string..."))\n   2 | start: "Too many items"\n        ^\n',
     "':' should stand here, not a string"),
    ('at 2(8): duplicate rule: "' + "b" * 900 + '"\n', '"' + "b" * 76 + "... is defined twice"),
    ('at 2(8): duplicate rule: "' + "b" * 10_000 + '"\n', '"' + "b" * 76 + "... is defined twice"),
])
def test_what_is_not_known_is_not_passed_on(error: str, said: str) -> None:
    reason, is_limit = told(error, Written("start: x"))
    assert reason == said and not is_limit


@pytest.mark.parametrize("limit", LIMITS)
def test_limits_are_told_apart_from_faults(limit: str) -> None:
    assert told(f"parser error: {limit} (limit 5)\n<non-verbose/>", Written("start: x")) == (LIMITS[limit], True)


def test_groups_may_be_as_deep_as_is_told() -> None:
    assert COMPILER.compile(Wanted(grammar="start: " + "(" * 28 + '"a"' + ")" * 28))
    assert "nested more than 28 deep" in why_not(grammar="start: " + "(" * 29 + '"a"' + ")" * 29)


SIGNS = "".join(map(chr, range(200, 500)))


def looking(letters: str) -> str:
    return "".join(f"(?=.*{letter})" for letter in letters)


TOO_MUCH: dict[str, dict[str, Any]] = {  # what docs/structured.md says of each limit -> what is beyond it
    "characters; at most 1048576 are read": {"json": {"title": "a" * (1 << 20)}},
    "at most 20,000 are written": {"choice": ["a" * 20_001]},
    "at most 20000 are read": {"regex": "a?" * 10_001},
    "at most 20,000 are needed": {"regex": "a{20001}"},
    "its groups are nested more than 60 deep": {"regex": "(" * 61 + "a" + ")" * 61},
    "it repeats more than 999999 times": {"regex": "a{1000000}"},
    "but an answer that fits into this model's context has at most": {"json": {"type": "string", "minLength": 60_000}},
    "nested too deeply": {"json": '{"items": ' * 2000 + "{}" + "}" * 2000},
    "its groups are nested more than 28 deep": {"grammar": "start: " + "(" * 29 + '"a"' + ")" * 29},
    "at most 4000 items are written": {"json": {"type": "array", "minItems": 4001}},
    "more than 1024 combinations at one place": {
        "json": {"allOf": [{"anyOf": [{"required": [f"{at}{name}"]} for name in "abcdef"]} for at in range(5)]}},
    "it has more than 20000 different parts": {
        "json": {"type": "array", "prefixItems": [{"type": "integer", "minimum": at} for at in range(20_001)]}},
    "are told apart": {"json": {"type": "integer", "multipleOf": 100_003}},
    "definitions, alternatives in rules and parts of rules that may be left out; at most 10,000 are read": {
        "grammar": "start: " + " | ".join(f'"{at}"' for at in range(10_001))},
    "have more than 2,000,000 characters when each is written out": {
        "grammar": "start: T21\nT0: /a/\n" + "".join(f"T{at + 1}: T{at} T{at}\n" for at in range(21))},
    "it has more than 28 repetitions of one another": {"grammar": 'root ::= "a"' + "+" * 29},
    "it has more than 65,000 parts": {"grammar": "start: " + "x (y y) " * 66_000 + '\nx: "a"\ny: "b"'},
    "more than 11 times &": {"grammar": "start: A\nA: " + " & ".join(["/a/"] * 13)},
    "with 4 lookaheads, not 7, it could be followed": {"regex": looking("abcdefg") + ".{9,60}"},
    "needs more than 400 states": {"json": {"type": "string", "pattern": "^(?!(a|b)*a(a|b){9}$)[ab]*$"}},
    "is too complex to be combined with another": {"json": {"type": "string", "pattern": f"^(?!{SIGNS})"}},
    "is too large": {"json": {"type": "string", "pattern": "^(?!(a|b)*a(a|b){7}$)[ab]*$"}},
    "at most 100000 are written": {"regex": looking("abcdef") + ".+"},
    "too complex together to tell whether any text fits": {"json": {
        "type": "string", "pattern": f"^{looking('abcdefgh')}", "minLength": 20, "maxLength": 60}},
    "have too many states": {"grammar": "start: A\nA: " + " & ".join(f"/.*{each}(?s:.*)/" for each in "abcdefghijk") + " & /[a-z]{12,40}/"},
}


@pytest.mark.parametrize("said", TOO_MUCH)
def test_what_is_beyond_a_limit_is_told_as_the_docs_say(said: str) -> None:
    assert said in why_not(**TOO_MUCH[said])


def test_the_docs_name_these_limits() -> None:
    told = re.findall(r"^\|.*\| `([^`]+)` \|$", PAGE.partition("All other limits")[2].partition("## White space")[0], re.MULTILINE)
    assert set(told) - {"nested too deeply; at most 96 levels"} == set(TOO_MUCH)


def test_the_docs_name_the_limits_that_nothing_reaches_first() -> None:
    said = " ".join(PAGE.partition("Three more limits")[2].split())
    assert f"a pattern of {MOST_NODES:,} parts" in said and "in 500,000 parts" in said and "too complex to be told apart" in said
    assert any("500,000 parts" in each for each in LIMITS.values())
