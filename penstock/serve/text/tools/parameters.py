"""A function's parameters as names with a value each, for formats that do not write arguments as one JSON object."""
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.compute.decoding.grammar.effort import Effort, TooLargeError
from penstock.compute.decoding.grammar.patterns.syntax import PatternError
from penstock.compute.decoding.grammar.schema import dialect, values
from penstock.compute.decoding.grammar.schema.document import MAX_REFERENCES, SILENT, Document, Node, place_in, reference_to, step
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError, at, reading
from penstock.compute.decoding.grammar.schema.records import ARRAY, EVERY, OBJECT, STRING, Shape
from penstock.core.errors import RequestError
from penstock.serve.text.tools.rules import Function

BESIDE = SILENT | {"$ref", "type"}  # a schema of these is what its reference leads to, if that is of its type
SIMPLE = SILENT | {"type", "properties", "required", "additionalProperties"}  # what named arguments can express
MOST_STEPS = 100_000  # of finding where a root that is a reference leads: a tenth of a second
MOST_KINDS = 40_000  # steps of finding the types of arguments: about as long
UNTOLD = frozenset((STRING, ARRAY, OBJECT))  # what is taken for a value of which nothing is said: numbers and words may be texts
IsName = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class Root:
    """The schema that parameters are, or that their root is a reference to. `place`: a reference to it; `types`: its own, and those that
    stand beside the references that lead to it."""

    schema: Mapping[str, Any]
    place: str
    types: Sequence[Any]
    properties: Mapping[str, Any]
    required: Sequence[str]

    @property
    def names(self) -> list[str]:
        """Without those that can never be given."""
        required = frozenset(self.required)
        given = [name for name, schema in self.properties.items() if schema is not False or name in required]
        return list(dict.fromkeys((*given, *self.required)))

    def place_of(self, name: str | None) -> str | None:
        """A reference to what is said of a property: by its name, or of all without one of their own, as None is; None where nothing is."""
        if name is not None and name in self.properties:
            return self.place + step("properties") + step(name)
        return self.place + step("additionalProperties") if "additionalProperties" in self.schema else None


def promised(function: Function, is_name: IsName, form: str) -> tuple[dict[str, str | None], Collection[str]]:
    """The arguments of a function that its parameters name, each with a reference to what they say of it, if they do, and those that must
    be given. `form`: what the format writes arguments as. Raises RequestError for parameters that this cannot express."""
    whose, field = f"the parameters of the function {function.name!r}", f"{function.field}.parameters"
    try:
        root = root_of(function.document)
    except (UnsupportedError, TooLargeError) as error:
        raise RequestError(f"{whose} cannot be obeyed: {error}", field) from None
    if fault := fault_of(root, is_name):
        raise RequestError(f"{whose} have {fault}, which {form}, the model's format, cannot express", field)
    return {name: root.place_of(name) for name in root.names}, frozenset(root.required)


def named(function: Function, is_name: IsName) -> list[str]:
    """The arguments of a function that may be anything: those that its parameters name."""
    try:
        return [name for name in root_of(function.given).properties if is_name(name)]
    except (UnsupportedError, TooLargeError):
        return []


def kinds_of(schema: Mapping[str, Any]) -> Mapping[str | None, frozenset[str]]:
    """The types in JSON that a function's parameters allow for each argument, and, as None, for those that they do not name: UNTOLD where
    they allow all, or cannot be read."""
    try:
        root = root_of(schema)
    except (UnsupportedError, TooLargeError):
        return {None: UNTOLD}
    shapes = shapes_of(schema)
    found: dict[str | None, frozenset[str]] = {}
    for name in (*root.names, None):
        place = root.place_of(name)
        kinds = frozenset(kind for shape in (place is not None and shapes({"$ref": place})) or () for kind in shape)
        found[name] = kinds if kinds and kinds < EVERY.keys() else UNTOLD
    return found


def shapes_of(schema: Mapping[str, Any]) -> Callable[[Mapping[str, Any]], Sequence[Shape] | None]:
    """Finds what is valid by the part of a schema that `$ref` leads to, and by the keywords beside it; None where that cannot be told."""
    from penstock.compute.decoding.grammar.patterns.algebra import Algebra
    from penstock.compute.decoding.grammar.schema.expand import Expander
    from penstock.compute.decoding.grammar.schema.lower import goal_of

    try:
        document = Document(schema, Effort(most=MOST_KINDS))
    except (UnsupportedError, TooLargeError):
        return lambda wanted: None
    expander = Expander(document, Algebra(document.effort))

    def find(wanted: Mapping[str, Any]) -> Sequence[Shape] | None:
        try:
            return expander.goal(goal_of(document, wanted))
        except (UnsupportedError, PatternError, TooLargeError, RecursionError):
            return None

    return find


def root_of(document: Mapping[str, Any]) -> Root:
    """Raises UnsupportedError and TooLargeError."""
    node, place = Node(document, "", dialect.draft_of(document, dialect.LATEST)), "#"
    types: list[Any] = []
    try:
        if "$ref" in document:
            node, types = followed(Document(document, Effort(most=MOST_STEPS)))
            place = reference_to(document, [node.schema])
        with reading(node.schema):
            words = dialect.keywords({name: node.schema[name] for name in SIMPLE if name in node.schema}, node.draft, strictly=False)
            properties = values.mapping("properties", words.get("properties", {}))
            required = values.names("required", words.get("required", []))
    except UnsupportedError as error:
        raise UnsupportedError(f"{error}{at(place_in(document, error.schemas, error.inside))}") from None
    return Root(node.schema, place, [*types, node.schema.get("type", "object")], properties, required)


def followed(document: Document) -> tuple[Node, list[Any]]:
    """What a document's root refers to, and the types that stand beside references on the way."""
    node, types = document.root, list[Any]()
    for _ in range(MAX_REFERENCES):
        with reading(node.schema):
            words = dialect.keywords(node.schema, node.draft, strictly=False)
            if "$ref" not in words or not words.keys() <= BESIDE:
                break
            found = document.resolve(node, words["$ref"])
        if isinstance(found.schema, bool):
            break
        node, types = found, [*types, words.get("type", "object")]
    return node, types


def fault_of(root: Root, is_name: IsName) -> str:
    """What named arguments cannot express; "" where they can all."""
    unknown = next((keyword for keyword in root.schema if keyword not in SIMPLE), None)
    if unknown is not None:
        return f"{unknown!r} among their keywords"
    kind = next((kind for kind in root.types if kind != "object" and not (isinstance(kind, list) and "object" in kind)), None)
    if kind is not None:
        return f"the type {json.dumps(kind)[:60]}"
    name = next((name for name in root.names if not is_name(name)), None)
    return "" if name is None else f"the name {json.dumps(name, ensure_ascii=False)[:60]}"
