"""How few tokens a text can be."""
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

from penstock.serve.text.fewest import COMPOSED, Fewest, fewest
from tests.serve.text.makers import KINDS, byte_fallback, byte_level

PIECES = ("the", " ", "  ", "\n", "日", "é", "e\u0301", "\u1fbe\u0308\u0301", "\u1100\u1161\u11a8", "\u212a\u0327", "▁", "▁▁▁", "\u0301",
          "<s>", "<|ツール|>", "<tool_call>", "\x00", "😀")


def composing() -> Tokenizer:
    found = byte_level()
    found.normalizer = normalizers.NFC()
    return found


KNOWN = {name: KINDS[name] for name in ("byte_level", "llama2", "gemma")} | {"nfc": composing}


@pytest.mark.parametrize("make", KNOWN.values(), ids=KNOWN)
def test_no_text_is_fewer_tokens(make: Callable[[], Tokenizer]) -> None:
    backend = make()
    bound = fewest(backend)
    assert bound is not None

    @given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join) | st.text(max_size=200))
    def check(text: str) -> None:
        assert bound.of(text) <= len(backend.encode(text, add_special_tokens=False).ids)

    check()


@pytest.mark.parametrize(("text", "plain", "composed"), [("the " * 300, 93, 93), ("", 0, 0), ("e\u0301" * 100, 24, 2), ("日" * 100, 24, 2)])
def test_it_is_the_bytes_by_the_longest_token(text: str, plain: int, composed: int) -> None:
    longest = len("<|ツール|>".encode())
    assert fewest(byte_level()) == Fewest(longest) and longest == 13
    assert Fewest(longest).of(text) == plain and Fewest(longest, composes=True).of(text) == composed


def test_no_character_decomposes_into_more() -> None:
    assert max(len(unicodedata.normalize("NFD", chr(code))) for code in range(0x110000)) == COMPOSED


def changed(make: Callable[[], Tokenizer] = byte_level, **parts: object) -> Tokenizer:
    found = make()
    for name, part in parts.items():
        setattr(found, name, part)
    return found


GREEDY = AddedToken("<g>", lstrip=True, normalized=True)


@pytest.mark.parametrize("make", [
    *(KINDS[name] for name in ("metaspace", "word_level", "word_piece")),
    lambda: changed(normalizer=normalizers.NFKC()),
    lambda: changed(normalizer=normalizers.Sequence([normalizers.NFC(), normalizers.Replace("ab", "c")])),
    lambda: changed(normalizer=normalizers.Replace(Regex(" +"), " ")),
    lambda: changed(pre_tokenizer=pre_tokenizers.Sequence([pre_tokenizers.Split(" ", "removed"), pre_tokenizers.ByteLevel()])),
    lambda: changed(pre_tokenizer=pre_tokenizers.WhitespaceSplit()),
    lambda: changed(model=models.BPE({"a": 0}, [])),
    lambda: changed(lambda: byte_fallback(False), model=models.BPE({"a": 0, "<unk>": 1}, [], unk_token="<unk>", fuse_unk=True)),
    lambda: changed(lambda: byte_fallback(False), model=models.BPE({"a": 0, "<unk>": 1}, [], unk_token="<unk>", byte_fallback=True)),
])
def test_of_what_drops_or_joins_any_text_nothing_is_known(make: Callable[[], Tokenizer]) -> None:
    assert fewest(make()) is None


def test_a_token_that_takes_white_space_makes_its_texts_unknown() -> None:
    greedy = byte_level()
    greedy.add_tokens([GREEDY])
    text = " " * 4000 + "<g>"
    found = fewest(greedy)
    assert found is not None and found.of(text) == 0 and found.of(text[:-1]) == 308
    assert len(greedy.encode(text, add_special_tokens=False).ids) == 1
    greedy = composing()
    greedy.add_tokens([GREEDY])
    assert fewest(greedy) is None
