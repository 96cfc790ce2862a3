"""SentencePiece's BPE of a GGUF file: pieces with scores, spaces written as U+2581, bytes for characters that no piece holds.

The file has no merges; they follow from the scores, in the order in which transformers makes them of SentencePiece's own files.
"""
from __future__ import annotations

from typing import TYPE_CHECKING

import tokenizers
from tokenizers import decoders, models, normalizers

from penstock.core.errors import ModelError
from penstock.serve.text.gguf_vocab import BYTE, NORMAL, UNKNOWN, Vocab

if TYPE_CHECKING:
    from penstock.compute.models.load.gguf_metadata import Metadata

SPACE = "\u2581"
ADD_PREFIX = "tokenizer.ggml.add_space_prefix"
UNPREFIXED = ("gemma", "gemma2", "gemma3")  # architectures whose texts begin as they are; the first files of Gemma do not say so


def build(metadata: Metadata, vocab: Vocab) -> tuple[tokenizers.Tokenizer, bool]:
    """(the tokenizer, whether it begins texts with bos where the file does not say). Raises ModelError."""
    if vocab.scores is None:
        raise ModelError(f"{metadata.where} has no tokenizer.ggml.scores, by which its tokens are merged")
    unknown = next((vocab.tokens[i] for i in vocab.ids if vocab.types[i] == UNKNOWN), None)
    given = metadata.whole("tokenizer.ggml.unknown_token_id", None)
    backend = tokenizers.Tokenizer(models.BPE(
        vocab.by_spelling, merges(vocab), unk_token=vocab.tokens[given] if given in vocab.ids else unknown, fuse_unk=True,
        byte_fallback=BYTE in vocab.types,
    ))
    prefix = metadata.flag(ADD_PREFIX, metadata.text("general.architecture", None) not in UNPREFIXED)
    spaces = normalizers.Replace(" ", SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if prefix else spaces
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    return backend, True


def merges(vocab: Vocab) -> list[tuple[str, str]]:
    """Pairs of pieces that make a piece, the better score first; of one piece, the longer left part first.

    Where all scores are alike, they say nothing, and the order is that of the ids: that in which BPE is trained.
    """
    assert vocab.scores is not None
    pieces = {token: i for token, i in vocab.by_spelling.items() if vocab.types[i] == NORMAL}
    telling = len({vocab.scores[i] for i in pieces.values()}) > 1
    lengths = frozenset(map(len, pieces))  # so that of a piece as long as a book few cuts are tried
    found = []
    for piece, i in pieces.items():
        rank = -vocab.scores[i] if telling else i
        for cut in [cut for cut in range(1, len(piece)) if cut in lengths and len(piece) - cut in lengths]:
            left, right = piece[:cut], piece[cut:]
            if left in pieces and right in pieces:
                found.append((rank, -cut, cut - len(piece), left, right))
    found.sort(key=lambda pair: pair[:3])
    return [(left, right) for *_, left, right in found]
