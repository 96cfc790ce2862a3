"""A function's arguments as keywords, `a=1, b="x"`: a grammar made of the properties that its parameters name."""
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.compute.decoding.grammar.effort import Effort, TooLargeError
from penstock.compute.decoding.grammar.schema import dialect, values
from penstock.compute.decoding.grammar.schema.document import MAX_REFERENCES, SILENT, Document, Node, place_in, reference_to, step
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError, at, reading
from penstock.compute.decoding.grammar.syntax import literal
from penstock.core.errors import RequestError
from penstock.serve.text.tools.rules import Function

BESIDE = SILENT | {"$ref", "type"}  # a schema of these is what its reference leads to, if that is of its type
SIMPLE = SILENT | {"type", "properties", "required", "additionalProperties"}  # what keyword arguments can express
ANY = "%json {}"
MOST_STEPS = 100_000  # of finding where a root that is a reference leads: a tenth of a second


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

    def place_of(self, name: str) -> str | None:
        """A reference to what is said of a property: by its name, or of all without one of their own; None where nothing is."""
        if name in self.properties:
            return self.place + step("properties") + step(name)
        return self.place + step("additionalProperties") if "additionalProperties" in self.schema else None


def keywords(function: Function, called: str) -> list[str]:
    """Rules in Lark, of which the first is `called` so, and the others' names begin so: the properties in their order, those that are not
    required as the model likes. Each value is valid by its property as that stands in the parameters, where that is promised. Raises
    RequestError for parameters that cannot be written so."""
    if not is_name(function.name):
        why = "each part between dots must begin with a letter or an underscore, and not end with a dash"
        raise RequestError(f"the name of the function {function.name!r} cannot be called in the model's format: {why}",
                           f"{function.field}.name")
    values_by_name, required = promised(function) if function.promised else (named(function), ())
    rules = [f"{called}: {called}_first0"]
    for number, (name, value) in enumerate(values_by_name.items()):  # one that comes first, or behind others
        one, following = f"{called}_argument{number}", f"{called}_rest{number + 1}"
        skipped = ("", "") if name in required else (f" | {called}_first{number + 1}", f" | {following}")
        rules += [
            f"{one}: {literal(name + '=')} {value}",
            f"{called}_first{number}: {one} {following}{skipped[0]}", f'{called}_rest{number}: ", " {one} {following}{skipped[1]}']
    return [*rules, *(f'{called}_{part}{len(values_by_name)}: ""' for part in ("first", "rest"))]


def promised(function: Function) -> tuple[dict[str, str], Collection[str]]:
    """The arguments of a function, each with a rule for its value, and the names of those that must be given. Raises RequestError."""
    whose, field = f"the parameters of the function {function.name!r}", f"{function.field}.parameters"
    try:
        root = root_of(function.document)
    except (UnsupportedError, TooLargeError) as error:
        raise RequestError(f"{whose} cannot be obeyed: {error}", field) from None
    if fault := fault_of(root):
        raise RequestError(f"{whose} have {fault}, which keyword arguments, the model's format, cannot express", field)
    places = {name: root.place_of(name) for name in root.names}
    return {name: ANY if place is None else function.part(place) for name, place in places.items()}, frozenset(root.required)


def named(function: Function) -> dict[str, str]:
    """The arguments of a function that may be anything: those that its parameters name."""
    try:
        return {name: ANY for name in root_of(function.given).properties if is_name(name)}
    except (UnsupportedError, TooLargeError):
        return {}


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


def fault_of(root: Root) -> str:
    """What keyword arguments cannot express; "" where they can all."""
    unknown = next((keyword for keyword in root.schema if keyword not in SIMPLE), None)
    if unknown is not None:
        return f"{unknown!r} among their keywords"
    kind = next((kind for kind in root.types if kind != "object" and not (isinstance(kind, list) and "object" in kind)), None)
    if kind is not None:
        return f"the type {json.dumps(kind)[:60]}"
    name = next((name for name in root.names if not is_name(name)), None)
    return "" if name is None else f"the name {json.dumps(name, ensure_ascii=False)[:60]}"


def is_name(text: str) -> bool:
    """Whether a call can be written with it: identifiers of Python's joined by dots, with dashes inside, and whatever words Python keeps to
    itself."""
    return all(part.replace("-", "_").isidentifier() and part[0] != "-" != part[-1] for part in text.split("."))
