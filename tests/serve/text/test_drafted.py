"""What of a text was drafted: the spans add up to the text that is shown, and each character is the token's that completes it."""
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.core.types import SamplingParams
from penstock.serve.engine.choice import Choice
from penstock.serve.text.drafted import DraftedText
from penstock.serve.text.tokenizer import Tokenizer
from tests.serve.text.makers import byte_fallback, byte_level

BYTES = Tokenizer(byte_level())


def shown(tokenizer: Tokenizer, params: SamplingParams, deltas: list[tuple[list[int], set[int]]]) -> list[tuple[str, bool]]:
    """The spans of an answer whose deltas have these (tokens, drafted places), its text held back as the engine does."""
    choice, drafted, spans = Choice(tokenizer, params, []), DraftedText(tokenizer, True, []), []
    for number, (tokens, places) in enumerate(deltas):
        before = choice.num_tokens
        text = choice.push(tokens, "length" if number == len(deltas) - 1 else None)
        kept = tokens[: choice.num_tokens - before]
        spans.append(drafted.push(kept, places, text))
        assert "".join(part for part, _ in spans[-1]) == text
        if choice.finish_reason is not None:
            break
    return [span for found in spans for span in found]


def ids(text: str) -> list[int]:
    return BYTES.encode(text, add_special_tokens=False)


def test_neighbouring_tokens_of_a_kind_are_one_span() -> None:
    first, second, third, fourth = (ids(char) for char in "abcd")
    deltas = [(first, set()), ([*second, *third, *fourth], {0, 1})]
    assert shown(BYTES, SamplingParams(), deltas) == [("a", False), ("bc", True), ("d", False)]


def test_a_split_character_is_the_token_s_that_completes_it() -> None:
    euro = BYTES.encode("€", add_special_tokens=False)
    assert len(euro) == 3
    assert shown(BYTES, SamplingParams(), [(euro[:1], set()), (euro[1:], {0, 1})]) == [("€", True)]
    assert shown(BYTES, SamplingParams(), [(euro[:2], {0, 1}), (euro[2:], set())]) == [("€", False)]
    assert shown(BYTES, SamplingParams(), [([*ids("x"), *euro[:2]], {0, 1, 2})]) == [("x", True), ("\ufffd", False)]


def test_text_that_waited_for_a_stop_string_keeps_its_kind() -> None:
    params = SamplingParams(stop=("xyz",))
    deltas = [(ids("a") + ids("x"), {1}), (ids("y"), set()), (ids("q"), {0}), (ids("."), set())]
    assert shown(BYTES, params, deltas) == [("a", False), ("x", True), ("y", False), ("q", True), (".", False)]


def test_what_a_stop_string_cuts_is_not_shown() -> None:
    deltas = [(ids("a") + ids("x"), {0, 1}), (ids("y") + ids("z") + ids("b"), {0, 1}), (ids("c"), set())]
    assert shown(BYTES, SamplingParams(stop=("xyz",)), deltas) == [("a", True)]


@settings(max_examples=60)
@given(data=st.data(), fallback=st.booleans())
def test_spans_add_up_to_the_text(data: st.DataObject, fallback: bool) -> None:
    tokenizer = Tokenizer(byte_fallback(True)) if fallback else BYTES
    tokens = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), min_size=1, max_size=16))
    stops = data.draw(st.lists(st.text("abt ", min_size=1, max_size=3), max_size=2))
    deltas, rest = [], tokens
    while rest:
        size = data.draw(st.integers(1, 4))
        deltas.append((rest[:size], set(data.draw(st.lists(st.integers(0, size))))))
        rest = rest[size:]
    whole = Choice(tokenizer, SamplingParams(stop=tuple(stops)), [])
    assert "".join(text for text, _ in shown(tokenizer, SamplingParams(stop=tuple(stops)), deltas)) == whole.push(tokens, "length")
