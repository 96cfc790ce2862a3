"""Channels, as gpt-oss writes them: `<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...`.

Of the analysis, reasoning is made; of the other channels, content. A call, and any other message to a recipient that is not analysis,
stays as it is written, markup included: the tool parser `harmony` reads it.
"""
from collections.abc import Callable
from typing import ClassVar

from penstock.serve.text.answer import ContentDelta, Event, ReasoningDelta
from penstock.serve.text.harmony import (
    ANALYSIS,
    ASSISTANT,
    CHANNEL,
    END,
    ENDS,
    FINAL,
    MARKUP,
    MAX_HEADER,
    MESSAGE,
    RECIPIENT,
    START,
    called_by,
    is_analysis,
    open_message,
)
from penstock.serve.text.json_object import ObjectReader, State
from penstock.serve.text.markup import Openings, StateReader, find_tag
from penstock.serve.text.tools.rules import Wanted

HEADS = (START, CHANNEL, RECIPIENT)  # what an answer in channels begins with


class HarmonyParser(StateReader):
    """An answer that begins with no markup is content, all of it."""

    markup: ClassVar[tuple[str, ...]] = MARKUP

    def __init__(self, prompt: str = "", continued: str = "", calls: Openings = ()) -> None:
        """`calls` end no thought: here they are messages of their own."""
        header = open_message(prompt)
        super().__init__(self._read_start if header is None else self._read_message)
        self._thinks = header is not None and is_analysis(header)
        self._is_shown = False  # whether the message's markup is
        self._arguments = ObjectReader()  # of a call
        self.answer_at: int | None = None if header is None or self._thinks else 0

    @classmethod
    def suits(cls, template: str) -> bool:
        return CHANNEL in template and MESSAGE in template

    @classmethod
    def rules(cls, prompt: str, special: Callable[[str], int | None] = lambda text: None, continued: str = "") -> str:
        """In a text that the prompt has begun, calls come behind its end."""
        mark, header = Wanted([], False, special), open_message(prompt)
        before = f'thought {mark.tag(START)} "{ASSISTANT}"'
        if header is None:
            before = f'({mark.tag(CHANNEL)} "{ANALYSIS}" {mark.tag(MESSAGE)} {before})?'
        in_text = header is not None and not is_analysis(header)
        return "\n".join([
            "reasoning: " + ('""' if in_text else f'before_calls {mark.tag(CHANNEL)} "{FINAL}" {mark.tag(MESSAGE)}'),
            f"before_calls: {before}", *(line.replace("TEXT", "THOUGHT") for line in mark.until(END, "thought"))])

    def finish(self, ended: bool = True) -> list[Event]:
        """A header that ends without its message tells nothing."""
        text, self._waiting = self._waiting, ""
        if self._read == self._read_start:
            self.answer_at = 0
        if not text or self._read == self._read_header and text.startswith(HEADS):
            return []
        if not self._thinks:
            self._answer_begins(len(text))
        return [self._said(text)]

    def _answer_begins(self, left: int) -> None:
        """At so many characters before the end of what was pushed, unless it has begun."""
        if self.answer_at is None:
            self.answer_at = self._num_pushed - left

    def _said(self, text: str) -> Event:
        return ReasoningDelta(text) if self._thinks else ContentDelta(text)

    def _read_start(self, text: str, events: list[Event]) -> str:
        text, self._waiting = self._waiting + text, ""
        if text.startswith(HEADS):
            self._read = self._read_header
        elif any(head.startswith(text) for head in HEADS):
            self._waiting = text
            return ""
        else:
            self._read, self.answer_at = self._read_plain, 0
        return text

    def _read_plain(self, text: str, events: list[Event]) -> str:
        events.append(ContentDelta(text))
        return ""

    def _read_header(self, text: str, events: list[Event]) -> str:
        found = find_tag(self._waiting + text, (MESSAGE,))
        header, tag, after = found.before, found.tag, found.after
        if len(header) > MAX_HEADER:  # no header, whatever follows
            self._waiting, self._read = "", self._read_plain
            rest = header + (tag or "") + after
            self._answer_begins(len(rest))
            return rest
        if tag is None:
            self._waiting = header + after
            return ""
        is_call = called_by(header) is not None
        self._waiting, self._arguments = "", ObjectReader()
        self._read = self._read_arguments if is_call else self._read_message
        self._thinks = is_analysis(header) and not is_call
        self._is_shown = RECIPIENT in header and not self._thinks
        if not self._thinks:
            self._answer_begins(len(header + tag + after) if self._is_shown else len(after))
        if self._is_shown:
            events.append(ContentDelta(header + tag))
        return after

    def _read_arguments(self, text: str, events: list[Event]) -> str:
        """In their JSON, what is spelled like markup is none."""
        end = len(text)
        for at, char in enumerate(text):
            state = self._arguments.push(char)
            if state is not State.OPEN:
                self._read = self._read_message
                end = at + (state is State.DONE)
                break
        if end:
            events.append(ContentDelta(text[:end]))
        return text[end:]

    def _read_message(self, text: str, events: list[Event]) -> str:
        found = find_tag(self._waiting + text, (*ENDS, START))
        self._waiting = ""
        shown = found.before + (found.tag if self._is_shown and found.tag not in (None, START) else "")
        if shown:
            events.append(self._said(shown))
        if found.tag is None:
            self._waiting = found.after
            return ""
        self._read, self._thinks = self._read_header, False
        return START + found.after if found.tag == START else found.after
