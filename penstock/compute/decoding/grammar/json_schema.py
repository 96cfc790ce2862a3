"""The structure `json`: a JSON value that a JSON schema accepts."""
import json
from dataclasses import replace
from typing import Any

from penstock.compute.decoding.grammar.effort import PARTS, Effort
from penstock.compute.decoding.grammar.spacing import json_options
from penstock.compute.decoding.grammar.syntax import HEADER, MAX_SIZE, json_value
from penstock.compute.decoding.grammar.written import Written
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams

A_SCHEMA = 150  # steps that even the smallest schema takes


class JsonSchema:
    """The schema is a dict, a bool, or JSON text."""

    def checked(self, value: Any) -> str:
        """The schema as JSON text; a string is read as JSON text."""
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except (ValueError, RecursionError) as error:
                raise RequestError(f"json is not JSON: {error}", "json") from None
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
        value = as_value(json.loads(wanted.json), wanted, effort, room)
        return replace(value, text=f"{HEADER}start: {value.text}")


def as_value(schema: Any, wanted: StructuredOutputsParams, effort: Effort, room: int, called: str = "g") -> Written:
    """The values that the schema accepts, in llguidance's language. `room`: the maximum length of an answer, in characters; `called`: the
    prefix of the names of its definitions, different for each schema in a grammar. Raises RequestError for what is not supported."""
    from penstock.compute.decoding.grammar.schema.errors import UnsupportedError
    from penstock.compute.decoding.grammar.schema.lower import lowered

    try:
        effort.spend(A_SCHEMA, PARTS)
        found, writer = lowered(schema, effort, room, wanted.disable_additional_properties, called)
    except UnsupportedError as error:
        raise RequestError(str(error), "json") from None
    except RecursionError:
        raise RequestError("it is nested too deeply", "json") from None
    value = json_value({} if isinstance(found, bool) else found, json_options(wanted))
    return Written(value, schemas={called: writer}, has_json=True)
