"""EBNF as llama.cpp reads it: what a grammar lets through, judged by lists and by Python's regexes, and where it is faulty."""
import random
import re

import pytest

from penstock.compute.decoding.grammar.ebnf import from_ebnf
from penstock.compute.decoding.grammar.effort import Effort, TooLargeError
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams
from tests.compute.decoding.grammar.tokens import END, MARK, TOKENS, compiler, matcher_of, write

COMPILER = compiler()


def accepts(grammar: str, text: str) -> bool:
    matcher = matcher_of(COMPILER, StructuredOutputsParams(grammar=grammar))
    ids = TOKENS.encode(text)
    return matcher.take([*ids, END]) >= len(ids) and matcher.ended == "stop"


@pytest.mark.parametrize(("grammar", "good", "bad"), [
    (r'root ::= "\x41\u00e9\U0001F600"', ["Aé😀"], ["A"]), (r"root ::= [\u4e00-\u9fff\U0001F600-\U0001F64F]", ["中", "😀"], ["a", "é"]),
    (r"root ::= [^\u0061\U00000062]", ["c", "é"], ["a", "b"]), (r'root ::= "\u0000\x7f\u007f"', ["\0\x7f\x7f"], ["\0"]),
    ('root ::= (a+)+ "b"\na ::= "x"', ["xb", "xxxb"], ["b"]), ('root ::= "x"{2}{3}', ["xxxxxx"], ["xx", "xxxxx", "xxxxxxxx"]),
    ('root ::= "x"{1,2}? "y"', ["y", "xy", "xxy"], ["xxxy"]), ('root ::= ("x"? "y"*){2}+', ["", "x", "xyxyyx"], ["z"]),
    ('root ::= "x" {2} * "y"', ["y", "xxy", "xxxxy"], ["xy"]), ('root ::= ("x" "y"){0} "z"{0,0} "a"', ["a"], ["xya", "za"]),
    ('root ::= "x"{ 1 , }', ["x", "xxx"], [""]), ('root ::= "x"{2,3}', ["xx", "xxx"], ["x", "xxxx"]),
    (r"root ::= [a\-z]", ["a", "-", "z"], ["b"]), (r"root ::= [a-] [-a] [a^]", ["--^", "aaa"], ["^aa"]),
    (r"root ::= [&&a~~]+", ["&~a"], ["b"]), (r"root ::= [\[\]\\/.*?{}$\t ]+", ["[]\\/.*?{}$\t "], ["a", "\n"]),
    (r"root ::= [a-c&&b]+", ["a", "&"], ["d"]), ('root ::= "a" . "b"', ["axb", "a\nb", "aéb"], ["ab"]),
    (r'root ::= "\[\]\"\\\-/" "{}"', ['[]"\\-/{}'], []), ('root ::= "a\n\tb" [\n]', ["a\n\tb\n"], ["ab"]),
    ('root ::= a-b a_b aB ab start T0\na-b ::= "1"\na_b ::= "2"\naB ::= "3"\nab ::= "4"\nstart ::= "5"\nT0 ::= "6"', ["123456"], ["1"]),
    ('root ::= "a"?  ("b" | ) |', ["", "a", "ab", "b"], ["c"]), ('root ::= "a" |\n # c |\r\n  "b" # x\n\n#y\n', ["a", "b"], ["ab"]),
    ('root ::= (\n "a" # (\n | "b"\n)+ "c"', ["abac"], ["c"]), ('root::="a"', ["a"], ["b"]), ('root ::=\n\n"a"', ["a"], ["b"]),
    ('root ::= x*\nx ::= y? "b" | "(" root ")"\ny ::= "a"', ["", "ab(b()ab)b"], ["a", "("]),
    ('root ::= <[97]> "b"', ["ab"], ["bb"]), ('root ::= !<[97]> "b"', ["bb"], ["ab"]),
    ('1 ::= "x"\nroot ::= 1 größe\ngröße ::= "y"', ["xy"], []),
])
def test_what_a_grammar_lets_through(grammar: str, good: list[str], bad: list[str]) -> None:
    assert [text for text in good if not accepts(grammar, text)] == []
    assert [text for text in bad if accepts(grammar, text)] == []


def test_tokens_may_be_special() -> None:
    for grammar in (f'root ::= x "a"\nx ::= <[{MARK}]>', 'root ::= x "a"\nx ::= <|mark|>'):
        matcher = matcher_of(COMPILER, StructuredOutputsParams(grammar=grammar))
        assert matcher.take([MARK, 97]) == 2 and matcher.ended == "stop"


@pytest.mark.parametrize(("grammar", "why"), [
    ('root ::= "a" | b\nb ::= /x/', "a string, a class in brackets, the name of a rule or a group should stand here (line 2, column 7)"),
    ('root ::= "a', "a string in double quotes does not end (line 1, column 10)"),
    ("root ::= [a\\]", "a class in brackets does not end (line 1, col"),
    ('root ::= ("a"\n\n', "')' should stand here (line 1, column 14)"), ('root ::= "a")', "should stand here (line 1, column 13)"),
    ('root ::= "a\\', "an escape does not end (line 1, column 12)"), ('root ::= "\\q"', "there is no escape \\q (line 1, column 11)"),
    (r'root ::= "\u12"', r"\u should be followed by 4 hexadecimal digits (line 1, column 11)"),
    (r"root ::= [\U1F600]", r"\U should be followed by 8 hexadecimal digits (line 1, column 11)"),
    (r'root ::= "\ud83d\ude00"', r"\ud83d is no character (line 1, column 11)"), (r'root ::= "\U00110000"', r"\U00110000 is no character"),
    ('foo ::= "a"', "it has no rule that is called root, where it begins"),
    ('root ::= "a" foo', "the rule foo is not defined (line 1, column 14)"),
    ('root ::= "a"\nx ::= (y |\nz)\ny ::= "b"', "the rule z is not defined (line 3, column 1)"),
    ("root ::= " + "(" * 29 + '"a"' + ")" * 29, "its groups are nested more than 28 deep (line 1, column 38)"),
    ("root ::= " + "(" * 30_000, "its groups are nested more than 28 deep"),
    ('root ::= "a"' + "+" * 100_000, "it has more than 28 repetitions of one another"),
    ('root ::= "a"{3,1}', "it repeats at least 3 and at most 1 times (line 1, column 13)"),
    ('root ::= "a"{,3}', "a number should stand here"),
    ('root ::= "a"{1000000}', "it repeats more than 999,999 times (line 1, column 14)"),
    ('root ::= "a"{' + "9" * 5000, "more than 999,999 times"),
    ('root ::= "a"{1', "'}' should stand here (line 1, column 15)"),
    ("root ::= [z-a]", "the range z-a ends before it begins (line 1, column 11)"),
    ("root ::= []a]", "a class in brackets has no characters (line 1, column 10)"), ("root ::= +", "should stand here (line 1, column 10)"),
    ('root ::= "a"\n::= "b"', "the name of a rule should stand here (line 2, column 1)"),
    ('root = "a"\nx ::= "b"', "'::=' should stand here"),
    ("root ::= !<a>", "a token stands as its number, <[5]> or !<[5]>, or as its text, <text> (line 1, column 10)"),
    ("root ::= <[5", "what begins with < does not end (line 1, column 10)"), ("root ::= <[5-7]>", "a token stands as its number"),
    ('root ::= a\na ::= "x"\n\na ::= "y"', "the rule a twice, in lines 2 and 4"),
    ('root ::= "x"\nb-c ::= "\\"b ::=" # b-c ::= \n  root ::= "y"', "the rule root twice, in lines 1 and 3"),
])
def test_what_is_faulty_is_told_with_its_place(grammar: str, why: str) -> None:
    """llama.cpp keeps the last definition of a rule."""
    with pytest.raises(RequestError) as refusal:
        COMPILER.compile(StructuredOutputsParams(grammar=grammar))
    assert why in str(refusal.value) and len(str(refusal.value)) < 250


def test_what_looks_like_a_second_definition_is_none() -> None:
    assert accepts('root ::= a "a ::=" [\\]"] # a ::=\na ::= "x"', 'xa ::="')


def drawn(rng: random.Random, depth: int) -> tuple[str, str]:
    """An expression as EBNF and as a regex of Python's."""
    if depth == 0 or rng.random() < 0.2:
        return rng.choice([
            ('"a"', "a"), ('"ab]"', r"ab\]"), ("[^a-c\\u0000-\\u001F]", r"[^a-c\x00-\x1f]"), ("[\\-x\\[0-9]", r"[\-x\[0-9]"),
            (".", "(?s:.)"),
            ('"\\n"', r"\n"), ("[&^~]", "[&^~]")])
    kind = rng.randrange(3)
    parts = [drawn(rng, depth - 1) for _ in range(rng.randrange(1, 4))]
    if kind == 0:
        return " ".join(part for part, _ in parts), "".join(regex for _, regex in parts)
    if kind == 1:
        return f"({' | '.join(part for part, _ in parts)})", f"(?:{'|'.join(regex for _, regex in parts)})"
    mark, times = rng.choice([("*", "*"), ("+", "+"), ("?", "?"), ("{2}", "{2}"), ("{1,3}", "{1,3}"), ("{0}", "{0}"), ("{0,1}", "?")])
    part, regex = parts[0]
    return f"({part}){mark}", f"(?:{regex}){times}"


def test_what_is_written_is_what_python_reads_in_the_same() -> None:
    written = 0
    for seed in range(150):
        rng = random.Random(seed)
        part, regex = drawn(rng, 4)
        again, times = rng.choice([("", ""), ("+", "+"), ("{2}", "{2}")])
        wanted = StructuredOutputsParams(grammar=f"root ::= x{again}\nx ::= ({part}){again}")
        try:
            text = write(matcher_of(COMPILER, wanted), rng)
        except RequestError as error:
            assert "empty answer" in str(error)
            continue
        if text is not None:
            written += 1
            assert re.fullmatch(f"(?:(?:{regex}){times}){times}", text), (part, text)
    assert written > 60


def test_whatever_is_written_is_read_or_refused() -> None:
    rng = random.Random(7)
    pieces = [
        "root", "::=", " ", "\n", '"', "a", "[", "]", "^", "-",
        "(", ")", "|", "*", "+", "?", "{", "}", "1", ",", "\\", "u", "x41", "#", ".", "<", ">",
    ]
    refused = 0
    for _ in range(3000):
        try:
            from_ebnf("root ::= " + "".join(rng.choices(pieces, k=rng.randrange(1, 12))), Effort())
        except RequestError as error:
            refused += 1
            assert "(line " in str(error) or "twice, in lines" in str(error)
    assert 1000 < refused < 3000


@pytest.mark.parametrize("text", ['"a" ' + "|" * 200_000, '"' + "a" * 200_000, "[" + "a" * 200_000, "a " * 100_000, "()" * 100_000])
def test_reading_takes_steps(text: str) -> None:
    pauses = [0]

    def pause() -> None:
        pauses[0] += 1

    with pytest.raises(TooLargeError, match="rules of a grammar"):
        from_ebnf(f"root ::= {text}", Effort(pause))
    assert pauses[0] > 900


def test_a_chain_of_rules_is_of_terminals_whatever_their_order() -> None:
    rules = [f'r{at} ::= r{at + 1} "{at}"' for at in range(3000)]
    lark = from_ebnf("\n".join(["root ::= r0 x", *rules, 'r3000 ::= "e"', 'x ::= x "y" | <[97]>']), Effort()).text
    assert len(re.findall(r"^T\d+:", lark, re.MULTILINE)) == 3001
