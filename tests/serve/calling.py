"""Functions for a model to call, the ways to demand it, and what came of it."""
import json
from typing import Any

import jsonschema
import openai

WEATHER: dict[str, Any] = {
    "type": "object", "required": ["town", "days"], "additionalProperties": False, "properties": {
        "town": {"enum": ["London", "Paris", "a town \"by the sea\""]}, "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "said": {"type": "string", "maxLength": 8}}}
PAINT: dict[str, Any] = {
    "type": "object", "required": ["dots"], "additionalProperties": False, "properties": {
        "dots": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"$ref": "#/$defs/dot"}}, "colour": {"pattern": "^#[0-9a-f]{3}$"}},
    "$defs": {"dot": {"type": "object", "required": ["x"], "additionalProperties": False, "properties": {
        "x": {"type": "number", "minimum": 0, "maximum": 1, "multipleOf": 0.25}, "on": {"type": ["boolean", "null"]}}}}}
SCHEMAS: dict[str, dict[str, Any]] = {"weather": WEATHER, "paint": PAINT, "now": {"type": "object", "maxProperties": 0}}
REQUIRED: Any = "required"
NAMED: Any = {"type": "function", "function": {"name": "paint"}}
ASKED: dict[str, dict[str, Any]] = {
    "required": {"tool_choice": REQUIRED}, "required, one": {"tool_choice": REQUIRED, "parallel_tool_calls": False},
    "named": {"tool_choice": NAMED}, "required, greedy": {"tool_choice": REQUIRED, "temperature": 0, "parallel_tool_calls": False},
    "some are allowed": {"tool_choice": {"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": [{"type": "function", "function": {"name": name}} for name in ("paint", "now")]}}},
}
Calls = list[tuple[str, str]]


def tools(strict: bool) -> Any:
    listed = [{"name": name, "parameters": schema} for name, schema in SCHEMAS.items() if name != "now"]
    return [{"type": "function", "function": {**each, "strict": strict}} for each in [*listed, {"name": "now"}]]


def ask(client: openai.OpenAI, seed: int, strict: bool, stream: bool, **more: Any) -> tuple[Calls, str, str | None]:
    """The calls (name, arguments), the text beside them, and the finish reason."""
    wanted = {"temperature": 1.0, "max_tokens": 600, **more}
    body: Any = {"model": "tiny", "messages": [{"role": "user", "content": "Do it."}], "tools": tools(strict), "seed": seed, **wanted}
    if not stream:
        choice = client.chat.completions.create(**body).choices[0]
        calls = [(call.function.name, call.function.arguments) for call in choice.message.tool_calls or []]
        return calls, choice.message.content or "", choice.finish_reason
    names: dict[int, str] = {}
    parts: dict[int, str] = {}
    text, reason = "", None
    for chunk in client.chat.completions.create(**body, stream=True):
        for choice in chunk.choices:
            text += choice.delta.content or ""
            reason = choice.finish_reason or reason
            for call in choice.delta.tool_calls or []:
                names.setdefault(call.index, call.function.name)
                parts[call.index] = parts.get(call.index, "") + (call.function.arguments or "")
    return [(names[at], parts[at]) for at in sorted(names)], text, reason


def check(calls: Calls, reason: str | None) -> int:
    """Each of them is valid, but for the last of an answer that was cut off; how many are complete."""
    whole = calls[:-1] if reason == "length" else calls
    for name, arguments in whole:
        jsonschema.validate(json.loads(arguments), SCHEMAS[name])
    return len(whole)
