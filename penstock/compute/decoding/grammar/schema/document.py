"""A schema as a document: where its references lead."""
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import unquote, urldefrag, urljoin

from penstock.compute.decoding.grammar.effort import PARTS, Effort
from penstock.compute.decoding.grammar.schema.dialect import LATEST, draft_of
from penstock.compute.decoding.grammar.schema.errors import UnsupportedError, reading

VALUES = ("const", "enum", "default", "examples")  # keywords whose content is no schema
NAMED = frozenset(("$defs", "definitions", "properties", "patternProperties", "dependentSchemas", "dependencies"))  # schemas by name
SCHEMAS = frozenset((  # a schema, or a list of them
    "additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "disallow", "else", "extends", "if", "items",
    "not", "oneOf", "prefixItems", "propertyNames", "then", "type", "unevaluatedItems", "unevaluatedProperties"))
SILENT = frozenset((  # keywords that say nothing of a value
    "$schema", "$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor", "$comment", "$defs", "definitions", "title", "description",
    "default", "examples", "deprecated", "readOnly", "writeOnly"))
REFERENCES = frozenset(("$ref", "$dynamicRef", "$recursiveRef"))
MAX_REFERENCES = 32  # one after another
A_REFERENCE = 10  # steps of following one
MAX_PLACE = 120  # characters
A_STEP = 50  # characters of JSON that are written in one
ESCAPED = re.compile(r"[%\x00-\x1f\x7f]")  # in an address
INDEX = re.compile("0|[1-9][0-9]{0,8}")  # in a list, as JSON pointers write it
OWN = "http://schema.invalid/"  # the document's own address, where it has none


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One schema at its place: equal to itself alone. `base`: the address that its references are relative to."""

    schema: Any
    base: str
    draft: int


class Literal(NamedTuple):
    """A value is valid by the schema, or it is not."""

    node: Node
    positive: bool


Goal = tuple[Literal, ...]  # all of them hold; none twice


def is_impossible(goal: Goal) -> bool:
    """As far as that is seen at once."""
    return any(literal.node.schema is not literal.positive for literal in goal if isinstance(literal.node.schema, bool))


def is_anything(goal: Goal) -> bool:
    """As far as that is seen at once."""
    return all(literal.node.schema is literal.positive for literal in goal)


def join(a: Goal, b: Goal) -> Goal:
    return a if not b or a == b else tuple(dict.fromkeys((*a, *b)))


class Document:
    """Every schema in it is one node, however often it is referred to."""

    def __init__(self, schema: Any, effort: Effort) -> None:
        if not isinstance(schema, dict | bool):
            raise no_schema(schema)
        self.effort = effort
        self._nodes: dict[tuple[int, str], Node] = {}
        self._made: dict[str, Node] = {}
        self._resources: dict[str, Node] = {}  # by address
        self._anchors: dict[tuple[str, str], Node] = {}  # by address and name
        self._dynamic: dict[str, list[Node]] = {}  # by name
        self.root = self._node(schema, *self._place(schema, OWN, draft_of(schema, LATEST)))
        self._resources[OWN] = self.root
        self.has_unevaluated = False  # whether it may say something of properties that no pattern is found in
        for node in self._walk(schema):
            self._register(node)
            self.has_unevaluated |= "unevaluatedProperties" in node.schema
        self.anything = self.made(True)
        self.nothing: Goal = (Literal(self.made(False), True),)

    def child(self, parent: Node, schema: Any) -> Node:
        """A schema inside of another; where that is nothing but a reference, what it leads to."""
        if not isinstance(schema, dict | bool):
            raise no_schema(schema, misplaced(parent.schema, schema))
        node = self._node(schema, *self._place(schema, parent.base, parent.draft))
        for _ in range(MAX_REFERENCES):
            if not is_reference(node):
                break
            with reading(node.schema):
                node = self.resolve(node, node.schema["$ref"])
        return node

    def part(self, reference: Any) -> Node:
        """What a reference from the document's root leads to."""
        return self.child(self.root, {"$ref": reference})

    def made(self, schema: Any, draft: int = LATEST) -> Node:
        """A schema that is not in the document; one for equal ones."""
        text = f"{draft}{json.dumps(schema)}"
        self.effort.spend(1 + len(text) // A_STEP, PARTS)
        if text not in self._made:
            self._made[text] = Node(schema, OWN, draft)
        return self._made[text]

    def beside(self, node: Node, schema: dict[str, Any]) -> Node:
        """Another schema at the place of a node; one for equal ones."""
        text = f"{node.base} {node.draft}{json.dumps(schema)}"
        self.effort.spend(1 + len(text) // A_STEP, PARTS)
        if text not in self._made:
            self._made[text] = Node(schema, node.base, node.draft)
        return self._made[text]

    def resolve(self, node: Node, reference: Any) -> Node:
        """Where a `$ref` in `node` leads. Raises UnsupportedError when that is nowhere in the document."""
        self.effort.spend(A_REFERENCE, PARTS)
        if not isinstance(reference, str):
            raise UnsupportedError(f"a reference is {json.dumps(reference)[:60]}, but must be a string")
        address, fragment = urldefrag(joined(node.base, reference))
        resource = self._resources.get(address)
        if resource is None:
            raise UnsupportedError(f"$ref {reference[:80]!r} leads out of the schema, and other documents are not fetched")
        if not fragment:
            return resource
        if not fragment.startswith("/"):
            found = self._anchors.get((address, fragment))
            if found is None:
                raise UnsupportedError(f"$ref {reference[:80]!r} leads to no anchor of the schema")
            return found
        return self._pointed(resource, unquote(fragment), reference)

    def resolve_dynamically(self, node: Node, reference: Any) -> Node:
        """A `$dynamicRef` or `$recursiveRef`, where there is only one place that it can lead to. Raises UnsupportedError otherwise."""
        found = self.resolve(node, reference)
        name = reference.rpartition("#")[2]
        places = self._dynamic.get(name, [])
        if found in places and len(places) > 1:
            raise UnsupportedError(f"$dynamicRef {reference[:80]!r} may lead to {len(places)} places of the schema")
        return found

    def place_of(self, goal: Goal) -> str:
        """Where in the document a schema of the goal stands, as a reference to it; "" where none does."""
        return place_in(self.root.schema, [literal.node.schema for literal in goal])

    def _pointed(self, node: Node, pointer: str, reference: str) -> Node:
        found = node.schema
        for part in pointer.split("/")[1:]:
            part = part.replace("~1", "/").replace("~0", "~")
            if isinstance(found, list) and INDEX.fullmatch(part) and int(part) < len(found):
                found = found[int(part)]
            elif isinstance(found, dict) and part in found:
                found = found[part]
            else:
                raise UnsupportedError(f"$ref {reference[:80]!r} leads nowhere in the schema")
            if isinstance(found, dict):
                node = self._node(found, *self._place(found, node.base, node.draft))
        if isinstance(found, bool):
            return self.made(found)
        if found is not node.schema:
            raise UnsupportedError(f"$ref {reference[:80]!r} leads to {json.dumps(found)[:60]}, which is no schema")
        return node

    def _node(self, schema: Any, base: str, draft: int) -> Node:
        if isinstance(schema, bool):
            return self.made(schema)
        key = (id(schema), base)
        if key not in self._nodes:
            self._nodes[key] = Node(schema, base, draft)
        return self._nodes[key]

    def _place(self, schema: Any, base: str, draft: int) -> tuple[str, int]:
        """(base address, draft) of a schema inside of one with these."""
        if not isinstance(schema, dict):
            return base, draft
        draft = draft_of(schema, draft)
        alone = draft <= 7 and "$ref" in schema  # then nothing else counts
        named = None if alone else schema.get(naming(draft))
        return (address_of(schema, base, named)[0] if isinstance(named, str) else base), draft

    def _walk(self, schema: Any) -> Iterator[Node]:
        """All objects that may be schemas, with the addresses that they have: first those that are, then those in unknown keywords."""
        stack: list[tuple[Any, str, int]] = [(schema, OWN, LATEST)]
        unknown: list[tuple[Any, str, int]] = []
        while stack or unknown:
            value, base, draft = stack.pop() if stack else unknown.pop()
            if isinstance(value, list):
                stack += [(each, base, draft) for each in value]
            if not isinstance(value, dict):
                continue
            self.effort.spend(4 + len(value), PARTS)
            base, draft = self._place(value, base, draft)
            yield self._node(value, base, draft)
            for name, each in value.items():
                if name in NAMED and isinstance(each, dict):
                    stack += [(schema, base, draft) for schema in each.values()]
                elif name not in VALUES:
                    (stack if name in SCHEMAS else unknown).append((each, base, draft))

    def _register(self, node: Node) -> None:
        if node.draft <= 7 and "$ref" in node.schema:
            return
        for keyword in ("$id", "id"):
            named = node.schema.get(keyword)
            if isinstance(named, str):
                address, anchor = address_of(node.schema, node.base, named)
                if keyword == naming(node.draft):  # which the base is already from
                    address = node.base
                self._resources.setdefault(address, node)
                if anchor:
                    self._anchors.setdefault((address, anchor), node)
        for keyword in ("$anchor", "$dynamicAnchor"):
            name = node.schema.get(keyword)
            if isinstance(name, str):
                self._anchors.setdefault((node.base, name), node)
        if isinstance(node.schema.get("$dynamicAnchor"), str):
            self._dynamic.setdefault(node.schema["$dynamicAnchor"], []).append(node)
        if node.schema.get("$recursiveAnchor") is True:
            self._dynamic.setdefault("", []).append(node)


def naming(draft: int) -> str:
    """The keyword by which a schema gives itself an address."""
    return "$id" if draft > 4 else "id"


def is_reference(node: Node) -> bool:
    """Whether a schema is nothing but a reference: until draft 7 whatever stands beside one counts for nothing."""
    schema = node.schema
    return isinstance(schema, dict) and "$ref" in schema and (node.draft <= 7 or schema.keys() <= SILENT | {"$ref"})


def no_schema(value: Any, inside: str = "") -> UnsupportedError:
    return UnsupportedError(f"{json.dumps(value)[:60]} stands where a schema is needed", inside)


def place_in(document: Any, schemas: Sequence[Any], inside: str = "") -> str:
    """Where the first of the schemas that stands in a document does, as `reference_to` says, or what is `inside` of it, and short."""
    place = reference_to(document, schemas)
    return shown(place + inside) if place else ""


def reference_to(document: Any, schemas: Sequence[Any]) -> str:
    """Of the schemas the first that stands in a document, as a reference to it; "" where none does."""
    wanted = {id(schema) for schema in schemas if isinstance(schema, dict)}
    found: dict[int, str] = {}
    stack: list[tuple[Any, str]] = [(document, "#")] if wanted else []
    while stack:
        value, place = stack.pop()
        if id(value) in wanted:
            found[id(value)] = place
        stack += [(each, place + step(name)) for name, each in parts(value)]
    return next((found[id(schema)] for schema in schemas if id(schema) in found), "")


def shown(place: str) -> str:
    return place if len(place) <= MAX_PLACE else place[: MAX_PLACE - 3] + "..."


def step(name: str | int) -> str:
    """Of a reference."""
    return "/" + ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", str(name).replace("~", "~0").replace("/", "~1"))


def parts(value: Any) -> Iterable[tuple[str | int, Any]]:
    return value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()


def misplaced(schema: Any, value: Any) -> str:
    """Where in a schema this value, which is none, stands instead of one: as a reference from there."""
    for name, each in parts(schema):
        if name in SCHEMAS and name != "type":
            if each is value:
                return step(name)
            places = parts(each) if isinstance(each, list) else ()
        else:
            places = parts(each) if name in NAMED else ()
        found = next((at for at, part in places if part is value), None)
        if found is not None:
            return step(name) + step(found)
    return ""


def address_of(schema: Any, base: str, named: str) -> tuple[str, str]:
    """That a schema gives itself, and the anchor in it. Raises UnsupportedError."""
    with reading(schema):
        address, anchor = urldefrag(joined(base, named))
    return address, anchor


def joined(base: str, reference: str) -> str:
    """A reference as an address: also where the base is none that could be relative to, such as a URN. Raises UnsupportedError."""
    try:
        found = urldefrag(base)[0] + reference if reference.startswith("#") else urljoin(base, reference)
        urldefrag(found)
    except ValueError:
        raise UnsupportedError(f"{reference[:80]!r} is no address") from None
    return found
