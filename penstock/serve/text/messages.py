"""OpenAI's messages as chat templates expect them. What a template cannot be given is refused, never left out."""
import json
from collections.abc import Mapping, Sequence
from typing import Any

from penstock.core.errors import RequestError
from penstock.core.strict_json import fault

PART_SEPARATOR = "\n"  # between text parts where a template takes one string
REASONING_FIELDS = ("reasoning_content", "thinking", "reasoning")


def for_template(messages: Sequence[Mapping[str, Any]], parts: bool, strings: bool, json_arguments: bool) -> list[dict[str, Any]]:
    """Copies of the messages in the form that the template is written for; see TemplateForm.

    Keys whose value is None and `cache_control` marks are left out. Raises RequestError(param="messages") for content that is
    no text and for tool calls whose arguments are no JSON object.
    """
    shaped = []
    for at, message in enumerate(messages):
        copy = {key: value for key, value in message.items() if value is not None and key != "cache_control"}
        if "content" in copy:
            copy["content"] = shape_content(copy["content"], parts, strings, f"messages[{at}].content")
        if isinstance(copy.get("tool_calls"), list) and not json_arguments:
            calls = enumerate(copy["tool_calls"])
            copy["tool_calls"] = [parsed_arguments(call, f"messages[{at}].tool_calls[{n}]") for n, call in calls]
        shaped.append(with_reasoning(copy))
    return shaped


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
        arguments = json.loads(function["arguments"] or "{}")
    except (ValueError, RecursionError) as error:
        raise RequestError(f"{where}.function.arguments is not JSON that can be read: {fault(error)}", param="messages") from None
    if not isinstance(arguments, dict):
        raise RequestError(f"{where}.function.arguments is not a JSON object", param="messages")
    return {**call, "function": {**function, "arguments": arguments}}


def with_reasoning(message: dict[str, Any]) -> dict[str, Any]:
    """Reasoning goes by several names; templates read `reasoning_content` or `thinking`."""
    given = [message[name] for name in REASONING_FIELDS if name in message]
    return {"thinking": given[0], **message, "reasoning_content": given[0]} if given else message
