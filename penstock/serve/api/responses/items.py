"""Items of `input`: every key known, every value of the right type, nothing that a prompt could not show; and as they are stored."""
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from penstock.core.errors import RequestError
from penstock.core.strict_json import fault
from penstock.serve.api.messages import refuse
from penstock.serve.api.values import Values, show
from penstock.serve.text.messages import read_arguments

Item = dict[str, Any]
ROLES = ("user", "assistant", "system", "developer")
TEXTS = ("input_text", "output_text", "text")  # types of parts, which mean the same
PART_KEYS = frozenset({"type", "text", "cache_control", "annotations", "logprobs"})  # the last two: as an answer had them
STATES = ("in_progress", "completed", "incomplete")
KEYS: Mapping[str, frozenset[str]] = {
    "message": frozenset({"role", "content", "cache_control"}),
    "function_call": frozenset({"call_id", "name", "arguments"}),
    "function_call_output": frozenset({"call_id", "output", "cache_control"}),
    "reasoning": frozenset({"summary", "content"}),
}
COMMON = frozenset({"type", "id", "status"})
PREFIXES = {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}


def read_items(body: Mapping[str, Any], earlier: Sequence[Item], made: str) -> list[Item]:
    """What `input` holds, each item with an id that no other has, `earlier` ones included. `made`: ends ids of items that came without, or
    with one that is taken.

    Raises RequestError(param="input...") naming the first item and key at fault.
    """
    given, taken = body.get("input"), {item["id"] for item in earlier}
    known = {item["call_id"] for item in earlier if item["type"] == "function_call"}
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise RequestError(f"input must be a string or a list of at least 1 item, not {show(given)}", param="input")
    items = []
    for at, item in enumerate(given):
        where = f"input[{at}]"
        kind = kind_of(item, where)
        check_keys(item, kind, where)
        CHECKS[kind](item, where)
        if kind == "function_call":
            known.add(item["call_id"])
        if kind == "function_call_output" and item["call_id"] not in known:
            raise refuse(f"{where}.call_id", f"is {show(item['call_id'])}, which no function_call before it has")
        name = item.get("id")
        name = name if name and name not in taken else f"{PREFIXES[kind]}_{made}-in{at}"
        taken.add(name)
        items.append({"id": name, "type": kind, "status": "completed"} | present({**item, "id": name}))
    return items


def present(item: Mapping[str, Any]) -> Item:
    return {key: value for key, value in item.items() if value is not None}


def kind_of(item: Any, where: str) -> str:
    """An item's type; one with a role needs none."""
    if not isinstance(item, dict):
        raise refuse(where, f"must be an item, which is an object with a type, not {show(item)}")
    kind = "message" if item.get("type") is None and "role" in item else item.get("type")
    if not isinstance(kind, str) or kind not in KEYS:
        why = "; send the item itself" if kind == "item_reference" else ""
        raise RequestError(f"{where}.type must be one of {', '.join(KEYS)}, not {show(kind)}{why}", param=f"{where}.type")
    return kind


def check_keys(item: Item, kind: str, where: str) -> None:
    for key, value in item.items():
        if key not in KEYS[kind] and key not in COMMON and value is not None:
            raise refuse(f"{where}.{key[:80]}", f"is not supported in an item of type {kind}")
    values = Values(item, f"{where}.")
    values.text("id", None)
    values.choice("status", STATES[1], STATES)


def check_message(item: Item, where: str) -> None:
    if item.get("role") not in ROLES:
        raise Values(item, f"{where}.").refuse("role", f"one of {', '.join(ROLES)}")
    check_texts(item.get("content"), f"{where}.content", TEXTS)


def check_call(item: Item, where: str) -> None:
    values = Values(item, f"{where}.")
    for key in ("call_id", "name", "arguments"):
        if not isinstance(item.get(key), str):
            raise values.refuse(key, "a string")
    if is_cut_off(item):
        raise refuse(f"{where}.arguments", "is not whole, because the call was cut off; leave the item out")
    try:
        arguments = read_arguments(item["arguments"] or "{}")
    except (ValueError, RecursionError) as error:
        raise refuse(f"{where}.arguments", f"is not JSON that can be read: {fault(error)}") from None
    if not isinstance(arguments, dict):
        raise refuse(f"{where}.arguments", f"must be a JSON object as text, not {show(item['arguments'])}")


def check_output(item: Item, where: str) -> None:
    if not isinstance(item.get("call_id"), str):
        raise Values(item, f"{where}.").refuse("call_id", "a string")
    check_texts(item.get("output"), f"{where}.output", TEXTS)


def check_reasoning(item: Item, where: str) -> None:
    for key, kinds in (("content", ("reasoning_text", "text")), ("summary", ("summary_text",))):
        if item.get(key) is not None:
            check_texts(item[key], f"{where}.{key}", kinds)


CHECKS: Mapping[str, Callable[[Item, str], None]] = {
    "message": check_message, "function_call": check_call, "function_call_output": check_output, "reasoning": check_reasoning,
}


def check_texts(content: Any, where: str, kinds: tuple[str, ...]) -> None:
    """A string, or a list of parts of the types `kinds`."""
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise refuse(where, f"must be a string or a list of parts of type {' or '.join(kinds)}, not {show(content)}")
    for at, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in kinds:
            wanted = f"must be a part of type {' or '.join(kinds)}, because the model reads text only"
            raise refuse(f"{where}[{at}]", f"{wanted}, not {show(part if kind is None else kind)}")
        for key, value in part.items():
            if key not in PART_KEYS and value is not None:
                raise refuse(f"{where}[{at}].{key[:80]}", f"is not supported in a part of type {kind}")
        if not isinstance(part.get("text"), str):
            raise refuse(f"{where}[{at}].text", f"must be a string, not {show(part.get('text'))}")


def unmarked(item: Item) -> Item:
    """As it is stored: its marks have been obeyed."""
    copy = {key: value for key, value in item.items() if key != "cache_control"}
    for key in ("content", "output"):
        if isinstance(copy.get(key), list):
            copy[key] = [{name: value for name, value in part.items() if name != "cache_control"} for part in copy[key]]
    return copy


def listed(item: Item) -> Item:
    """As `input_items` lists it: text is a list of parts."""
    if item["type"] == "message" and isinstance(item["content"], str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        return {**item, "content": [{"type": kind, "text": item["content"]} | ({"annotations": []} if kind == "output_text" else {})]}
    return item


def is_cut_off(item: Item) -> bool:
    """Whether it is a call whose arguments never ended."""
    return item["type"] == "function_call" and item.get("status") == "incomplete" and not is_json(item["arguments"])


def is_json(text: str) -> bool:
    try:
        read_arguments(text)
    except (ValueError, RecursionError):
        return False
    return True
