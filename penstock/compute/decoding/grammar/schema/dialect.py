"""The drafts of JSON Schema, brought to the keywords of 2020-12."""
import json
from collections.abc import Iterator, Mapping
from typing import Any

from penstock.compute.decoding.grammar.schema.errors import UnsupportedError

LATEST = 2020
ADDRESS = "https://json-schema.org/draft/2020-12/schema"  # of the latest
DRAFTS = {
    "http://json-schema.org/draft-03/schema": 3, "http://json-schema.org/draft-04/schema": 4, "http://json-schema.org/draft-06/schema": 6,
    "http://json-schema.org/draft-07/schema": 7, "https://json-schema.org/draft/2019-09/schema": 2019,
    ADDRESS: 2020,
}
SINCE = {  # the draft that brought a keyword; before it the word means nothing
    "const": 6, "contains": 6, "propertyNames": 6, "if": 7, "then": 7, "else": 7, "dependentRequired": 2019, "dependentSchemas": 2019,
    "minContains": 2019, "maxContains": 2019, "unevaluatedProperties": 2019, "unevaluatedItems": 2019, "prefixItems": 2020,
    "allOf": 4, "anyOf": 4, "oneOf": 4, "not": 4, "multipleOf": 4, "minProperties": 4, "maxProperties": 4,
    "$dynamicRef": 2020, "$recursiveRef": 2019,
}
UNTIL = {"dependencies": 7, "$recursiveRef": 2019}  # the last that knows it


def draft_of(schema: Any, otherwise: int) -> int:
    """As `$schema` says; `otherwise` where it says nothing, or names a dialect of somebody's own."""
    named = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(named, str):
        return otherwise
    return DRAFTS.get(named.rstrip("#").replace("https://json-schema.org/draft-", "http://json-schema.org/draft-"), otherwise)


def keywords(schema: Mapping[str, Any], draft: int, strictly: bool) -> dict[str, Any]:
    """In their order, in the words of 2020-12. `strictly`: without those that the draft does not know, which are obeyed otherwise, because
    whoever wrote them means them, but for what they allow that is not valid without them. Raises UnsupportedError for a draft that is no
    address, and for malformed keywords of older drafts."""
    if not isinstance(schema.get("$schema", ""), str):
        raise UnsupportedError(f"$schema is {json.dumps(schema['$schema'])[:80]}, but must be a string, such as {json.dumps(ADDRESS)}")
    if "$ref" in schema and draft <= 7:
        return {"$ref": schema["$ref"]}
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if not strictly or SINCE.get(name, 0) <= draft <= UNTIL.get(name, LATEST):
            for word, said in _translated(name, value, schema, draft):
                _add(found, word, said)
    return found


def _add(found: dict[str, Any], name: str, value: Any) -> None:
    """Beside what another keyword that has this name in 2020-12 has said already."""
    if name not in found:
        found[name] = value
    elif name == "allOf":
        found[name] = [*_listed(name, found[name]), *_listed(name, value)]
    elif name in ("dependentRequired", "dependentSchemas"):
        both = _both_lists if name == "dependentRequired" else _both_schemas
        known, more = _named(name, found[name]), _named(name, value)
        found[name] = known | {each: both(known[each], its) if each in known else its for each, its in more.items()}
    elif name == "prefixItems":
        raise UnsupportedError("prefixItems stands beside a list in items, and each draft knows only one of them")
    else:
        _add(found, "allOf", [{name: value}])


def _both_lists(a: Any, b: Any) -> list[Any]:
    return [*_listed("dependentRequired", a), *_listed("dependentRequired", b)]


def _both_schemas(a: Any, b: Any) -> Any:
    return {"allOf": [a, b]}


def _listed(name: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise UnsupportedError(f"{name} is {json.dumps(value)[:80]}, but must be a list")
    return value


def _named(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UnsupportedError(f"{name} is {json.dumps(value)[:80]}, but must be an object")
    return value


def _translated(name: str, value: Any, schema: Mapping[str, Any], draft: int) -> Iterator[tuple[str, Any]]:
    if name in ("exclusiveMinimum", "exclusiveMaximum") and isinstance(value, bool):
        bound = "m" + name.removeprefix("exclusiveM")
        if value and bound in schema:
            yield name, schema[bound]
    elif name == "items" and (isinstance(value, list) or draft < LATEST):
        yield from _items(value, schema)
    elif name == "additionalItems" and draft < LATEST:
        return
    elif name == "prefixItems" and draft < LATEST and isinstance(schema.get("items"), dict | bool):
        yield "allOf", [{name: value}]  # `items` is of all items
    elif name == "minContains" and value is not False and value == 0 and SINCE["contains"] <= draft < SINCE[name]:
        yield name, 1  # as `contains` is without it
    elif name == "dependencies":
        yield from _dependencies(value)
    elif draft == 3 and name in _DRAFT_3:
        yield from _DRAFT_3[name](value, schema)
    else:
        yield name, value


def _items(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list):
        yield "prefixItems", value
        if "additionalItems" in schema:
            yield "items", schema["additionalItems"]
    else:
        yield "items", value


def _dependencies(value: Any) -> Iterator[tuple[str, Any]]:
    value = _named("dependencies", value)
    required = {name: [each] if isinstance(each, str) else each for name, each in value.items() if isinstance(each, list | str)}
    schemas = {name: each for name, each in value.items() if not isinstance(each, list | str)}
    if required:
        yield "dependentRequired", required
    if schemas:
        yield "dependentSchemas", schemas


def _type_3(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A name, or a list of names and schemas."""
    options = [each if isinstance(each, dict) else {"type": each} for each in (value if isinstance(value, list) else [value])]
    named = [option["type"] for option in options if set(option) == {"type"} and isinstance(option["type"], str)]
    if "any" not in named:
        yield ("type", named) if len(named) == len(options) else ("anyOf", options)


def _disallow_3(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "not", {"type": value}  # schemas among its names are of draft 3 too


def _extends_3(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "allOf", value if isinstance(value, list) else [value]


def _divisible_3(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "multipleOf", value


def _properties_3(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield "properties", value
    if isinstance(value, dict):
        required = [name for name, each in value.items() if isinstance(each, dict) and each.get("required") is True]
        if required:
            yield "required", required


def _required_3(value: Any, schema: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Says something of the object around it: see _properties_3."""
    return
    yield


_DRAFT_3 = {
    "type": _type_3, "disallow": _disallow_3, "extends": _extends_3, "divisibleBy": _divisible_3, "properties": _properties_3,
    "required": _required_3,
}
