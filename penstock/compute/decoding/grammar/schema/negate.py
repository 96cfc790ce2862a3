"""Keywords, each as the shapes of what it forbids: some of them, where all cannot be told, and never one that it allows.

That lets what a schema excludes be kept away from, which `not`, `oneOf`, `if` and `else` ask for. A keyword without an entry forbids
nothing.
"""
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations, islice
from typing import Any

from penstock.compute.decoding.grammar.effort import PARTS
from penstock.compute.decoding.grammar.patterns.tree import alt, text
from penstock.compute.decoding.grammar.schema import formats, values
from penstock.compute.decoding.grammar.schema.document import Literal, Node, join
from penstock.compute.decoding.grammar.schema.keywords import Shapes, Words, Work, children, goal_for, union, without
from penstock.compute.decoding.grammar.schema.meet import outside
from penstock.compute.decoding.grammar.schema.numbers import EXACT, LAST_WHOLE
from penstock.compute.decoding.grammar.schema.records import (
    ARRAY,
    BOOLEAN,
    EVERY,
    NUMBER,
    OBJECT,
    STRING,
    Arrays,
    Booleans,
    Bound,
    Number,
    Numbers,
    Objects,
    Region,
    Shape,
    Strings,
    only,
)

MAX_PAIRS = 64


def no_type(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    """Numbers that are not integers are left out: JSON writes both alike."""
    given = frozenset(values.types(value))
    return [{kind: record for kind, record in EVERY.items() if kind not in given and not (kind == NUMBER and "integer" in given)}]


def no_enum(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    """None of the values: texts all at once, others one by one."""
    found: Shapes = [EVERY]
    texts = [each for each in values.listed(value) if isinstance(each, str)]
    if texts:
        found = work.cross(found, [{**EVERY, STRING: Strings(excluded=(alt([text(each) for each in texts]),))}])
    for each in value:
        if not isinstance(each, str):
            found = work.cross(found, no_value(work, each))
    return found


def no_value(work: Work, value: Any) -> Shapes:
    """Not this value, which is no text."""
    if isinstance(value, list | dict):
        return work.literal(Literal(work.document.made(values.as_schema(value)), False))
    if isinstance(value, bool):
        return [{**EVERY, BOOLEAN: Booleans(frozenset((not value,)))}]
    if value is None:
        return [{kind: record for kind, record in EVERY.items() if kind != "null"}]
    return [{kind: record for kind, record in EVERY.items() if kind != NUMBER}, *no_number(value)]


def no_number(value: Number) -> Shapes:
    """Smaller ones and larger ones: where every double is an integer, those integers that are told apart."""
    found = []
    if value <= LAST_WHOLE:
        found.append(only(NUMBER, Numbers(integer=value >= EXACT, low=Bound(value, True))))
    if value >= -LAST_WHOLE:
        found.append(only(NUMBER, Numbers(integer=value <= -EXACT, high=Bound(value, True))))
    return found


def no_const(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return no_enum(work, node, [value], words)


def beyond(name: str, make: Callable[[Any], Numbers]) -> Callable[..., Shapes]:
    return lambda work, node, value, words: [only(NUMBER, make(values.number(name, value)))]


def no_min_length(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    count = values.count("minLength", value)
    return [only(STRING, Strings(high=count - 1))] if count else []


def no_max_length(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [only(STRING, Strings(low=values.count("maxLength", value) + 1))]


def no_pattern(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [only(STRING, Strings(excluded=(values.language(work.algebra, "pattern", value, widely=True),)))]


def no_items(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    """One of the items is not as it must be: one of the prefix, or the first behind it."""
    prefix = values.prefix(words)
    listed = [*prefix, words["items"]] if "items" in words else prefix
    found = []
    for at, schema in enumerate(listed):
        work.algebra.effort.spend(at // 4, PARTS)
        before = tuple([() for _ in range(at)])
        found.append(only(ARRAY, Arrays((*before, goal_for(work, node, schema, False)), low=at + 1)))
    return found


def no_min_items(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    count = values.count("minItems", value)
    return [only(ARRAY, Arrays(high=count - 1))] if count else []


def no_max_items(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [only(ARRAY, Arrays(low=values.count("maxItems", value) + 1))]


def no_contains(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    counts = [values.count(name, words[name]) for name in ("minContains", "maxContains") if name in words]
    if counts:
        goal_for(work, node, value)
        return []
    return [only(ARRAY, Arrays(rest=goal_for(work, node, value, False)))]


def no_properties(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    """A property that is not as it must be: a named one, one of a pattern, or one more."""
    found = []
    schemas, patterns = (values.mapping(name, words.get(name, {})) for name in ("properties", "patternProperties"))
    for name, schema in schemas.items():
        goal = goal_for(work, node, schema, False)
        found.append(only(OBJECT, Objects({values.writable(name): goal}, required=(name,))))
    regions = []
    for pattern, schema in patterns.items():
        regions.append(Region(values.language(work.algebra, "patternProperties", pattern), goal_for(work, node, schema, False)))
        found.append(only(OBJECT, Objects(some=(regions[-1],))))
    if words.get("additionalProperties", True) is not True:
        taken = [Region(values.language(work.algebra, "patternProperties", pattern, widely=True), ()) for pattern in patterns]
        taken.append(Region(alt([text(name) for name in schemas]), ()))
        goal = goal_for(work, node, words["additionalProperties"], False)
        found.append(only(OBJECT, Objects(some=(Region(outside(taken), goal),))))
    return found


def no_required(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [only(OBJECT, without(work, name)[OBJECT]) for name in ([] if isinstance(value, bool) else values.names("required", value))]


def no_min_properties(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    count = values.count("minProperties", value)
    return [only(OBJECT, Objects(high=count - 1))] if count else []


def no_max_properties(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [only(OBJECT, Objects(low=values.count("maxProperties", value) + 1))]


def no_dependent_required(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [
        only(OBJECT, Objects({values.writable(missing): work.document.nothing}, required=(values.writable(name),)))
        for name, needed in values.mapping("dependentRequired", value).items() for missing in values.names("dependentRequired", needed)
    ]


def no_dependent_schemas(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    found: list[Any] = []
    for name, schema in values.mapping("dependentSchemas", value).items():
        needed = only(OBJECT, Objects(required=(values.writable(name),)))
        found += work.cross([needed], work.goal(goal_for(work, node, schema, False)))
    return found


def not_all(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return union(work, map(work.literal, children(work, node, values.schemas("allOf", value), False)))


def not_any(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return work.goal(tuple(dict.fromkeys(children(work, node, values.schemas("anyOf", value), False))))


def not_one(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    """None of them, or two."""
    listed = values.schemas("oneOf", value)
    found = list(work.goal(tuple(dict.fromkeys(children(work, node, listed, False)))))
    for a, b in islice(combinations(children(work, node, listed), 2), MAX_PAIRS):
        found += work.goal(join((a,), (b,)))
    return found


def not_not(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return work.literal(Literal(work.document.child(node, value), True))


def no_if(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    condition = work.document.child(node, value)
    found: list[Shape] = []
    for holds, name in ((True, "then"), (False, "else")):
        if name in words:
            found += work.cross(work.literal(Literal(condition, holds)), work.goal(goal_for(work, node, words[name], False)))
    return found


def no_reference(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return work.literal(Literal(work.document.resolve(node, value), False))


def no_dynamic_reference(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return work.literal(Literal(work.document.resolve_dynamically(node, value), False))


def unknown(check: Callable[[Any], object]) -> Callable[..., Shapes]:
    """Of a keyword of which it is not known what it forbids, but what value it must have."""
    def deny(work: Work, node: Node, value: Any, words: Words) -> Shapes:
        check(value)
        return []

    return deny


def unknown_schema(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    goal_for(work, node, value)
    return []


def untold(node: Node, words: Words) -> dict[str, str]:
    """Keywords that forbid more than is known of them, and the type of what they forbid."""
    found = {name: kind for name, (kind, idle) in UNTOLD.items() if name in words and words[name] not in (idle, {})}
    if formats.is_defined(words.get("format"), node.draft):
        found["format"] = NUMBER if words["format"] in formats.INTEGERS else STRING
    given = words.get("type")
    if isinstance(given, str | list) and "integer" in given and "number" not in given:
        found["type"] = NUMBER
    if "contains" in words and words.get("minContains", 1) != 0 and ("minContains" in words or "maxContains" in words):
        found["contains"] = ARRAY
    return found


Denier = Callable[[Work, Node, Any, Words], Sequence[Any]]
# The simplest first: of many, some may be left out.
NEGATIVE: Mapping[str, Denier] = {
    "$ref": no_reference, "$dynamicRef": no_dynamic_reference, "$recursiveRef": no_dynamic_reference, "required": no_required,
    "type": no_type, "const": no_const, "enum": no_enum,
    "minimum": beyond("minimum", lambda value: Numbers(high=Bound(value, True))),
    "maximum": beyond("maximum", lambda value: Numbers(low=Bound(value, True))),
    "exclusiveMinimum": beyond("exclusiveMinimum", lambda value: Numbers(high=Bound(value))),
    "exclusiveMaximum": beyond("exclusiveMaximum", lambda value: Numbers(low=Bound(value))),
    "minLength": no_min_length, "maxLength": no_max_length, "pattern": no_pattern, "minItems": no_min_items, "maxItems": no_max_items,
    "minProperties": no_min_properties, "maxProperties": no_max_properties, "dependentRequired": no_dependent_required,
    "properties": no_properties, "items": no_items, "contains": no_contains, "dependentSchemas": no_dependent_schemas,
    "not": not_not, "allOf": not_all, "anyOf": not_any, "oneOf": not_one, "if": no_if,
    "multipleOf": unknown(values.step), "uniqueItems": unknown(partial(values.boolean, "uniqueItems")),
    "format": unknown(partial(values.string, "format")), "propertyNames": unknown_schema, "unevaluatedItems": unknown_schema,
    "unevaluatedProperties": unknown_schema,
}
# Those of which it is not known: the type of what they forbid, and the value by which they forbid nothing.
UNTOLD: Mapping[str, tuple[str, Any]] = {
    "multipleOf": (NUMBER, None), "uniqueItems": (ARRAY, False), "unevaluatedItems": (ARRAY, True), "propertyNames": (OBJECT, True),
    "unevaluatedProperties": (OBJECT, True),
}
WHY_UNTOLD = {
    "format": "validators do not agree on what is of a format; a pattern can be excluded",
    "type": "JSON writes integers and other numbers alike",
    "uniqueItems": "a grammar cannot compare items",
}
