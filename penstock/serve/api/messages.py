"""OpenAI's messages and tools: every key known, every value of the right type, nothing that the template could not show."""
from collections.abc import Callable, Mapping
from typing import Any

from penstock.core.errors import RequestError
from penstock.serve.api.values import Values, show

ROLES = ("system", "developer", "user", "assistant", "tool")
COMMON = frozenset({"role", "content", "name", "cache_control"})
OF_ROLE = {
    "assistant": frozenset({"tool_calls", "reasoning_content", "reasoning"}),
    "tool": frozenset({"tool_call_id"}),
}
EMPTY = ("refusal", "audio", "function_call", "annotations")  # an answer's fields that come back empty with it
PART_KEYS = frozenset({"type", "text", "cache_control"})
CALL_KEYS = frozenset({"id", "type", "function", "index"})
FUNCTION_KEYS = frozenset({"name", "description", "parameters", "strict"})

ReadTool = Callable[[Any, str], dict[str, Any]]  # a tool, and the field that it is


def read_messages(body: Mapping[str, Any], knows_developer: bool = False) -> list[dict[str, Any]]:
    """The messages as the chat template takes them. `developer` becomes `system` unless the template knows it.

    Raises RequestError(param="messages...") naming the first message and key at fault.
    """
    value = body.get("messages")
    if not isinstance(value, list) or not value:
        raise RequestError(f"messages must be a list of at least 1 message, not {show(value)}", param="messages")
    messages = []
    for at, message in enumerate(value):
        where = f"messages[{at}]"
        if not isinstance(message, dict):
            raise refuse(where, f"must be an object with role and content, not {show(message)}")
        role = message.get("role")
        if not isinstance(role, str) or role not in ROLES:
            raise refuse(f"{where}.role", f"must be one of {', '.join(ROLES)}, not {show(role)}")
        _check_message(message, role, where)
        shown = {key: item for key, item in message.items() if item is not None and key not in EMPTY}
        messages.append({**shown, "role": "system"} if role == "developer" and not knows_developer else shown)
    return messages


def _check_message(message: Mapping[str, Any], role: str, where: str) -> None:
    allowed = COMMON | OF_ROLE.get(role, frozenset())
    values = Values(message, f"{where}.")
    for key, item in message.items():
        if item is None or (item == [] and key in ("tool_calls", *EMPTY)):
            continue
        if key not in allowed:
            raise refuse(f"{where}.{key[:80]}", f"is not supported in a message with the role {role}")
        if key not in ("content", "tool_calls", "cache_control"):
            values.text(key, None)
    content = message.get("content")
    if isinstance(content, list):
        for n, part in enumerate(content):
            _check_part(part, f"{where}.content[{n}]")
    elif content is None:
        if not message.get("tool_calls"):
            raise refuse(f"{where}.content", "is missing")
    elif not isinstance(content, str):
        raise refuse(f"{where}.content", f"must be a string or a list of text parts, not {show(content)}")
    if message.get("tool_calls") is not None:
        _check_calls(message["tool_calls"], f"{where}.tool_calls")


def _check_part(part: Any, where: str) -> None:
    kind = part.get("type") if isinstance(part, dict) else None
    if kind != "text":
        raise refuse(where, f"must be a part of type text, because the model reads text only, not {show(part if kind is None else kind)}")
    for key, item in part.items():
        if key not in PART_KEYS and item is not None:
            raise refuse(f"{where}.{key[:80]}", "is not supported in a text part")
    if not isinstance(part.get("text"), str):
        raise refuse(f"{where}.text", f"must be a string, not {show(part.get('text'))}")


def _check_calls(calls: Any, where: str) -> None:
    if not isinstance(calls, list):
        raise refuse(where, f"must be a list of tool calls, not {show(calls)}")
    for n, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not isinstance(function.get("arguments"), str):
            raise refuse(f"{where}[{n}]", "must have a function with a name and its arguments as JSON text")
        if call.get("type", "function") != "function":
            raise refuse(f"{where}[{n}].type", f"must be function, not {show(call['type'])}")
        for key in (*(set(call) - CALL_KEYS), *(set(function) - {"name", "arguments"})):
            raise refuse(f"{where}[{n}].{key[:80]}", "is not supported in a tool call")


def read_tools(body: Mapping[str, Any], read: ReadTool) -> list[dict[str, Any]] | None:
    """The functions that the model may call, each as `read` returns it; None without any. Raises RequestError(param="tools...")."""
    tools = body.get("tools")
    if tools is None or tools == []:
        return None
    if not isinstance(tools, list):
        raise RequestError(f"tools must be a list of functions, not {show(tools)}", param="tools")
    return [read(tool, f"tools[{at}]") for at, tool in enumerate(tools)]


def read_tool(tool: Any, where: str) -> dict[str, Any]:
    if not isinstance(tool, dict) or tool.get("type") != "function":
        kind = show(tool.get("type") if isinstance(tool, dict) else tool)
        raise refuse(f"{where}.type", f"must be function, not {kind}")
    for key in set(tool) - {"type", "function", "cache_control"}:
        raise refuse(f"{where}.{key[:80]}", "is not supported")
    function = tool.get("function")
    if not isinstance(function, dict):
        raise refuse(f"{where}.function", f"must be an object with a name, not {show(function)}")
    for key in set(function) - FUNCTION_KEYS:
        raise refuse(f"{where}.function.{key[:80]}", "is not supported")
    check_function(function, f"{where}.function")
    return tool


def check_function(function: Mapping[str, Any], where: str) -> None:
    """Raises RequestError for a function's key that has a wrong value. `where`: the field that it is."""
    values = Values(function, f"{where}.")
    values.identifier("name")
    values.text("description", None)
    kind = (values.mapping("parameters") or {}).get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise refuse(f"{where}.parameters.type", f'must be "object", because arguments are an object, not {show(kind)}')
    values.boolean("strict", False)


def refuse(where: str, why: str) -> RequestError:
    """`where`: the field at fault."""
    return RequestError(f"{where} {why}", param=where)
