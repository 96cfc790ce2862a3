"""Special tokens taken out of an answer's text that has to come with them, because others of them are the markup of its parsers."""
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any

from penstock.core.types import SamplingParams
from penstock.serve.text.detokenize import Detokenizer
from penstock.serve.text.tokenizer import Tokenizer


def with_markup(params: SamplingParams, tokenizer: Tokenizer, parsers: Iterable[Any]) -> tuple[SamplingParams, Collection[int]]:
    """(the parameters by which an answer's text comes with the markup that its parsers read, the special tokens to be cut out of it).
    `parsers`: None for one that there is not."""
    tags = [tag for parser in parsers if parser is not None for tag in parser.markup]
    markup = tokenizer.special_ids & {tokenizer.id_of(tag) for tag in tags}
    if not params.skip_special_tokens or not markup:
        return params, frozenset()
    return replace(params, skip_special_tokens=False), tokenizer.special_ids - markup


class HiddenTokens:
    """One answer. Fed with its tokens in order, and then with their text, which may lag behind."""

    def __init__(self, detokenizer: Detokenizer, hidden: Collection[int]) -> None:
        """`detokenizer`: one that leaves nothing out. `hidden`: the tokens that are to add nothing."""
        self._detokenizer = detokenizer
        self._hidden = hidden
        self._end = 0  # characters of the tokens
        self._at = 0  # characters of the text
        self._spans: deque[tuple[int, int]] = deque()  # what hidden tokens add, from and to a character

    def push(self, token_ids: Sequence[int]) -> None:
        for token_id in token_ids:
            begin = self._end
            self._end += len(self._detokenizer.push_one(token_id))
            if token_id in self._hidden:
                self._spans.append((begin, self._end))

    def cut(self, text: str) -> str:
        """What is left of the next piece of the text."""
        kept: list[str] = []
        at, end = self._at, self._at + len(text)
        while self._spans and self._spans[0][0] < end:
            begin, behind = self._spans[0]
            kept.append(text[at - self._at : max(at, begin) - self._at])
            at = min(behind, end)
            if behind > end:
                break
            self._spans.popleft()
        kept.append(text[at - self._at :])
        self._at = end
        return "".join(kept)
