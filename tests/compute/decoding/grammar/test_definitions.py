"""Grammars of which llguidance would make far more than they say are refused by what their text says; others of their size are not."""
import pytest

from penstock.compute.decoding.grammar.definitions import MOST_PARTS, MOST_WRITTEN
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.tokens import TOKENS, compiler, matcher_of

COMPILER = compiler()


def chain(number: int, body: str) -> str:
    """Terminals that lead to one another."""
    return "start: A0\n" + "\n".join(f"A{at}: " + body.replace("NEXT", f"A{at + 1}") for at in range(number)) + f'\nA{number}: "b"'


def words(number: int, between: str, after: str = "") -> str:
    return between.join(f'"w{at}"{after}' for at in range(number))


TOO_LARGE = f"more than {MOST_WRITTEN:,} characters"
TOO_MANY = f"at most {MOST_PARTS:,} are read"
LEFT_OUT = "most of them for parts of terminals that may be left out"
HOSTILE = {
    "twice the terminal before": (chain(40, "NEXT NEXT"), TOO_LARGE),
    "twice the terminal before, in brackets that open a line": (chain(40, "(\nNEXT | /x/\nNEXT)"), TOO_LARGE),
    "terminals in one another": (chain(9_000, '"a" NEXT'), TOO_LARGE),
    "twice the terminal before, lazily": ("start[lazy]: A0 A0\n" + chain(40, "NEXT NEXT").partition("\n")[2], TOO_LARGE),
    "what is skipped": ("%ignore A0 A0\nstart: /x/\n" + chain(40, "NEXT NEXT").partition("\n")[2], TOO_LARGE),
    "a terminal in itself": ('start: A\nA: "a" B?\nB: "b" A', "lead back to themselves"),
    "alternatives": (f"start: {words(20_000, ' | ')}", TOO_MANY),
    "parts that may be left out": (f"start: {words(9_000, ' ', '?')}", TOO_MANY),
    "alternatives of many rules": (
        "start: " + " | ".join(f"r{at}" for at in range(100)) + "".join(f"\nr{at}: " + words(200, " | ") for at in range(100)), TOO_MANY),
    "rules": ("start: r0\n" + "".join(f'r{at}: "x" r{at + 1}\n' for at in range(10_000)) + 'r10000: "z"', TOO_MANY),
    "a terminal's parts that may be left out": (f"start: A\nA: {words(9_000, ' ', '?')}", LEFT_OUT),
    "a terminal's regex, left out here and there": ("start: A\nA: /" + "".join(f"(w{at})?" for at in range(9_000)) + "/", LEFT_OUT),
    "a regex in a rule": ("start: /" + "".join(f"(w{at})?" for at in range(9_000)) + "/", LEFT_OUT),
    "what a rule excludes": ("start: /x/ ~(" + "A1 " * 300 + ")\nA1: /" + "x" * 9_000 + "/", TOO_LARGE),
    "alternatives with nothing": ("start: A\nA: /" + "".join(f"(w{at}|)" for at in range(9_000)) + "/", LEFT_OUT),
    "parts of a terminal that is named often": (f"start: A\nB: {words(90, ' ', '?')}\nA: {'B ' * 100}", LEFT_OUT),
}


@pytest.mark.parametrize(("grammar", "said"), HOSTILE.values(), ids=HOSTILE.keys())
def test_what_would_grow_beyond_all_bounds_is_refused(grammar: str, said: str) -> None:
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(Wanted(grammar=grammar))
    assert said in str(refusal.value) and refusal.value.status == 400


LARGE = {
    "a terminal of words": (f"start: A\nA: {words(20_000, ' | ')}", "w19999"),
    "alternatives": (f"start: {words(1_900, ' | ')}", "w1899"),
    "a rule with parts that may be left out": (f"start: {words(900, ' ', '?')}", "w3w899"),
    "a terminal with parts that may be left out": (f"start: A\nA: {words(900, ' ', '?')}", "w3w899"),
    "words in a row": (f"start: {words(3_000, ' ')}", "".join(f"w{at}" for at in range(3_000))),
    "terminals in one another": (chain(300, '"a" NEXT'), "a" * 300 + "b"),
    "colons and bars in a text": ('start: "' + ":|?" * 6_000 + '"', ":|?" * 6_000),
}


@pytest.mark.parametrize(("grammar", "text"), LARGE.values(), ids=LARGE.keys())
def test_what_is_large_and_bounded_is_followed(grammar: str, text: str) -> None:
    matcher = matcher_of(COMPILER, Wanted(grammar=grammar))
    ids = TOKENS.encode(text)
    assert matcher.take(ids) == len(ids) and matcher.ended != "abort"
