"""Where a prompt comes from: -p TEXT, a file, or standard input."""
import re
import sys
from pathlib import Path

from penstock.core.errors import UsageError

STDIN = "-"


def read_prompt(text: str | None, path: str | None, example: str) -> str:
    """The text given, or that of the file; `-` is standard input, and so is nothing at all where that is no terminal. The line end that
    ends a file is not of the prompt. Raises UsageError, with `example`, where there is no prompt."""
    if None not in (text, path):
        raise UsageError("-p TEXT and --prompt-file PATH both give a prompt: leave one of them out")
    if text is not None and text != STDIN:
        return text
    if path is not None and path != STDIN:
        return decoded(bytes_of(path), path, example)
    if sys.stdin is None or (text is path is None and sys.stdin.isatty()):
        raise UsageError(f"there is no prompt: give one with -p TEXT, as in: {example}")
    return decoded(sys.stdin.buffer.read(), "standard input", example)


def bytes_of(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"cannot read --prompt-file {path}: {error.strerror}") from None


def decoded(data: bytes, source: str, example: str) -> str:
    text = re.sub(r"\r?\n\Z", "", as_text(data, source))
    if not text:
        raise UsageError(f"there is no prompt: {source} is empty; give one with -p TEXT, as in: {example}")
    return text


def as_text(data: bytes, source: str) -> str:
    """Raises UsageError for what is not UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"{source} is not UTF-8: byte {error.start} is 0x{data[error.start]:02x}") from None
