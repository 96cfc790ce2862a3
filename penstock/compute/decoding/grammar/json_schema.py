"""The structure `json`: a JSON value that a JSON schema accepts."""
from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.compute.decoding.grammar.effort import PARTS, Effort
from penstock.compute.decoding.grammar.spacing import json_options
from penstock.compute.decoding.grammar.syntax import HEADER, MAX_SIZE, json_value
from penstock.compute.decoding.grammar.written import Written
from penstock.core.errors import RequestError
from penstock.core.strict_json import DECODER, fault
from penstock.core.types import StructuredOutputsParams

if TYPE_CHECKING:
    from penstock.compute.decoding.grammar.schema.document import Document

A_SCHEMA = 150  # steps that even the smallest schema takes
WHOLE: Mapping[str, Any] = {"$ref": "#"}


class JsonSchema:
    """The schema is a dict, a bool, or JSON text."""

    def checked(self, value: Any) -> str:
        """The schema as JSON text; a string is read as JSON text."""
        if isinstance(value, str):
            try:
                value = DECODER.decode(value)
            except (ValueError, RecursionError) as error:
                raise RequestError(f"json is not JSON: {fault(error)}", "json") from None
        if not isinstance(value, dict | bool):
            raise RequestError(f"json is {value!r:.80}, but must be a JSON schema, which is an object", "json")
        try:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise RequestError(f"json is a schema that cannot be written as JSON: {error}", "json") from None
        if len(text) > MAX_SIZE:
            raise RequestError(f"json has {len(text)} characters; at most {MAX_SIZE} are read", "json")
        return text

    def grammar(self, wanted: StructuredOutputsParams, effort: Effort, room: int) -> Written:
        assert isinstance(wanted.json, str)
        value = as_value(read(json.loads(wanted.json), effort), wanted, room, compares=wanted.frame is None)
        return replace(value, text=f"{HEADER}start: {value.text}")


@contextmanager
def refusing() -> Iterator[None]:
    """Raises RequestError for what the algebra refuses."""
    from penstock.compute.decoding.grammar.schema.errors import UnsupportedError

    try:
        yield
    except UnsupportedError as error:
        raise RequestError(str(error), "json") from None
    except RecursionError:
        raise RequestError("it is nested too deeply", "json") from None


def read(schema: Any, effort: Effort) -> Document:
    """A schema, which may be used several times. Raises RequestError for one that is no schema, or gives itself an impossible address."""
    from penstock.compute.decoding.grammar.schema.lower import read_document

    with refusing():
        return read_document(schema, effort)


def as_value(
    document: Document, wanted: StructuredOutputsParams, room: int, part: Mapping[str, Any] = WHOLE, called: str = "g",
    compares: bool = False,
) -> Written:
    """The values that are valid by the part of the document that `$ref` in `part` leads to, and by the keywords beside it, in llguidance's
    language. `room`: the maximum length of an answer, in characters; `called`: the prefix of the names of its definitions, different for
    each schema in a grammar; `compares`: an answer is this value and nothing else, so that `places` can be followed in it. Raises
    RequestError for what is not supported."""
    from penstock.compute.decoding.grammar.schema.lower import lowered

    with refusing():
        document.effort.spend(A_SCHEMA, PARTS)
        found, writer = lowered(document, part, room, wanted.disable_additional_properties, called, compares)
    value = json_value({} if isinstance(found, bool) else found, json_options(wanted))
    return Written(value, schemas={called: writer}, has_json=True, places=writer.places)


def as_text(document: Document, room: int, part: Mapping[str, Any]) -> Written:
    """The same for strings, null, booleans and plain numbers as texts: part of a terminal."""
    from penstock.compute.decoding.grammar.schema.plain import texts

    with refusing():
        document.effort.spend(A_SCHEMA, PARTS)
        return Written(texts(document, part, room))
