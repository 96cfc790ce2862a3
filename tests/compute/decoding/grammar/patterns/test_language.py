"""Sets of texts, with Python's own matcher as the judge. Where dialects differ, the narrow reading is part of the wide one."""
import itertools
import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.lift import lifted
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.patterns.tree import alt, both, other, seq, texts

ALGEBRA = Algebra(Effort(most=1 << 40))
LETTERS = "abcAC01 _-.\n\r\t\"/\\(){}é٣²\u2028"
PATTERNS = [
    "abc", "^abc$",
    "^a|b$", "(^a|c)b(c$|a)", "^$", "", "a{2,3}b*?", "^((a|b)*c){2}$", "^[^abc]+$", r"^\d+$", r"\D", r"^\w+$", r"^\W$", r"\s",
    r"^\S+$", r"^[\w.-]+$", r"^[^\s\d]*$", "^.$", "^(?s:.)$", "^(?!(ab|ba)$)[ab]+$", "^(?=.*1)(?=.*a)[a-c01]{2,4}$", "a(?=b)b", "(?<=a)b+$",
    "(?<!a)b", r"\bab\b", r"^a\b", r"a\Bb", r"\b.\b", "(?i)^abc$", "(?i:a)b", r"^\x61\u0062$", r"^[\b\t]$", "^a{,2}$", "a{x}", "^[a\\]]$",
    r"^\.\-\/$", "^(?P<x>a)(?:b)?$", "x$|^c", "^a(?#comment)b$", "^[a&b]$", "^(|a)$", "a?^b",
    r"^(?!.*\s)", "^(?!a.$)", r"(?<!\s)a$", r"^(?!(?!\d)\w)..", r"(?=(?!\S).)[^b]", "^(?!ab?$)(?:a|b)\n?",
]


@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_narrow_reading_is_in_pythons_and_pythons_in_the_wide_one(pattern: str) -> None:
    judge, narrow, wide = re.compile(pattern), ALGEBRA.matching(pattern), ALGEBRA.matching(pattern, widely=True)
    rng = random.Random(pattern)
    agreed = 0
    for _ in range(600):
        text = "".join(rng.choices(LETTERS, k=rng.randint(0, 5)))
        found = judge.search(text) is not None
        assert found or not ALGEBRA.holds(narrow, text), text
        assert ALGEBRA.holds(wide, text) or not found, text
        agreed += found is ALGEBRA.holds(narrow, text)
    assert agreed > 450


@pytest.mark.parametrize("pattern", [
    "b$\n", r"b$$\s", "(a$|b)\n", r"(?:a|b$)\s*$", r"(b|$)+\n", r"a(?:$\n)+", r"(?!b$\n)b", "$(?:$|a*)", "$(?:$|b|a*)$",
    "^(?:a$|(?:$|b)$$|$)", "$^", "($^)?a", "(?:$|a)^b?", "($|a)+^", "$$(?:^|b)^", "$(?=a?)^", "$(?!a)^", "(?:a|$)(?:^|b)", "a$^",
])
def test_an_end_before_the_last_line_break_or_another_end_is_one(pattern: str) -> None:
    """In Python both are; elsewhere the first is none."""
    narrow, wide = ALGEBRA.matching(pattern), ALGEBRA.matching(pattern, widely=True)
    for text in map("".join, itertools.chain.from_iterable(itertools.product("ab\n", repeat=length) for length in range(4))):
        found = re.search(pattern, text) is not None
        assert ALGEBRA.holds(narrow, text) <= found <= ALGEBRA.holds(wide, text), text
        assert "\n" in text or ALGEBRA.holds(narrow, text) is ALGEBRA.holds(wide, text), text


PLAIN = st.recursive(
    st.sampled_from(["a", "b", "c", "[ab]", "[^a]", "(?:)"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join), st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        inner.map(lambda each: f"(?:{each})*"), inner.map(lambda each: f"(?:{each}){{1,2}}"), inner.map(lambda each: f"(?!{each})"),
        inner.map(lambda each: f"(?={each})")), max_leaves=6)


@given(PLAIN, st.text("abcd", max_size=5))
def test_any_pattern_says_what_python_says_of_any_text(pattern: str, text: str) -> None:
    try:
        found, full = ALGEBRA.matching(pattern), ALGEBRA.whole(pattern)
    except PatternError as error:
        assert "repeats" in str(error) or "(?" in str(error)
        return
    assert ALGEBRA.holds(found, text) is (re.search(pattern, text) is not None)
    assert ALGEBRA.holds(full, text) is (re.fullmatch(pattern, text) is not None)
    assert ALGEBRA.holds(other(found), text) is not ALGEBRA.holds(found, text)
    assert ALGEBRA.holds(both([found, full]), text) is (ALGEBRA.holds(found, text) and ALGEBRA.holds(full, text))


EDGED = st.recursive(
    st.sampled_from(["a", "-", "[a-]", r"\w", "b?", "a*", "^", "$", r"\b", r"\B", "(?<=a)", "(?<!-)", "(?<=^a)", "(?<!a-)"]),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join), st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        inner.map(lambda each: f"(?!{each})"), inner.map(lambda each: f"(?={each})")), max_leaves=7)


@given(EDGED, st.lists(st.text("ab-", max_size=4), min_size=8, max_size=8))
def test_whoever_looks_around_sees_all_of_the_text(pattern: str, given: list[str]) -> None:
    for mine, judge in ((ALGEBRA.matching, re.search), (ALGEBRA.whole, re.fullmatch)):
        try:
            found = mine(pattern)
        except PatternError:
            continue
        assert [ALGEBRA.holds(found, text) for text in given] == [judge(pattern, text) is not None for text in given]


@pytest.mark.parametrize("pattern", [
    "^([^,]+(,|$)){3,}$", r"^(/?([.]{2}|b*)($|/))*$", "^(?:(?:^[*]|b)/)*b$", "(^a)*b", "(^|a){2,3}b", "(a|$){2}", "(?:b$)+", "(a|b$){0}/",
    "(?:a(?:$|b))?b{1,2}(/$|a){2,}", "^(?:^a|^b|/){1,2}$",
])
def test_anchors_in_a_repetition_hold_at_its_edge(pattern: str) -> None:
    found, whole, wide = ALGEBRA.matching(pattern), ALGEBRA.whole(pattern), ALGEBRA.matching(pattern, widely=True)
    for text in map("".join, itertools.chain.from_iterable(itertools.product("ab/,*", repeat=length) for length in range(6))):
        assert ALGEBRA.holds(found, text) is ALGEBRA.holds(wide, text) is (re.search(pattern, text) is not None), text
        assert ALGEBRA.holds(whole, text) is (re.fullmatch(pattern, text) is not None), text


@pytest.mark.parametrize(("pattern", "texts", "others"), [
    (r"^(?!-)[a-z0-9-]{1,5}(?<!-)$", ["a", "a-b"], ["-a", "a-", "-"]), (r"(?=.*\d)\w{1,8}\b", ["a1", "1"], ["ab", "-"]),
    (r"^(?!000|666)[06]{3}-\d\b$", ["006-2"], ["000-2", "666-1"]), (r"^a(?!-)\b.$", ["a."], ["a-", "ab"]),
    ("^.?(?<!a)(?<!-)b$", ["b", "bb"], ["ab", "-b"]), (r"^-?(?<!x)\bb$", ["b", "-b"], ["xb"]),
    (r"^(?:a(?!b)|c)\w\b$", ["aa", "cb"], ["ab"]), ("(?!ad)^[ad]{2}$", ["da", "aa"], ["ad"]), ("^[ax]{1,2}$(?<!x)", ["xa"], ["ax", "x"]),
    (r"^[ax]{1,2}$\b", ["a", "xa"], [""]), (r"\b(?!foo)[of]{3}\b", ["oof"], ["foo"]), (r"^(?:(?!-)\w?)?(?<!b)$", ["a", ""], ["b", "-"]),
    ("^(?<=^)a(?<=a)b$", ["ab"], ["a", "b"]),
])
def test_looking_ahead_before_looking_behind_is_obeyed(pattern: str, texts: list[str], others: list[str]) -> None:
    for tree in (ALGEBRA.matching(pattern), ALGEBRA.whole(pattern)):
        assert [text for text in (*texts, *others) if ALGEBRA.holds(tree, text)] == texts


DECIMAL = r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$"  # as many releases of pydantic 2 have it
FROM_THE_BEGINNING = [
    DECIMAL, r"^(?!^[-+\.]*$)[+-]?0*(?:\d{0,3}|(?=[\d.]{1,4}0*$)\d{0,2}\.\d{0,1}0*$)", "^(?=^-|^[+]1)..?$", "^(?!(?:^|x)-).*0$",
    "(?:^(?!^0)|1)[01]$", r"^(?=\A^1)(?!^(?:^1)?0).+$", "^(?!^(?!^-).1).{2}", "^(?=(?!^-)[^0])(?:0|-|1)", "^(?:(?!^0)|x).1$", "^(?!^)0",
]


@pytest.mark.parametrize("pattern", FROM_THE_BEGINNING)
def test_what_looks_ahead_from_the_beginning_may_say_so(pattern: str) -> None:
    judge, found, whole = re.compile(pattern), ALGEBRA.matching(pattern), ALGEBRA.whole(pattern)
    for length in range(6):
        for letters in itertools.product("+-.01", repeat=length):
            text = "".join(letters)
            assert ALGEBRA.holds(found, text) is (judge.search(text) is not None), text
            assert ALGEBRA.holds(whole, text) is (judge.fullmatch(text) is not None), text


@pytest.mark.parametrize("pattern", ["(?!^a)b", "a(?!^a)b", "^(?!a?^b)c", "^a?(?!^b)c", "^(?:a|)(?!^b)c", "^(?:a{0,2})(?=^)"])
def test_what_looks_ahead_for_the_beginning_from_elsewhere_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError, match="looks ahead for its beginning cannot be obeyed unless it looks from there"):
        ALGEBRA.matching(pattern)


@given(PLAIN, PLAIN, st.text("abcd", max_size=5))
def test_what_is_written_for_a_combination_is_the_combination(first: str, second: str, text: str) -> None:
    try:
        tree = both([ALGEBRA.whole(first), other(ALGEBRA.matching(second))])
        written = ALGEBRA.regex(tree)
    except PatternError:
        return
    spelled = re.sub(r"\\x\{([0-9A-F]+)\}", lambda code: f"\\U{int(code[1], 16):08x}", written)
    assert (re.fullmatch(spelled, text) is not None if written != "[]" else False) is ALGEBRA.holds(tree, text)


@given(PLAIN, PLAIN, st.text("abcd", max_size=5), st.integers(1, 4))
def test_a_set_is_what_its_parts_have_in_common(first: str, second: str, text: str, most: int) -> None:
    try:
        tree = alt([seq([ALGEBRA.whole("d"), ALGEBRA.whole(first)]), both([ALGEBRA.whole(second), other(ALGEBRA.matching(first))])])
    except PatternError:
        return
    parts = lifted(tree, most)
    assert len(parts) <= most
    assert all(ALGEBRA.holds(part, text) for part in parts) is ALGEBRA.holds(tree, text)


@pytest.mark.parametrize(("pattern", "count"), [
    ("abc", 1), ("(?=.*a)(?=.*b).{8,20}", 3), ("x[yz]{2}(?=.*a).{8,20}", 2), ("(?:foo|(?=.*a)(?=.*b).{3,9}|z)", 3), ("x+(?=.*a).{2,9}", 1),
    ("(?:ab|c)(?=.*a).{2,9}", 1), ("(?:ab|cd)(?=.*a).{2,9}", 2), ("(?:(?=a).|(?=b).{2})", 4), ("(?=a)(?=.*b)(?=.*c)(?=.*d).{2}", 1),
])
def test_parts_are_found_where_all_else_has_one_length(pattern: str, count: int) -> None:
    assert len(lifted(ALGEBRA.whole(pattern), 4)) == count


@pytest.mark.parametrize(("pattern", "why"), [
    ("(a", "not closed"), ("a)", "closes nothing"), ("[a", "ends too early"), ("*a", "repeats nothing"), (r"(a)\1", "refers back"),
    ("a**", "quantifier behind a quantifier"), ("a++", "possessive"), ("[]", "empty"), ("[b-a]", "ends before it begins"),
    ("a{,}", r"write * or \{,}"), (r"^\ud83d\ude00$", "a pair of surrogates"), (r"[\uD83D\uDE00-\uD83D\uDE4F]", "a pair of surrogates"),
    (r"\q", "not read"), (r"\p{Greek}", "general category"), (r"\p{Script=Nd}", "Script=Nd"), (r"\pL", "without braces"),
    ("(?>a)", "not read"),
    ("a{3,2}", "at least 3 and at most 2"), ("(^a|b$)*", "repeats"), ("((?!a)b)*", "repeats"),
    ("^*", "no length"), ("a{1234567}", "999999"), (r"\u12", "number"),
    ("a" * 30000, "20000"),
    ("(ab){10001}", "at least 20,002 characters"), ("^(a{200}b*){101}|c{30000}$", "at least 20,200 characters"),
    ("(" * 100, "deep"), (r"a?(?:\bb|c)", r"a \b, \B or lookbehind in a group"),
    ("a((?<!a)bc)", "lookbehind in a group"),
    ("$(?<!a)^", "between a $ and a ^"),
    ("a(b?(?<=ab)c)", "lookbehind in a group"), ("a(?<=(?<!b)a)", "or after another one, cannot be obeyed"),
])
def test_what_is_no_set_of_texts_is_refused_with_the_reason(pattern: str, why: str) -> None:
    with pytest.raises(PatternError, match=re.escape(why)):
        ALGEBRA.matching(pattern)


@pytest.mark.parametrize("pattern", ["(?<=a)b", "(?<!a)b", "a(?<=a)b", "^(?<!a)b", "b(?<!a)", r"\bab", r"^\bab", r"a?\bb"])
def test_what_looks_behind_outside_of_groups_is_obeyed(pattern: str) -> None:
    found, full = ALGEBRA.matching(pattern), ALGEBRA.whole(pattern)
    for text in ("b", "ab", "cb", "aab", "a", "", "c ab"):
        assert ALGEBRA.holds(found, text) is (re.search(pattern, text) is not None)
        assert ALGEBRA.holds(full, text) is (re.fullmatch(pattern, text) is not None)


@pytest.mark.parametrize("pattern", ["a|(?<=a)b", "c|(?:(?<!b)a)", "a?(?<!b)c?(?<!bc)"])
def test_what_looks_out_of_a_group_or_behind_another_is_refused(pattern: str) -> None:
    for mine in (ALGEBRA.matching, ALGEBRA.whole):
        with pytest.raises(PatternError, match="lookbehind in a group, or after another one, cannot be obeyed"):
            mine(pattern)


def test_groups_may_be_as_deep_as_is_told_and_patterns_as_long() -> None:
    assert ALGEBRA.holds(ALGEBRA.whole("(" * 60 + "a" + ")" * 60), "a") and ALGEBRA.holds(ALGEBRA.whole("a{0}" * 5000), "")
    for pattern, why in (("(" * 61 + "a" + ")" * 61, "nested more than 60 deep"), ("a{0}" * 5000 + "b", "20001 characters; at most 20000")):
        with pytest.raises(PatternError, match=why):
            ALGEBRA.whole(pattern)


def test_halves_of_surrogate_pairs_are_no_characters() -> None:
    assert ALGEBRA.regex(ALGEBRA.whole(r"[a\ud800-\udbff]+|[\ud800-\udfff]b")) == "a+"
    assert ALGEBRA.regex(ALGEBRA.whole(r"a|\udbff\uffff|\ud83d\u0041")) == "a"


CASED = "aAkK\u212asS\u017fiI\u0130\u0131åÅ\u212bßẞßüÜµμΜͅιΙяЯǆǅǄΰΰﬅﬆ1_Ⴀⴀ"


@pytest.mark.parametrize("pattern", [
    *(f"(?i)^{char}$" for char in CASED), *(f"(?i)^[^{char}]$" for char in CASED), "(?i)^[^а-я]+$", "(?i)^[^\u0100-\u2fff]$", "(?i)^[h-t]$",
    "(?i)привет", "(?i:^[^i])$", r"(?i)^[^\W_]$", "(?i)^(?![а-яsk]).$",
])
def test_case_is_ignored_in_all_scripts_as_far_as_dialects_agree(pattern: str) -> None:
    judge, narrow, wide = re.compile(pattern), ALGEBRA.matching(pattern), ALGEBRA.matching(pattern, widely=True)
    for text in (*CASED, "ПРИВЕТ", "Привет", "привет"):
        found = judge.search(text) is not None
        assert found or not ALGEBRA.holds(narrow, text), text
        assert ALGEBRA.holds(wide, text) or not found, text


def test_upper_and_lower_case_of_any_script_are_the_same_in_the_narrow_reading() -> None:
    assert all(ALGEBRA.holds(ALGEBRA.matching(f"(?i)^{a}$"), b) for a, b in ("яЯ", "Яя", "ǆǄ", "éÉ", "aA", "𐐨𐐀"))


@pytest.mark.parametrize(("pattern", "text"), [
    (r"^\p{Lu}\p{L}*$", "Élan"), (r"^\p{gc=Nd}$", "٣"), (r"^\p{General_Category=Decimal_Number}$", "٣"), (r"^\P{L}$", "1"),
    (r"^\u{1F600}$", "\U0001f600"), (r"^\cJ$", "\n"),
])
def test_what_ecmascript_has_and_python_has_not(pattern: str, text: str) -> None:
    assert ALGEBRA.holds(ALGEBRA.matching(pattern), text) and not ALGEBRA.holds(ALGEBRA.matching(pattern), text + "\0")


@pytest.mark.parametrize("pattern", ["(a|bc)(c|de)" * 40, "((a|b)*c)*" * 10, "(x+x+)+y", "(?:(?:a?){9}){9}a{9}", "a{1000,2000}"])
def test_what_makes_other_matchers_slow_is_written_at_its_own_length(pattern: str) -> None:
    assert len(ALGEBRA.regex(ALGEBRA.matching(pattern))) < 20 * len(pattern) + 100


def test_what_takes_too_many_states_is_refused() -> None:
    with pytest.raises(PatternError, match="states|complex|large"):
        ALGEBRA.regex(other(ALGEBRA.matching("(a|b)*a(a|b){12}$")))


@pytest.mark.parametrize(("pattern", "found"), [
    ("^a[bc]$", ["ab", "ac"]), ("^(x|yz)$", ["x", "yz"]), ("^a?$", ["", "a"]), ("^[ab]{2}$", ["aa", "ab", "ba", "bb"]), ("a*", None),
    ("^a*$", None), ("^[a-z]{3}$", None), ("^$", [""]),
])
def test_few_texts_are_listed(pattern: str, found: list[str] | None) -> None:
    listed = texts(ALGEBRA.whole(pattern))
    assert listed == found
