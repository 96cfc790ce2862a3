"""Reads a tokenizer from a folder in Hugging Face layout: tokenizer.json and the small files around it."""
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from penstock.compute.models.load.objects import object_if_there
from penstock.core.errors import ModelError
from penstock.serve.text.facts import TokenizerFacts
from penstock.serve.text.harmony import CALL, RETURN

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")  # of an added token
SURROGATE = re.compile("[\ud800-\udfff]")  # no character
OTHER_FORMATS = ("tokenizer.model", "tekken.json", "vocab.json", "vocab.txt", "spiece.model")


def read_folder(folder: Path) -> tuple[tokenizers.Tokenizer, TokenizerFacts]:
    """The tokenizer of a checkpoint and what its files say of it. Raises ModelError when tokenizer.json is missing or a file is broken."""
    backend = read_backend(folder)
    config = read_json(folder / "tokenizer_config.json")
    if "added_tokens_decoder" not in config:  # older checkpoints keep the roles in a file of their own
        config = {**config, **read_json(folder / "special_tokens_map.json")}
    roles = special_tokens(config, folder / "tokenizer_config.json")
    add_missing_tokens(backend, config, folder / "tokenizer_config.json")
    return backend, TokenizerFacts(roles, with_calls(backend, eos_token_ids(folder)), chat_templates(folder, config))


def read_backend(folder: Path) -> tokenizers.Tokenizer:
    path = folder / "tokenizer.json"
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        others = [name for name in OTHER_FORMATS if (folder / name).is_file()]
        found = f"; it has {' and '.join(others)}, which is not read: save the tokenizer as tokenizer.json" if others else ""
        raise ModelError(f"{folder} has no tokenizer.json{found}") from None
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    try:
        return tokenizers.Tokenizer.from_buffer(content)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the package raises bare Exceptions, and panics, which are none
        raise ModelError(f"{path} is not a tokenizer that the tokenizers package can read: {error}") from None


def read_json(path: Path) -> dict[str, Any]:
    """The JSON object in the file; {} when there is no file."""
    return object_if_there(path) or {}


def special_tokens(config: Mapping[str, Any], path: Path) -> dict[str, str]:
    """The spelling of each special token that has a role, the standard roles first."""
    model_own = [key for key in config if key.endswith("_token") and key not in ROLES and isinstance(config[key], (str, dict))]
    found = {role: content_of(config[role], f"{path}: {role}") for role in (*ROLES, *model_own) if config.get(role) is not None}
    extra = config.get("extra_special_tokens")
    if isinstance(extra, dict):
        found |= {role: content_of(token, f"{path}: {role}") for role, token in extra.items()}
    return found


def content_of(token: Any, where: str) -> str:
    """A token is written as its string, or as an object with its string as `content`."""
    content = token.get("content") if isinstance(token, dict) else token
    if not isinstance(content, str) or SURROGATE.search(content):
        raise ModelError(f"{where} is {token!r}, not a token")
    return content


def add_missing_tokens(backend: tokenizers.Tokenizer, config: Mapping[str, Any], path: Path) -> None:
    """Adds what tokenizer_config.json lists and tokenizer.json lacks, in the order in which transformers does."""
    present = {repr(token) for token in backend.get_added_tokens_decoder().values()}
    listed = config.get("added_tokens_decoder") or {}
    if not isinstance(listed, dict) or not all(key.isdecimal() and len(key) < 20 for key in listed):
        raise ModelError(f"{path}: added_tokens_decoder must map token ids to tokens")
    entries = [added_token(listed[key], f"{path}: added token {key}", special=False) for key in sorted(listed, key=int)]
    missing = [token for token in entries if repr(token) not in present]
    known = {token.content for token in backend.get_added_tokens_decoder().values()} | {token.content for token in missing}
    extra = config.get("extra_special_tokens") or config.get("additional_special_tokens") or []
    if not isinstance(extra, (list, dict)):
        raise ModelError(f"{path}: the extra special tokens are {extra!r}, not a list of tokens or tokens by name")
    named = [config[role] for role in special_tokens(config, path) if role in config]
    for entry in (*named, *(extra.values() if isinstance(extra, dict) else extra)):
        token = added_token(entry, f"{path}: special token", special=True)
        if token.content not in known:
            missing.append(token)
            known.add(token.content)
    backend.add_tokens(missing)


def added_token(entry: Any, where: str, special: bool) -> tokenizers.AddedToken:
    content = content_of(entry, where)
    flags = {flag: bool(entry[flag]) for flag in FLAGS if flag in entry} if isinstance(entry, dict) else {}
    return tokenizers.AddedToken(content, **flags | ({"special": True} if special else {}))


def eos_token_ids(folder: Path) -> tuple[int, ...]:
    """The ids that end a generation: generation_config.json's, else config.json's."""
    config = read_json(folder / "config.json")
    text_config = config.get("text_config")
    candidates = [
        (folder / "generation_config.json", read_json(folder / "generation_config.json")),
        (folder / "config.json", config),
        (folder / "config.json", text_config if isinstance(text_config, dict) else {}),
    ]
    for path, values in candidates:
        found = values.get("eos_token_id")
        ids = found if isinstance(found, list) else [found] if found is not None else []
        if not all(type(token_id) is int and token_id >= 0 for token_id in ids):
            raise ModelError(f"{path}: eos_token_id is {found!r}, not a token id or a list of them")
        if ids:
            return tuple(ids)
    return ()


def with_calls(backend: tokenizers.Tokenizer, eos: tuple[int, ...]) -> tuple[int, ...]:
    """gpt-oss also stops where it has called a function, which a folder says in generation_config.json alone."""
    calls = backend.token_to_id(CALL)
    return eos if calls is None or calls in eos or backend.token_to_id(RETURN) is None else (*eos, calls)


def chat_templates(folder: Path, config: Mapping[str, Any]) -> dict[str, str]:
    """Jinja sources by name: from *.jinja files, else tokenizer_config.json, else chat_template.json."""
    lone = folder / "chat_template.jinja"
    files = {"default": lone} if lone.is_file() else {}
    files |= {path.stem: path for path in sorted((folder / "additional_chat_templates").glob("*.jinja"))}
    if files:
        return {name: read_template(path) for name, path in files.items()}
    for path, written in (
        (folder / "tokenizer_config.json", config.get("chat_template")),
        (folder / "chat_template.json", read_json(folder / "chat_template.json").get("chat_template")),
    ):
        if written is None:
            continue
        found = named_templates(written)
        if found is None:
            raise ModelError(f"{path}: chat_template is neither a string nor a list of named templates")
        return found
    return {}


def named_templates(written: Any) -> dict[str, str] | None:
    """A template, or a list of {"name": ..., "template": ...} -> sources by name; None when it is neither."""
    if isinstance(written, str):
        return {"default": written}
    if not isinstance(written, list) or not all(isinstance(item, dict) for item in written):
        return None
    named = {item.get("name"): item.get("template") for item in written}
    return named if all(isinstance(text, str) for pair in named.items() for text in pair) else None


def read_template(path: Path) -> str:
    """A jinja source. Raises ModelError when there is no such file or it is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"the chat template {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ModelError(f"the chat template {path} is not UTF-8 text: byte {error.start} is no part of a character") from None
