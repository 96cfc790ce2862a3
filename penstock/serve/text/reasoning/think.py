"""`<think>...</think>` before the answer, as DeepSeek R1, Qwen3 and many after them write it."""
from collections.abc import Callable
from typing import ClassVar

from penstock.serve.text.answer import ContentDelta, Event, ReasoningDelta
from penstock.serve.text.json_object import BLANK
from penstock.serve.text.markup import Openings, StateReader, find_tag
from penstock.serve.text.tools.rules import Wanted


class ThinkParser(StateReader):
    """Reasoning begins with the answer's first word or was opened by the prompt's last; a tag further on is ordinary text.

    What begins with a call within it is reasoning if the reasoning ends, and the answer if that ends itself first: the text from there on
    is held back. Otherwise an answer that ends before its reasoning does has no content.
    """

    markup: ClassVar[tuple[str, ...]] = ("<think>", "</think>")  # the opening and the closing tag

    def __init__(self, prompt: str = "", continued: str = "", calls: Openings = ()) -> None:
        super().__init__(self._read_start)
        self._open, self._close = self.markup
        self._calls = dict(calls)
        thought = self._open_thought(prompt, continued)
        self._opened = thought is not None
        self._goes_on = bool(thought and thought.strip())  # and white space belongs to the thought
        self._begun = False  # whether the reasoning, or after it the content, has shown anything
        self._blank: list[str] = []  # white space before `_held` that may have to be shown
        self._held: list[str] = []  # what begins with a call, up to `_waiting`
        self._behind = ""  # what shows that it does
        self.answer_at: int | None = None

    @classmethod
    def suits(cls, template: str) -> bool:
        return any(tag in template for tag in cls.markup)

    @classmethod
    def rules(cls, prompt: str, special: Callable[[str], int | None] = lambda text: None, continued: str = "") -> str:
        mark, (opening, close) = Wanted([], False, special), cls.markup
        thought = f"({mark.tag(opening)} thought)?" if cls._open_thought(prompt, continued) is None else "thought"
        return "\n".join([
            f"reasoning: {thought} GAP?", "before_calls: reasoning", "GAP: /[ \\t\\r\\n]{1,8}/",
            *(line.replace("TEXT", "THOUGHT") for line in mark.until(close, "thought"))])

    def finish(self, ended: bool = True) -> list[Event]:
        if self._read == self._read_start and not self._opened:
            self.answer_at = 0
        blank, held = "".join(self._blank), [*self._held, self._waiting]
        self._blank.clear()
        self._held.clear()
        self._waiting = ""
        if self._read == self._read_call and ended:
            self._answer_begins(sum(map(len, held)))
            return [ContentDelta(text) for text in held if text]
        text = blank + "".join(held)
        if not text:
            return []
        answers = self._read == self._read_content or (self._read == self._read_start and not self._opened)
        return [ContentDelta(text) if answers else ReasoningDelta(text)]

    def _read_start(self, text: str, events: list[Event]) -> str:
        """The opening tag, or what shows that there is none."""
        begun = self._waiting + text if self._waiting else text.lstrip()
        self._blank.append(text[: len(self._waiting) + len(text) - len(begun)])
        self._waiting = ""
        if begun.startswith(self._open):
            self._read = self._read_reasoning
            self._blank.clear()
            return begun.removeprefix(self._open)
        if self._open.startswith(begun):
            self._waiting = begun
            return ""
        self._read = self._read_reasoning if self._opened else self._read_content
        self._begun = not self._opened or self._goes_on
        self.answer_at = None if self._opened else 0
        text = "".join(self._blank) + begun
        self._blank.clear()
        return text

    def _read_reasoning(self, text: str, events: list[Event]) -> str:
        found = find_tag(self._waiting + text, (self._close, *self._calls))
        self._think(found.before, events)
        self._waiting = found.after if found.tag is None else ""
        if found.tag is None:
            return ""
        if found.tag == self._close:
            return self._end_thought(found.after)
        self._held.append(found.tag)
        self._behind = self._calls[found.tag]
        self._read = self._read_opening
        return found.after

    def _read_opening(self, text: str, events: list[Event]) -> str:
        """Up to what shows whether a call begins."""
        begun = text.lstrip(BLANK)
        self._held.append(text[: len(text) - len(begun)])
        if begun.startswith(self._behind):
            self._read = self._read_call
        elif begun:
            self._release(events)
            self._read = self._read_reasoning
        return begun

    def _read_call(self, text: str, events: list[Event]) -> str:
        found = find_tag(self._waiting + text, (self._close,))
        self._held.append(found.before)
        self._waiting = found.after if found.tag is None else ""
        if found.tag is None:
            return ""
        self._release(events)
        return self._end_thought(found.after)

    def _think(self, text: str, events: list[Event]) -> None:
        shown = text.rstrip()
        blank = text[len(shown) :]
        shown = shown if self._begun else shown.lstrip()
        if shown:
            events.append(ReasoningDelta("".join(self._blank) + shown))
            self._blank.clear()
            self._begun = True
        if self._begun:
            self._blank.append(blank)

    def _release(self, events: list[Event]) -> None:
        """What was held back is reasoning."""
        self._think("".join(self._held), events)
        self._held.clear()

    def _end_thought(self, answer: str) -> str:
        self._blank.clear()
        self._begun = False
        self._read = self._read_content
        self._answer_begins(len(answer))
        return answer

    def _answer_begins(self, left: int) -> None:
        """At so many characters before the end of what was pushed."""
        self.answer_at = self._num_pushed - left

    def _read_content(self, text: str, events: list[Event]) -> str:
        shown = text if self._begun else text.lstrip()
        if shown:
            events.append(ContentDelta(shown))
            self._begun = True
        return ""

    @classmethod
    def _open_thought(cls, prompt: str, continued: str) -> str | None:
        """What has been said of the thought that an answer goes on with; None where it goes on with none."""
        (opening, close), begun = cls.markup, continued.lstrip()
        if begun.startswith(opening) and close not in begun:
            return begun.removeprefix(opening)
        return "" if prompt.rstrip().endswith(opening) else None
