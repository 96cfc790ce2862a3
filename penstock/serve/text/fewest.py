"""How few tokens a text can be, from its bytes alone: what needs no tokenizing, and holds for every text."""
from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers import models

from penstock.serve.text.pieces import byte_alphabet

KEEPING = ("ByteLevel", "Metaspace", "Split", "Digits", "Punctuation")  # pre-tokenizers that drop nothing, unless told to
COMPOSED = 4  # characters of which NFC makes one, at most: no canonical decomposition is longer (UAX 15)
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))


@dataclass(frozen=True, slots=True)
class Fewest:
    """`longest`: the bytes of the longest token. `composes`: the text is made NFC first. `greedy`: tokens that take any white space beside
    them; of a text with one nothing is known."""

    longest: int
    composes: bool = False
    greedy: tuple[str, ...] = ()

    def of(self, text: str) -> int:
        """At least as many tokens come out; 0 where nothing is known."""
        if any(token in text for token in self.greedy):
            return 0
        return -(-self._bytes(text) // self.longest)

    def _bytes(self, text: str) -> int:
        """At least as many are left of the text."""
        if not self.composes:
            return len(text.encode(errors="surrogatepass"))
        plain = len(text.encode("ascii", "ignore"))
        others = len(text) - plain  # each takes one plain character in at most
        return max(0, plain - others) + -(-others // COMPOSED)


def fewest(backend: tokenizers.Tokenizer) -> Fewest | None:
    """None where one token may stand for text of any length: what is dropped, cleaned away, or unknown."""
    before, within = (list(_steps(part)) for part in (backend.normalizer, backend.pre_tokenizer))
    if not all(step["type"] in KEEPING and step.get("behavior") != "Removed" for step in within):
        return None
    composes = [step["type"] for step in before] == ["NFC"]
    if not composes and not all(map(_grows, before)):
        return None
    added = backend.get_added_tokens_decoder().values()
    greedy = [token for token in added if token.lstrip or token.rstrip]
    if before and any(token.normalized for token in greedy):
        return None
    vocab = backend.get_vocab(with_added_tokens=False)
    bytewise = any(step["type"] == "ByteLevel" for step in within)
    if not _knows_all(backend.model, vocab, bytewise):
        return None
    learned = max(map(len, vocab) if bytewise else (len(token.encode()) for token in vocab))
    longest = max([learned, *(len(token.content.encode()) for token in added)])
    return Fewest(longest, composes, tuple(token.content for token in greedy))


def _steps(part: Any) -> Iterator[dict[str, Any]]:
    """Those of a normalizer or a pre-tokenizer, in order."""
    found = [] if part is None else [json.loads(part.__getstate__())]
    while found:
        step = found.pop(0)
        inner = step.get("normalizers", step.get("pretokenizers"))
        if inner is None:
            yield step
        else:
            found[:0] = inner


def _grows(step: dict[str, Any]) -> bool:
    """Whether a text never has fewer bytes after it."""
    if step["type"] == "Replace":
        pattern = step["pattern"].get("String")
        return pattern is not None and len(step["content"].encode()) >= len(pattern.encode())
    return bool(step["type"] == "Prepend")


def _knows_all(model: Any, vocab: dict[str, int], bytewise: bool) -> bool:
    """Whether there is a token for each byte, so that none is dropped, or unknown together with others."""
    if not isinstance(model, models.BPE) or model.continuing_subword_prefix or model.end_of_word_suffix:
        return False
    needed = byte_alphabet() if bytewise else BYTES
    return (bytewise or bool(model.byte_fallback)) and all(token in vocab for token in needed)
