"""What may come next in arrays whose items must differ: for every token, along drafts, and as a plain reader of the text would judge."""
import codecs
import json
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from penstock.compute.decoding.grammar.differ import Differ, Spelled
from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.schema.places import Differing, Place, written
from penstock.compute.decoding.grammar.vocabulary import Spelling
from penstock.core.types import StructuredOutputsParams as Wanted
from tests.compute.decoding.grammar.tokens import TOKENS, Tokens, allowed, compiler, matcher_of, places

COMPILER = compiler()
TEXTS = Wanted(json={"type": "array", "items": {"type": "string"}, "uniqueItems": True})
PIECES = [
    "[", "]", '"', ",", '","', '"]', '["', "a", "b", "ab", 'a"', '"a"', '"b",', '","a', 'b","', '"a","a"', '"a","b"', '","","', "\\", '\\"',
    "é", 'a","a"', '","b"', '["a","a"', '["a","b"']


class Pieces(Tokens):
    """The tokens of a vocabulary with many quotes."""

    def __init__(self) -> None:
        self.special_ids = frozenset()
        self._spelled = [piece.encode() for piece in PIECES] + [b"\xc3", b"\xa9", b"a", b"<|end|>"]


NUM = len(PIECES) + 4
SPELLED = Spelled(Spelling(Pieces(), NUM, NUM - 1))
FREE, SHORT = Differing(), Differing(most=2)
PATTERN, KNOWN = "(?:a|b?)b|é", ["ab", "bb", "b", "é"]
FITTING = Differing(texts=Algebra(Effort()).completions(Algebra(Effort()).whole(PATTERN)))
LISTED = Differing(tuple(sorted(map(written, ["", "a", "ab", "b", '"', "é"]))))


def left(items: Differing, tokens: Sequence[int], drafts: Sequence[int] = ()) -> list[int]:
    """What a mask that allowed everything allows behind these."""
    differ = Differ((Place(), Place(items=items)), SPELLED)
    assert all(differ.take(token) for token in tokens)
    mask = np.array([0xFFFFFFFF], np.uint32)
    differ.strike(mask, drafts)
    return places(mask)


def read(text: bytes) -> tuple[list[bytes], bytes | None]:
    """The items of a beginning of an array, and what there is of the one that is open, byte by byte."""
    found: list[bytes] = []
    item: bytes | None = None
    at = 0
    while at < len(text):
        step = text[at : at + (2 if item is not None and text[at : at + 1] == b"\\" else 1)]
        at += len(step)
        if step != b'"':
            item = item + step if item is not None else None
        elif item is None:
            item = b""
        else:
            found.append(item)
            item = None
    return found, item


def fits(items: Differing, text: bytes) -> bool:
    """Whether a beginning of an array could become a whole one of items that differ."""
    found, item = read(text)
    if len(set(found)) < len(found):
        return False
    if item is None:
        return True
    if items.values is not None or items.texts is not None:
        return any(value.startswith(item) and value not in found for value in items.values or map(written, KNOWN))
    return not (items.most is not None and item in found and len(json.loads(b'"' + item + b'"')) == items.most)


@pytest.mark.parametrize("items", [FREE, SHORT, LISTED, FITTING])
def test_a_token_is_struck_if_and_only_if_items_would_be_alike(items: Differing) -> None:
    """Behind texts of random tokens that begin as arrays of strings do."""
    rng, struck = random.Random(1), 0
    for _ in range(400):
        text, tokens = b"", list[int]()
        while len(tokens) < 9:
            arrays = [token for token in range(NUM) if begins_array(items, text + SPELLED.text(token))]
            good = [token for token in arrays if fits(items, text + SPELLED.text(token))]
            if not good:
                break
            kept = left(items, tokens[: len(tokens) // 2], tokens[len(tokens) // 2 :])
            assert [token for token in arrays if token in kept] == good, text
            struck += len(arrays) - len(good)
            tokens.append(rng.choice(good))
            text += SPELLED.text(tokens[-1])
    assert struck > 100


def begins_array(items: Differing, text: bytes) -> bool:
    """Whether it begins an array of strings of at most two characters; if some are listed, of these."""
    found, item = read(text)
    listed = items.values if items.texts is None else tuple(map(written, KNOWN))
    if listed is not None and not (set(found) <= {*listed} and any(each.startswith(item or b"") for each in listed)):
        return False
    try:
        characters = codecs.getincrementaldecoder("utf-8")().decode(text)
    except UnicodeDecodeError:
        return False
    state, length = "value", 0
    if not text.startswith(b"["):
        return False
    for at, byte in enumerate(characters[1:]):
        if state == "end":
            return False
        if state == "string":
            state = {'"': "behind", "\\": "escape"}.get(byte, "string")
            length += state == "string"
        elif state == "escape":
            state, length = "string", length + 1
            if byte not in '"\\':
                return False
        elif state == "value" and byte == '"':
            state, length = "string", 0
        elif (state == "behind" and byte in ",]") or (state == "value" and byte == "]" and not at):
            state = "value" if byte == "," else "end"
        else:
            return False
        if length > 2:
            return False
    return True


def test_masks_along_drafts_are_those_of_the_tokens_one_by_one() -> None:
    ids = TOKENS.encode('["the", "old", "the')
    masks = np.zeros((len(ids) + 1, COMPILER.vocabulary.width // 32), np.uint32)
    matcher_of(COMPILER, TEXTS).fill_along(ids, None, masks)
    tree = np.zeros_like(masks)
    matcher_of(COMPILER, TEXTS).fill_along(ids, tuple(range(-1, len(ids) - 1)), tree)
    matcher = matcher_of(COMPILER, TEXTS)
    for at, token in enumerate(ids):
        assert places(masks[at]) == places(tree[at]) == allowed(matcher)
        matcher.take([token])
    ending = [token for token in allowed(matcher) if TOKENS.token_bytes(token).startswith(b'"')]
    assert places(masks[-1]) == places(tree[-1]) == allowed(matcher) and not ending


def test_each_draft_is_read_once_however_many_are_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    read_texts: list[bytes] = []
    after = Differ._after

    def counted(self: Differ, state: Any, data: bytes) -> Any:
        read_texts.append(data)
        return after(self, state, data)

    monkeypatch.setattr(Differ, "_after", counted)
    differ, drafts = Differ((Place(), Place(items=FREE)), SPELLED), [PIECES.index(piece) for piece in ('["', *"ab" * 20)]
    for num in range(len(drafts) + 1):
        differ.strike(np.zeros(1, np.uint32), drafts[:num])
    assert all(differ.take(token) for token in drafts)
    assert len(read_texts) < 3 * len(drafts)


def test_an_answer_whose_items_are_alike_is_ended() -> None:
    matcher = matcher_of(COMPILER, TEXTS)
    ids = TOKENS.encode('["a","b","a"]')
    assert matcher.take(ids) < len(ids) and matcher.ended == "abort"
