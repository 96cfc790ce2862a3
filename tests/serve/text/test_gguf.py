import subprocess
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import gguf
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.convert_slow_tokenizer import generate_merges

from penstock.core.errors import ModelError
from penstock.serve.text.chat import ChatTemplate
from penstock.serve.text.gguf_bytes import CUTS
from penstock.serve.text.tokenizer import Tokenizer
from tests.serve.text.gguf_makers import CORPUS, byte_level_metadata, pieces_metadata, tokens_of, write

SPECIALS = ["<|begin|>", "<|im_start|>", "<|im_end|>"]
# Pre-tokenizers as they stand in the tokenizer.json files of published models.
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CASED = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌ"
    "ῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃")
DEEPSEEK_V3 = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*"""
    r"|\s*[\r\n]+|\s+(?!\S)|\s+")
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
WORDS_AND_BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


def split(*patterns: str) -> Any:
    return pre_tokenizers.Sequence([*(pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns), BYTES])


DIGITS = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), WORDS_AND_BYTES])
CODER = pre_tokenizers.Sequence([
    *(pre_tokenizers.Split(Regex(each), "isolated") for each in ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+")),
    pre_tokenizers.Digits(individual_digits=True), BYTES])
FIRST_DEEPSEEK = pre_tokenizers.Sequence([
    *(pre_tokenizers.Split(Regex(each), "isolated") for each in (
        "[\r\n]", rf"\s?[{CASED}]+", "\\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+")),
    pre_tokenizers.Digits(individual_digits=True), BYTES])
PUBLISHED: dict[str, Any] = {
    "gpt-2": WORDS_AND_BYTES, "phi-2": WORDS_AND_BYTES, "llama-bpe": split(LLAMA3), "llama3": split(LLAMA3), "llama-v3": split(LLAMA3),
    "smaug-bpe": split(LLAMA3), "dbrx": split(LLAMA3), "qwen2": split(QWEN2), "deepseek-r1-qwen": split(QWEN2), "smollm": DIGITS,
    "starcoder": DIGITS, "refact": DIGITS, "tekken": split(TEKKEN), "gpt-4o": split(GPT4O), "deepseek-coder": CODER,
    "olmo": WORDS_AND_BYTES, "falcon3": split(LLAMA3), "chatglm-bpe": split(LLAMA3), "glm4": split(LLAMA3), "exaone4": WORDS_AND_BYTES,
    "hunyuan-dense": split(r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+", DEEPSEEK_V3), "deepseek-llm": FIRST_DEEPSEEK,
}
IGNORE_MERGES = ("llama-bpe", "llama3", "llama-v3", "tekken", "falcon3", "glm4")
NFC = ("qwen2", "deepseek-r1-qwen", "olmo")
TEXTS = [
    *CORPUS[:2], "", " ", "\n", "  a  b\t\n\n c \n", "don't WE'LL I'M 12345678 3.14 ...!!", "<|im_start|>user\nhi<|im_end|>",
    " <|im_end|> x", "HelloWorld iPhone ABCdef", "été e\u0301 日本語 🚀\u200d x", "a\r\n\r\nb   ", "x/ //\n$a+=1; foo(bar)->baz~~^`",
    "[PAD300]", "１２３ ①②", "<tool>\n</tool>",
]
text = st.text(st.sampled_from("abcDEF'stdé\u0301日🚀12345 \t\n\r.,!/<>|_-$"), max_size=40)


def trained(pre: str) -> tokenizers.Tokenizer:
    """A tokenizer as its tokenizer.json describes it, on few words."""
    backend = tokenizers.Tokenizer(models.BPE(ignore_merges=pre in IGNORE_MERGES))
    backend.pre_tokenizer = PUBLISHED[pre]
    if pre in NFC:
        backend.normalizer = normalizers.NFC()
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    backend.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=400, initial_alphabet=alphabet, show_progress=False))
    backend.add_special_tokens(SPECIALS)
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    return backend


trained_once = lru_cache(trained)


def same(ours: Tokenizer, theirs: tokenizers.Tokenizer, given: str) -> bool:
    ids = theirs.encode(given, add_special_tokens=False).ids
    return ours.encode(given, add_special_tokens=False) == ids and ours.decode(ids) == theirs.decode(ids, skip_special_tokens=False)


@pytest.mark.parametrize("pre", PUBLISHED)
def test_byte_level_tokenizers(tmp_path: Path, pre: str) -> None:
    theirs = trained(pre)
    ours = Tokenizer.load(write(tmp_path / "x.gguf", lambda writer: byte_level_metadata(writer, theirs, pre, 500)))
    assert all(same(ours, theirs, each) for each in TEXTS)
    assert len(ours) == theirs.get_vocab_size() and ours.vocab_size == len(ours) < 500
    assert ours.special_ids == {theirs.token_to_id(each) for each in SPECIALS}


def test_every_cut_is_tested() -> None:
    assert set(CUTS) == {*PUBLISHED, "default"}


@given(given_text=text, pre=st.sampled_from(["llama-bpe", "qwen2", "smollm", "gpt-2", "tekken", "gpt-4o", "deepseek-coder", "deepseek-llm",
                                                      "hunyuan-dense"]))
@settings(max_examples=300, deadline=None)
def test_any_text(given_text: str, pre: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    theirs = trained_once(pre)
    path = tmp_path_factory.getbasetemp() / f"{pre}.gguf"
    if not path.exists():
        write(path, lambda writer: byte_level_metadata(writer, theirs, pre))
    assert same(Tokenizer.load(path), theirs, given_text)


def test_the_default_cut_is_llama_cpps(tmp_path: Path) -> None:
    theirs = trained_once("gpt-2")
    ours = Tokenizer.load(write(tmp_path / "x.gguf", lambda writer: byte_level_metadata(writer, theirs, "default")))
    words = [word for word, _ in ours.backend.pre_tokenizer.pre_tokenize_str("ab == c,d 12345")]
    assert words == ["ab", "Ġ", "==", "Ġc", ",", "d", "Ġ", "123", "45"]


@pytest.mark.parametrize("architecture, mark, assumed, why", [
    ("llama", 450, "default", "llama.cpp's, which may not be what the model was trained with: a newer file of the model says it"),
    ("llama", 128000, "llama-bpe", "since token 128000 is <|begin_of_text|>, as in Llama 3"),
    ("qwen2", 450, "qwen2", "as in Qwen's own models of the architecture qwen2"),
    ("qwen3moe", 128000, "qwen2", "as in Qwen's own models of the architecture qwen3moe"),
])
def test_files_that_do_not_say_how_words_are_cut(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, architecture: str, mark: int, assumed: str, why: str
) -> None:
    """As those made before llama.cpp wrote it. One whose word for it is empty counts as one of them, as there."""
    theirs = trained_once("gpt-2")

    def marked(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0]["tokenizer.ggml.tokens"].value[mark] = "<|begin_of_text|>"

    def load(name: str, pre: str | None, *more: Any) -> Tokenizer:
        return Tokenizer.load(write(
            tmp_path / name, lambda writer: byte_level_metadata(writer, theirs, pre, mark + 50), marked, roles(400, 402), *more,
            architecture=architecture))

    silent = load("x.gguf", None)
    assert caplog.messages == [f"{tmp_path / 'x.gguf'} does not say how words are cut (tokenizer.ggml.pre): {assumed} is assumed, {why}"]
    caplog.clear()
    telling = load("y.gguf", assumed)
    assert not caplog.messages
    empty = load("z.gguf", None, value(PRE, "", STRING))
    assert len(caplog.messages) == 1
    for each in TEXTS:
        assert silent.encode(each) == telling.encode(each) == empty.encode(each)


SPACE = "\u2581"


def spm(prefix: bool, user_defined: tuple[str, ...] = (), equal: bool = False) -> tuple[tokenizers.Tokenizer, list[float]]:
    """A SentencePiece tokenizer as transformers turns it into a fast one, and the scores of its pieces."""
    words = [SPACE + word for word in "the old man looked at sea and it's no x return print 1 2 3".split()] + ["he", "llo", "hello", "ing"]
    parts = dict.fromkeys(word[:end] for word in words for end in range(2, len(word) + 1))
    letters = dict.fromkeys(char for word in words for char in word)
    vocab = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *user_defined, *parts, *letters]
    scores = [0.0] * (259 + len(user_defined)) + [-1.0 if equal else -float(i) for i in range(len(parts) + len(letters))]
    ids = {token: i for i, token in enumerate(vocab)}
    merges = generate_merges(ids, None if equal else dict(zip(vocab, scores, strict=True)))
    backend = tokenizers.Tokenizer(models.BPE(ids, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", SPACE)
    backend.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if prefix else spaces
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if prefix else steps)
    backend.add_special_tokens(["<unk>", "<s>", "</s>"])
    backend.add_tokens([AddedToken(each, normalized=False) for each in user_defined])
    return backend, scores


GEMMA = ("\n\n", "\n\n\n", SPACE * 2, SPACE * 3, SPACE * 4)
PIECE_TEXTS = [
    "the old man looked", " the sea", "hello helloing", "it's été 日本🚀", "", " ", "a\nb", "no\n\n\n\nx", "x  and   x     x", "   ",
    "<s>the</s> x", "the <unk> sea<unk>", "the\t1  2\n\n 3", "thethethe", "atatat",
]


@pytest.mark.parametrize("prefix, user_defined", [(True, ()), (False, ()), (False, GEMMA)])
def test_sentencepiece_tokenizers(tmp_path: Path, prefix: bool, user_defined: tuple[str, ...]) -> None:
    theirs, scores = spm(prefix, user_defined)
    ours = Tokenizer.load(write(tmp_path / "x.gguf", lambda writer: pieces_metadata(writer, theirs, scores, prefix)))
    assert all(same(ours, theirs, each) for each in PIECE_TEXTS)


def test_added_tokens_of_phi_3_take_the_spaces_behind_them(tmp_path: Path) -> None:
    """As in its models' tokenizer.json; other architectures' do not, nor do Phi-4's, whose vocabulary is of another kind."""
    theirs, scores = spm(True)
    theirs.add_special_tokens([AddedToken("</s>", rstrip=True, normalized=False), AddedToken("<|user|>", rstrip=True, normalized=False)])
    ours = Tokenizer.load(write(
        tmp_path / "x.gguf", lambda writer: pieces_metadata(writer, theirs, [*scores, 0.0], True), architecture="phi3"))
    assert all(same(ours, theirs, each) for each in [*PIECE_TEXTS, "<|user|>\nthe sea</s>  the <s> sea<unk> x<|user|>  "])
    assert ours.encode("<|user|>\nthe") == ours.encode("<|user|>the") and ours.encode("<s> the") != ours.encode("<s>the")
    other = Tokenizer.load(write(tmp_path / "y.gguf", lambda writer: pieces_metadata(writer, theirs, [*scores, 0.0], True)))
    assert other.encode("<|user|>\nthe") != other.encode("<|user|>the")
    words = trained_once("gpt-2")
    fourth = Tokenizer.load(write(tmp_path / "z.gguf", lambda writer: byte_level_metadata(writer, words, "gpt-2"), architecture="phi3"))
    assert same(fourth, words, "<|im_start|>\nthe")


def test_the_first_files_of_gemma(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those of gemma-1.1-2b-it do not say that texts begin without a space, and have the marks of turns as plain tokens."""
    theirs, scores = spm(False)
    theirs.add_special_tokens([AddedToken(each, normalized=False) for each in ("<start_of_turn>", "<end_of_turn>")])
    start, end = (theirs.token_to_id(each) for each in ("<start_of_turn>", "<end_of_turn>"))

    def plain(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0].pop("tokenizer.ggml.add_space_prefix")
        for i in (start, end):
            writer.kv_data[0]["tokenizer.ggml.token_type"].value[i] = gguf.TokenType.NORMAL

    def load(architecture: str) -> Tokenizer:
        path = tmp_path / f"{architecture}.gguf"
        return Tokenizer.load(write(path, lambda writer: pieces_metadata(writer, theirs, [*scores, 0.0, 0.0], False), plain, roles(1, 2),
                                    architecture=architecture))

    ours = load("gemma")
    assert caplog.messages == [f"{tmp_path / 'gemma.gguf'} has plain tokens that are spelled like control tokens, and are taken for these:"
                               " <start_of_turn>, <end_of_turn>"]
    assert all(same(ours, theirs, each) for each in [*PIECE_TEXTS, "<start_of_turn>the sea<end_of_turn>\n"])
    assert ours.eos_token_ids == (2, end) and {start, end} <= ours.special_ids
    assert load("llama").encode("the") == [1, theirs.token_to_id(f"{SPACE}the")], "others' begin with a space, as in llama.cpp"


@given(given_text=st.text(st.sampled_from("theoldmansx 123\né🚀'"), max_size=30), gemma=st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_text_in_pieces(given_text: str, gemma: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    theirs, scores = spm(not gemma, GEMMA if gemma else ())
    path = tmp_path_factory.getbasetemp() / f"pieces-{gemma}.gguf"
    if not path.exists():
        write(path, lambda writer: pieces_metadata(writer, theirs, scores, not gemma))
    assert same(Tokenizer.load(path), theirs, given_text)


def test_scores_that_say_nothing(tmp_path: Path) -> None:
    """The order of the ids is then that of the merges."""
    theirs, scores = spm(True, equal=True)
    ours = Tokenizer.load(write(tmp_path / "x.gguf", lambda writer: pieces_metadata(writer, theirs, scores, True)))
    assert all(same(ours, theirs, each) for each in PIECE_TEXTS)


def roles(bos: int, eos: int, **more: bool) -> Callable[[gguf.GGUFWriter], None]:
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.add_bos_token_id(bos)
        writer.add_eos_token_id(eos)
        for name, value in more.items():
            getattr(writer, f"add_{name}")(value)

    return fill


def test_what_begins_and_ends_a_text(tmp_path: Path) -> None:
    backend = trained_once("gpt-2")
    begin, start, end = (backend.token_to_id(each) for each in SPECIALS)

    def load(pre: str, *fill: Any) -> Tokenizer:
        return Tokenizer.load(write(tmp_path / "x.gguf", lambda writer: byte_level_metadata(writer, backend, pre), *fill))

    body = backend.encode("the sea", add_special_tokens=False).ids
    silent = load("gpt-2", roles(begin, start))
    assert silent.encode("the sea") == body and (silent.bos_token_id, silent.eos_token_ids) == (begin, (start, end))
    assert load("llama-bpe", roles(begin, end)).encode("the sea") == [begin, *load("llama-bpe").encode("the sea")]
    assert load("llama-bpe", roles(begin, end, add_bos_token=False)).encode("the sea") == load("llama-bpe").encode("the sea")
    both = load("gpt-2", roles(begin, start, add_bos_token=True, add_eos_token=True))
    assert both.encode("the sea") == [begin, *body, start] and both.encode("the sea", add_special_tokens=False) == body
    assert load("gpt-2", lambda writer: writer.add_eot_token_id(start)).eos_token_ids == (start, end)
    same_ends = load("gpt-2", roles(begin, begin, add_bos_token=True, add_eos_token=True))
    assert same_ends.encode("the sea") == [begin, *body, begin]


@pytest.mark.parametrize("spelling", ["$A", "a:b", ":1", "<|begin|>"], ids=["the text", "no number", "a number", "another token"])
def test_a_text_begins_with_the_token_that_the_file_names_whatever_its_spelling_means(tmp_path: Path, spelling: str) -> None:
    backend = trained_once("gpt-2")
    last = backend.token_to_id(SPECIALS[-1])
    tokens, _ = tokens_of(backend, None)
    tokens[last] = spelling
    path = write(tmp_path / "x.gguf", lambda writer: byte_level_metadata(writer, backend, "gpt-2"),
                 value("tokenizer.ggml.tokens", tokens, ARRAY), roles(last, last, add_bos_token=True))
    assert Tokenizer.load(path).encode("the sea") == [last, *backend.encode("the sea", add_special_tokens=False).ids]


def test_a_message_of_gpt_oss_ends_without_the_answer_but_a_call_ends_it(tmp_path: Path) -> None:
    backend = trained("gpt-4o")

    def ends(*more: str) -> set[str]:
        backend.add_special_tokens(["<|endoftext|>", "<|return|>", "<|end|>", *more])
        end = roles(0, backend.token_to_id("<|return|>"))
        ours = Tokenizer.load(write(tmp_path / "x.gguf", lambda writer: byte_level_metadata(writer, backend, "gpt-4o"), end))
        return {ours.decode([token]) for token in ours.eos_token_ids}

    assert ends() == {"<|end|>", "<|endoftext|>", "<|im_end|>", "<|return|>"}
    assert ends("<|call|>") == {"<|call|>", "<|endoftext|>", "<|im_end|>", "<|return|>"}


def test_pieces_begin_with_bos_unless_told_otherwise(tmp_path: Path) -> None:
    theirs, scores = spm(True)
    theirs.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])

    def load(*fill: Any) -> Tokenizer:
        return Tokenizer.load(write(tmp_path / "x.gguf", lambda writer: pieces_metadata(writer, theirs, scores, True), *fill))

    assert load(roles(1, 2)).encode("the sea") == theirs.encode("the sea").ids
    assert load(roles(1, 2, add_bos_token=False)).encode("the sea") == theirs.encode("the sea", add_special_tokens=False).ids
    assert load(roles(1, 2)).facts.special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_chat_templates(tmp_path: Path) -> None:
    backend = trained_once("gpt-2")
    template = "{{ bos_token }}{% for m in messages %}<|im_start|>{{ m['content'] }}<|im_end|>{% endfor %}"

    def load(given: Any) -> Tokenizer:
        return Tokenizer.load(write(
            tmp_path / "x.gguf", lambda writer: byte_level_metadata(writer, backend, "gpt-2"), roles(400, 402),
            lambda writer: writer.add_chat_template(given)))

    lone = load(template)
    assert lone.facts.chat_templates == {"default": template}
    begin, talk = lone.facts.special_tokens["bos_token"], [{"role": "user", "content": "hi"}]
    assert ChatTemplate.of(lone).render(talk, add_generation_prompt=False) == f"{begin}<|im_start|>hi<|im_end|>"
    named = load([{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}])
    assert named.facts.chat_templates == {"default": "D", "tool_use": "T"}


def value(key: str, given: Any, kind: gguf.GGUFValueType) -> Callable[[gguf.GGUFWriter], None]:
    """In the place of what is there; a list is of strings."""
    def fill(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0].pop(key, None)
        writer.add_key_value(key, given, kind, STRING if kind is ARRAY else None)

    return fill


def without(key: str) -> Callable[[gguf.GGUFWriter], None]:
    return lambda writer: writer.kv_data[0].pop(key)  # type: ignore[return-value]


ARRAY, STRING, UINT32 = gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.STRING, gguf.GGUFValueType.UINT32
MODEL, PRE, MERGES = "tokenizer.ggml.model", "tokenizer.ggml.pre", "tokenizer.ggml.merges"


@pytest.mark.parametrize("change, said", [
    (without(MODEL), "has no tokenizer.ggml.model"),
    (value(MODEL, "bert", STRING), "has a tokenizer of the unknown kind 'bert'; known: gpt2, llama"),
    (value(MODEL, "b" * 9999, STRING), f"has a tokenizer of the unknown kind '{'b' * 59}; known: gpt2, llama"),
    (value(PRE, "v" * 9999, STRING), f"cuts words in the unknown way '{'v' * 59} (tokenizer.ggml.pre); known: gpt-2"),
    (value(PRE, "volapük", STRING), "cuts words in the unknown way 'volapük' (tokenizer.ggml.pre); known: gpt-2, phi-2, llama-bpe"),
    (without("tokenizer.ggml.tokens"), "has no tokenizer.ggml.tokens"), (without(MERGES), "has no tokenizer.ggml.merges"),
    (value("tokenizer.ggml.tokens", ["a", "b"], ARRAY), "has 2 tokens, but"),
    (value(MERGES, ["ab"], ARRAY), "has a merge 'ab', which is not two tokens with a space between them"),
    (value(MERGES, ["a "], ARRAY), "has a merge 'a '"),
    (value(MERGES, ["t nowhere"], ARRAY), "has a merge 't nowhere', but no token 'nowhere'"),
    (value(MERGES, ["<|im_start|> <|im_end|>"], ARRAY), "<|im_end|>', but no token '<|im_start|><|im_end|>'"),  # a panic of the package
    (value("tokenizer.ggml.bos_token_id", 9999, UINT32), "says tokenizer.ggml.bos_token_id 9999, but its tokens are 0 to"),
    (value("tokenizer.ggml.eos_token_id", 450, UINT32), "eos_token_id 450, but the token of that id, '[PAD450]', is unused"),
    (value("tokenizer.ggml.add_bos_token", True, gguf.GGUFValueType.BOOL), "add_bos_token true, but has no tokenizer.ggml.bos_token_id"),
    (value(MODEL, "llama", STRING), "has no tokenizer.ggml.scores"),
])
def test_what_is_refused(tmp_path: Path, change: Any, said: str) -> None:
    backend = trained_once("gpt-2")
    path = write(tmp_path / "x.gguf", lambda writer: byte_level_metadata(writer, backend, "gpt-2", 500), change)
    with pytest.raises(ModelError) as caught:
        Tokenizer.load(path)
    message = str(caught.value)
    assert "\n" not in message and str(path) in message and said in message, message


@pytest.mark.parametrize(("role", "given", "why"), [
    ("padding", 450, "the token of that id, '[PAD450]', is unused"), ("eot", 9999, "its tokens are 0 to 499")])
def test_a_role_that_no_token_has_is_told_of_where_it_is_not_needed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, role: str, given: int, why: str
) -> None:
    backend = trained_once("gpt-2")
    change = value(f"tokenizer.ggml.{role}_token_id", given, UINT32)
    ours = Tokenizer.load(write(tmp_path / "x.gguf", lambda writer: byte_level_metadata(writer, backend, "gpt-2", 500), change))
    assert "pad_token" not in ours.facts.special_tokens and not {450, 9999} & {*ours.eos_token_ids}
    (record,) = caplog.records
    assert f"tokenizer.ggml.{role}_token_id {given}, but {why}" in record.message


def test_numpy_waits_for_a_gguf_file() -> None:
    script = "import sys, penstock.serve.text.tokenizer; print('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip() == "False"
