"""Finding tags in a stream of text: what is certainly no tag goes on, what may become one waits."""
from collections.abc import Callable
from dataclasses import dataclass

from penstock.serve.text.answer import ContentDelta, Event
from penstock.serve.text.json_object import BLANK

Openings = tuple[tuple[str, str], ...]  # tags, and of each the character that must come behind it, after white space or none; "": any


@dataclass(frozen=True, slots=True)
class Found:
    """The first of some tags in a text. Without one, `before` is what certainly belongs to none, and `after` what waits for more."""

    before: str
    tag: str | None
    after: str


def find_tag(text: str, tags: tuple[str, ...]) -> Found:
    at, tag = min(((text.find(tag), tag) for tag in tags if tag in text), default=(-1, None))
    if tag is not None:
        return Found(text[:at], tag, text[at + len(tag) :])
    edge = len(text) - max((num_begun(text, tag) for tag in tags), default=0)
    return Found(text[:edge], None, text[edge:])


def num_begun(text: str, tag: str) -> int:
    """How many characters at the end of `text` are the beginning of `tag`, but not all of it."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(tag[:n])), 0)


Read = Callable[[str, list[Event]], str]


class StateReader:
    """A parser whose states are methods: each reads what it can of a text, adds to the events, and returns the rest to the state that
    it has set, which may be itself. What waits for more text is kept in `_waiting`."""

    def __init__(self, start: Read) -> None:
        self._read = start
        self._waiting = ""
        self._num_pushed = 0  # characters

    def push(self, text: str) -> list[Event]:
        events: list[Event] = []
        self._num_pushed += len(text)
        while text:
            text = self._read(text, events)
        return events


class ContentWriter:
    """Ordinary text whose ends are trimmed where markup follows: white space waits until it is known what comes behind it."""

    def __init__(self) -> None:
        self._blank: list[str] = []

    def write(self, text: str) -> list[Event]:
        shown = text.rstrip()
        events: list[Event] = []
        if shown:
            events.append(ContentDelta("".join(self._blank) + shown))
            self._blank.clear()
        if len(shown) < len(text):
            self._blank.append(text[len(shown) :])
        return events

    def trim(self) -> None:
        """Markup follows: the white space before it belongs to it."""
        self._blank.clear()

    def finish(self) -> list[Event]:
        text = "".join(self._blank)
        self._blank.clear()
        return [ContentDelta(text)] if text else []


class Begun:
    """Characters, one by one, that may be the beginning of a tag with white space around it. `text`: without that."""

    def __init__(self, tag: str) -> None:
        self.text = ""
        self.ended = False  # whether white space has come behind the text
        self._tag = tag

    def push(self, char: str) -> bool:
        """Whether they still may."""
        if char in BLANK:
            self.ended = bool(self.text)
            return True
        if self.ended:
            return False
        self.text += char
        return self._tag.startswith(self.text)
