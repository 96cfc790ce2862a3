"""What each way of saying a structure lets through, judged by others: json, re, jsonschema, lists."""
import json
import random
import re
from collections.abc import Callable
from typing import Any

import pytest

from penstock.compute.decoding.grammar import TABLE
from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.lark import Lark
from penstock.compute.decoding.grammar.masks import Masks, Path
from penstock.compute.decoding.grammar.written import Forcing
from penstock.core.errors import RequestError
from penstock.core.types import Rules
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.tokens import TOKENS, compiler, matcher_of, write

COMPILER = compiler()
MASKS = Masks(COMPILER.vocabulary.width)
PERSON = {
    "type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
    "required": ["name"], "additionalProperties": False}
EBNF = 'root ::= greeting " " name\ngreeting ::= "hello" | "good " ("day" | "night")\nname ::= [a-c]+'
LARK = 'start: "<" item ("," item)* ">"\nitem: WORD | %json {"type": "integer"}\nWORD: /[a-c]+/'


def is_json(of: type) -> Callable[[str], bool]:
    return lambda text: isinstance(json.loads(text), of)


def person(text: str) -> bool:
    value = json.loads(text)
    fits = set(value) <= {"name", "age"} and len(value["name"]) <= 8
    return fits and (type(value.get("age", 0)) is int and 0 <= value.get("age", 0) <= 120)


def compact(text: str) -> bool:
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False) == text


CASES: dict[str, tuple[Wanted, Callable[[str], Any]]] = {
    "json": (Wanted(json=PERSON), person),
    "json as text": (Wanted(json=json.dumps(PERSON)), person),
    "any json": (Wanted(json=True), lambda text: [json.loads(text)]),
    "json_object": (Wanted(json_object=True), is_json(dict)),
    "regex": (Wanted(regex=r"(?:fox|king) \d{2}(?!0)\d, \w+"), re.compile(r"(?:fox|king) \d{2}(?!0)\d, \w+").fullmatch),
    "choice": (Wanted(choice=["red", "redder", "blue, or not"]), ("red", "redder", "blue, or not").__contains__),
    "grammar in Lark": (Wanted(grammar=LARK), re.compile(r"<(?:[a-c]+|-?(?:0|[1-9]\d*))(?:,(?:[a-c]+|-?(?:0|[1-9]\d*)))*>").fullmatch),
    "grammar in EBNF": (Wanted(grammar=EBNF), re.compile(r"(?:hello|good (?:day|night)) [a-c]+").fullmatch),
    "compact json": (Wanted(json=PERSON, disable_any_whitespace=True), lambda text: person(text) and compact(text)),
    "json with blanks": (Wanted(json_object=True, whitespace_pattern=r"[ \t]?"), lambda text: "\n" not in text and is_json(dict)(text)),
}


def test_every_structure_is_tried() -> None:
    tried = {name for wanted, _ in CASES.values() for name in TABLE if getattr(wanted, name) is not None}
    assert tried == set(TABLE)


@pytest.mark.parametrize(("wanted", "judge"), CASES.values(), ids=CASES.keys())
def test_whatever_is_written_is_what_was_wanted(wanted: Wanted, judge: Callable[[str], Any]) -> None:
    texts = [write(matcher_of(COMPILER, wanted), random.Random(seed)) for seed in range(25)]
    finished = [text for text in texts if text is not None]
    assert len(finished) > 10 and all(judge(text) for text in finished)


PASSWORDS = [
    r"(?=.*[a-z])(?=.*[A-Z])(?=.*\d).{8,20}", r"^(?=.*[a-z])(?=.*[A-Z])(?=.*\d)(?=.*[^\da-zA-Z]).{8,15}$",
    r"^(?=(?:.*[A-Z]){2})(?=(?:.*\d){2})(?!.*\s).{8,32}$", r"pw: (?=.*[a-z])(?=.*\d)\S{4,8}", r"(?:none|(?=.*[a-z])(?=.*\d)\w{8,20})",
]


@pytest.mark.parametrize("regex", PASSWORDS)
@pytest.mark.parametrize("in_json", [False, True])
def test_lookaheads_beside_one_another_are_obeyed(regex: str, in_json: bool) -> None:
    pattern = f"^(?:{regex.strip('^$')})$"
    wanted = Wanted(json={"type": "string", "pattern": pattern}) if in_json else Wanted(regex=regex)
    texts = [write(matcher_of(COMPILER, wanted), random.Random(seed)) for seed in range(12)]
    found = [json.loads(text) if in_json else text for text in texts if text is not None]
    assert len(found) > 6 and all(re.fullmatch(regex, text) for text in found)


@pytest.mark.parametrize(("wanted", "texts", "others"), [
    (Wanted(regex=PASSWORDS[0]), ["abcDEF12", "A1" + 18 * "a"], ["abcdef12", "abcDEFgh", "aD1", "A1" + 19 * "a"]),
    (Wanted(regex=PASSWORDS[3]), ["pw: a111"], ["pw: aaaa", "pw:a111"]),
    (Wanted(json=PERSON), ['{"name": "a"}', '{\n  "name": "a",\n  "age": 120\n}'],
     ['{"age": 1}', '{"name": "a", "b": 1}', '{"name":    "a"}']),
    (Wanted(regex="a|bc"), ["a", "bc"], ["b", "c", "abc"]),
    (Wanted(grammar=EBNF), ["hello abc", "good night a"], ["hello", "good a"]),
    (Wanted(json_object=True), ['{}', '{"a": [1, {"b": null}]}'], ["[]", "{} ", ' {}', "{'a': 1}"]),
])
def test_texts_that_are_wanted_and_others(wanted: Wanted, texts: list[str], others: list[str]) -> None:
    for text in (*texts, *others):
        matcher = matcher_of(COMPILER, wanted)
        ids = TOKENS.encode(text)
        ends = matcher.take([*ids, TOKENS.eos_token_ids[0]])
        assert (matcher.ended == "stop" and ends >= len(ids)) is (text in texts), text


@pytest.mark.parametrize(("wanted", "message"), [
    (Wanted(), "must have one of json, json_object, regex, choice, grammar, not nothing"),
    (Wanted(json={}, regex="a"), "not json and regex"),
    (Wanted(json="{"), "json is not JSON"), (Wanted(json=[1]), "must be a JSON schema"),
    (Wanted(json={"a": object()}), "cannot be written as JSON"),
    (Wanted(json={"type": "string", "x": "y" * (1 << 20)}), "at most 1048576 are read"),
    (Wanted(json_object=False), "must be true"), (Wanted(regex=""), "not empty"), (Wanted(regex="(a"), "a parenthesis is not closed"),
    (Wanted(regex="a$b"), "no text matches it"), (Wanted(regex=r"(a)\1"), "refers back"),
    (Wanted(regex="(?=.*a)(?=.*b)[ac]{2,9}"), "no text matches it"), (Wanted(regex="(?=a)(?!.*b).*b"), "no text matches it"),
    (Wanted(regex="".join(f"(?=.*{each})" for each in "abcdefg") + ".{9,60}"), "with 4 lookaheads, not 7, it could be followed"),
    (Wanted(choice=[]), "list of one string or more"), (Wanted(choice=["a", ""]), "list of one string or more"),
    (Wanted(choice="ab"), "list of one string or more"),
    (Wanted(grammar=" "), "grammar as text"), (Wanted(grammar="start: x"), 'unknown name "x"'),
    (Wanted(grammar='root ::= "a" x'), "the rule x is not defined"), (Wanted(grammar="start: A\nA: /a/ & /b/"), "no answer is possible"),
    (Wanted(grammar='start: %json {"type": "strange"}'), 'type is "strange"'), (Wanted(grammar="start: %json {"), "without a JSON schema"),
    (Wanted(grammar='start: ""'), "nothing but an empty answer"),
    (Wanted(grammar="start[temperature=0.7]: /a+/"), "temperature of a rule, which is not supported: the request's temperature"),
    (Wanted(grammar='start: x "b"\nx[lazy, max_tokens = 3]: /a+/'), "max_tokens of a rule, which is not supported: a rule can be held"),
    (Wanted(grammar='start[stop="b"]: /a+/'), "stop of a rule, which is not supported"),
    (Wanted(grammar='start[suffix="b", stop_capture="c"]: /a+/'), "stop_capture of a rule"),
    (Wanted(grammar='start: x\nx[capture]: "a"'), "capture of a rule"), (Wanted(grammar='start[capture="x"]: "a"'), "capture of a rule"),
    (Wanted(grammar='start: x\nx[capture, lazy]: /a+/'), "capture of a rule"),
    (Wanted(json={}, whitespace_pattern="[a-z]*"), "white space alone"), (Wanted(json={}, disable_any_whitespace="yes"), "true or false"),
    (Wanted(json={}, whitespace_pattern=" ", disable_any_whitespace=True), "cannot go with"),
    (Wanted(json={}, whitespace_pattern=[" "]), "must be a string"), (Wanted(json={"const": "\ud800"}), "half of a surrogate pair"),
    (Wanted(grammar='start: %json "a"'), 'has %json "a", but a JSON schema is an object'),
    (Wanted(grammar="start: %json [1]"), "%json [1], but"),
    (Wanted(choice=["\ud800"]), "half of a surrogate pair"), (Wanted(regex=r"b\ud800"), "no text matches it"),
    (Wanted(regex="a(?=b)", frame=Rules('frame: "x" @body')), "no text matches it"),
    ("json", "must be StructuredOutputsParams"),
])
def test_what_cannot_be_obeyed_is_refused_with_the_reason(wanted: Any, message: str) -> None:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(wanted)
    assert message in str(refusal.value) and "\n" not in str(refusal.value) and refusal.value.status == 400


JSON_ONLY = {"whitespace_pattern": " ?", "disable_any_whitespace": True, "disable_additional_properties": True}
UNSET = {"whitespace_pattern": None, "disable_any_whitespace": False, "disable_additional_properties": False}


@pytest.mark.parametrize("option", JSON_ONLY)
@pytest.mark.parametrize("wanted", [
    {"regex": "a"}, {"choice": ["a"]}, {"grammar": 'start: "a"'}, {"grammar": 'root ::= "a"'},
    {"choice": ["a"], "frame": Rules('frame: @body | %json {"type": "array"}')},
], ids=str)
def test_an_option_of_json_is_refused_where_the_structure_has_none(wanted: dict[str, Any], option: str) -> None:
    with pytest.raises(RequestError, match=f"^{option} is of use only with json, json_object or a grammar with %json") as refusal:
        COMPILER.compile(Wanted(**wanted, **{option: JSON_ONLY[option]}))
    assert refusal.value.param == option
    assert COMPILER.compile(Wanted(**wanted, **UNSET)) is COMPILER.compile(Wanted(**wanted))


def test_options_of_json_hold_for_schemas_in_a_grammar() -> None:
    schema = json.dumps({"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]})
    others = {"disable_any_whitespace": '{"a": 1}', "whitespace_pattern": '{\n"a": 1}', "disable_additional_properties": '{"a":1,"b":2}'}
    for option, text in others.items():
        taken = []
        for more in ({}, {option: JSON_ONLY[option]}):
            matcher = matcher_of(COMPILER, Wanted(grammar=f"start: %json {schema}", **more))
            matcher.take(TOKENS.encode(text))
            taken.append(matcher.ended)
        assert taken == ["stop", "abort"], option


def test_a_schema_in_a_comment_or_a_string_of_a_grammar_is_none() -> None:
    grammar = 'start: "%json {" /%json[a]/ x // %json {"type": "strange"}\nx: %json {"const": 1}'
    matcher = matcher_of(COMPILER, Wanted(grammar=grammar))
    ids = TOKENS.encode("%json {%jsona1")
    assert matcher.take(ids) == len(ids) and matcher.ended == "stop"


@pytest.mark.parametrize(("pattern", "why"), [
    ("(", "a parenthesis is not closed"), (" )", "closes nothing"), ("*", "it repeats nothing"), (" ++", "possessive"),
    (" {3,1}", "it repeats at least 3 and at most 1 times"), (" {1000000}", "it repeats more than 999999 times"),
    (" {}", "of JSON's white space alone"), (" {,}", "of JSON's white space alone"), (" {٣}", "of JSON's white space alone"),
    (" " * 20_001, "at most 20000 are read"),
])
def test_a_pattern_of_white_space_that_cannot_be_read_is_refused(pattern: str, why: str) -> None:
    with pytest.raises(RequestError, match=why) as refusal:
        COMPILER.compile(Wanted(json={}, whitespace_pattern=pattern))
    assert refusal.value.param == "whitespace_pattern"


@pytest.mark.parametrize(("schema", "why"), [
    ('{"minimum": NaN}', "NaN is no JSON number"), ('{"minLength": -Infinity}', "-Infinity is no JSON number"),
    ('{"minItems": 1e400}', "the number 1e400 is too large"), ('{"const": 1' + "0" * 5000 + "}", "a number has too many digits"),
    ('{"type": "null", "not": {"a": 1, "b": 2, "a": 1}}', "'a' stands twice in one object"), ("[" * 5000, "it is nested too deeply"),
    ('{"type"', "Expecting ':' delimiter"),
])
def test_a_schema_as_text_is_json_that_all_readers_agree_on(schema: str, why: str) -> None:
    for wanted in (Wanted(json=schema), Wanted(grammar=f"start: %json {schema}")):
        with pytest.raises(RequestError) as refusal:
            COMPILER.compile(wanted)
        assert why in str(refusal.value)


@pytest.mark.parametrize("count", [10**15, 10**400, 10**4000, 1e300], ids=lambda count: str(count)[:8])
def test_numbers_of_characters_and_items_may_be_of_any_size(count: Any) -> None:
    array: Any = {"type": "array", "maxItems": count, "items": {"type": "string", "maxLength": count}}
    assert COMPILER.compile(Wanted(json=array))
    for _ in range(20):
        array = {"type": "array", "minItems": count, "items": array}
    with pytest.raises(RequestError, match=r"has at least [0-9,]* characters, but an answer that fits .* \(at #/items/items") as refusal:
        COMPILER.compile(Wanted(json=array))
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize(("options", "why"), [
    ('{"no_forcing": true, "nonsense": 1}', 'has the option "nonsense" of %llguidance; there are no_forcing, allow_initial_skip, allow'),
    ('{"":\n0}', 'has the option "" of %llguidance; there are'), ("[]", r"has %llguidance \[\], but its options are an object, such as {}"),
    ('{"no_forcing": 1}', "has the option no_forcing 1 of %llguidance; it is true or false"),
    ("", "has a %llguidance without an object of its options, such as {}"), ('// {}\n{"x": 1}', "has a %llguidance without an object of"),
])
def test_options_of_a_grammar_that_there_are_not_are_refused(options: str, why: str) -> None:
    for grammar in (f'%llguidance {options}\nstart: "a"', f'start: x\n%llguidance{options}\nx: "b"'):
        with pytest.raises(RequestError, match=f"^grammar {why}"):
            COMPILER.compile(Wanted(grammar=grammar))


def test_options_of_a_grammar_that_there_are() -> None:
    grammar = '%llguidance\n{"no_forcing": true}\nstart: "%llguidance {x}" /%llguidance 1/  // %llguidance {"x": 1}'
    matcher = matcher_of(COMPILER, Wanted(grammar=grammar))
    assert not matcher.forced() and matcher.take(TOKENS.encode("%llguidance {x}%llguidance 1")) and matcher.ended == "stop"


@pytest.mark.parametrize("grammar", [
    'start: /a*/ "a"', 'start: "b" A A\nA: "a"+', 'start: /(ab)+/ "ab"', 'start: B+ "x" A A\nA: /a+/\nB: /[a-b]/',
    'start: %json {"type": "null"} A A\nA: /a+/', 'root ::= a a\na ::= "x"+', "start: x\nx: %lark {\nstart: /a*/ /a+/\n}"])
def test_llguidance_forces_nothing_in_a_grammar_of_a_users(grammar: str) -> None:
    """Where a terminal takes for ever what the next begins with, llguidance would never come to an end of what it forces, nor back."""
    for option in ('', '%llguidance {"no_forcing": false}\n'):
        wanted = Wanted(grammar=grammar if "::=" in grammar else option + grammar)
        written = Lark().grammar(wanted, Effort(), 1000)
        assert written.text.startswith('%llguidance {"no_forcing": true}\n') and "false" not in written.text
        assert written.forcing is Forcing.MASKS
        matcher = matcher_of(COMPILER, wanted)
        assert (write(matcher, random.Random(0), most=40) is None) is (matcher.ended is None)


@pytest.mark.parametrize("grammar", [
    '%llguidance {"no_forcing": true}\nstart: "the old king"',
    'start: x\n%llguidance{"allow_initial_skip": true, "no_forcing":\ntrue}x: "the end"'])
def test_nothing_is_drafted_for_a_grammar_that_forbids_it(grammar: str) -> None:
    matcher = matcher_of(COMPILER, Wanted(grammar=grammar))
    while matcher.ended is None:
        MASKS.begin([Path(matcher)])
        MASKS.take()
        matcher.take(TOKENS.encode("the"))
        assert not matcher.forced()


def test_attributes_of_rules_that_are_obeyed() -> None:
    """`lazy` and `suffix` end a rule where it first can, `suffix` behind a text of its own."""
    for grammar in ('start: x "!"\nx[lazy]: /[a-c]*c/', 'start: x "!"\nx[suffix="c"]: /[a-c]*/'):
        taken = {text: matcher_of(COMPILER, Wanted(grammar=grammar)).take(TOKENS.encode(text)) for text in ("abc!", "abcc!")}
        matcher = matcher_of(COMPILER, Wanted(grammar=grammar))
        matcher.take(TOKENS.encode("abcc"))
        assert taken["abc!"] == len(TOKENS.encode("abc!")) and matcher.ended == "abort"


def test_names_of_attributes_elsewhere_are_but_names() -> None:
    grammar = 'start: "stop=" /stop=1/ [stop] [capture] temperature  // max_tokens=1\nstop: "s"\ncapture: "c"\ntemperature: "t"'
    matcher = matcher_of(COMPILER, Wanted(grammar=grammar))
    ids = TOKENS.encode("stop=stop=1sct")
    assert matcher.take(ids) == len(ids) and matcher.ended == "stop"


def test_a_frame_stands_around_a_structure() -> None:
    frame = Rules('frame: ("<think>" thought)? @body\nthought[lazy]: /(?s:.*)<\\/think>/')
    wanted = Wanted(choice=["yes", "no"], frame=frame)
    for text in ("yes", "<think>yes or no? </think>no"):
        matcher = matcher_of(COMPILER, wanted)
        ids = TOKENS.encode(text)
        assert matcher.take(ids) == len(ids) and matcher.ended == "stop"
