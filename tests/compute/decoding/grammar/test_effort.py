"""What compiling costs is counted, the same for the same structure, and ends where it is too much or nobody waits."""
import re
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.compute.decoding.grammar import compiler as module
from penstock.compute.decoding.grammar import vocabulary
from penstock.compute.decoding.grammar.effort import BETWEEN, CHOICES, MOST, PARTS, PATTERNS, Effort, TooLargeError
from penstock.compute.decoding.grammar.patterns import chars
from penstock.compute.decoding.grammar.schema.emit import A_RECORD
from penstock.compute.decoding.grammar.schema.lower import lowered, read_document
from penstock.compute.decoding.grammar.schema.records import Arrays
from penstock.compute.decoding.grammar.schema.settle import Settling
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.tokens import TOKENS, Tokens, compiler, matcher_of
from tests.guard import ends

PATTERN_PIECES = ("[a-f]", "(a|b)*", "c{1,7}", "x?", "(ab|cd|ef)+", "[^b]")


def pattern(number: int) -> str:
    return "".join([PATTERN_PIECES[(number * 7 + at * at + at) % len(PATTERN_PIECES)] for at in range(8)])


def wide(number: int) -> Any:
    return {"type": "object", "properties": {f"p{at}": {"type": "integer"} for at in range(number)}}


HOSTILE: dict[str, tuple[Any, str]] = {
    "names in many patterns": (
        Wanted(json={**wide(3000), "patternProperties": {f"^p[0-9]*{pattern(at)}": {"minimum": at} for at in range(60)}}), PATTERNS),
    "texts in a pattern": (
        Wanted(json={"enum": [f"{'ab' * 40}{at}" for at in range(8_000)], "pattern": "^(a|b)*b[0-9]+$"}), PATTERNS),
    "a pattern that looks ahead everywhere": (Wanted(regex="(?:a|(?=b))" * 40), PATTERNS),
    "one of very many": (Wanted(json={"oneOf": [{"type": "object", "required": [f"k{at}"]} for at in range(1000)]}), CHOICES),
    "items that must be there, anywhere": (
        Wanted(json={"type": "array", "prefixItems": [{}], "allOf": [{"contains": {"const": at}} for at in range(30)]}), PARTS),
}


def spent_on(wanted: Wanted, monkeypatch: pytest.MonkeyPatch) -> tuple[dict[str, int], str]:
    """The steps of a compilation, and what was said of it."""
    made: list[Effort] = []

    class Kept(Effort):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(module, "Effort", Kept)
    try:
        compiler().compile(wanted)
        said = ""
    except RequestError as error:
        assert error.code == "grammar_too_complex"
        said = str(error)
    return made[0].spent, said


def test_classes_of_many_escapes_are_brought_together_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sorting millions of ranges at once would hold up everybody."""
    sizes, union = [0], chars.union

    def watched(ranges: Any) -> Any:
        listed = list(ranges)
        sizes.append(len(listed))
        return union(listed)

    monkeypatch.setattr(chars, "union", watched)
    spent, _ = spent_on(Wanted(regex="[" + r"\W\D\S" * 3000 + "]"), monkeypatch)
    assert max(sizes) < 25_000 and spent[PATTERNS] > sum(sizes) / 16


@pytest.mark.parametrize("name", HOSTILE)
def test_what_would_take_long_is_refused_with_what_takes_so_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted, part = HOSTILE[name]
    spent, said = spent_on(wanted, monkeypatch)
    assert f"more than {MOST:,} steps" in said and part in said and sum(spent.values()) > MOST
    assert spent_on(wanted, monkeypatch) == (spent, said)


def test_what_a_schema_becomes_is_counted_while_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a million selections of different items."""
    made, arrays = [0], Settling.arrays

    def counted(self: Settling, record: Arrays) -> Iterator[Arrays]:
        for each in arrays(self, record):
            made[0] += 1
            yield each

    monkeypatch.setattr(Settling, "arrays", counted)
    listed = [{"type": "array", "uniqueItems": True, "items": {"enum": [f"{at} {of}" for at in range(20)]}} for of in range(1000)]
    _, said = spent_on(Wanted(json={"anyOf": listed}), monkeypatch)
    assert "properties, items" in said and 1000 < made[0] < MOST // A_RECORD


def test_the_place_of_what_is_too_large_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    heavy = {"type": "object", "patternProperties": {f"^a{{{at}}}b": {"minimum": at} for at in range(80)}}
    schema = {"type": "object", "properties": {"a": {"type": "null"}, "b": {"properties": {"c/d": heavy}}}, "required": ["a"]}
    many = {"type": "array", "items": {"properties": {"e": {"oneOf": [{"required": [f"k{at}"]} for at in range(1000)]}}}}
    assert "(it had come to #/properties/b/properties/c~1d)" in spent_on(Wanted(json=schema), monkeypatch)[1]
    assert "(it had come to #/items/properties/e)" in spent_on(Wanted(json=many), monkeypatch)[1]


def test_what_was_compiled_before_changes_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = Wanted(json={"type": "object", "patternProperties": {pattern(1): {"not": {"pattern": pattern(2)}}, pattern(3): {}}})
    first = spent_on(wanted, monkeypatch)
    spent_on(HOSTILE["a pattern that looks ahead everywhere"][0], monkeypatch)
    assert spent_on(wanted, monkeypatch) == first and first[1] == "" and sum(first[0].values()) > 1000


@pytest.mark.parametrize("is_open", [True, False])
@pytest.mark.parametrize("need", [1, 200])
def test_at_least_some_of_many_properties_can_be_followed(need: int, is_open: bool) -> None:
    wanted = Wanted(json={**wide(400), "minProperties": need, "additionalProperties": is_open})
    assert compiler().compile(wanted).size < 400_000


def regex(number: int) -> str:
    """Many of these together take llguidance exponential time: 22 of them minutes, and gigabytes."""
    return f"[a-h]*{'(x|y)?' * number}[abx]{{2,{9 + number}}}[ay]*"


@pytest.mark.parametrize("wanted", [
    Wanted(json={"type": "string", "allOf": [{"pattern": f"^{regex(at)}$"} for at in range(20)]}),
    Wanted(json={"type": "object", "propertyNames": {"allOf": [{"pattern": f"^{regex(at)}$"} for at in range(20)]}}),
    Wanted(grammar="start: T\nT: " + " & ".join([f"/{regex(at)}/" for at in range(30)])),
    Wanted(grammar='start: T "&&&&&&&&&&&&&&&&"\nT: /a/ ' + "".join([f"& U{at} // &\nU{at}: /{regex(at)}/" for at in range(30)])),
], ids=["patterns", "names", "terminals", "terminals of terminals"])
def test_not_too_many_patterns_are_left_to_be_combined(wanted: Wanted) -> None:
    with pytest.raises(RequestError, match="too complex to be combined|more than 11 times &"):
        compiler().compile(wanted)


@pytest.mark.parametrize("wanted", [
    Wanted(choice=["a", "b" * 20_001]), Wanted(json={"const": "b" * 20_001}), Wanted(json={"enum": ["a", "b" * 20_001]}),
    Wanted(json={"properties": {"b" * 20_001: {}}, "type": "object"}), Wanted(grammar=f'start: "{"b" * 20_001}"'),
    Wanted(regex="b{20001}"),
], ids=["choice", "const", "enum", "name", "grammar", "regex"])
def test_a_text_that_must_come_is_not_too_long(wanted: Wanted) -> None:
    with pytest.raises(RequestError, match="20,00[0-9] characters.* at most 20,000"):
        compiler().compile(wanted)


@pytest.mark.parametrize("is_open", [True, False])
def test_at_most_some_of_many_properties_can_be_followed(is_open: bool) -> None:
    wanted = Wanted(json={**wide(400), "maxProperties": 200, "additionalProperties": is_open})
    assert compiler().compile(wanted).size < 60_000


class Gone(Exception):
    pass


def test_nothing_goes_on_when_nobody_waits() -> None:
    made, calls = compiler(), [0]
    wanted, _ = HOSTILE["names in many patterns"]

    def pause() -> None:
        calls[0] += 1
        if calls[0] == 20:
            raise Gone

    with pytest.raises(Gone):
        made.compile(wanted, pause)
    assert calls[0] == 20 and made.known(made.checked(wanted)) is None
    assert made.compile(Wanted(choice=["a"]), pause) is made.known(made.checked(Wanted(choice=["a"])))


def test_pauses_come_between_steps_and_steps_come_to_an_end() -> None:
    calls = [0]

    def pause() -> None:
        calls[0] += 1

    effort = Effort(pause, most=10 * BETWEEN)
    for _ in range(10 * BETWEEN):
        effort.spend(1, PARTS)
    assert calls[0] == 10 and effort.spent == {PARTS: 10 * BETWEEN}
    with pytest.raises(TooLargeError, match=re.escape(f"more than {10 * BETWEEN:,} steps")):
        effort.spend(1, PATTERNS)


@pytest.mark.parametrize("wanted", [
    Wanted(json=wide(3000)),
    Wanted(json={"type": "object", "properties": {"a": wide(3000)}, "required": ["a"], "additionalProperties": False}),
], ids=["wide", "wide inside"])
def test_what_cannot_be_followed_from_its_beginning_is_refused(wanted: Wanted) -> None:
    with pytest.raises(RequestError, match="too complex to be followed") as refusal:
        compiler().compile(wanted)
    assert refusal.value.code == "grammar_too_complex" and "\n" not in str(refusal.value)


def test_a_grammar_whose_first_tokens_take_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "MOST_S", -1.0)
    with pytest.raises(RequestError, match="too complex to be followed: one token takes more than") as refusal:
        compiler().compile(Wanted(choice=["a", "b"]))
    assert refusal.value.code == "grammar_too_complex"


def test_of_what_must_come_only_the_beginning_is_spelled_at_once() -> None:
    asked: list[int] = []

    class Counted(Tokens):
        def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
            asked.append(len(text.encode()))
            return super().encode(text, add_special_tokens)

    whole = "né10 the king " * 500
    matcher = matcher_of(compiler(Counted()), Wanted(choice=[whole]))
    written: list[int] = []
    while matcher.ended is None:
        forced = matcher.forced()
        assert forced and matcher.take(forced) == len(forced)
        written += forced
    assert TOKENS.decode(written) == whole
    assert max(asked) == vocabulary.MOST_SPELLED or max(asked) == vocabulary.MOST_SPELLED - 1


@pytest.mark.parametrize("wanted", [
    Wanted(grammar='start: "' + '\\"' * 200_000), Wanted(grammar="\n" * 400_000 + 'start: "a'),
    Wanted(grammar="start: /" + "\\/" * 200_000),
    Wanted(json={}, whitespace_pattern=" {" + "1" * 400_000), Wanted(grammar="start: " + '%json {"type": "null"} ' * 30_000),
], ids=["quotes", "lines", "slashes", "white space", "schemas"])
def test_nothing_is_read_again_and_again(wanted: Wanted) -> None:
    with ends(), pytest.raises(RequestError):
        compiler().compile(wanted)


NESTED = {
    "anyOf": lambda inner: {"anyOf": [inner, inner]},
    "not allOf": lambda inner: {"not": {"allOf": [{"not": inner}, {"not": inner}]}},
    "if": lambda inner: {"if": {"type": "integer"}, "then": inner, "else": inner},
}


@pytest.mark.parametrize("name", NESTED)
def test_branches_that_lead_to_the_same_schema_cost_what_one_does(name: str) -> None:
    """Twenty-four levels of two branches are 2^24 ways to the same integer."""
    definitions = {"d0": {"type": "integer"}, **{f"d{at}": NESTED[name]({"$ref": f"#/$defs/d{at - 1}"}) for at in range(1, 25)}}
    effort = Effort(most=20_000)
    written, _ = lowered(read_document({"$defs": definitions}, effort), {"$ref": "#/$defs/d24"}, room=1000)
    assert written == lowered(read_document({"type": "integer"}, Effort()), {"$ref": "#"}, room=1000)[0]
