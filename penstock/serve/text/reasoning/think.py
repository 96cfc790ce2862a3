"""`<think>...</think>` before the answer, as DeepSeek R1, Qwen3 and many after them write it."""
from collections.abc import Callable
from typing import ClassVar

from penstock.serve.text.answer import ContentDelta, Event, ReasoningDelta
from penstock.serve.text.markup import StateReader, find_tag
from penstock.serve.text.tools.rules import Wanted


class ThinkParser(StateReader):
    """Reasoning begins with the answer's first word or was opened by the prompt's last; a tag further on is ordinary text.

    A call that begins before its end ends it. An answer that ends before its reasoning does has no content.
    """

    markup: ClassVar[tuple[str, ...]] = ("<think>", "</think>")  # the opening and the closing tag

    def __init__(self, prompt: str = "", continued: str = "", calls: tuple[str, ...] = ()) -> None:
        super().__init__(self._read_start)
        self._open, close = self.markup
        self._ends = (close, *calls)
        thought = self._open_thought(prompt, continued)
        self._opened = thought is not None
        self._goes_on = bool(thought and thought.strip())  # and white space belongs to the thought
        self._begun = False  # whether the reasoning, or after it the content, has shown anything
        self._blank: list[str] = []  # white space before `_waiting` that may have to be shown
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

    def finish(self) -> list[Event]:
        if self._read == self._read_start and not self._opened:
            self.answer_at = 0
        text, self._waiting = "".join(self._blank) + self._waiting, ""
        self._blank.clear()
        if not text:
            return []
        reasoning = self._read == self._read_reasoning or (self._read == self._read_start and self._opened)
        return [ReasoningDelta(text) if reasoning else ContentDelta(text)]

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
        found = find_tag(self._waiting + text, self._ends)
        shown = found.before.rstrip()
        blank = found.before[len(shown) :]
        shown = shown if self._begun else shown.lstrip()
        if shown:
            events.append(ReasoningDelta("".join(self._blank) + shown))
            self._blank.clear()
            self._begun = True
        if found.tag is None:
            if self._begun:
                self._blank.append(blank)
            self._waiting = found.after
            return ""
        self._blank.clear()
        self._waiting, self._begun = "", False
        self._read = self._read_content
        answer = found.after if found.tag == self._ends[0] else found.tag + found.after
        self.answer_at = self._num_pushed - len(answer)
        return answer

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
