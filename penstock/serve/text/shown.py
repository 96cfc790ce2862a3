"""Messages made to fit a chat template that would pass over something in them.

Templates show what they were written for and are silent about the rest. What one shows is found by rendering the conversation with marks
in it, where it has what templates may pass over: system messages beside or instead of the first, parts of text, tool calls and their
results.
"""
from __future__ import annotations

import json
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

Messages = Sequence[Mapping[str, Any]]
Render = Callable[[list[dict[str, Any]]], str]


@dataclass(frozen=True, slots=True)
class Mark:
    """A `text` that shows where what stands before it does. `at`: its message. `dumps`: how a part of a text looks if it is shown as
    data."""

    text: str
    at: int
    field: str
    dumps: tuple[str, ...] = ()

    def shows_in(self, rendered: str) -> bool:
        return self.text in rendered and not any(dump in rendered for dump in self.dumps)


@dataclass(frozen=True, slots=True)
class Probe:
    """What a template does not show of the marks. Where it `failed`, that is all of them."""

    hidden: Sequence[Mark] = ()
    failed: bool = False


class Marked:
    """A copy of `messages` with a mark behind everything that must show. `parts`: those of a text, too."""

    def __init__(self, messages: Messages, parts: bool) -> None:
        self.marks: list[Mark] = []
        self._word = secrets.token_hex(8)
        self._parts = parts
        self._systems = any(message.get("role") in SYSTEMS for message in messages[1:])
        self.messages = [self._marked(message, at) for at, message in enumerate(messages)]

    def _marked(self, message: Mapping[str, Any], at: int) -> dict[str, Any]:
        copy, role = dict(message), message.get("role")
        content, calls = message.get("content"), message.get("tool_calls")
        must = role == "tool" or self._systems and role in SYSTEMS
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
            self.marks[-1] = replace(self.marks[-1], dumps=(repr(part), json.dumps(part, ensure_ascii=False)))
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
    """One way to give a template the messages. `one_system`: those at the beginning become one."""

    messages: Messages
    form: TemplateForm
    one_system: bool = False

    def shaped(self, messages: Messages) -> list[dict[str, Any]]:
        shaped = for_template(messages, self.form)
        return with_one_system(shaped, self.form) if self.one_system else shaped

    def probe(self, render: Render) -> Probe:
        marked = Marked(self.messages, self.form.parts)
        if not marked.marks:
            return Probe()
        try:
            text = render(self.shaped(marked.messages))
        except RequestError:
            return Probe(marked.marks, failed=True)
        return Probe([mark for mark in marked.marks if not mark.shows_in(text)])

    def joined(self, hidden: Sequence[Mark]) -> Fit:
        """With one system message, where one of several at the beginning is hidden."""
        num_leading = len(leading_systems(self.messages))
        return replace(self, one_system=True) if num_leading > 1 and any(mark.at < num_leading for mark in hidden) else self

    def flat(self, hidden: Sequence[Mark]) -> Fit:
        """With one text instead of parts, where one of them is hidden."""
        places = {mark.at for mark in hidden if mark.dumps}
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


def fitted(messages: Messages, form: TemplateForm, render: Render) -> list[dict[str, Any]]:
    """The messages as the template takes them, with nothing in them that it passes over.

    If it does not show several system messages at the beginning, they become one; if it does not show the parts of a text, they become
    one text; if it fails on a message with calls because that has no content, it gets an empty one. Raises RequestError as `for_template`
    does, and for a system message, a tool call or its result that the template does not show even so. One that fails in any case has
    empty content beside calls, so that its error is about something else.
    """
    plain = for_template(messages, form)
    first = Fit(messages, form)
    fit, probe = first.tried(render)
    for change in (Fit.joined, Fit.flat):
        other = change(fit, probe.hidden)
        if other is not fit:
            fit, probe = other.tried(render)
    if not probe.failed:
        refuse(probe.hidden)
        return plain if fit is first else fit.shaped(fit.messages)
    if not form.calls:
        refuse([mark for mark in probe.hidden if messages[mark.at].get("tool_calls")])
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
