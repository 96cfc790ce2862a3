"""OpenAI's messages as chat templates expect them. What a template cannot be given is refused, never left out."""
from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn

from penstock.core.errors import RequestError
from penstock.core.strict_json import FaultyJsonError, fault

if TYPE_CHECKING:
    from penstock.serve.text.template_form import TemplateForm

PART_SEPARATOR = "\n"  # between text parts where a template takes one string
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


def for_template(messages: Sequence[Mapping[str, Any]], form: TemplateForm) -> list[dict[str, Any]]:
    """Copies of the messages in the form that the template is written for; see TemplateForm.

    Where it shows a message's first call alone, each call is a message, with its results behind it. Where it refuses to show content
    beside thinking, a message with calls has both as thinking, which is how such templates show the content of these messages.

    Keys whose value is None, empty `tool_calls` and `cache_control` marks are left out; a message with calls that the template shows has
    some content all the same, be it empty. Raises RequestError(param="messages") for content that is no text, for tool calls whose
    arguments are no JSON object, and for reasoning that is given twice and differs.
    """
    shaped = []
    for at, message in enumerate(messages):
        left_out = ("cache_control", *(() if message.get("tool_calls") else ("tool_calls",)))
        copy = {key: value for key, value in message.items() if value is not None and key not in left_out}
        if "content" in copy:
            copy["content"] = shape_content(copy["content"], form.parts, form.strings, f"messages[{at}].content")
        if isinstance(copy.get("tool_calls"), list) and not form.json_arguments:
            calls = enumerate(copy["tool_calls"])
            copy["tool_calls"] = [parsed_arguments(call, f"messages[{at}].tool_calls[{n}]") for n, call in calls]
        copy = with_reasoning(copy, f"messages[{at}]")
        shaped.append(with_one_text(copy) if form.one_text and copy.get("tool_calls") else copy)
    shaped = with_single_calls(shaped) if form.first_call else shaped
    return [with_content(message, form) if form.calls and message.get("tool_calls") else message for message in shaped]


def has_calls(messages: Sequence[Mapping[str, Any]]) -> bool:
    return any(message.get("tool_calls") for message in messages)


def shape_content(content: Any, parts: bool, strings: bool, where: str) -> str | list[dict[str, str]]:
    """Content as one string, or as text parts where the template goes through parts."""
    if isinstance(content, str):
        return content if strings else [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise RequestError(f"{where} must be a string or a list of text parts, not {type(content).__name__}", param="messages")
    texts = [text_of(part, f"{where}[{n}]") for n, part in enumerate(content)]
    return [{"type": "text", "text": text} for text in texts] if parts else PART_SEPARATOR.join(texts)


def text_of(part: Any, where: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else type(part).__name__
    if kind != "text":
        raise RequestError(f"{where} is of type {kind!r}; only parts of type 'text' are read", param="messages")
    text = part.get("text")
    if not isinstance(text, str):
        raise RequestError(f"{where} has no text", param="messages")
    return text


def parsed_arguments(call: Any, where: str) -> Any:
    """The tool call with its arguments, which OpenAI's API writes as JSON text, as an object."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    try:
        arguments = read_arguments(function["arguments"] or "{}")
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where}.function.arguments is not JSON that can be read: {fault(error)}", param="messages") from None
    if not isinstance(arguments, dict):
        raise RequestError(f"{where}.function.arguments is not a JSON object", param="messages")
    return {**call, "function": {**function, "arguments": arguments}}


def read_arguments(text: str) -> Any:
    """JSON, as lenient as parsers of answers are: of a name that stands twice in one object the last counts, and numbers that are too large
    are infinite. Raises ValueError and RecursionError as json does, and for NaN and Infinity as words."""
    return json.loads(text, parse_int=whole, parse_constant=no_constant)


def whole(text: str) -> int | float:
    try:
        return int(text)
    except ValueError:  # Python's limit on the digits of an integer
        return float(text)


def no_constant(name: str) -> NoReturn:
    raise FaultyJsonError(f"{name} is no JSON number")


def with_content(message: dict[str, Any], form: TemplateForm) -> dict[str, Any]:
    """The message with content, where it has none: none at all if the template asks for that, else an empty one."""
    return message if message.get("content") else {**message, "content": None if form.nones else "" if form.strings else []}


def with_reasoning(message: dict[str, Any], where: str) -> dict[str, Any]:
    """Reasoning goes by several names; templates read `reasoning_content` or `thinking`."""
    given = [name for name in REASONING_FIELDS if name in message]
    for name in given[1:]:
        if message[name] != message[given[0]]:
            raise RequestError(f"{where}.{name} and {where}.{given[0]} differ; give one of them", param="messages")
    return {"thinking": message[given[0]], **message, "reasoning_content": message[given[0]]} if given else message


def with_one_text(message: dict[str, Any]) -> dict[str, Any]:
    """The message with its content behind its thinking, where it has both."""
    thinking, content = message.get("thinking"), message.get("content")
    if not thinking or not content or not isinstance(content, str):
        return message
    both = f"{thinking}{PART_SEPARATOR}{content}"
    return {**{key: value for key, value in message.items() if key != "content"}, **dict.fromkeys(("thinking", "reasoning_content"), both)}


def with_single_calls(messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """A message of several calls as one message for each, what else it has in the first. Behind each stand its results, which name it by
    its id; behind the last, those that name none."""
    single: list[dict[str, Any]] = []
    at = 0
    while at < len(messages):
        message = messages[at]
        at += 1
        calls = message.get("tool_calls")
        if not isinstance(calls, list) or len(calls) < 2:
            single.append(message)
            continue
        results = list(takewhile(lambda each: each.get("role") == "tool", map(messages.__getitem__, range(at, len(messages)))))
        at += len(results)
        owned = results_by_call(calls, results)
        for n, (call, own) in enumerate(zip(calls, owned, strict=True)):
            single += [{**(message if n == 0 else {"role": message["role"]}), "tool_calls": [call]}, *own]
    return single


def results_by_call(calls: Sequence[Any], results: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Of each call, the results that name it; of the last, those that name no other as well."""
    places: dict[Any, int] = {}
    for n, call in enumerate(calls):
        call_id = call.get("id") if isinstance(call, dict) else None
        if isinstance(call_id, Hashable) and call_id is not None:
            places.setdefault(call_id, n)
    owned: list[list[dict[str, Any]]] = [[] for _ in calls]
    for result in results:
        name = result.get("tool_call_id")
        owned[places.get(name, -1) if isinstance(name, Hashable) else -1].append(result)
    return owned
