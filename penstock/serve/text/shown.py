"""Messages made to fit a chat template that would pass over something in them.

Templates show what they were written for and are silent about the rest. What one shows is found by rendering the conversation with marks
in it, where it has what templates may pass over: system messages beside or instead of the first, parts of text, tool calls and their
results. A system message that is alone is marked where the template does not show one in the shortest conversation.
"""
from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from penstock.core.errors import RequestError
from penstock.serve.text.messages import PART_SEPARATOR, for_template, shape_content

if TYPE_CHECKING:
    from penstock.serve.text.template_form import TemplateForm

SYSTEMS = ("system", "developer")  # roles
SYSTEM_SEPARATOR = "\n\n"  # between system messages that become one
DATA_ENDS = ("'}", '"}')  # of a part that is shown as data

Messages = Sequence[Mapping[str, Any]]
Render = Callable[[Messages], str]


class ExceededError(RequestError):
    """A rendering that takes too long or prints too much, as the next one would."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A `text` that shows where what stands before it does. `at`: its message. `part`: of a text, with the mark, if it is behind one."""

    text: str
    at: int
    field: str
    part: Mapping[str, str] | None = None

    def is_data(self, rendered: str, ends: Sequence[int]) -> bool:
        """Whether the part that it is in is shown as data. `ends`: of the mark."""
        ends = [end for end in ends if rendered.startswith(DATA_ENDS, end)] if self.part else ()
        dumps = (repr(self.part), json.dumps(self.part, ensure_ascii=False)) if ends else ()
        return any(rendered.endswith(dump, 0, end + len(DATA_ENDS[0])) for end in ends for dump in dumps)


@dataclass(frozen=True, slots=True)
class Probe:
    """What a template does not show of the marks: those that are `absent`, all of them where it `failed`, and those of parts that it
    shows as data."""

    absent: Sequence[Mark] = ()
    data: Sequence[Mark] = ()
    failed: bool = False


class Marked:
    """A copy of `messages` with a mark behind everything that must show. `parts`: those of a text, too. `alone`: a system message without
    others, too."""

    def __init__(self, messages: Messages, parts: bool, alone: bool) -> None:
        self.marks: list[Mark] = []
        self._word = secrets.token_hex(8)
        self._parts = parts
        self._systems = alone or any(message.get("role") in SYSTEMS for message in messages[1:])
        self.messages = [self._marked(message, at) for at, message in enumerate(messages)]

    def found_in(self, rendered: str) -> Probe:
        ends: dict[str, list[int]] = {}
        for found in re.finditer(f"{self._word}x[0-9]+x", rendered):
            ends.setdefault(found[0], []).append(found.end())
        absent = [mark for mark in self.marks if mark.text not in ends]
        return Probe(absent, [mark for mark in self.marks if mark.is_data(rendered, ends.get(mark.text, ()))])

    def _marked(self, message: Mapping[str, Any], at: int) -> dict[str, Any]:
        copy, role = dict(message), message.get("role")
        content, calls = message.get("content"), message.get("tool_calls")
        must = role == "tool" or self._systems and role in SYSTEMS and bool(content)
        if isinstance(content, list) and (must or self._parts):
            copy["content"] = [self._marked_part(part["text"], at) for part in content]
        elif isinstance(content, str) and must:
            copy["content"] = content + self._mark(at, "content")
        if isinstance(calls, list):
            copy["tool_calls"] = [self._marked_call(call, at, n) for n, call in enumerate(calls)]
        return copy

    def _marked_part(self, text: str, at: int) -> dict[str, str]:
        part = {"type": "text", "text": text + self._mark(at, "content")}
        if self._parts:
            self.marks[-1] = replace(self.marks[-1], part=part)
        return part

    def _marked_call(self, call: Any, at: int, n: int) -> Any:
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str):
            return call
        return {**call, "function": {**function, "name": function["name"] + self._mark(at, f"tool_calls[{n}]")}}

    def _mark(self, at: int, what: str) -> str:
        self.marks.append(Mark(f"{self._word}x{len(self.marks)}x", at, f"messages[{at}].{what}"))
        return self.marks[-1].text


@dataclass(frozen=True, slots=True)
class Fit:
    """One way to give a template the messages. `alone`: as in Marked. `one_system`: those at the beginning become one."""

    messages: Messages
    form: TemplateForm
    alone: bool = False
    one_system: bool = False

    def shaped(self, messages: Messages) -> list[dict[str, Any]]:
        shaped = for_template(messages, self.form)
        return with_one_system(shaped, self.form) if self.one_system else shaped

    def probe(self, render: Render) -> Probe:
        """Raises ExceededError."""
        marked = Marked(self.messages, self.form.parts, self.alone)
        if not marked.marks:
            return Probe()
        try:
            text = render(self.shaped(marked.messages))
        except ExceededError:
            raise
        except RequestError:
            return Probe(marked.marks, failed=True)
        return marked.found_in(text)

    def joined(self, probe: Probe) -> Fit:
        """With one system message, where one of several at the beginning is absent."""
        num_leading = len(leading_systems(self.messages))
        return replace(self, one_system=True) if num_leading > 1 and any(mark.at < num_leading for mark in probe.absent) else self

    def flat(self, probe: Probe) -> Fit:
        """With one text instead of parts, where one of them is absent or data."""
        places = {mark.at for mark in (*probe.absent, *probe.data) if mark.part}
        flat = [{**message, "content": text_of_content(message["content"])} if at in places else message
                for at, message in enumerate(self.messages)]
        return replace(self, messages=flat) if places else self

    def tried(self, render: Render) -> tuple[Fit, Probe]:
        """Itself, or the same with empty content instead of none beside calls, if the template fails on that alone; and what it hides."""
        probe = self.probe(render)
        if probe.failed and self.form.nones:
            filled = replace(self, form=replace(self.form, nones=False))
            other = filled.probe(render)
            return (self, probe) if other.failed else (filled, other)
        return self, probe


def shows_alone(role: str, form: TemplateForm, render: Render) -> bool:
    """Whether a template shows a system message of this role that is alone before a user's. Raises ExceededError."""
    probe = Fit([{"role": role, "content": "Be kind."}, {"role": "user", "content": "Hi"}], form, alone=True).probe(render)
    return not (probe.absent or probe.data)


def fitted(messages: Messages, form: TemplateForm, render: Render, alone: bool) -> list[dict[str, Any]]:
    """The messages as the template takes them, with nothing in them that it passes over. `alone`: as in Marked.

    If it does not show several system messages at the beginning, they become one; if it does not show the parts of a text, they become
    one text; if it fails on a message with calls because that has no content, it gets an empty one. Raises RequestError as `for_template`
    does, and for a system message, a tool call or its result that the template does not show even so; ExceededError as `render` does. One
    that fails in any case has empty content beside calls, so that its error is about something else.
    """
    plain = for_template(messages, form)
    first = Fit(messages, form, alone)
    fit, probe = first.tried(render)
    for change in (Fit.joined, Fit.flat):
        other = change(fit, probe)
        if other is not fit:
            fit, probe = other.tried(render)
    if not probe.failed:
        refuse([*probe.absent, *probe.data])
        return plain if fit is first else fit.shaped(fit.messages)
    if not form.calls:
        refuse([mark for mark in probe.absent if messages[mark.at].get("tool_calls")])
    return for_template(messages, replace(form, nones=False))


def refuse(hidden: Sequence[Mark]) -> None:
    """Raises RequestError where there is something hidden."""
    if hidden:
        message = f"{hidden[0].field} cannot be given to this model: its chat template does not show it here"
        raise RequestError(f"{message}; --chat-template FILE can set one that does", param="messages")


def leading_systems(messages: Messages) -> list[Mapping[str, Any]]:
    return list(takewhile(lambda message: message.get("role") in SYSTEMS, messages))


def with_one_system(shaped: Sequence[dict[str, Any]], form: TemplateForm) -> list[dict[str, Any]]:
    leading = leading_systems(shaped)
    text = SYSTEM_SEPARATOR.join([text_of_content(message.get("content")) for message in leading])
    content = shape_content(text, form.parts, form.strings, "content")
    return [{**leading[0], "content": content}, *shaped[len(leading) :]]


def text_of_content(content: str | Sequence[Mapping[str, str]] | None) -> str:
    return content if isinstance(content, str) else PART_SEPARATOR.join([part["text"] for part in content or ()])
