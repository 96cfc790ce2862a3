"""DeepSeek V3 and R1: within one pair of tags calls in pairs of their own, `function<｜tool▁sep｜>f` and a fenced block of JSON in each."""
import re
from collections.abc import Sequence
from typing import ClassVar

from penstock.compute.decoding.grammar.syntax import literal
from penstock.serve.text.answer import Event
from penstock.serve.text.calls import CallReader, NewId, new_call_id
from penstock.serve.text.json_object import BLANK, State
from penstock.serve.text.markup import ContentWriter, Openings, StateReader, find_tag
from penstock.serve.text.tools.rules import Function, Wanted

BEGIN, END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL, SEPARATOR, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"
FENCE = "```"
MAX_HEADER = 256  # characters


class DeepSeekV3Parser(StateReader):
    """Closing tags, and the pair of tags around all calls, may be missing, and so may the arguments of a call that is closed."""

    markup: ClassVar[tuple[str, ...]] = (BEGIN, END, CALL, SEPARATOR, CALL_END)  # other formats have others of these, in this order
    openings: ClassVar[Openings] = ((BEGIN, "<"), (CALL, ""))
    header: ClassVar[re.Pattern[str]] = re.compile(rf"\s*\w+{SEPARATOR}\s*([\w.-]+)\s*(?:{FENCE}(?:json)?\s*)?")
    closing: ClassVar[tuple[str, ...]] = (FENCE, CALL_END)

    def __init__(self, new_id: NewId = new_call_id, sure: bool = False, functions: Sequence[Function] = ()) -> None:
        super().__init__(self._read_content)
        self._content = ContentWriter()
        self._calls = CallReader(new_id, self._content, sure=sure)
        self._begins, self._ends, self._call = self.markup[:3]
        self._opens = (self._begins,) if sure else (self._begins, self._call)  # a grammar says nothing of calls that stand alone
        self._before: list[str] = []  # markup, and white space behind it, that no call has followed yet
        self._due: tuple[str, ...] = ()  # tags that may close the last call

    @classmethod
    def suits(cls, template: str) -> bool:
        return SEPARATOR in template and f"{FENCE}json" in template

    @classmethod
    def rules(cls, wanted: Wanted) -> str:
        begin, end, call, _, call_end = map(wanted.tag, cls.markup)
        return "\n".join([
            f"calls: {begin} rest", f"rest: {wanted.repeated('call', cls.between())} {end}",
            f"call: {call} body {call_end}", f"body: {wanted.one_of(lambda each: cls.written(each, wanted))}",
            "answer: opening rest | TEXT?", *wanted.until(cls.markup[0], "opening")])

    @classmethod
    def between(cls) -> str:
        """Two calls."""
        return literal("\n")

    @classmethod
    def written(cls, function: Function, wanted: Wanted) -> str:
        """A call of the function, without the tags around it."""
        head, tail = literal(f"{function.name}\n{FENCE}json\n"), literal(f"\n{FENCE}")
        return f'"function" {wanted.tag(SEPARATOR)} {head} {function.arguments} {tail}'

    def finish(self, ended: bool = True) -> list[Event]:
        events = [*self._give_back(), *self._content.write(self._waiting), *self._calls.finish()]
        if self._calls.num_calls:
            self._content.trim()
        return [*events, *self._content.finish()]

    def _read_content(self, text: str, events: list[Event]) -> str:
        found = find_tag(self._waiting + text, self._opens)
        events += self._content.write(found.before)
        self._waiting = found.after if found.tag is None else ""
        if found.tag is None:
            return ""
        self._begin(found.tag)
        return found.after

    def _begin(self, tag: str) -> None:
        self._before.append(tag)
        self._read = self._read_header if tag == self._call else self._read_between

    def _read_between(self, text: str, events: list[Event]) -> str:
        """Before a call, or behind one."""
        text = self._waiting + text
        rest = text.lstrip(BLANK)
        self._before.append(text[: len(text) - len(rest)])
        self._waiting = ""
        tags = (self._call, *self._due, *((self._ends,) if self._calls.num_calls else ()))
        tag = next((tag for tag in tags if rest.startswith(tag)), None)
        if tag == self._call:
            self._begin(tag)
        elif tag is not None:
            self._before.clear()
            self._due = self._due[self._due.index(tag) + 1 :] if tag in self._due else ()
            self._read = self._read_content if tag == self._ends else self._read_between
        elif any(tag.startswith(rest) for tag in tags):
            self._waiting = rest
            return ""
        else:
            events += self._give_back()
            self._read = self._read_content
        return rest.removeprefix(tag or "")

    def _read_header(self, text: str, events: list[Event]) -> str:
        """Up to the arguments."""
        text, self._waiting = self._waiting + text, ""
        header, brace, _ = text.partition("{")
        bare, end, _ = header.partition(self.markup[-1])
        if end and self.header.fullmatch(bare):  # a call without arguments
            header, brace, text = bare, "{", f"{bare}{{}}{text[len(bare):]}"
        named = self.header.fullmatch(header) if brace else None
        if named is not None and len(header) <= MAX_HEADER:
            self._begin_call("".join(self._before) + header, named)
            self._before.clear()
            self._read = self._read_call
            return text[len(header) :]
        if not brace and len(header) <= MAX_HEADER:
            self._waiting = text
            return ""
        events += self._give_back()
        self._read = self._read_content
        return text

    def _begin_call(self, markup: str, header: re.Match[str]) -> None:
        self._calls.begin(markup, header[1])

    def _read_call(self, text: str, events: list[Event]) -> str:
        reading = self._calls.read(text)
        events += reading.events
        if reading.state is not State.OPEN:
            is_done = reading.state is State.DONE
            self._due = self.closing if is_done else ()
            self._read = self._read_between if is_done else self._read_content
        return reading.rest

    def _give_back(self) -> list[Event]:
        events = self._content.write("".join(self._before))
        self._before.clear()
        return events
