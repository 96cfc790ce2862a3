"""Special tokens are taken out of a text as if they had been skipped, wherever it is cut."""
from hypothesis import given
from hypothesis import strategies as st

from penstock.serve.text.hidden import HiddenTokens
from penstock.serve.text.tokenizer import Tokenizer
from tests.serve.text.makers import byte_level

TOKENIZER = Tokenizer(byte_level())
words = st.lists(st.sampled_from(["<s>", "</s>", "<|ツール|>", "<tool_call>", " the", "日本", "x", "<"]), max_size=12)


@given(words, st.sets(st.sampled_from(sorted(TOKENIZER.special_ids))), st.lists(st.integers(0, 5), min_size=1, max_size=30))
def test_what_is_left_is_what_skipping_leaves(said: list[str], skipped: set[int], sizes: list[int]) -> None:
    ids = TOKENIZER.encode("".join(said), add_special_tokens=False)
    text, found, at = TOKENIZER.decode(ids), "", 0
    hidden = HiddenTokens(TOKENIZER.detokenizer(False), skipped)
    hidden.push(ids)
    for size in [*sizes, len(text)]:
        found += hidden.cut(text[at : at + size])
        at += size
    assert found == TOKENIZER.decode([token for token in ids if token not in skipped])
