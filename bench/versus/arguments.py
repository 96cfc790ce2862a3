"""What the options of a benchmark may say. Whatever else they say is refused in one sentence, with exit status 2, before anything is loaded
or measured."""
import argparse
import math
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from penstock.core.errors import PenstockError

T = TypeVar("T")
Refused = argparse.ArgumentTypeError
RECORD = "keep the result in bench/results"  # help of --record


class Parser(argparse.ArgumentParser):
    """Of a script's docstring."""

    def __init__(self, doc: str | None) -> None:
        super().__init__(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")

    def given(self) -> list[str]:
        """Options that the command line names, whatever their values."""
        unsaid, names = object(), [each.dest for each in self._actions]
        found = self.parse_args(namespace=argparse.Namespace(**dict.fromkeys(names, unsaid)))
        return [name for name in names if getattr(found, name) is not unsaid]

    def others(self, args: argparse.Namespace, names: Collection[str]) -> dict[str, Any]:
        """Of these options, those that do not have their defaults."""
        usual = {each.dest: self._get_value(each, each.default) if isinstance(each.default, str) else each.default
                 for each in self._actions if each.dest in names}
        return {name: getattr(args, name) for name in names if getattr(args, name) != usual[name]}

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """What Penstock refuses is an error of the options that named it."""
        try:
            yield
        except PenstockError as error:
            self.error(str(error))


def whole(least: int = 1, most: int | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            raise Refused(f"must be a whole number, not {text!r}") from None
        if value < least:
            raise Refused(f"must be at least {least:,}, not {value:,}")
        if most is not None and value > most:
            raise Refused(f"must be at most {most:,}, not {value:,}")
        return value

    return parse


def amount(above: float | None = None, most: float = math.inf) -> Callable[[str], float]:
    """Greater than `above`, or at least 0 without it."""
    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise Refused(f"must be a number, not {text!r}") from None
        if not math.isfinite(value):
            raise Refused(f"must be finite, not {text}")
        if value < 0 if above is None else value <= above:
            raise Refused(f"must be {'at least 0' if above is None else f'above {above:g}'}, not {value:g}")
        if value > most:
            raise Refused(f"must be at most {most:g}, not {value:g}")
        return value

    return parse


def one_of(known: Collection[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise Refused(f"there is no {text!r}; there are: {', '.join(known)}")
        return text

    return parse


def listed(each: Callable[[str], T], least: int = 1) -> Callable[[str], list[T]]:
    """Separated by commas."""
    def parse(text: str) -> list[T]:
        found = [each(part.strip()) for part in text.split(",") if part.strip()]
        if len(found) < least:
            raise Refused("names nothing")
        return found

    return parse


def said(text: str) -> str:
    """Something."""
    if not text.strip():
        raise Refused("is given no value")
    return text


def file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise Refused(f"{text} is a folder, not a file" if path.is_dir() else f"there is no file {text}")
    return path


def folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise Refused(f"{text} is a file, not a folder" if path.exists() else f"there is no folder {text}")
    return path


def new_folder(text: str) -> Path:
    """One that is there, or can be made."""
    path = Path(text)
    there = next(each for each in (path, *path.absolute().parents) if each.exists())
    if not there.is_dir():
        raise Refused(f"{there} is a file, not a folder")
    return path


def text_file(text: str) -> Path:
    path = file(text)
    try:
        path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{text} cannot be read as UTF-8: {error}") from None
    return path
