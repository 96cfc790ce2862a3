import re
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.compute.decoding.grammar.patterns import chars

RANGES = st.lists(st.tuples(st.integers(0, 300), st.integers(0, 40)).map(lambda pair: (pair[0], pair[0] + pair[1])), max_size=6)


def codes(ranges: chars.Ranges) -> set[int]:
    return {code for low, high in ranges for code in range(low, min(high, 400) + 1)}


@given(RANGES, RANGES)
def test_sets_of_characters_are_sets(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    one, two = chars.union(a), chars.union(b)
    assert codes(chars.intersection(one, two)) == codes(one) & codes(two)
    assert codes(chars.union((*one, *two))) == codes(one) | codes(two)
    assert codes(chars.complement(one)) == set(range(401)) - codes(one)
    assert codes(chars.without(one, 150)) == codes(one) - {150}
    assert all(before[1] + 1 < after[0] for before, after in zip(one, one[1:], strict=False))


@pytest.mark.parametrize("name", ["L", "Lu", "Nd", "P", "Zs"])
def test_a_general_category_has_the_characters_that_unicode_says(name: str) -> None:
    ranges = chars.category(name)
    for code in range(0, 0x3000, 7):
        assert any(low <= code <= high for low, high in ranges) is unicodedata.category(chr(code)).startswith(name)
    assert chars.category("Greek") == ()


@pytest.mark.parametrize(("name", "short"), [("Letter", "L"), ("digit", "Nd"), ("Math_Symbol", "Sm"), ("punct", "P"), ("Other", "C")])
def test_a_general_category_has_a_longer_name(name: str, short: str) -> None:
    assert chars.category(name) == chars.category(short) != ()


def test_letters_with_a_case_are_of_three_categories() -> None:
    assert chars.category("LC") == chars.category("Cased_Letter") == chars.union(
        part for name in ("Lu", "Ll", "Lt") for part in chars.category(name))


def test_what_dialects_agree_on_is_in_what_python_says() -> None:
    for pattern, sets in ((r"\d", chars.digits), (r"\w", chars.words), (r"\s", chars.blanks)):
        for code in (*range(0x2200), 0x3000, 0xFEFF, 0x1D7CE):
            narrow, wide = (any(low <= code <= high for low, high in sets(widely)) for widely in (False, True))
            assert narrow <= (re.match(pattern, chr(code)) is not None) <= wide
