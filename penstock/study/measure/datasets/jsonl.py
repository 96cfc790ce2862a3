"""A file with a JSON object a line: a `prompt` (text or token ids), `messages`, or `turns` (what a user says, one after the other).

`max_tokens` of a line is the length of its answer, else the option `output` is.
"""
import gzip
import io
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.core.errors import UsageError
from penstock.study.measure.load import Session, Turn, Writer

KINDS = "prompt (a string or token ids), messages (role and content) or turns (strings)"
GZIP = b"\x1f\x8b"  # what a gzipped file begins with


@dataclass(frozen=True, slots=True)
class JsonlOptions:
    path: str = ""
    output: int = 128  # tokens, where a line does not say


class Jsonl:
    Options = JsonlOptions
    has_times = False

    def __init__(self, options: JsonlOptions, writer: Writer, seed: str) -> None:
        if options.output < 1:
            raise UsageError(f"jsonl: output must be at least 1, not {options.output}")
        self._options = options
        self._writer = writer

    def sessions(self) -> Iterator[Session]:
        for at, told in json_lines(self._options.path, "jsonl"):
            yield Session(self._turns(told, at))

    def notes(self) -> list[str]:
        return []

    def _turns(self, told: Any, at: str) -> tuple[Turn, ...]:
        given = [name for name in ("prompt", "messages", "turns") if isinstance(told, dict) and name in told]
        if len(given) != 1:
            raise UsageError(f"{at}: a line has one of {KINDS}, not {', '.join(given) or 'none'}")
        num_output = told.get("max_tokens", self._options.output)
        if isinstance(num_output, bool) or not isinstance(num_output, int) or num_output < 1:
            raise UsageError(f"{at}: max_tokens must be a whole number from 1 on, not {num_output!r}")
        value = told[given[0]]
        if given == ["prompt"]:
            return (self._completion(value, num_output, at),)
        if given == ["messages"]:
            return (Turn(messages=messages_of(value, at), num_output=num_output),)
        if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
            raise UsageError(f"{at}: turns are a list of strings, not {value!r:.60}")
        return tuple(Turn(messages=({"role": "user", "content": each},), num_output=num_output) for each in value)

    def _completion(self, prompt: Any, num_output: int, at: str) -> Turn:
        if isinstance(prompt, str) and prompt:
            return Turn(prompt, num_prompt=self._writer.count(prompt), num_output=num_output)
        if isinstance(prompt, list) and prompt and all(type(each) is int and each >= 0 for each in prompt):
            return Turn(tuple(prompt), num_prompt=len(prompt), num_output=num_output)
        raise UsageError(f"{at}: a prompt is a string or a list of token ids, and not empty, not {prompt!r:.60}")


def messages_of(value: Any, at: str) -> tuple[dict[str, str], ...]:
    """Raises UsageError for what is no list of messages."""
    if not isinstance(value, list) or not value:
        raise UsageError(f"{at}: messages are a list of objects with role and content, not {value!r:.60}")
    for message in value:
        if not isinstance(message, dict) or not all(isinstance(message.get(name), str) for name in ("role", "content")):
            raise UsageError(f"{at}: a message is an object with role and content, both strings, not {message!r:.60}")
    return tuple(value)


def read_text(path: str, owner: str) -> str:
    """Plain or gzipped text. Raises UsageError for a file that is not there, is not text, or is cut short."""
    if not path:
        raise UsageError(f"{owner} needs to know the file: {owner}:path=FILE")
    try:
        data = Path(path).read_bytes()
        text = (gzip.decompress(data) if data.startswith(GZIP) else data).decode("utf-8-sig")
        return io.StringIO(text, newline=None).read()  # lines end in "\n", however they end in the file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(f"{owner}: {path} cannot be unpacked: {error}") from None
    except OSError as error:
        raise UsageError(f"{owner}: cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{owner}: {path} is not text in UTF-8") from None


def json_lines(path: str, owner: str) -> Iterator[tuple[str, Any]]:
    """(where it stands, value) of each line that is not empty. Raises UsageError for a line that is not JSON, or a file without any."""
    found = False
    for number, line in enumerate(read_text(path, owner).split("\n"), 1):  # not splitlines: JSON strings may hold U+2028
        if not line.strip():
            continue
        try:
            yield f"{path}:{number}", json.loads(line)
        except (ValueError, RecursionError) as error:
            raise UsageError(f"{path}:{number} is not JSON: {error}") from None
        found = True
    if not found:
        raise UsageError(f"{owner}: {path} has no lines")
