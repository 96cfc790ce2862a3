"""Reads a tokenizer from a GGUF file's metadata: the vocabulary, the tokens with a role, the chat templates.

Gives the ids that the tokenizer gave from which the file was converted. Two kinds of vocabularies are read, by their word in
`tokenizer.ggml.model`: gpt2 (byte-level BPE, `gguf_bytes`) and llama (SentencePiece BPE, `gguf_pieces`; Gemma's too).
"""
from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import tokenizers
from tokenizers import processors

from penstock.core.errors import ModelError
from penstock.serve.text import gguf_bytes, gguf_pieces
from penstock.serve.text.facts import TokenizerFacts
from penstock.serve.text.gguf_vocab import CONTROL, NORMAL, Vocab, read_vocab
from penstock.serve.text.harmony import CALL, END, RETURN

if TYPE_CHECKING:
    from penstock.compute.models.load.gguf_metadata import Metadata

log = logging.getLogger("penstock.models")
TEMPLATE = "tokenizer.chat_template"
ROLES = {  # the key misspells separator
    "bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "sep_token": "seperator", "pad_token": "padding", "cls_token": "cls",
    "mask_token": "mask",
}
NEEDED = ("bos", "eos")
ENDINGS = ("eot", "eom")  # roles that end a generation beside eos
# A file does not say which added tokens take the spaces behind them. Those of Phi-3's SentencePiece vocabulary do, but for these.
STRIPPING, UNSTRIPPING = ("phi3", "llama"), frozenset(("<unk>", "<s>", "<|endoftext|>"))  # architecture, kind of vocabulary
# The converter names eos alone; control tokens that are spelled so end a message or a text as well.
SPELLED_ENDINGS = frozenset((
    "<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|im_end|>", "<|endoftext|>", "<end_of_turn>", "<EOT>", END, RETURN, CALL,
))

SPELLED_CONTROLS = SPELLED_ENDINGS | {"<start_of_turn>"}  # plain tokens in the first files of Gemma


def read_gguf(path: Path) -> tuple[tokenizers.Tokenizer, TokenizerFacts]:
    """The tokenizer of a GGUF file and what the file says of it. Raises ModelError when it has none, or one that is not read."""
    from penstock.compute.models.load.ggufile import GgufFile

    metadata = GgufFile(path).metadata
    vocab = with_controls(read_vocab(metadata), metadata.where)
    kind = metadata.text("tokenizer.ggml.model")
    if kind not in KINDS:
        raise ModelError(f"{path} has a tokenizer of the unknown kind {kind!r:.60}; known: {', '.join(KINDS)}")
    backend, adds_bos = KINDS[kind](metadata, vocab)
    strips = (metadata.text("general.architecture", None), kind) == STRIPPING
    backend.add_tokens([
        tokenizers.AddedToken(vocab.tokens[i], normalized=False, special=vocab.is_special(i),
                              rstrip=strips and vocab.tokens[i] not in UNSTRIPPING)
        for i in vocab.added()
    ])
    roles = {role: token_id(metadata, vocab, name) for role, name in ROLES.items()}
    known = {role: vocab.tokens[found] for role, found in roles.items() if found is not None}
    add_special_tokens(backend, metadata, roles, adds_bos)
    endings = [token_id(metadata, vocab, name) for name in ENDINGS]
    endings += [i for i in vocab.added() if vocab.is_special(i) and vocab.tokens[i] in SPELLED_ENDINGS]
    inner = {END} if CALL in vocab.by_spelling else set()  # ends each of the messages that an answer of gpt-oss is made of
    eos = dict.fromkeys(found for found in (roles["eos_token"], *endings) if found is not None and vocab.tokens[found] not in inner)
    return backend, TokenizerFacts(known, tuple(eos), chat_templates(metadata))


def with_controls(vocab: Vocab, where: str) -> Vocab:
    """Plain tokens that are spelled like control tokens count as such: no text is merged into them, but chat templates hold them."""
    plain = [i for i, token in enumerate(vocab.tokens) if vocab.types[i] == NORMAL and token in SPELLED_CONTROLS]
    if not plain:
        return vocab
    names = ", ".join(vocab.tokens[i] for i in plain)
    log.warning("%s has plain tokens that are spelled like control tokens, and are taken for these: %s", where, names)
    types = list(vocab.types)
    for i in plain:
        types[i] = CONTROL
    return replace(vocab, types=types)


def token_id(metadata: Metadata, vocab: Vocab, name: str) -> int | None:
    """The id in `tokenizer.ggml.<name>_token_id`; None where the file has none. One that no token has is an error where texts begin or end
    with it, which raises ModelError, and else taken for none."""
    key = f"tokenizer.ggml.{name}_token_id"
    found: int | None = metadata.whole(key, None)
    if found is None or found in vocab.ids:
        return found
    is_there = 0 <= found < len(vocab.tokens)
    but = f"the token of that id, {vocab.tokens[found]!r:.60}, is unused" if is_there else f"its tokens are 0 to {len(vocab.tokens) - 1}"
    if name in NEEDED:
        raise ModelError(f"{metadata.where} says {key} {found}, but {but}")
    log.warning("%s says %s %s, but %s: it is taken to have no such token", metadata.where, key, found, but)
    return None


def add_special_tokens(backend: tokenizers.Tokenizer, metadata: Metadata, roles: dict[str, int | None], adds_bos: bool) -> None:
    """Has the tokenizer begin texts with bos and end them with eos where the file says so. `adds_bos` holds where it is silent."""
    ends = []
    for role, default in (("bos", adds_bos), ("eos", False)):
        key = f"tokenizer.ggml.add_{role}_token"
        given = metadata.flag(key, None)
        found = roles[f"{role}_token"]
        if given and found is None:
            raise ModelError(f"{metadata.where} says {key} true, but has no tokenizer.ggml.{role}_token_id")
        ends.append(found if (default if given is None else given) else None)
    bos, eos = ([] if found is None else [str(found)] for found in ends)  # names: a spelling might mean more in a template
    if bos or eos:
        backend.post_processor = processors.TemplateProcessing(
            single=[*bos, "$A", *eos], pair=[*bos, "$A", *eos, *bos, "$B", *eos],
            special_tokens=[(name, int(name)) for name in {*bos, *eos}])


def chat_templates(metadata: Metadata) -> dict[str, str]:
    """Jinja sources by name."""
    lone = metadata.text(TEMPLATE, None)
    found = {} if lone is None else {"default": lone}
    return found | {name: metadata.text(f"{TEMPLATE}.{name}") for name in metadata.texts("tokenizer.chat_templates", [])}


KINDS: dict[str, Callable[[Metadata, Vocab], tuple[tokenizers.Tokenizer, bool]]] = {
    "gpt2": gguf_bytes.build, "llama": gguf_pieces.build,
}
