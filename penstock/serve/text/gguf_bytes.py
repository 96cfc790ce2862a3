"""Byte-level BPE of a GGUF file: `tokenizer.ggml.pre` says how a text is cut into words before merges are applied.

Each way is that of the tokenizer.json of the models whose word it is. Files of before May 2024 do not say it: what is assumed is logged.
"""
from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from penstock.core.errors import ModelError
from penstock.serve.text.gguf_vocab import Vocab

if TYPE_CHECKING:
    from penstock.compute.models.load.gguf_metadata import Metadata

log = logging.getLogger("penstock.models")
PRE = "tokenizer.ggml.pre"
SUFFIXES = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"\s*[\r\n]+|\s+(?!\S)|\s+"
SYMBOLS = r" ?[^\s\p{L}\p{N}]+"
WORDS = SUFFIXES + r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
THREE_DIGITS = WORDS + r"\p{N}{1,3}|" + SYMBOLS + r"[\r\n]*|" + TAIL
ONE_DIGIT = WORDS + r"\p{N}|" + SYMBOLS + r"[\r\n]*|" + TAIL
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
ASCII_MARKS = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~]"""
MARKED_WORDS = r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|" + TAIL
CJK = "[一-龥ࠀ-一가-퟿]+"
CASED = (  # letters that are capital or small, as DeepSeek's first models know them
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌ"
    "ῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")


def _cased(suffix: str, digits: str) -> str:
    """Words of which each is capitals before small letters."""
    return (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+{suffix}|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*{suffix}|{digits}|"
            rf"{SYMBOLS}[\r\n/]*|{TAIL}")


@dataclass(frozen=True, slots=True)
class Cut:
    """`patterns` cut a text one after another, what lies between two matches being a word too; `digits`: each number is a word first."""

    patterns: tuple[str, ...]
    digits: bool = False
    nfc: bool = False
    ignore_merges: bool = False  # a word that is a token is that token, whatever the merges make of it
    adds_bos: bool = False  # where the file does not say


LLAMA3 = Cut((THREE_DIGITS,), ignore_merges=True, adds_bos=True)
QWEN2 = Cut((ONE_DIGIT,), nfc=True)
DIGITS = Cut((GPT2,), digits=True)
CUTS = {
    "gpt-2": Cut((GPT2,)), "phi-2": Cut((GPT2,)),
    "llama-bpe": LLAMA3, "llama3": LLAMA3, "llama-v3": LLAMA3, "smaug-bpe": Cut((THREE_DIGITS,)), "dbrx": Cut((THREE_DIGITS,)),
    "qwen2": QWEN2, "deepseek-r1-qwen": QWEN2,
    "smollm": DIGITS, "starcoder": DIGITS, "refact": DIGITS, "olmo": Cut((GPT2,), nfc=True),
    "tekken": Cut((_cased("", r"\p{N}"),), ignore_merges=True, adds_bos=True),
    "gpt-4o": Cut((_cased(f"{SUFFIXES}?", r"\p{N}{1,3}"),)),
    "deepseek-coder": Cut(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}")),
    "deepseek-llm": Cut(("[\r\n]", rf"\s?[{CASED}]+", "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", CJK, r"\p{N}")),
    "falcon3": LLAMA3, "chatglm-bpe": Cut((THREE_DIGITS,)), "glm4": Cut((THREE_DIGITS,), ignore_merges=True), "exaone4": Cut((GPT2,)),
    "hunyuan-dense": Cut((r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", rf"{ASCII_MARKS}[A-Za-z]+|{MARKED_WORDS}")),
    "default": Cut((r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
}
# Where a file does not say it: architectures whose makers cut words alike in all models; and Llama 3, which shares its architecture with
# others, by its vocabulary: (a token, its id).
BY_ARCHITECTURE = dict.fromkeys(("qwen2", "qwen3", "qwen3moe"), "qwen2")
LLAMA3_MARK = "<|begin_of_text|>", 128000


def build(metadata: Metadata, vocab: Vocab) -> tuple[tokenizers.Tokenizer, bool]:
    """(the tokenizer, whether it begins texts with bos where the file does not say). Raises ModelError."""
    name = metadata.text(PRE, "") or assumed(metadata, vocab)
    if name not in CUTS:
        raise ModelError(f"{metadata.where} cuts words in the unknown way {name!r:.60} ({PRE}); known: {', '.join(CUTS)}")
    cut = CUTS[name]
    pairs = [merge_of(text, vocab, metadata.where) for text in metadata.texts("tokenizer.ggml.merges")]
    backend = tokenizers.Tokenizer(models.BPE(vocab.by_spelling, pairs, ignore_merges=cut.ignore_merges))
    if cut.nfc:
        backend.normalizer = normalizers.NFC()
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if cut.digits else []
    steps += [pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated") for pattern in cut.patterns]
    backend.pre_tokenizer = pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    backend.decoder = decoders.ByteLevel()
    return backend, cut.adds_bos


def assumed(metadata: Metadata, vocab: Vocab) -> str:
    """How words are cut where the file does not say it; logged with the reason."""
    architecture = metadata.text("general.architecture", "")
    token, token_id = LLAMA3_MARK
    if architecture in BY_ARCHITECTURE:
        name, reason = BY_ARCHITECTURE[architecture], f"as in Qwen's own models of the architecture {architecture}"
    elif vocab.by_spelling.get(token) == token_id:
        name, reason = "llama-bpe", f"since token {token_id} is {token}, as in Llama 3"
    else:
        name, reason = "default", "llama.cpp's, which may not be what the model was trained with: a newer file of the model says it"
    log.warning("%s does not say how words are cut (%s): %s is assumed, %s", metadata.where, PRE, name, reason)
    return name


def merge_of(text: str, vocab: Vocab, where: str) -> tuple[str, str]:
    """`a b` -> (a, b); spaces within are written as other characters. Raises ModelError unless these are tokens, and ab is one."""
    at = text.find(" ", 1)
    if at < 0 or at + 1 == len(text):
        raise ModelError(f"{where} has a merge {text!r:.60}, which is not two tokens with a space between them")
    left, right = text[:at], text[at + 1 :]
    for token in (left, right, left + right):
        if token not in vocab.by_spelling:
            raise ModelError(f"{where} has a merge {text!r:.60}, but no token {token!r:.60}")
    return left, right
