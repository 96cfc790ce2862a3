"""Tokens in, certain text out: no half character is ever emitted, and nothing has to be taken back."""
import codecs
from collections.abc import Collection, Iterable, Sequence
from itertools import islice

from penstock.serve.text.pieces import Pieces

REPLACEMENT = "\ufffd"
PART = 1024  # bytes that are decoded at once: behind a broken one, the rest of them is copied
MAX_PIECES = 4  # a character has at most 4 bytes, a token that shows at least one


class Detokenizer:
    """The text of a token sequence, bit by bit (see `Tokenizer.detokenizer`). Each token costs the same, however long the text is.

    Everything pushed, joined, with `finish()` at the end, is `tokenizer.decode(ids)`; with `prompt_ids` it is what the tokens
    add to the prompt's text (a leading space stays, a character that the prompt left unfinished is completed and shown whole).
    """

    __slots__ = ("_begun", "_pieces", "_skipped", "_stream", "_texts", "_whole")

    def __init__(self, pieces: Pieces, skipped: Collection[int] = frozenset(), prompt_ids: Sequence[int] = ()) -> None:
        """`skipped`: tokens that add nothing."""
        self._pieces = pieces
        self._texts = pieces.texts
        self._skipped = skipped
        before = [piece for token_id in last_shown(pieces, skipped, prompt_ids) if (piece := pieces.piece(token_id)) is not None]
        self._begun = bool(before)
        self._stream = Utf8Stream(self._pieces.bytewise, unfinished(b"".join(before)))
        self._whole = self._begun and not self._stream.pending  # so that a token's own text can follow

    def push_one(self, token_id: int) -> str:
        """`push` of a single token: at once where it stands for whole characters and none has been begun."""
        if self._whole and token_id not in self._skipped:
            text = self._texts.get(token_id)
            if text is not None:
                return text
        return self.push((token_id,))

    def push(self, ids: Iterable[int]) -> str:
        """The text that has become certain; "" while a character is incomplete."""
        data = bytearray()
        for token_id in ids:
            if token_id in self._skipped:
                continue
            piece = self._pieces.piece(token_id, first=not self._begun)
            if piece is not None:
                self._begun = True
                data += piece
        text = self._stream.push(bytes(data)) if data else ""
        self._whole = self._begun and not self._stream.pending
        return text

    def finish(self) -> str:
        """What is left: the replacement of a character that never became whole, or nothing."""
        return self._stream.finish()


def last_shown(pieces: Pieces, skipped: Collection[int], ids: Sequence[int]) -> tuple[int, ...]:
    """The last few tokens of a prompt that show; () when nothing of it does."""
    shown = (token_id for token_id in reversed(ids) if token_id not in skipped and pieces.piece(token_id) is not None)
    return tuple(islice(shown, MAX_PIECES))[::-1]


class Utf8Stream:
    """Bytes in, whole characters out; what cannot be decoded becomes U+FFFD.

    `bytewise`: one U+FFFD for each broken byte, else for each broken character. `seen` is the beginning of a character that
    belongs to earlier text: shown with its end, but not replaced here when its end never comes.
    """

    def __init__(self, bytewise: bool, seen: bytes = b"") -> None:
        self._bytewise = bytewise
        self.pending = seen  # the beginning of a character
        self._num_seen = len(seen)

    def push(self, data: bytes) -> str:
        parts = [data[at : at + PART] for at in range(0, len(data), PART)]
        return "".join([self._decode(self.pending + part, final=False) for part in parts])

    def finish(self) -> str:
        return self._decode(self.pending, final=True)

    def _decode(self, data: bytes, final: bool) -> str:
        texts: list[str] = []
        while data:
            try:
                text, used = codecs.utf_8_decode(data, "strict", final)
            except UnicodeDecodeError as error:
                texts.append(data[: error.start].decode())
                texts.append(self._broken(error.start, error.end))
                data = data[error.end :]
                self._num_seen = 0
                continue
            if used:
                self._num_seen = 0
            texts.append(text)
            data = data[used:]
            break
        self.pending = data
        return "".join(texts)

    def _broken(self, start: int, end: int) -> str:
        seen = max(0, self._num_seen - start)
        if self._bytewise:
            return REPLACEMENT * max(0, end - start - seen)
        return "" if seen else REPLACEMENT


def unfinished(data: bytes) -> bytes:
    """The incomplete character that `data` ends in; empty when it ends in a whole one."""
    _, used = codecs.utf_8_decode(data, "replace", False)
    return data[used:]
