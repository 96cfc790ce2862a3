"""The detokenizer: whatever the pieces, what was emitted is the decoded whole; whole characters come at once, halves never."""
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.serve.text.detokenize import Utf8Stream
from penstock.serve.text.tokenizer import Tokenizer
from tests.serve.text.makers import KINDS, byte_fallback, byte_level, word_level

texts = st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\ufffd"), max_size=30)


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer(KINDS[request.param]())


def pushes(tokenizer: Tokenizer, chunks: list[list[int]], skip: bool, prompt: Sequence[int] = ()) -> list[str]:
    stream = tokenizer.detokenizer(skip, prompt)
    return [*(stream.push(chunk) for chunk in chunks), stream.finish()]


def split(ids: list[int], sizes: list[int]) -> list[list[int]]:
    chunks, rest = [], ids
    for size in sizes:
        chunks.append(rest[:size])
        rest = rest[size:]
    return [*chunks, rest]


@settings(max_examples=40)
@given(data=st.data(), sizes=st.lists(st.integers(0, 4), max_size=8), skip=st.booleans())
def test_the_pieces_of_any_ids_are_the_decoded_whole(tokenizer: Tokenizer, data: st.DataObject, sizes: list[int], skip: bool) -> None:
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size + 2), max_size=20))
    assert "".join(pushes(tokenizer, split(ids, sizes), skip)) == tokenizer.decode(ids, skip)


@settings(max_examples=40)
@given(text=texts, sizes=st.lists(st.integers(0, 4), max_size=8))
def test_the_pieces_of_text_are_the_text_that_tokenizers_decodes(tokenizer: Tokenizer, text: str, sizes: list[int]) -> None:
    ids = tokenizer.encode(text)
    assert "".join(pushes(tokenizer, split(ids, sizes), True)) == tokenizer.backend.decode(ids, skip_special_tokens=True)


@settings(max_examples=40)
@given(prompt=texts, data=st.data(), skip=st.booleans())
def test_after_a_prompt_it_is_what_the_tokens_add_to_its_text(tokenizer: Tokenizer, prompt: str, data: st.DataObject, skip: bool) -> None:
    before = tokenizer.encode(prompt)
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=12))
    whole = tokenizer.decode([*before, *ids], skip)
    assert tokenizer.decode(before, skip) + "".join(pushes(tokenizer, [[each] for each in ids], skip, before)) == whole


@settings(max_examples=40)
@given(text=texts)
def test_no_half_character_is_emitted_and_no_whole_one_kept(text: str) -> None:
    tokenizer = Tokenizer(byte_level())
    stream = tokenizer.detokenizer()
    data = b""
    emitted = ""
    for token_id in tokenizer.encode(text, add_special_tokens=False):
        if token_id in tokenizer.special_ids:
            continue
        data += tokenizer.token_bytes(token_id)
        emitted += stream.push([token_id])
        assert emitted == data.decode(errors="ignore")
    assert stream.finish() == ""


def test_a_character_in_four_tokens_comes_with_the_last() -> None:
    tokenizer = Tokenizer(byte_level())
    ids = tokenizer.encode("🙂", add_special_tokens=False)
    assert pushes(tokenizer, [[each] for each in ids], True) == ["", "", "", "🙂", ""]
    assert pushes(tokenizer, [[each] for each in ids[:2]], True) == ["", "", "\ufffd"]


def test_a_line_break_in_byte_tokens_comes_at_once() -> None:
    tokenizer = Tokenizer(byte_fallback(leading_space=True))
    line = tokenizer.backend.token_to_id("<0x0A>")
    word = tokenizer.backend.token_to_id("▁the")
    assert pushes(tokenizer, [[word], [line], [line], [word]], True) == ["the", "\n", "\n", " the", ""]


def test_the_leading_space_is_stripped_only_where_the_text_begins() -> None:
    tokenizer = Tokenizer(byte_fallback(leading_space=True))
    word = tokenizer.backend.token_to_id("▁the")
    assert "".join(pushes(tokenizer, [[word]], True)) == "the"
    assert "".join(pushes(tokenizer, [[word]], True, prompt=[1])) == "the"
    assert "".join(pushes(tokenizer, [[word]], False, prompt=[1])) == " the"
    assert "".join(pushes(tokenizer, [[word]], True, prompt=[1, word])) == " the"


def test_words_are_joined_with_spaces() -> None:
    assert pushes(Tokenizer(word_level()), [[5], [1, 6], [7]], True) == ["w5", " w6", " w7", ""]


def test_a_character_that_the_prompt_began_is_completed() -> None:
    tokenizer = Tokenizer(byte_level())
    ids = tokenizer.encode("🙂 x", add_special_tokens=False)
    assert "".join(pushes(tokenizer, [[each] for each in ids[2:]], True, prompt=ids[:2])) == "🙂 x"
    assert "".join(pushes(tokenizer, [ids[4:]], True, prompt=ids[:2])) == " x"
    assert pushes(tokenizer, [[]], True, prompt=ids[:2]) == ["", ""]


@pytest.mark.parametrize(("bytewise", "want"), [(False, "a\ufffdb\ufffd"), (True, "a\ufffd\ufffdb\ufffd\ufffd")])
def test_broken_bytes_are_replaced_one_by_one_or_by_character(bytewise: bool, want: str) -> None:
    stream = Utf8Stream(bytewise)
    assert stream.push(b"a\xe6\x97b") + stream.push(b"\xe6") + stream.push(b"\x97") + stream.finish() == want
