"""Explicit prompt caching: `cache_control` on a message part, a message or a tool pins the prompt up to the end of it.

Where that end lies in the rendered prompt depends on the template, so it is found by rendering once more with something added
behind it: what both renderings have in common ends there. Works for any template that shows the marked text.
"""
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import RequestError
from penstock.core.prefix import num_common
from penstock.core.types import CacheMark
from penstock.serve.text.chat import absent_character

MAX_MARKS = 4
TTL_S = {"5m": 300.0, "1h": 3600.0}
DEFAULT_TTL = "5m"

Messages = Sequence[Mapping[str, Any]]
Tools = Sequence[Mapping[str, Any]] | None
Render = Callable[[Messages, Tools], str]


@dataclass(frozen=True, slots=True)
class Marked:
    """One `cache_control`: what it is on, by name and as the place behind it; `part` -1: a message's whole content."""

    name: str
    ttl_s: float
    tool: int | None = None
    message: int = 0
    part: int = -1


def cache_marks(messages: Messages, tools: Tools, render: Render, encode: Callable[[str], list[int]]) -> tuple[CacheMark, ...]:
    """The marked prefixes of the prompt `encode(render(messages, tools))`, shortest first; of equal ones the longest lived.

    Raises RequestError for more than MAX_MARKS marks, a mark that is not {"type": "ephemeral", "ttl": "5m" or "1h"}, and a mark
    on something that the chat template does not show.
    """
    marked = [*tool_marks(tools or ()), *message_marks(messages)]
    if len(marked) > MAX_MARKS:
        many = f"a request may have {MAX_MARKS} cache_control marks, not {len(marked)}"
        raise RequestError(f"{marked[MAX_MARKS].name}: {many}", param="messages")
    if not marked:
        return ()
    prompt = render(messages, tools)
    token_ids = encode(prompt)
    stranger = absent_character([list(messages), list(tools or ()), prompt])
    ttl_s: dict[int, float] = {}
    for mark in marked:
        changed = render(*changed_behind(mark, messages, tools, stranger))
        if changed == prompt:
            raise RequestError(f"{mark.name}: the chat template does not show what it marks", param="messages")
        num_tokens = num_common(token_ids, encode(prompt[: num_common(prompt, changed)]))
        ttl_s[num_tokens] = max(mark.ttl_s, ttl_s.get(num_tokens, 0.0))
    return tuple(CacheMark(num_tokens, ttl_s[num_tokens]) for num_tokens in sorted(ttl_s) if num_tokens)


def tool_marks(tools: Sequence[Mapping[str, Any]]) -> Iterator[Marked]:
    for at, tool in enumerate(tools):
        if tool.get("cache_control") is not None:
            name = f"tools[{at}].cache_control"
            yield Marked(name, time_to_live(tool["cache_control"], name), tool=at)


def message_marks(messages: Messages) -> Iterator[Marked]:
    for at, message in enumerate(messages):
        content = message.get("content")
        for n, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, dict) and part.get("cache_control") is not None:
                name = f"messages[{at}].content[{n}].cache_control"
                yield Marked(name, time_to_live(part["cache_control"], name), message=at, part=n)
        if message.get("cache_control") is not None:
            name = f"messages[{at}].cache_control"
            if not content:
                raise RequestError(f"{name}: the message has no content to mark", param="messages")
            yield Marked(name, time_to_live(message["cache_control"], name), message=at)


def time_to_live(control: Any, name: str) -> float:
    """Seconds. Raises RequestError for anything but Anthropic's form."""
    ttl = control.get("ttl", DEFAULT_TTL) if isinstance(control, dict) else None
    if not isinstance(ttl, str) or ttl not in TTL_S or control.get("type") != "ephemeral" or not control.keys() <= {"type", "ttl"}:
        allowed = " or ".join(f'"{word}"' for word in TTL_S)
        raise RequestError(f'{name} must be {{"type": "ephemeral"}}, with a "ttl" of {allowed} or none', param="messages")
    return TTL_S[ttl]


def changed_behind(mark: Marked, messages: Messages, tools: Tools, stranger: str) -> tuple[Messages, Tools]:
    """The same request with something else directly behind the mark, and all before it unchanged."""
    if mark.tool is not None:
        return messages, changed_tools(tools or (), mark.tool)
    message = messages[mark.message]
    content = message["content"]
    if isinstance(content, list):
        part = content[mark.part]
        at = range(len(content))[mark.part]
        content = [*content[:at], {**part, "text": f"{part.get('text', '')}{stranger}"}, *content[at + 1 :]]
    else:
        content = f"{content}{stranger}"
    return [*messages[: mark.message], {**message, "content": content}, *messages[mark.message + 1 :]], tools


def changed_tools(tools: Sequence[Mapping[str, Any]], at: int) -> Tools:
    """Without the tools behind this one; where there are none, with it once more."""
    return tools[: at + 1] if at + 1 < len(tools) else [*tools, tools[at]]
