"""The structure `json_object`: any JSON object."""
from typing import Any

from penstock.compute.decoding.grammar.effort import Effort
from penstock.compute.decoding.grammar.spacing import json_options
from penstock.compute.decoding.grammar.syntax import HEADER, json_value
from penstock.compute.decoding.grammar.written import Written
from penstock.core.errors import RequestError
from penstock.core.types import StructuredOutputsParams


class JsonObject:
    def checked(self, value: Any) -> bool:
        if value is not True:
            raise RequestError(f"json_object is {value!r:.80}, but must be true, or left out", "json_object")
        return True

    def grammar(self, wanted: StructuredOutputsParams, effort: Effort, room: int) -> Written:
        return Written(f"{HEADER}start: {json_value({'type': 'object'}, json_options(wanted))}", has_json=True)
