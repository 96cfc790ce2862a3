"""Log-probabilities in OpenAI's two shapes, and vLLM's for the prompt."""
import codecs
import math
from collections.abc import Sequence
from typing import Any

from penstock.core.errors import RequestError
from penstock.core.types import TokenLogprobs
from penstock.serve.text.detokenize import REPLACEMENT, unfinished
from penstock.serve.text.tokenizer import Tokenizer

LEAST = -9999.0  # stands for minus infinity, which JSON cannot say


def finite(logprob: float) -> float:
    """As JSON can say it. Raises RequestError for NaN and infinity, which no distribution has."""
    if not logprob < math.inf:
        raise RequestError(f"the model gave a log-probability of {logprob}: its weights hold NaN, or something overflowed", status=500)
    return max(logprob, LEAST)


def token_name(tokenizer: Tokenizer, token_id: int) -> str:
    """A token's text; with parts of characters it is spelled as OpenAI does: `bytes:` and the bytes escaped, so that no two look alike."""
    data = tokenizer.token_bytes(token_id)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + data.decode("utf-8", "backslashreplace")


def chat_rows(tokenizer: Tokenizer, rows: Sequence[TokenLogprobs], num_top: int) -> list[dict[str, Any]]:
    """`choices[].logprobs.content`: one entry per token."""
    return [
        {**_chat_entry(tokenizer, row.token_id, row.logprob),
         "top_logprobs": [_chat_entry(tokenizer, token_id, logprob) for token_id, logprob in row.top[:num_top]]}
        for row in rows
    ]


def _chat_entry(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    return {"token": token_name(tokenizer, token_id), "logprob": finite(logprob), "bytes": list(tokenizer.token_bytes(token_id))}


class CompletionRows:
    """`choices[].logprobs` of a completion, token by token: names, log-probabilities, the likeliest tokens, offsets in characters.

    With `echo` the prompt's rows come first, and offsets count from its beginning; else from the answer's.
    `num_top`: entries of top_logprobs beside the token's own.
    """

    def __init__(self, tokenizer: Tokenizer, num_top: int, skip_special_tokens: bool, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._num_top = num_top
        self._at = 0  # characters so far
        self._answer = tokenizer.detokenizer(skip_special_tokens, prompt_ids)
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._tail = b""  # an incomplete character that the answer ends in so far

    def prompt(self, text: str, ids: Sequence[int], rows: Sequence[TokenLogprobs | None]) -> dict[str, Any]:
        """The rows of a prompt that is shown as `text`. Special tokens that it does not show have no width."""
        shown = self._tokenizer.detokenizer()
        offsets, at = [], 0
        for token_id in ids:
            offsets.append(min(at, len(text)))
            if token_id not in self._tokenizer.special_ids:
                at += len(shown.push([token_id]))
            elif text.startswith(spelled := self._tokenizer.token_text(token_id), at):
                at += len(spelled)
        self._at = len(text)
        known = [*rows, *[None] * (len(ids) - len(rows))]
        return self._object(ids, known, offsets)

    def answer(self, rows: Sequence[TokenLogprobs]) -> dict[str, Any]:
        """The rows of the answer's next tokens."""
        offsets = []
        for row in rows:
            offsets.append(self._at + self._broken_before(row.token_id))
            self._at += len(self._answer.push([row.token_id]))
        return self._object([row.token_id for row in rows], rows, offsets)

    def _broken_before(self, token_id: int) -> int:
        """Characters that stand for a broken one which ends where this token begins."""
        piece = b"" if token_id in self._skipped else self._tokenizer.token_bytes(token_id)
        if not piece:
            return 0
        tail, self._tail = self._tail, unfinished(self._tail + piece)
        if not tail or not codecs.utf_8_decode(tail + piece[:1], "replace", False)[0].startswith(REPLACEMENT):
            return 0
        return len(tail) if self._tokenizer.pieces.bytewise else 1

    def _object(self, ids: Sequence[int], rows: Sequence[TokenLogprobs | None], offsets: list[int]) -> dict[str, Any]:
        return {
            "tokens": [token_name(self._tokenizer, token_id) for token_id in ids],
            "token_logprobs": [None if row is None else finite(row.logprob) for row in rows],
            "top_logprobs": [None if row is None else self._top(row) for row in rows],
            "text_offset": offsets,
        }

    def _top(self, row: TokenLogprobs) -> dict[str, float]:
        pairs = [*row.top[: self._num_top], (row.token_id, row.logprob)]
        top: dict[str, float] = {}
        for token_id, logprob in pairs:
            top.setdefault(token_name(self._tokenizer, token_id), finite(logprob))
        return top


def joined(parts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Several such objects as one."""
    return {name: [entry for part in parts for entry in part[name]] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}


def prompt_rows(tokenizer: Tokenizer, rows: Sequence[TokenLogprobs | None], num_top: int) -> list[dict[str, Any] | None]:
    """vLLM's `prompt_logprobs`: per prompt token {token id: {logprob, rank, decoded_token}}, null for the first."""
    return [None if row is None else _ranked(tokenizer, row, num_top) for row in rows]


def _ranked(tokenizer: Tokenizer, row: TokenLogprobs, num_top: int) -> dict[str, Any]:
    ranks = [(token_id, logprob, rank) for rank, (token_id, logprob) in enumerate(row.top[:num_top], 1)]
    if row.token_id not in (token_id for token_id, _, _ in ranks):
        ranks.append((row.token_id, row.logprob, row.rank))
    return {
        str(token_id): {"logprob": finite(logprob), "rank": rank, "decoded_token": token_name(tokenizer, token_id)}
        for token_id, logprob, rank in ranks
    }
