"""GGUF files that hold a tokenizer and nothing else, made of one of the `tokenizers` package as llama.cpp's converter makes them."""
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import tokenizers
from gguf import TokenType

CORPUS = [
    "The old man looked at the sea, and 1234 gulls cried: it's summer! They've DON'T I'll we're he'd\n\nNo; 3.14159 <= 2**10.\n",
    "def main(x: int) -> None:\n    print('hello',  x)\t# été ŉ ﬁ 日本語 привет ÅÉ e\u0301\r\n\r\n  return {'a': [1, 22, 333, 4444]}\n",
] * 3


def byte_level_metadata(
    writer: gguf.GGUFWriter, backend: tokenizers.Tokenizer, pre: str | None, size: int | None = None
) -> None:
    """`size`: of the table of embeddings, which is filled up with tokens that stand for nothing."""
    tokens, types = tokens_of(backend, size)
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([" ".join(pair) for pair in json.loads(backend.to_str())["model"]["merges"]])


def pieces_metadata(writer: gguf.GGUFWriter, backend: tokenizers.Tokenizer, scores: Sequence[float], prefix: bool) -> None:
    """Tokens that were added have no score, and spaces instead of their mark."""
    tokens, types = tokens_of(backend, None)
    for i, token in enumerate(tokens):
        if types[i] == TokenType.USER_DEFINED:
            tokens[i] = token.replace("\u2581", " ")
        elif token.startswith("<0x"):
            types[i] = TokenType.BYTE
        elif token == "<unk>":
            types[i] = TokenType.UNKNOWN
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_scores([-1000.0 if kind in (TokenType.CONTROL, TokenType.USER_DEFINED) else score
                             for kind, score in zip(types, scores, strict=True)])
    writer.add_add_space_prefix(prefix)


def tokens_of(backend: tokenizers.Tokenizer, size: int | None) -> tuple[list[str], list[int]]:
    by_id = {i: token for token, i in backend.get_vocab().items()}
    added = backend.get_added_tokens_decoder()
    tokens, types = [], []
    for i in range(size or 1 + max(by_id)):
        tokens.append(by_id.get(i, f"[PAD{i}]"))
        kind = TokenType.UNUSED if i not in by_id else TokenType.NORMAL
        if i in added:
            kind = TokenType.CONTROL if added[i].special else TokenType.USER_DEFINED
        types.append(kind)
    return tokens, types


def write(path: Path, *fill: Any, architecture: str = "llama") -> Path:
    """`fill`: functions that write metadata."""
    writer = gguf.GGUFWriter(path, architecture)
    for each in fill:
        each(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
