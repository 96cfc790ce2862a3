"""Text that a model is run over: files and folders -> passages -> beginnings of a given length in tokens."""
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.core.errors import UsageError
from penstock.core.strict_json import fault

SUFFIXES = (".txt", ".md", ".jsonl")
FIELDS = ("text", "prompt", "question")  # of a line of JSON; the first that is there
CHARACTERS_PER_TOKEN = 12  # more than any tokenizer needs for a run of them
SHORT = 10_000  # characters of a document whose end says too little
LONG = 2_000  # characters of a paragraph in which other beginnings are needed
PLACES = 200  # that are looked at to know how far beginnings reach


def read(paths: Sequence[str]) -> list[str]:
    """The documents in files, and in folders and those below them: a file of text is one, and so is a line of JSON.

    Raises UsageError for a path without text.
    """
    found: list[str] = []
    for path in map(Path, paths):
        documents = [document for file in _files(path) for document in _documents(file) if document.strip()]
        if not documents:
            raise UsageError(f"there is no text in {path}: files are {', '.join(SUFFIXES)}, of UTF-8")
        found += documents
    return found


def _files(path: Path) -> list[Path]:
    try:
        if not path.is_dir():
            return [path]
        return sorted(file for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and not file.is_dir())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None


def _documents(file: Path) -> list[str]:
    try:
        text = file.read_text(encoding="utf-8-sig")
        return [text] if file.suffix.lower() != ".jsonl" else list(_lines(text, file))
    except OSError as error:
        raise UsageError(f"cannot read {file}: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"{file} is not UTF-8: {error}") from None


def _lines(text: str, file: Path) -> Iterator[str]:
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            place = f"line {number} of {file}"
            yield _text_of(_value_of(line, place), place)


def _value_of(line: str, place: str) -> Any:
    try:
        return json.loads(line)
    except json.JSONDecodeError as error:
        raise UsageError(f"{place} is not JSON: {error.msg} at its column {error.colno}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{place} is not JSON that can be read: {fault(error)}") from None


def _text_of(line: Any, place: str) -> str:
    found = next((line[name] for name in FIELDS if isinstance(line.get(name), str)), None) if isinstance(line, dict) else None
    if found is None:
        raise UsageError(f"{place} has none of the fields {', '.join(FIELDS)} with text in it")
    text = str(found)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"the text in {place} holds the lone surrogate U+{ord(text[error.start]):04X}: no character") from None
    return text


def split(documents: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """(to train on, to measure on): of each document the end, so many of its characters or up to twice as many, is held out from a
    paragraph on; where none begins there, from a line or a word. Of short documents, where they are many enough, this share of them is held
    out whole: every twentieth for 0.05."""
    every = round(1 / share)
    short = [document for document in documents if len(document) < SHORT]
    short = short if len(short) >= every else []
    train, held_out = [text for i, text in enumerate(short, 1) if i % every], short[every - 1 :: every]
    for document in documents:
        if short and len(document) < SHORT:
            continue
        first, last = int(len(document) * (1 - 2 * share)), int(len(document) * (1 - share))
        cut = next((at for mark in ("\n\n", "\n", " ") if (at := document.rfind(mark, first, last)) > 0), last)
        train.append(document[:cut])
        held_out.append(document[cut:].lstrip())
    return [text for text in train if text], [text for text in held_out if text]


class Beginnings:
    """Endlessly draws what a prompt may be: text from the beginning of a paragraph on, or of a part of a long one, cut after so many
    tokens."""

    def __init__(self, documents: Sequence[str], tokenizer: Any, seed: int, name: str = "text") -> None:
        """`name`: what errors call it."""
        self.name = name
        self._documents = documents
        self._encode = tokenizer.encode
        self._rng = np.random.default_rng(seed)
        self._starts = [(which, at) for which, document in enumerate(documents) for at in _starts(document)]

    def reach(self, most: int) -> int:
        """The length in tokens, up to `most`, that every other of them has at least; 0 where there is no text."""
        if not self._starts:
            return 0
        places = np.random.default_rng(0).integers(len(self._starts), size=PLACES)
        return sorted(len(self._ids(which, at, most)) for which, at in [self._starts[i] for i in places])[PLACES // 2]

    def draw(self, count: int, length: int) -> list[list[int]]:
        """`count` of them, of exactly `length` tokens. Raises UsageError where the text is too short for it."""
        found: list[list[int]] = []
        for which, at in self._random(count * 20):
            ids = self._ids(which, at, length)
            if len(ids) == length:
                found.append(ids)
            if len(found) == count:
                return found
        raise UsageError(f"there is too little {self.name}: of {count * 20} places hardly any is followed by {length} tokens")

    def _ids(self, which: int, at: int, most: int) -> list[int]:
        """The first tokens of what stands at a place of a document."""
        return list(self._encode(self._documents[which][at : at + most * CHARACTERS_PER_TOKEN])[:most])

    def _random(self, tries: int) -> Iterator[tuple[int, int]]:
        return (self._starts[i] for i in self._rng.integers(len(self._starts), size=tries))


def _starts(document: str) -> Iterator[int]:
    """Where paragraphs begin, and where lines or, without any, words do while a paragraph goes on for more than `LONG` characters. What
    follows has more than white space."""
    end, at, blank = len(document.rstrip()), 0, -1
    while at < end:
        yield at
        if blank < at:
            blank = found if (found := document.find("\n\n", at, end)) >= 0 else end
        at = blank + 2 if blank - at <= LONG else _within(document, at)


def _within(document: str, at: int) -> int:
    """The next line within `LONG` characters, else the last word, else what stands behind them."""
    if (line := document.find("\n", at, at + LONG)) >= 0:
        return line + 1
    return word + 1 if (word := document.rfind(" ", at, at + LONG)) >= 0 else at + LONG
