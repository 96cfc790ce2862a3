"""`tools` and `tool_choice`, where a function's name and parameters stand beside its type, as the chat templates know them."""
from collections.abc import Mapping
from typing import Any

from penstock.core.errors import RequestError
from penstock.serve.api.calling import Calling, Chosen, calling_of
from penstock.serve.api.messages import check_function, read_tools, refuse
from penstock.serve.api.values import Values, show

OF_FUNCTION = ("name", "description", "parameters", "strict")
AT_REST: Mapping[str, Any] = {"defer_loading": False, "async": False, "allowed_callers": ["direct"]}  # what asks for nothing
MODES = ("auto", "none", "required")


def read_functions(body: Mapping[str, Any]) -> Calling:
    """Raises RequestError for a tool that is no function, and for a choice of none of them."""
    tools = read_tools(body, read_tool)
    chosen = read_choice(body.get("tool_choice"))
    told = {**body, "tool_choice": None} if tools is None and body.get("tool_choice") == "auto" else body  # which needs no tools here
    return calling_of(told, tools, chosen, "")


def read_tool(tool: Any, where: str) -> dict[str, Any]:
    kind = tool.get("type") if isinstance(tool, dict) else tool
    if not isinstance(tool, dict) or kind != "function":
        why = f"must be function, not {show(kind)}: the server has no tools of its own"
        raise RequestError(f"{where}.type {why}", param=f"{where}.type", code="unsupported_parameter")
    for key, value in tool.items():
        if key not in ("type", "cache_control", *OF_FUNCTION) and value is not None and value != AT_REST.get(key):
            raise refuse(f"{where}.{key[:80]}", "is not supported")
    function = {key: tool[key] for key in OF_FUNCTION if tool.get(key) is not None}
    check_function(function, where)
    marks = {"cache_control": tool["cache_control"]} if tool.get("cache_control") is not None else {}
    return {"type": "function", "function": function, **marks}


def read_choice(choice: Any) -> Chosen:
    if choice is None or isinstance(choice, str) and choice in MODES:
        return choice or "auto", None
    if isinstance(choice, dict) and choice.get("type") == "function":
        return "one", [name_of(choice)]
    if isinstance(choice, dict) and choice.get("type") == "allowed_tools" and choice.keys() <= {"type", "mode", "tools"}:
        listed, mode = choice.get("tools"), Values(choice, "tool_choice.").choice("mode", "auto", ("auto", "required"))
        if isinstance(listed, list) and listed:
            return mode, [name_of(tool) for tool in listed]
    wanted = '"auto", "none", "required", {"type": "function", "name": ...}, or allowed_tools with mode and one tool or more'
    raise RequestError(f"tool_choice must be {wanted}, not {show(choice)}", param="tool_choice")


def name_of(tool: Any) -> str:
    if not isinstance(tool, dict) or tool.get("type") != "function" or not isinstance(tool.get("name"), str) or len(tool) != 2:
        raise RequestError(f'tool_choice names a function as {{"type": "function", "name": ...}}, not as {show(tool)}', param="tool_choice")
    return str(tool["name"])
