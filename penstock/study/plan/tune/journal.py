"""What was found so far, in a file of JSON lines: a search that is run again finds there what it would have to measure, and goes on.

The first line holds the arguments, and what was so when the search began. A line is on the disk before its answer is used; half a line at
the end, as a crash leaves it, is taken away. A file without an answer is as good as none, and is removed in the end.
"""
import fcntl
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from penstock.core.errors import PenstockError, UsageError

FORMAT = 1
BEGINS = b'{"format": '
Found = dict[str, Any]


class Journal:
    """`num_recalled` answers came out of the file, `num_made` were made. `begun`: numbers as they were when the search began, whatever they
    are when it goes on."""

    def __init__(self, path: Path, asked: Mapping[str, Any], restart: bool = False, begun: Mapping[str, int] | None = None) -> None:
        """`asked`: the arguments, by the names that a user knows. `restart` forgets what the file holds. `begun`: as it is now.

        Raises UsageError where the file is of other arguments, is none of ours or is in use, PenstockError where it cannot be written.
        """
        self.path = path
        self.num_recalled = self.num_made = 0
        self.begun = dict(begun or {})
        try:
            self._file: BinaryIO = open(path, "ab+")  # noqa: SIM115
        except OSError as error:
            raise PenstockError(f"cannot write {path}: {error.strerror}") from None
        try:
            self._lock()
            self._found = self._begin(json.loads(json.dumps(asked)), restart)
        except BaseException:
            with suppress(OSError):
                self._file.close()
            raise

    def recall(self, key: str, make: Callable[[], Found]) -> Found:
        """What is kept under this key; else it is made and kept."""
        if key in self._found:
            self.num_recalled += 1
            return self._found[key]
        found = make()
        self._write({"key": key, "found": found})
        self._found[key] = found
        self.num_made += 1
        return found

    def check(self, read: Callable[[str, Any], Any]) -> None:
        """`read` takes a key and what is kept under it, and raises TypeError, LookupError, ValueError or RecursionError for what was never
        made. Raises UsageError where that is what is kept."""
        for key, found in self._found.items():
            try:
                read(key, found)
            except (TypeError, LookupError, ValueError, RecursionError):
                raise UsageError(
                    f"{self.path} holds an invalid answer for {key}: give another --output, or --restart to start over") from None

    def __len__(self) -> int:
        return len(self._found)

    def close(self) -> None:
        if not self._file.closed and not self._found:
            with suppress(OSError):
                self.path.unlink()
        with suppress(OSError):  # of a line that could not be written: all others are on the disk
            self._file.close()

    def __enter__(self) -> "Journal":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"{self.path} is in use by another penstock tune: give this one another --output") from None
        except OSError as error:
            raise PenstockError(f"cannot lock {self.path}: {error.strerror}: give an --output on another file system") from None

    def _begin(self, asked: Mapping[str, Any], restart: bool) -> dict[str, Found]:
        """Raises UsageError, naming what differs, for a file of other arguments."""
        self._file.seek(0)
        content = b"" if restart else self._file.read()
        whole = content[: content.rfind(b"\n") + 1]
        if not whole and not content.startswith(BEGINS[: len(content)]):
            raise self._foreign()
        lines = [self._line(number, line) for number, line in enumerate(whole.splitlines(), 1)]
        head: Mapping[str, Any] = lines[0] if lines else {"format": FORMAT, "asked": asked}
        if head.get("format") != FORMAT or not isinstance(head.get("asked"), dict):
            raise self._foreign()
        if len(lines) < 2:
            self._file.truncate(0)
            self._write({"format": FORMAT, "asked": asked, "begun": self.begun})
            return {}
        self._check(head["asked"], asked)
        self.begun |= self._begun(head.get("begun", {}))  # none in files of earlier versions
        self._file.truncate(len(whole))
        return {line["key"]: line["found"] for line in lines[1:]}

    def _line(self, number: int, text: bytes) -> dict[str, Any]:
        """The first is the head, the others are answers."""
        found: Any = None
        with suppress(ValueError, RecursionError):
            found = json.loads(text)
        if number == 1 and not isinstance(found, dict):
            raise self._foreign()
        if number > 1 and not (isinstance(found, dict) and isinstance(found.get("key"), str) and "found" in found):
            raise UsageError(f"line {number} of {self.path} is no answer of a search: give another --output, or --restart to start over")
        return dict(found)

    def _begun(self, told: Any) -> dict[str, int]:
        if not isinstance(told, dict) or not all(name in self.begun and type(number) is int for name, number in told.items()):
            raise self._foreign()
        return told

    def _foreign(self) -> UsageError:
        return UsageError(f"{self.path} is not the state of a search: give another --output, or --restart to overwrite it")

    def _check(self, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
        differing = [name for name in {**before, **now} if before.get(name) != now.get(name)]
        if differing:
            told = " and ".join(said(name, before.get(name), now.get(name)) for name in differing)
            raise UsageError(f"{self.path} was begun {told}: give another --output, or --restart to start over")

    def _write(self, line: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(line).encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise PenstockError(f"cannot write {self.path}: {error.strerror}") from None


def said(name: str, before: Any, now: Any) -> str:
    """How an argument differs. None: it was not given."""
    was, is_ = (value if isinstance(value, str) else json.dumps(value) for value in (before, now))
    if before is None:
        return f"without {name}, not with {is_}"
    return f"with {name} {was}, not {'without' if now is None else is_}"
