"""Small tokenizers of every kind that models come with, made with the tokenizers package."""
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

SPACE = "\u2581"


def byte_level() -> Tokenizer:
    """GPT-2, Llama 3, Qwen: every byte has a printable character."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {char: at for at, char in enumerate(["<s>", "</s>", *alphabet, "Ġt", "Ġth", "Ġthe", "ã", "æĹ", "æĹ¥"])}
    merges = [("Ġ", "t"), ("Ġt", "h"), ("Ġth", "e"), ("æ", "Ĺ"), ("æĹ", "¥")]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    words = pre_tokenizers.Split(Regex(r" ?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+|\s+"), "isolated")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([words, pre_tokenizers.ByteLevel(False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<s>", "</s>", "<|ツール|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False)])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 0)])
    return tokenizer


def byte_fallback(leading_space: bool) -> Tokenizer:
    """Llama 2, Mistral (`leading_space`: the first word gets a space, which decoding strips) and Gemma (it does not)."""
    words = [SPACE, "t", "h", "e", "a", "c", "f", "é", "日", SPACE + "t", "th", "the", SPACE + "the", SPACE + SPACE]
    vocab = {token: at for at, token in enumerate(["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *words])}
    merges = [(SPACE, "t"), ("t", "h"), ("th", "e"), (SPACE, "the"), (SPACE, SPACE)]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    spaces = normalizers.Replace(" ", SPACE)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), spaces]) if leading_space else spaces
    steps = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    tokenizer.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if leading_space else steps)
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A $B", [("<s>", 1)])
    return tokenizer


def metaspace() -> Tokenizer:
    """T5-like: words with their space, no bytes to fall back on."""
    pieces = [("<unk>", 0.0), (SPACE, -2.0), *((char, -3.0) for char in "abcdefghinoqrtuvwxyzé日"), (SPACE + "the", -1.0)]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=0, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def word_level() -> Tokenizer:
    """Whole words, joined with spaces."""
    tokenizer = Tokenizer(models.WordLevel({f"w{n}": n for n in range(40)} | {"é": 40, "日本": 41}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(["w0", "w1", "w2"])
    return tokenizer


def word_piece() -> Tokenizer:
    vocab = {token: at for at, token in enumerate(["[UNK]", "[CLS]", "[SEP]", "the", "##n", "##é", "t", "##h", ".", "'", "do", "not"])}
    tokenizer = Tokenizer(models.WordPiece(vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.add_special_tokens(["[UNK]", "[CLS]", "[SEP]"])
    return tokenizer


KINDS = {
    "byte_level": byte_level,
    "llama2": lambda: byte_fallback(leading_space=True),
    "gemma": lambda: byte_fallback(leading_space=False),
    "metaspace": metaspace,
    "word_level": word_level,
    "word_piece": word_piece,
}
ROLES = {
    "word_level": {"bos_token": "w1", "eos_token": "w2", "pad_token": "w0"},
    "word_piece": {"bos_token": "[CLS]", "eos_token": "[SEP]"},
}


def save(kind: str, folder: Path, **more: object) -> PreTrainedTokenizerFast:
    """The same tokenizer as transformers has it, saved in its layout."""
    roles = ROLES.get(kind, {"bos_token": "<s>", "eos_token": "</s>"})
    theirs = PreTrainedTokenizerFast(tokenizer_object=KINDS[kind](), **{**roles, **more})
    theirs.save_pretrained(folder)
    return theirs
