"""Channels, as gpt-oss writes them: `<|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...`.

Of the analysis, reasoning is made; of the other channels, content. A message to a recipient, a call, stays as it is written, markup
included: no tool parser reads this format yet.
"""
from collections.abc import Callable
from typing import ClassVar

from penstock.serve.text.answer import ContentDelta, Event, ReasoningDelta
from penstock.serve.text.markup import find_tag
from penstock.serve.text.tools.rules import Wanted

START, CHANNEL, MESSAGE, END = "<|start|>", "<|channel|>", "<|message|>", "<|end|>"
ENDS = (END, "<|return|>", "<|call|>", START)
ANALYSIS, RECIPIENT = "analysis", " to="
HEADS = (START, CHANNEL, RECIPIENT)  # what an answer in channels begins with
MAX_HEADER = 256  # characters


class HarmonyParser:
    """An answer that begins with no markup is content, all of it."""

    needs_special_tokens: ClassVar[bool] = True

    def __init__(self, prompt: str = "") -> None:
        self._waiting = ""  # may be markup
        self._num_pushed = 0
        head = open_message(prompt)
        self._thinks = head is not None and is_analysis(head)
        self._calls = False
        self._read = self._read_start if head is None else self._read_message
        self.answer_at: int | None = None if head is None or self._thinks else 0

    @classmethod
    def suits(cls, template: str) -> bool:
        return CHANNEL in template and MESSAGE in template

    @classmethod
    def rules(cls, prompt: str, special: Callable[[str], int | None] = lambda text: None) -> str:
        mark, head = Wanted([], False, special), open_message(prompt)
        final = f'{mark.tag(CHANNEL)} "final" {mark.tag(MESSAGE)}'
        if head is None:
            whole = f'({mark.tag(CHANNEL)} "{ANALYSIS}" {mark.tag(MESSAGE)} thought {mark.tag(START)} "assistant")? {final}'
        else:
            whole = f'thought {mark.tag(START)} "assistant" {final}' if is_analysis(head) else '""'
        return "\n".join([f"reasoning: {whole}", *(line.replace("TEXT", "THOUGHT") for line in mark.until(END, "thought"))])

    def push(self, text: str) -> list[Event]:
        events: list[Event] = []
        self._num_pushed += len(text)
        while text:
            text = self._read(text, events)
        return events

    def finish(self) -> list[Event]:
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
        head, tag, after = found.before, found.tag, found.after
        if len(head) > MAX_HEADER:  # no header, whatever follows
            self._waiting, self._read = "", self._read_plain
            rest = head + (tag or "") + after
            self._answer_begins(len(rest))
            return rest
        if tag is None:
            self._waiting = head + after
            return ""
        self._waiting, self._read = "", self._read_message
        self._thinks = is_analysis(head)
        self._calls = not self._thinks and RECIPIENT in head
        if not self._thinks:
            self._answer_begins(len(head + tag + after) if self._calls else len(after))
        if self._calls:
            events.append(ContentDelta(head + tag))
        return after

    def _read_message(self, text: str, events: list[Event]) -> str:
        found = find_tag(self._waiting + text, ENDS)
        self._waiting = ""
        shown = found.before + (found.tag if self._calls and found.tag not in (None, START) else "")
        if shown:
            events.append(self._said(shown))
        if found.tag is None:
            self._waiting = found.after
            return ""
        self._read, self._thinks = self._read_header, False
        return START + found.after if found.tag == START else found.after


def open_message(prompt: str) -> str | None:
    """The header of the message in which a prompt ends; None where it has no such message."""
    last = prompt.rpartition(START)[2]
    head, tag, body = last.partition(MESSAGE)
    return head if tag and not any(end in body for end in ENDS) else None


def is_analysis(head: str) -> bool:
    return head.partition(CHANNEL)[2].startswith(ANALYSIS)
