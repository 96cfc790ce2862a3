"""What one token adds to a text, in bytes, read off the tokenizer's decoder.

Every decoder that is accepted here works token by token: what a token adds depends on the token and on whether the text
begins with it, on nothing else. That is what makes streaming exact. A decoder that looks at neighbours is refused.
"""
import contextlib
import json
from typing import Any

import tokenizers

from penstock.core.errors import ModelError

# Decoder steps that treat each token by itself, or only touch the beginning of the text.
STREAMABLE = ("ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip", "WordPiece")
ANCHOR = "a"  # stands before a token so that the token does not begin the text


class Pieces:
    """The bytes that tokens stand for.

    `bytewise`: undecodable bytes show as one U+FFFD each, as tokenizers with byte tokens (`<0x0A>`) do; otherwise as one
    for each maximal broken character, as byte-level ones do (the Unicode standard's practice, section 3.9).
    Raises ModelError when the decoder cannot be streamed.
    """

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self._backend = backend
        self._decoder = backend.decoder
        kinds = [str(step["type"]) for step in decoder_steps(self._decoder)]
        self._byte_level = "ByteLevel" in kinds
        self.bytewise = "ByteFallback" in kinds
        self._later: dict[int, bytes | None] = {}
        self.texts: dict[int, str] = {}  # of tokens seen so far that go on a text with whole characters
        self._byte_of = byte_alphabet() if self._byte_level else {}

    def piece(self, token_id: int, first: bool = False) -> bytes | None:
        """What the token adds to a text that it begins (`first`) or goes on with; None when no token has this id."""
        if first:
            return self._compute(token_id, True)
        if token_id not in self._later:
            piece = self._later[token_id] = self._compute(token_id, False)
            if piece is not None:
                with contextlib.suppress(UnicodeDecodeError):
                    self.texts[token_id] = piece.decode()
        return self._later[token_id]

    def _compute(self, token_id: int, first: bool) -> bytes | None:
        try:
            token = self._backend.id_to_token(token_id)
        except OverflowError:  # negative, or beyond 32 bits
            return None
        if token is None:
            return None
        if self._byte_level:
            return self._from_alphabet(token)
        if self._decoder is None:
            return str(token if first else " " + token).encode()
        shown = self._decoder.decode([token]) if first else self._decoder.decode([ANCHOR, token])[len(ANCHOR) :]
        if shown and self.bytewise and is_byte_token(token):
            return bytes([int(token[3:5], 16)])
        return str(shown).encode()

    def _from_alphabet(self, token: str) -> bytes:
        try:
            return bytes([self._byte_of[char] for char in token])
        except KeyError:  # an added token, written as itself
            return token.encode()


def decoder_steps(decoder: Any) -> list[dict[str, Any]]:
    """The decoder's steps in order; [] when tokens are joined with spaces. Raises ModelError when one cannot be streamed."""
    if decoder is None:
        return []
    state = json.loads(decoder.__getstate__())
    steps: list[dict[str, Any]] = state["decoders"] if state["type"] == "Sequence" else [state]
    for at, step in enumerate(steps):
        kind = step["type"]
        fused = any(before["type"] == "Fuse" for before in steps[:at])
        if kind not in STREAMABLE or (kind == "ByteLevel" and len(steps) > 1):
            raise ModelError(f"the tokenizer's decoder step {kind!r} cannot be streamed here; steps that can: {', '.join(STREAMABLE)}")
        if kind == "Strip" and (step["stop"] or not fused):
            raise ModelError("the tokenizer's decoder strips elsewhere than at the beginning of the text, which cannot be streamed")
    return steps


def is_byte_token(token: str) -> bool:
    """Whether the token is written like `<0x0A>`."""
    return len(token) == 6 and token.startswith("<0x") and token.endswith(">") and all(c in "0123456789abcdefABCDEF" for c in token[3:5])


def byte_alphabet() -> dict[str, int]:
    """The printable character that stands for each byte in byte-level BPE vocabularies (Radford et al., GPT-2) -> the byte."""
    printable = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in set(printable)]
    return {chr(byte): byte for byte in printable} | {chr(256 + at): byte for at, byte in enumerate(others)}
