"""Stop strings: wherever the text is cut into pieces, what comes out ends at the first stop string of the whole text."""
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.errors import RequestError
from penstock.serve.text.stops import StopChecker


def first_match(text: str, stops: tuple[str, ...]) -> tuple[int, str] | None:
    """The stop string that begins earliest, the shortest of those that begin there."""
    found = [(text.find(stop), len(stop), stop) for stop in stops if stop in text]
    return (min(found)[0], min(found)[2]) if found else None


def stream(checker: StopChecker, chunks: list[str]) -> tuple[str, str | None]:
    out = ""
    for chunk in chunks:
        emitted, matched = checker.push(chunk)
        out += emitted
        if matched is not None:
            return out, matched
    return out + checker.finish(), checker.matched


def cut(text: str, cuts: list[int]) -> list[str]:
    edges = sorted({0, len(text), *(at % (len(text) + 1) for at in cuts)})
    return [text[a:b] for a, b in zip(edges, edges[1:], strict=False)]


texts = st.text(alphabet="ab\né", max_size=24)
stop_lists = st.lists(st.text(alphabet="ab\né", min_size=1, max_size=4), max_size=4).map(tuple)


@given(texts, stop_lists, st.lists(st.integers(0, 100), max_size=8), st.booleans())
def test_streamed_is_the_text_before_the_first_match(text: str, stops: tuple[str, ...], cuts: list[int], include: bool) -> None:
    out, matched = stream(StopChecker(stops, include), cut(text, cuts))
    want = first_match(text, stops)
    if want is None:
        assert (out, matched) == (text, None)
    else:
        assert matched == want[1]
        assert out == text[: want[0] + (len(want[1]) if include else 0)]


@given(texts, stop_lists)
def test_holds_back_just_what_may_begin_a_stop_string(text: str, stops: tuple[str, ...]) -> None:
    if first_match(text, stops) is not None:
        return
    emitted, _ = StopChecker(stops).push(text)
    held = text[len(emitted) :]
    starts = {stop[:n] for stop in stops for n in range(1, len(stop))}
    assert held == max((start for start in starts if text.endswith(start)), key=len, default="")


def test_says_which_stop_string_matched_and_then_stays_silent() -> None:
    checker = StopChecker(("END", "\n\n"))
    assert checker.push("a\n") == ("a", None)
    assert checker.push("\nb") == ("", "\n\n")
    assert checker.push("more") == ("", "\n\n")
    assert checker.finish() == ""


def test_of_two_that_begin_together_the_first_complete_one_ends_the_text() -> None:
    assert StopChecker(("\n\n", "\n")).push("x\n\ny") == ("x", "\n")


def test_an_earlier_beginning_that_may_still_win_is_waited_for() -> None:
    won = StopChecker(("abcd", "bc"))
    assert won.push("abc") == ("", None)
    assert won.push("d") == ("", "abcd")
    lost = StopChecker(("abcd", "bc"))
    assert lost.push("abc") == ("", None)
    assert lost.push("x") == ("a", "bc")


def test_a_match_that_still_waited_at_the_end_counts() -> None:
    checker = StopChecker(("abcd", "bc"), include=True)
    assert checker.push("zabc") == ("z", None)
    assert checker.finish() == "abc"
    assert checker.matched == "bc"


def test_inactive_text_is_not_searched_not_even_its_end() -> None:
    checker = StopChecker(("ab",))
    assert checker.push("xab a", active=False) == ("xab a", None)
    assert checker.push("b") == ("b", None)
    assert checker.push("ab") == ("", "ab")


def test_without_stop_strings_everything_passes_at_once() -> None:
    checker = StopChecker(())
    assert checker.push("anything") == ("anything", None)
    assert checker.finish() == ""


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(RequestError, match="stop") as refused:
        StopChecker(("a", ""))
    assert refused.value.param == "stop"
