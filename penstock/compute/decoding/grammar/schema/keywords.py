"""Keywords, each as the shapes of what it allows. Those that are read together are read with the first of them."""
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from penstock.compute.decoding.grammar.effort import CHOICES, PARTS
from penstock.compute.decoding.grammar.patterns.algebra import Algebra
from penstock.compute.decoding.grammar.patterns.chars import BREAK, complement
from penstock.compute.decoding.grammar.patterns.tree import Chars, Tree, both, other, rep, texts
from penstock.compute.decoding.grammar.patterns.write import is_plain, writable
from penstock.compute.decoding.grammar.schema import formats, values
from penstock.compute.decoding.grammar.schema.dialect import SINCE
from penstock.compute.decoding.grammar.schema.document import Document, Goal, Literal, Node, join
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError
from penstock.compute.decoding.grammar.schema.meet import separated
from penstock.compute.decoding.grammar.schema.records import (
    ARRAY,
    EVERY,
    NUMBER,
    OBJECT,
    STRING,
    Arrays,
    Bound,
    Contained,
    Numbers,
    Objects,
    Region,
    Shape,
    Strings,
    narrowed,
    only,
    unspoken,
)

ONE_LINE = rep(Chars(complement(BREAK)), 0, None)
A_PART = 8  # steps of finding a schema inside of another
Shapes = Sequence[Shape]
Words = Mapping[str, Any]  # a schema's keywords


class Work(Protocol):
    """Who is at work on the document."""

    document: Document
    algebra: Algebra
    closed: bool
    loosely: bool

    def literal(self, literal: Literal) -> Shapes: ...

    def goal(self, goal: Goal) -> Shapes: ...

    def cross(self, a: Shapes, b: Shapes) -> Shapes: ...


def children(work: Work, node: Node, listed: Sequence[Any], positive: bool = True) -> list[Literal]:
    work.algebra.effort.spend(A_PART * len(listed), PARTS)
    return [Literal(work.document.child(node, schema), positive) for schema in listed]


def union(work: Work, several: Iterable[Shapes]) -> Shapes:
    """All that is in one of several, each shape once: branches that lead to the same schema have the same shapes."""
    found: dict[int, Shape] = {}
    for shapes in several:
        work.algebra.effort.spend(len(shapes), CHOICES)
        found |= {id(shape): shape for shape in shapes}
    return list(found.values())


def goal_for(work: Work, node: Node, schema: Any, positive: bool = True) -> Goal:
    """() where the schema says nothing."""
    if (schema is True or schema == {}) and positive:
        return ()
    work.algebra.effort.spend(A_PART, PARTS)
    return (Literal(work.document.child(node, schema), positive),)


def read_type(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    """One type, or several."""
    found: dict[str, Any] = {}
    for name in values.types(value):
        if name == "integer":
            found.setdefault(NUMBER, Numbers(integer=True))
        else:
            found[name] = EVERY[name]
    return [found]


def read_enum(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    """Plain values in one shape, each array and each object in one of its own."""
    work.algebra.effort.spend(len(values.listed(value)), PARTS)
    plain = [each for each in value if not isinstance(each, list | dict)]
    shapes = [values.scalars(plain)] if plain else []
    for each in value:
        if isinstance(each, list | dict):
            shapes += map(unspoken, work.literal(Literal(work.document.made(values.as_schema(each)), True)))
    return shapes


def read_const(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return read_enum(work, node, [value], words)


def bounded(name: str, make: Callable[[Any], Numbers]) -> Callable[..., Shapes]:
    return lambda work, node, value, words: [narrowed(NUMBER, make(values.number(name, value)))]


def read_multiple(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [narrowed(NUMBER, Numbers(multiples=(values.step(value),)))]


def read_min_length(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [narrowed(STRING, Strings(low=values.count("minLength", value)))]


def read_max_length(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [narrowed(STRING, Strings(high=values.count("maxLength", value)))]


def read_pattern(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    try:
        return [narrowed(STRING, Strings(patterns=(values.language(work.algebra, "pattern", value, work.loosely),)))]
    except UnsupportedError:
        if work.loosely:
            return [EVERY]
        raise


def read_format(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    """A format that no draft defines is an annotation, of which the drafts want nothing made."""
    name = formats.ALIASES.get(values.string("format", value), value)
    if name in formats.KNOWN:
        return [narrowed(STRING, Strings(formats=(name,)))]
    if name in formats.INTEGERS and words.get("type") == "integer":
        bits, signed = formats.INTEGERS[name], not name.startswith("u")
        return [narrowed(NUMBER, Numbers(low=Bound(-(1 << bits) if signed else 0), high=Bound((1 << bits) - 1)))]
    pattern = formats.pattern_of(name, node.draft)
    return [EVERY] if pattern is None else [narrowed(STRING, Strings(patterns=(work.algebra.whole(pattern),)))]


def read_items(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    """items and prefixItems."""
    prefix = values.prefix(words)
    rest = goal_for(work, node, words["items"]) if "items" in words else ()
    unknown = "prefixItems" in node.schema and node.draft < SINCE["prefixItems"]
    evaluated = math.inf if "items" in words else 0 if unknown else len(prefix)
    return [narrowed(ARRAY, Arrays(tuple([goal_for(work, node, each) for each in prefix]), rest, evaluated=evaluated))]


def read_min_items(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [narrowed(ARRAY, Arrays(low=values.count("minItems", value)))]


def read_max_items(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [narrowed(ARRAY, Arrays(high=values.count("maxItems", value)))]


def read_unique(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [narrowed(ARRAY, Arrays(unique=True))] if values.boolean("uniqueItems", value) else [EVERY]


def read_contains(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    low = values.count("minContains", words.get("minContains", 1))
    high = None if "maxContains" not in words else values.count("maxContains", words["maxContains"])
    if low == 0 and high is None:
        return [EVERY]
    return [narrowed(ARRAY, Arrays(low=low, contains=(Contained((Literal(work.document.child(node, value), True),), low, high),)))]


def read_properties(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    """properties, patternProperties and additionalProperties."""
    schemas = values.mapping("properties", words.get("properties", {}))
    patterns = values.mapping("patternProperties", words.get("patternProperties", {}))
    rest = goal_for(work, node, words.get("additionalProperties", not (work.closed and schemas)))
    read: list[tuple[Tree, Tree, Goal]] = []  # names in which a pattern is found by all dialects of regexes, and by any
    named: dict[str, Goal] = {}
    for pattern, schema in patterns.items():
        goal = goal_for(work, node, schema)
        if not pattern:  # which jsonschema takes for none
            goal = join(goal, rest)
        sure, perhaps = (values.language(work.algebra, "patternProperties", pattern, widely) for widely in (False, True))
        few, more = texts(sure), texts(perhaps)
        if few is not None and more is not None:
            named |= {name: join(named.get(name, ()), goal) for name in few}
            named |= dict.fromkeys(set(more) - set(few), work.document.nothing)
        else:
            read.append((sure, perhaps, goal))
    for name in schemas:
        named[values.writable(name)] = join(goal_for(work, node, schemas[name]), named.get(name, ()))
    for name in named:
        for _, perhaps, goal in read:
            if work.algebra.holds(perhaps, name):
                named[name] = join(named[name], goal)
    regions = regions_of(work, read, rest)
    named = {name: named[name] for name in (*schemas, *(name for name in named if name not in schemas))}
    # Validators of 2019-09 do not agree on what a schema in additionalProperties has spoken of.
    spoken = "additionalProperties" in words and (node.draft != 2019 or isinstance(words["additionalProperties"], bool))
    return [narrowed(OBJECT, Objects(named, separated(regions, work.algebra), rest, evaluated=frozenset(named), all_evaluated=spoken))]


def regions_of(work: Work, read: Sequence[tuple[Tree, Tree, Goal]], rest: Goal) -> list[Region]:
    """Of patterns. Names with line breaks have none where dialects do not agree whether a pattern is found in them."""
    nothing = work.document.nothing
    if not rest and not work.document.has_unevaluated:
        return [Region(perhaps, goal) for _, perhaps, goal in read]
    regions = [Region(sure, goal) for sure, _, goal in read]
    broken = False
    for at, (sure, perhaps, goal) in enumerate(read):
        unsure = both([perhaps, other(sure)])
        others = [each for place, (each, _, _) in enumerate(read) if place != at]
        if not any(work.algebra.overlap(unsure, each) for each in others) if rest == nothing else not work.algebra.is_writable(unsure):
            continue
        if work.algebra.overlap(unsure, ONE_LINE):
            regions.append(Region(unsure, nothing if work.document.has_unevaluated else join(goal, rest)))
        else:
            broken = True
    if broken:
        return [*(Region(of_one_line(region.names), region.goal) for region in regions), Region(other(ONE_LINE), nothing)]
    return regions


def of_one_line(names: Tree) -> Tree:
    return writable(names, complement(BREAK)) if is_plain(names) else both([names, ONE_LINE])


def read_required(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    if isinstance(value, bool):  # draft 3's, left over
        return [EVERY]
    found = tuple(dict.fromkeys(map(values.writable, values.names("required", value))))
    return [narrowed(OBJECT, Objects(required=found))]


def read_min_properties(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [narrowed(OBJECT, Objects(low=values.count("minProperties", value)))]


def read_max_properties(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [narrowed(OBJECT, Objects(high=values.count("maxProperties", value)))]


def read_names(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return [narrowed(OBJECT, Objects(names=goal_for(work, node, value)))]


def read_dependent_required(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    found: Shapes = [EVERY]
    for name, needed in values.mapping("dependentRequired", value).items():
        together = map(values.writable, (name, *values.names("dependentRequired", needed)))
        found = work.cross(found, [without(work, name), only(OBJECT, Objects(required=tuple(dict.fromkeys(together))))])
    return found


def read_dependent_schemas(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    found: Shapes = [EVERY]
    for name, schema in values.mapping("dependentSchemas", value).items():
        with_it = work.cross([only(OBJECT, Objects(required=(name,)))], work.goal(goal_for(work, node, schema)))
        found = work.cross(found, [without(work, name), *with_it])
    return found


def without(work: Work, name: str) -> Shape:
    """Whatever has no property of this name."""
    return narrowed(OBJECT, Objects(named={values.writable(name): work.document.nothing}))


def read_any(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return union(work, map(work.literal, children(work, node, values.schemas("anyOf", value))))


def read_not(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    return work.literal(Literal(work.document.child(node, value), False))


def read_if(work: Work, node: Node, value: Any, words: Words) -> Shapes:
    condition = work.document.child(node, value)
    then, otherwise = (goal_for(work, node, words.get(name, True)) for name in ("then", "else"))
    if not then and not otherwise:
        return [EVERY]
    yes = work.cross(work.literal(Literal(condition, True)), work.goal(then))
    return [*yes, *work.cross(work.literal(Literal(condition, False)), work.goal(otherwise))]


def all_of(work: Work, node: Node, value: Any) -> list[Literal]:
    return children(work, node, values.schemas("allOf", value))


def referred(work: Work, node: Node, value: Any) -> list[Literal]:
    return [Literal(work.document.resolve(node, value), True)]


def referred_dynamically(work: Work, node: Node, value: Any) -> list[Literal]:
    return [Literal(work.document.resolve_dynamically(node, value), True)]


Reader = Callable[[Work, Node, Any, Words], Shapes]
TOGETHER = {
    "items": "items", "prefixItems": "items", "properties": "properties", "patternProperties": "properties",
    "additionalProperties": "properties",
}
POSITIVE: Mapping[str, Reader] = {
    "type": read_type, "enum": read_enum, "const": read_const,
    "minimum": bounded("minimum", lambda value: Numbers(low=Bound(value))),
    "maximum": bounded("maximum", lambda value: Numbers(high=Bound(value))),
    "exclusiveMinimum": bounded("exclusiveMinimum", lambda value: Numbers(low=Bound(value, True))),
    "exclusiveMaximum": bounded("exclusiveMaximum", lambda value: Numbers(high=Bound(value, True))),
    "multipleOf": read_multiple, "minLength": read_min_length, "maxLength": read_max_length, "pattern": read_pattern, "format": read_format,
    "items": read_items, "minItems": read_min_items, "maxItems": read_max_items, "uniqueItems": read_unique, "contains": read_contains,
    "properties": read_properties, "required": read_required, "minProperties": read_min_properties, "maxProperties": read_max_properties,
    "propertyNames": read_names, "dependentRequired": read_dependent_required, "dependentSchemas": read_dependent_schemas,
    "anyOf": read_any, "not": read_not, "if": read_if,
}
# Keywords that stand for other schemas, all of which hold.
FOLLOWED: Mapping[str, Callable[[Work, Node, Any], list[Literal]]] = {
    "allOf": all_of, "$ref": referred, "$dynamicRef": referred_dynamically, "$recursiveRef": referred_dynamically,
}
