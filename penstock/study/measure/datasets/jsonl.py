"""A file with a JSON object a line: a `prompt` (text or token ids), `messages`, or `turns` (what a user says, one after the other).

`max_tokens` of a line, or `max_completion_tokens`, is the length of its answer, else the option `output` is.
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

LENGTHS = ("max_tokens", "max_completion_tokens")  # one length, by its old name and by chat's
KINDS = "prompt (a string or token ids), messages (role and content) or turns (strings)"
GZIP = b"\x1f\x8b"  # what a gzipped file begins with


@dataclass(frozen=True, slots=True)
class JsonlOptions:
    path: str = ""
    output: int = 128  # tokens, where a line does not say


class Jsonl:
    Options = JsonlOptions
    has_times = False

    def __init__(self, options: JsonlOptions, writer: Writer, seed: str, lines: "Lines | None" = None) -> None:
        """`lines`: of the file, where there are any already."""
        if options.output < 1:
            raise UsageError(f"jsonl: output must be at least 1, not {options.output}")
        self._options = options
        self._writer = writer
        self._lines = Lines(options.path, "jsonl") if lines is None else lines

    def sessions(self) -> Iterator[Session]:
        for at, told in self._lines:
            yield Session(self._turns(told, at))

    def anew(self, writer: Writer, seed: str) -> "Jsonl":
        return Jsonl(self._options, writer, seed, self._lines)

    def notes(self) -> list[str]:
        return []

    def _turns(self, told: Any, at: str) -> tuple[Turn, ...]:
        given = [name for name in ("prompt", "messages", "turns") if isinstance(told, dict) and name in told]
        if len(given) != 1:
            raise UsageError(f"{at}: a line has one of {KINDS}, not {', '.join(given) or 'none'}")
        num_output = self._length(told, at)
        value = told[given[0]]
        if given == ["prompt"]:
            return (self._completion(value, num_output, at),)
        if given == ["messages"]:
            return (Turn(messages=messages_of(value, at), num_output=num_output),)
        if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
            raise UsageError(f"{at}: turns are a list of strings, not {value!r:.60}")
        return tuple(Turn(messages=({"role": "user", "content": each},), num_output=num_output) for each in value)

    def _length(self, told: dict[str, Any], at: str) -> int:
        lengths = {name: told[name] for name in LENGTHS if name in told}
        for name, value in lengths.items():
            if type(value) is not int or value < 1:
                raise UsageError(f"{at}: {name} must be a whole number from 1 on, not {value!r}")
        if len(set(lengths.values())) > 1:
            raise UsageError(f"{at}: {' and '.join(f'{name} = {value}' for name, value in lengths.items())} differ: give one of them")
        return next(iter(lengths.values()), self._options.output)

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


class Lines:
    """Those of a file of JSON that are not empty, as (where it stands, value). The file is read once, when the first line is wanted."""

    def __init__(self, path: str, owner: str, text: str | None = None) -> None:
        """`text`: of the file, where it was read already."""
        self._path, self._owner = path, owner
        self._lines = None if text is None else lines_of(text)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        """Raises UsageError for a line that is not JSON, or a file without any."""
        if self._lines is None:
            self._lines = lines_of(read_text(self._path, self._owner))
        found = False
        for number, line in enumerate(self._lines, 1):
            if not line.strip():
                continue
            try:
                yield f"{self._path}:{number}", json.loads(line)
            except (ValueError, RecursionError) as error:
                raise UsageError(f"{self._path}:{number} is not JSON: {error}") from None
            found = True
        if not found:
            raise UsageError(f"{self._owner}: {self._path} has no lines")


def lines_of(text: str) -> list[str]:
    return text.split("\n")  # not splitlines: JSON strings may hold U+2028
