"""Which parts of an answer's text came of drafts.

Text lags behind tokens while a character or a possible stop string is incomplete, so tokens are turned into text once more, and what is
shown is matched with that by length. A character that is spread over tokens counts as the one's that completes it.
"""
from collections.abc import Collection, Sequence

from penstock.serve.text.tokenizer import Tokenizer

Span = tuple[str, bool]  # text, whether it was drafted


class DraftedText:
    """One answer. Fed with its deltas in order."""

    def __init__(self, tokenizer: Tokenizer, skip_special_tokens: bool, prompt_ids: Sequence[int]) -> None:
        self._detokenizer = tokenizer.detokenizer(skip_special_tokens, prompt_ids)
        self._runs: list[tuple[int, bool]] = []  # characters that were not shown yet, in order

    def push(self, token_ids: Sequence[int], drafted: Collection[int], text: str) -> list[Span]:
        """`text` in spans, neighbours of different kinds. `drafted`: places in `token_ids`, as in `Delta`."""
        for place, token_id in enumerate(token_ids):
            said = self._detokenizer.push_one(token_id)
            if said:
                self._runs.append((len(said), place in drafted))
        spans: list[Span] = []
        while text:
            length, is_draft = self._take(len(text))
            if spans and spans[-1][1] == is_draft:
                spans[-1] = spans[-1][0] + text[:length], is_draft
            else:
                spans.append((text[:length], is_draft))
            text = text[length:]
        return spans

    def _take(self, most: int) -> tuple[int, bool]:
        """The next run, or as much of it as is wanted; a character that no token completed stands at the very end."""
        if not self._runs:
            return most, False
        length, is_draft = self._runs.pop(0)
        if length > most:
            self._runs.insert(0, (length - most, is_draft))
        return min(length, most), is_draft
