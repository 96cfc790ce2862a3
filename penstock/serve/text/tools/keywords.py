"""A function's arguments as keywords, `a=1, b="x"`: a grammar made of the properties that its parameters name."""
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from keyword import iskeyword
from typing import Any

from penstock.compute.decoding.grammar.effort import Effort, TooLargeError
from penstock.compute.decoding.grammar.schema import dialect, values
from penstock.compute.decoding.grammar.schema.document import REFERENCES, SILENT, Document, parts, place_in, reference_to, step
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError, at
from penstock.compute.decoding.grammar.syntax import literal, part_of
from penstock.core.errors import RequestError
from penstock.serve.text.tools.rules import Function, json_by

SIMPLE = SILENT | {"type", "properties", "required", "additionalProperties"}  # what keyword arguments can express
MOST_STEPS = 100_000  # of finding where a root that is a reference leads: a tenth of a second


@dataclass(frozen=True, slots=True)
class Root:
    """The schema that parameters are: `document` itself, or what its root is a reference to. `place`: a reference to it."""

    document: Mapping[str, Any]
    schema: Mapping[str, Any]
    place: str
    properties: Mapping[str, Any]
    required: Sequence[str]

    @property
    def names(self) -> list[str]:
        """Without those that can never be given."""
        given = [name for name, schema in self.properties.items() if schema is not False or name in self.required]
        return list(dict.fromkeys((*given, *self.required)))

    def value(self, name: str) -> Mapping[str, Any]:
        """What is said of a property: by its name, or of all without one of their own."""
        if name in self.properties:
            return self._part({"properties": {name: self.properties[name]}}, step("properties") + step(name))
        if "additionalProperties" in self.schema:
            return self._part({"additionalProperties": self.schema["additionalProperties"]}, step("additionalProperties"))
        return {}

    def _part(self, alone: Mapping[str, Any], inside: str) -> Mapping[str, Any]:
        """Of the document, or of as much of it as there is to say where nothing in the part refers to another."""
        if self.schema is not self.document or refers(alone):
            return part_of(self.document, self.place + inside)
        return part_of({**{key: self.document[key] for key in ("$schema",) if key in self.document}, **alone}, self.place + inside)


def keywords(function: Function, called: str) -> list[str]:
    """Rules in Lark, of which the first is `called` so, and the others' names begin so: the properties in their order, those that are not
    required as the model likes. Each value is valid by its property as that stands in the parameters. Raises RequestError for parameters
    that cannot be written so."""
    whose = f"the parameters of the function {function.name!r}"
    try:
        root = root_of(function.document)
    except (UnsupportedError, TooLargeError) as error:
        raise RequestError(f"{whose} cannot be obeyed: {error}") from None
    if fault := fault_of(root, function.name):
        raise RequestError(f"{whose} have {fault}, which keyword arguments, the model's format, cannot express")
    rules = [f"{called}: {called}_first0"]
    for number, name in enumerate(root.names):  # one that comes first, or behind others
        one, following = f"{called}_argument{number}", f"{called}_rest{number + 1}"
        skipped = ("", "") if name in root.required else (f" | {called}_first{number + 1}", f" | {following}")
        rules += [
            f"{one}: {literal(name + '=')} {json_by(root.value(name))}", f"{called}_first{number}: {one} {following}{skipped[0]}",
            f'{called}_rest{number}: ", " {one} {following}{skipped[1]}']
    return [*rules, *(f'{called}_{part}{len(root.names)}: ""' for part in ("first", "rest"))]


def root_of(document: Mapping[str, Any]) -> Root:
    """Raises UnsupportedError and TooLargeError."""
    schema, draft, place = document, dialect.draft_of(document, dialect.LATEST), "#"
    try:
        if "$ref" in document:
            node = Document(document, Effort(most=MOST_STEPS)).part("#")
            if isinstance(node.schema, dict):
                schema, draft, place = node.schema, node.draft, reference_to(document, [node.schema])
        words = dialect.keywords({name: value for name, value in schema.items() if name in SIMPLE}, draft, strictly=False)
        properties = values.mapping("properties", words.get("properties", {}))
        return Root(document, schema, place, properties, values.names("required", words.get("required", [])))
    except UnsupportedError as error:
        raise UnsupportedError(f"{error}{at(place_in(document, [*error.schemas, schema], error.inside))}") from None


def fault_of(root: Root, name: str) -> str:
    """What keyword arguments cannot express; "" where they can all."""
    unknown = next((keyword for keyword in root.schema if keyword not in SIMPLE), None)
    if unknown is not None:
        return f"{unknown!r} among their keywords"
    kind = root.schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        return f"the type {json.dumps(kind)[:60]}"
    known = all(each.isidentifier() and not iskeyword(each) for each in (*root.names, *name.split(".")))
    return "" if known else "a name that is no identifier"


def refers(schema: Any) -> bool:
    """Whether a reference is in it."""
    stack = [schema]
    while stack:
        value = stack.pop()
        if isinstance(value, dict) and not REFERENCES.isdisjoint(value):
            return True
        stack += [each for _, each in parts(value)]
    return False
