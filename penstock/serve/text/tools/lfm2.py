"""LFM2: pythonic calls between tags, `<|tool_call_start|>[f(a=1, b="x")]<|tool_call_end|>`, text before and behind."""
from collections.abc import Sequence
from typing import ClassVar

from penstock.serve.text.answer import ContentDelta, Event
from penstock.serve.text.calls import NewId, new_call_id
from penstock.serve.text.markup import Begun, ContentWriter, Openings, find_tag
from penstock.serve.text.tools.pythonic import PythonicParser
from penstock.serve.text.tools.rules import Function, Wanted

START, END = "<|tool_call_start|>", "<|tool_call_end|>"


class Lfm2Parser(PythonicParser):
    markup: ClassVar[tuple[str, ...]] = (START, END)  # other formats have others
    openings: ClassVar[Openings] = ((START, "["),)
    start: ClassVar[str] = START
    end: ClassVar[str] = END

    def __init__(self, new_id: NewId = new_call_id, sure: bool = False, functions: Sequence[Function] = ()) -> None:
        super().__init__(new_id, sure, functions)
        self._content = ContentWriter()
        self._waiting = ""  # may be the beginning of a tag
        self._begun = False

    @classmethod
    def suits(cls, template: str) -> bool:
        return any(sign in template for sign in (START, "<|tool_list_start|>", "List of tools: ["))  # not all of its templates show calls

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        """Raises RequestError for parameters that cannot be written as keyword arguments."""
        return "\n".join([
            *cls.list_rules(wanted), f"calls: {wanted.tag(cls.start)} rest", f"rest: list {wanted.tag(cls.end)}",
            "answer: opening rest | TEXT?", *wanted.until(cls.start, "opening")])

    def push(self, text: str) -> list[Event]:
        events: list[Event] = []
        while text:
            text = self._read_list(text, events) if self._begun else self._read_content(text, events)
        return events

    def finish(self, ended: bool = True) -> list[Event]:
        events = self._content.write(self._waiting)
        for event in super().finish(ended):
            events += self._content.write(event.text) if isinstance(event, ContentDelta) else [event]
        if self._num_calls:
            self._content.trim()
        return [*events, *self._content.finish()]

    def _read_content(self, text: str, events: list[Event]) -> str:
        """Up to a list, which begins with its tag."""
        found = find_tag(self._waiting + text, (self.start,))
        self._waiting = found.after if found.tag is None else ""
        events += self._content.write(found.before)
        if found.tag is None:
            return ""
        self._begun, self._step, self._tag = True, self._at_start, Begun(self.start)
        return found.tag + found.after

    def _read_list(self, text: str, events: list[Event]) -> str:
        """To the end of a list, or to where it breaks."""
        for at, char in enumerate(text):
            last = self._step
            assert last is not None
            self._raw.append(char)
            self._step = last(char)
            if self._events:
                self._content.trim()
                events += self._events
                self._events = []
            if self._step is None:
                raw, self._raw, self._begun = "".join(self._raw[:-1]), [], False
                if last == self._at_end:  # where another tag may begin like the one that is due
                    return raw + text[at:]
                events += self._content.write(raw)
                return text[at:]
        return ""
