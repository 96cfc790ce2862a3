"""Options of plug-ins as text: what is no value of its kind is told, with one that would do."""
from dataclasses import dataclass

import pytest

from penstock.core.errors import UsageError
from penstock.core.registry import Table, check_ranges, fill, parse_pairs


@dataclass(frozen=True)
class Options:
    rate: float = 1.0
    count: int | None = None
    on: bool = False


@pytest.mark.parametrize(("pairs", "told"), [
    ({"rate": "x"}, "poisson: rate must be a finite number, such as 2 or 0.5, not 'x'"),
    ({"rate": "-inf"}, "poisson: rate must be a finite number, such as 2 or 0.5, not '-inf'"),
    ({"rate": "nan"}, "poisson: rate must be a finite number, such as 2 or 0.5, not 'nan'"),
    ({"rate": "1e999"}, "poisson: rate must be a finite number, such as 2 or 0.5, not '1e999'"),
    ({"count": "1.5"}, "poisson: count must be a whole number, such as 2, not '1.5'"),
    ({"on": "maybe"}, "poisson: on must be true or false, not 'maybe'"),
    ({"rat": "1"}, "poisson has no option 'rat'; it has: count, on, rate"),
])
def test_what_is_no_value_is_told_with_one_that_would_do(pairs: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        fill(Options, pairs, "poisson")
    assert str(error.value) == told


def test_an_option_without_a_value_is_refused() -> None:
    with pytest.raises(UsageError, match="poisson: rate is given no value"):
        parse_pairs("count=1,rate= ", "poisson")


def test_a_value_without_a_name_is_refused() -> None:
    with pytest.raises(UsageError, match="poisson: ' =5' is not key=value"):
        parse_pairs("count=1, =5", "poisson")


def test_an_option_out_of_its_range_is_told_with_the_range() -> None:
    check_ranges("poisson", Options(rate=2.0), rate=(0, 2))
    for rate, told in ((2.5, "2.5"), (float("nan"), "nan")):
        with pytest.raises(UsageError, match=rf"poisson: rate must be from 0 to 2, not {told}"):
            check_ranges("poisson", Options(rate=rate), rate=(0, 2))


def test_text_becomes_what_the_fields_are() -> None:
    assert fill(Options, {"rate": "2", "count": "none", "on": "yes"}, "poisson") == Options(2.0, None, True)


def test_a_word_may_stand_for_a_name() -> None:
    table = Table("fruit", {"apple": "garden:Apple"}, also={"auto": "apple"})
    assert [table.meant(word) for word in ("auto", "apple", "apple:red=1")] == ["apple", "apple", "apple:red=1"]
    with pytest.raises(UsageError, match="unknown fruit 'auto:x'; known: auto, apple"):
        table.load("auto:x")
    assert Table("fruit", {}, also=("auto",)).meant("auto") == "auto"
