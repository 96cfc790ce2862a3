"""Definitions that say the same become one, also where they refer to each other in circles."""
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

REFERENCE, PLACE = "$ref", "#/$defs/"
MAX_ROUNDS = 40
A_REFERENCE = re.compile(r'\{"\$ref": "#/\$defs/[^"]*"\}')  # as json writes it; within a string its quotes have backslashes


def merged(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` refers to its `$defs` and to nothing else. Two are told apart when they differ in anything but what they refer to, or refer
    to two that are told apart: as states of automata are (Hopcroft and Ullman)."""
    definitions: Mapping[str, Any] = schema["$defs"]
    texts = {name: json.dumps(each) for name, each in definitions.items()}
    uses = {name: list(references(each)) for name, each in definitions.items()}
    shapes = {name: A_REFERENCE.sub("*", text) for name, text in texts.items()}
    kinds = numbered({name: (shapes[name],) for name in definitions})
    for _ in range(MAX_ROUNDS):
        finer = numbered({name: (kinds[name], *(kinds[used] for used in uses[name])) for name in definitions})
        settled = len(set(finer.values())) == len(set(kinds.values()))
        kinds = finer
        if settled:
            break
    else:
        return dict(schema)
    first: dict[int, str] = {}
    for name in definitions:
        first.setdefault(kinds[name], name)
    names = {name: first[kinds[name]] for name in definitions}
    whole = {key: value for key, value in schema.items() if key != "$defs"}
    return {**renamed(whole, names), "$defs": {name: renamed(each, names) for name, each in definitions.items() if names[name] == name}}


def references(value: Any) -> Iterator[str]:
    """The names of the definitions that are referred to, in their order."""
    if isinstance(value, dict):
        if isinstance(value.get(REFERENCE), str):
            yield value[REFERENCE].removeprefix(PLACE)
        else:
            for each in value.values():
                yield from references(each)
    elif isinstance(value, list):
        for each in value:
            yield from references(each)


def numbered(keys: Mapping[str, Any]) -> dict[str, int]:
    numbers: dict[Any, int] = {}
    return {name: numbers.setdefault(key, len(numbers)) for name, key in keys.items()}


def renamed(value: Any, names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        if isinstance(value.get(REFERENCE), str):
            return {REFERENCE: PLACE + names[value[REFERENCE].removeprefix(PLACE)]}
        return {key: renamed(each, names) for key, each in value.items()}
    return [renamed(each, names) for each in value] if isinstance(value, list) else value
