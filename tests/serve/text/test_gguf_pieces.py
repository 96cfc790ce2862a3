"""Merges are found in any vocabulary that a file may hold."""
from penstock.serve.text.gguf_pieces import merges
from penstock.serve.text.gguf_vocab import NORMAL, Vocab
from tests.guard import ends


def vocab(*tokens: str) -> Vocab:
    return Vocab(tokens, [NORMAL] * len(tokens), [-float(at) for at in range(len(tokens))])


def test_a_piece_as_long_as_a_book() -> None:
    long = "ab" * 1_000_000
    with ends():
        found = merges(vocab("a", "b", "ab", long, long + "a", long + "ab"))
    lengths = [(len(left), len(right)) for left, right in found]
    assert lengths == [(1, 1), (len(long), 1), (len(long) + 1, 1), (len(long), 2), (2, len(long))]


def test_each_way_to_cut_a_piece_is_a_merge_the_longer_left_part_first() -> None:
    assert merges(vocab("a", "aa", "aaa", "aaaa")) == [
        ("a", "a"), ("aa", "a"), ("a", "aa"), ("aaa", "a"), ("aa", "aa"), ("a", "aaa")]
