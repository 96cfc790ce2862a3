"""Tokenizers against transformers' own, on every kind of vocabulary; what a folder may lack and what it may not."""
import itertools
import json
import subprocess
import sys
from pathlib import Path
from threading import Event, Thread

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from penstock.core.errors import ModelError, RequestError
from penstock.serve.text.facts import TokenizerFacts
from penstock.serve.text.tokenizer import Tokenizer
from tests.serve.text.makers import KINDS, byte_level, save, word_level

MODEL = {"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}  # as much as tokenizer.json needs
Pair = tuple[Tokenizer, PreTrainedTokenizerFast]
texts = st.text(max_size=30) | st.text(alphabet="the caféé日本🙂\n<s></tool_callw123>", max_size=30)


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Pair:
    folder = tmp_path_factory.mktemp(request.param)
    save(request.param, folder)
    return Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)


@settings(max_examples=40)
@given(text=texts, special=st.booleans())
def test_encodes_as_transformers_does(pair: Pair, text: str, special: bool) -> None:
    ours, theirs = pair
    assert ours.encode(text, add_special_tokens=special) == theirs.encode(text, add_special_tokens=special)


@settings(max_examples=40)
@given(text=texts, skip=st.booleans())
def test_decodes_what_it_encoded_as_transformers_does(pair: Pair, text: str, skip: bool) -> None:
    ours, theirs = pair
    ids = ours.encode(text)
    assert ours.decode(ids, skip_special_tokens=skip) == theirs.decode(ids, skip_special_tokens=skip)


@settings(max_examples=40)
@given(data=st.data(), skip=st.booleans())
def test_decodes_any_ids_as_transformers_does(pair: Pair, data: st.DataObject, skip: bool) -> None:
    ours, theirs = pair
    ids = data.draw(st.lists(st.integers(0, ours.vocab_size + 2), max_size=20))
    if not ours.pieces.bytewise:
        assert ours.decode(ids, skip) == theirs.decode(ids, skip_special_tokens=skip)
        return
    special = {token_id for token_id, token in theirs.added_tokens_decoder.items() if token.special}
    tokens = [theirs.convert_ids_to_tokens(token_id) for token_id in ids if not (skip and token_id in special)]
    assert ours.decode(ids, skip) == theirs.decoder.decode(repaired([token for token in tokens if token is not None]))


def repaired(tokens: list[str]) -> list[str]:
    """Bytes that are part of no character replaced: tokenizers replaces the whole run of byte tokens that they are in."""
    out: list[str] = []
    for is_byte, run in itertools.groupby(tokens, lambda token: token.startswith("<0x")):
        if not is_byte:
            out += run
            continue
        for char in bytes(int(token[3:5], 16) for token in run).decode(errors="surrogateescape"):
            out += ["\ufffd"] if "\udc80" <= char <= "\udcff" else [f"<0x{byte:02X}>" for byte in char.encode()]
    return out


def test_facts_agree_with_transformers(pair: Pair) -> None:
    ours, theirs = pair
    assert ours.bos_token_id == theirs.bos_token_id
    assert ours.eos_token_ids == (theirs.eos_token_id,)
    assert len(ours) == len(theirs)
    assert ours.vocab_size == max(theirs.get_vocab().values()) + 1
    assert set(theirs.all_special_ids) <= ours.special_ids
    assert ours.id_of(theirs.eos_token) == theirs.eos_token_id
    assert ours.id_of("no such token") is None


@settings(max_examples=40)
@given(data=st.data())
def test_token_bytes_add_up_to_the_text(pair: Pair, data: st.DataObject) -> None:
    ours, _ = pair
    ids = data.draw(st.lists(st.integers(3, ours.vocab_size - 1), max_size=12))
    anchor = ours.encode("the", add_special_tokens=False) or [3]
    whole = ours.decode([*anchor, *ids])[len(ours.decode(anchor)) :]
    joined = b"".join(map(ours.token_bytes, ids))
    assert joined.decode(errors="ignore") == whole.replace("\ufffd", "") or "\ufffd" in ours.decode(anchor)


def test_tokens_have_their_exact_bytes() -> None:
    llama = Tokenizer(KINDS["llama2"]())
    assert llama.token_bytes(llama.backend.token_to_id("<0x0A>")) == b"\n"
    assert llama.token_bytes(llama.backend.token_to_id("<0xE6>")) == b"\xe6"
    assert llama.token_text(llama.backend.token_to_id("<0xE6>")) == "\ufffd"
    assert llama.token_bytes(llama.backend.token_to_id("▁the")) == b" the"
    assert llama.token_bytes(10**6) == b"" and llama.token_bytes(-1) == b"" and llama.token_bytes(2**40) == b""
    gpt = Tokenizer(byte_level())
    assert gpt.token_bytes(gpt.backend.token_to_id("Ġthe")) == b" the"
    assert gpt.token_bytes(gpt.backend.token_to_id("æĹ")) == "日".encode()[:2]
    assert gpt.token_text(gpt.backend.token_to_id("<|ツール|>")) == "<|ツール|>"
    words = Tokenizer(word_level())
    assert words.token_bytes(5) == b" w5"


def test_a_prompt_is_never_cut_or_padded(tmp_path: Path) -> None:
    backend = byte_level()
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    backend.save(str(tmp_path / "tokenizer.json"))
    assert len(Tokenizer.load(tmp_path).encode("abcdefgh", add_special_tokens=False)) == 8


def test_a_lone_surrogate_is_refused() -> None:
    with pytest.raises(RequestError, match=r"U\+D83D at character 2"):
        Tokenizer(byte_level()).encode("ab\ud83d")


def test_other_threads_go_on_while_a_long_text_is_encoded() -> None:
    tokenizer, text, turns, done = Tokenizer(byte_level()), "the quick brown fox jumps over it. " * 20_000, [], Event()

    def take_turns() -> None:
        while not done.wait(0.001):
            turns.append(len(turns))

    other = Thread(target=take_turns)
    other.start()
    before = len(turns)
    ids = tokenizer.encode(text)
    num_turns = len(turns) - before
    done.set()
    other.join()
    assert num_turns > 10
    assert ids == tokenizer.backend.encode(text).ids


def test_it_can_be_built_without_files() -> None:
    tokenizer = Tokenizer(byte_level(), TokenizerFacts({"eos_token": "</s>"}, eos_token_ids=(7, 8)))
    assert tokenizer.eos_token_ids == (1, 7, 8) and tokenizer.bos_token_id is None


# --- folders ---


def write(folder: Path, name: str, content: object) -> None:
    (folder / name).write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")


def test_ends_of_generation_come_from_the_generation_config_first(tmp_path: Path) -> None:
    save("byte_level", tmp_path)
    write(tmp_path, "config.json", {"eos_token_id": 9})
    assert Tokenizer.load(tmp_path).eos_token_ids == (1, 9)
    write(tmp_path, "generation_config.json", {"eos_token_id": [1, 5]})
    assert Tokenizer.load(tmp_path).eos_token_ids == (1, 5)
    for wrong, said in (("</s>", "'</s>'"), ([True], r"\[True\]"), (False, "False"), ([-1], r"\[-1\]"), ([1.0], r"\[1.0\]")):
        write(tmp_path, "generation_config.json", {"eos_token_id": wrong})
        with pytest.raises(ModelError, match=f"generation_config.json: eos_token_id is {said}"):
            Tokenizer.load(tmp_path)


def test_ends_of_generation_of_a_nested_config(tmp_path: Path) -> None:
    save("byte_level", tmp_path)
    write(tmp_path, "config.json", {"text_config": {"eos_token_id": [1, 106]}})
    assert Tokenizer.load(tmp_path).eos_token_ids == (1, 106)


def test_gpt_oss_stops_at_its_calls_whatever_the_folder_says(tmp_path: Path) -> None:
    save("byte_level", tmp_path)
    named = {"eos_token": "<|return|>", "additional_special_tokens": ["<|call|>", "<|end|>"]}
    write(tmp_path, "tokenizer_config.json", {**json.loads((tmp_path / "tokenizer_config.json").read_text()), **named})
    tokenizer = Tokenizer.load(tmp_path)
    returns, calls = (tokenizer.id_of(each) for each in ("<|return|>", "<|call|>"))
    assert tokenizer.eos_token_ids == (returns, calls)
    write(tmp_path, "generation_config.json", {"eos_token_id": [calls, returns]})
    assert sorted(Tokenizer.load(tmp_path).eos_token_ids) == sorted((returns, calls))
    write(tmp_path, "tokenizer_config.json", {"eos_token": "</s>", "additional_special_tokens": ["<|call|>"]})
    write(tmp_path, "generation_config.json", {})
    assert Tokenizer.load(tmp_path).eos_token_ids == (1,), "a token of that name alone says nothing"


def test_tokens_that_only_the_config_names_are_added_as_transformers_adds_them(tmp_path: Path) -> None:
    save("byte_level", tmp_path)
    config = json.loads((tmp_path / "tokenizer_config.json").read_text())
    config |= {"eos_token": "<|im_end|>", "image_token": "<image>"}
    config |= {"pad_token": {"content": "<pad>", "__type": "AddedToken", "lstrip": True}}
    config |= {"extra_special_tokens": ["<extra>"], "added_tokens_decoder": {"300": {"content": "<more>", "special": False}}}
    write(tmp_path, "tokenizer_config.json", config)
    ours, theirs = Tokenizer.load(tmp_path), AutoTokenizer.from_pretrained(tmp_path)
    text = "a <pad><|im_end|><image> <more><extra>"
    assert ours.encode(text) == theirs.encode(text)
    assert ours.decode(ours.encode(text), True) == theirs.decode(theirs.encode(text), skip_special_tokens=True)
    assert ours.eos_token_ids == (theirs.eos_token_id,)
    assert ours.facts.special_tokens == theirs.special_tokens_map


def test_older_checkpoints_name_their_special_tokens_in_a_file_of_its_own(tmp_path: Path) -> None:
    byte_level().save(str(tmp_path / "tokenizer.json"))
    write(tmp_path, "special_tokens_map.json", {"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": "</s>"})
    tokenizer = Tokenizer.load(tmp_path)
    assert (tokenizer.bos_token_id, tokenizer.eos_token_ids) == (0, (1,))


def test_chat_templates_are_found_wherever_they_are(tmp_path: Path) -> None:
    save("byte_level", tmp_path)
    write(tmp_path, "chat_template.json", {"chat_template": "C"})
    assert Tokenizer.load(tmp_path).facts.chat_templates == {"default": "C"}
    named = [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "T"}]
    write(tmp_path, "tokenizer_config.json", {"chat_template": named})
    assert Tokenizer.load(tmp_path).facts.chat_templates == {"default": "A", "tool_use": "T"}
    write(tmp_path, "chat_template.jinja", "J é")
    (tmp_path / "additional_chat_templates").mkdir()
    write(tmp_path / "additional_chat_templates", "rag.jinja", "R")
    assert Tokenizer.load(tmp_path).facts.chat_templates == {"default": "J é", "rag": "R"}
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(ModelError, match="not UTF-8"):
        Tokenizer.load(tmp_path)


def test_a_folder_without_tokenizer_json_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="has no tokenizer.json$"):
        Tokenizer.load(tmp_path)
    (tmp_path / "tokenizer.model").write_bytes(b"\n\x0e")
    with pytest.raises(ModelError, match="no tokenizer.json; it has tokenizer.model, which is not read: save .* as tokenizer.json"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize(("name", "content", "says"), [
    ("tokenizer.json", "{", "tokenizer.json is not a tokenizer"),
    ("tokenizer.json", {"model": {"type": "BPE"}}, "tokenizer.json is not a tokenizer"),
    ("tokenizer.json", {**MODEL, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": [["a", "b"]]}}, "is not a tokenizer"),
    ("tokenizer.json", {**MODEL, "normalizer": {"type": "Precompiled", "precompiled_charsmap": ""}}, "tokenizer.json is not a tokenizer"),
    ("tokenizer_config.json", "{'a'", "tokenizer_config.json is not JSON"),
    ("tokenizer_config.json", [1], "is JSON, but not an object in braces"),
    ("tokenizer_config.json", {"eos_token": 5}, "eos_token is 5, not a token"),
    ("tokenizer_config.json", {"eos_token": "\ud800"}, r"eos_token is '\\ud800', not a token"),
    ("tokenizer_config.json", {"added_tokens_decoder": {"x": {}}}, "added_tokens_decoder must map"),
    ("tokenizer_config.json", {"added_tokens_decoder": {"²": {}}}, "added_tokens_decoder must map"),
    ("tokenizer_config.json", {"added_tokens_decoder": {"1" * 5000: {}}}, "added_tokens_decoder must map"),
    ("tokenizer_config.json", {"additional_special_tokens": "<a>"}, "the extra special tokens are '<a>', not a list of tokens"),
    ("tokenizer_config.json", {"extra_special_tokens": 3}, "the extra special tokens are 3, not a list of tokens"),
    ("tokenizer_config.json", {"chat_template": [{"name": "default"}]}, "neither a string nor a list"),
    ("generation_config.json", "", "generation_config.json is not JSON"),
])
def test_a_broken_file_is_named(tmp_path: Path, name: str, content: object, says: str) -> None:
    save("byte_level", tmp_path)
    write(tmp_path, name, content)
    with pytest.raises(ModelError, match=says):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    save("byte_level", tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    with pytest.raises(ModelError, match=f"{name} cannot be read: Is a directory"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("decoder", [
    tokenizers.decoders.CTC(),
    tokenizers.decoders.Sequence([tokenizers.decoders.ByteLevel(), tokenizers.decoders.Fuse()]),
    tokenizers.decoders.Sequence([tokenizers.decoders.Fuse(), tokenizers.decoders.Strip(" ", 0, 1)]),
])
def test_a_decoder_that_cannot_be_streamed_is_refused(decoder: tokenizers.decoders.Decoder) -> None:
    backend = word_level()
    backend.decoder = decoder
    with pytest.raises(ModelError, match="cannot be streamed"):
        Tokenizer(backend)


def test_loading_a_tokenizer_imports_neither_jinja_nor_torch(tmp_path: Path) -> None:
    save("byte_level", tmp_path)
    script = (
        "import sys; from pathlib import Path;"
        "from penstock.serve.text.tokenizer import Tokenizer; from penstock.serve.text.chat import ChatTemplate;"
        "ChatTemplate.of(Tokenizer.load(Path(sys.argv[1]))); print({'jinja2', 'torch', 'transformers', 'numpy'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True)
    assert done.stdout.strip() == "set()", done.stderr
