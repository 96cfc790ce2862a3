"""The objectives of a request: its `slo` field, or its x-slo header, or else what its API key has."""
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import Headers

from penstock.core.errors import RequestError, UsageError
from penstock.core.slo import NO_OBJECTIVES, SERVED, Objectives, parse_objectives
from penstock.serve.api.values import Values
from penstock.serve.engine.requests import Request

log = logging.getLogger(__name__)
FIELD, HEADER = "slo", "x-slo"
WARNING = "x-slo-warning"
UNSERVED = "objectives are only counted, not scheduled for: the server was started without --order deadline"
MAX_TEXT = 256  # characters
FIELDS = tuple([f"{name}_ms" for name in SERVED])


def read_objectives(body: Mapping[str, Any], headers: Headers, usual: Objectives) -> Objectives:
    """Those of a request replace the key's as a whole; "none" has none. Raises RequestError, naming what is wrong."""
    given = headers.getlist(HEADER)
    if len(given) > 1 or (given and body.get("slo") is not None):
        raise RequestError(f"the objectives are given {len(given) + (body.get('slo') is not None)} times; give slo or {HEADER} once", "slo")
    if given:
        return parsed(given[0], HEADER)
    slo = body.get("slo")
    if slo is None:
        return usual
    return parsed(slo, "slo") if isinstance(slo, str) else of_object(body)


def parsed(text: str, param: str) -> Objectives:
    if len(text) > MAX_TEXT:
        raise RequestError(f"{param} has {len(text)} characters; at most {MAX_TEXT} are read", param)
    try:
        return parse_objectives(text, param)
    except UsageError as error:
        raise RequestError(str(error), param) from None


def of_object(body: Mapping[str, Any]) -> Objectives:
    slo = body["slo"]
    if not isinstance(slo, dict):
        raise Values(body).refuse("slo", f"an object with {', '.join(FIELDS)}, or a string like \"ttft=200ms,tpot=50ms\"")
    for name in slo:
        if name not in FIELDS:
            raise RequestError(f"unknown field 'slo.{name[:80]}'; slo has {', '.join(FIELDS)}", "slo", code="unknown_parameter")
    values = Values(slo, "slo.")
    return Objectives(*(milliseconds(values, name) for name in FIELDS))


def milliseconds(values: Values, name: str) -> float | None:
    """As seconds."""
    found = values.number(name, None, low=0)
    if found == 0:
        raise values.refuse(name, "a number above 0")
    return None if found is None else found / 1000


def check_bounded(objectives: Objectives, max_tokens: int | None, max_name: str = "max_tokens") -> None:
    """Raises RequestError for an end-to-end objective without a bound on the answer, which has the name `max_name`."""
    if objectives.e2e_s is not None and max_tokens is None:
        raise RequestError(f"an objective for e2e needs {max_name}, because nothing else bounds how long an answer may be", "slo")


class Unserved:
    """Tells of objectives that the scheduler does nothing for: in a header of each answer, and in the log once."""

    def __init__(self, served: bool) -> None:
        self._served = served
        self._logged = False

    def headers(self, requests: Sequence[Request], usual: Objectives = NO_OBJECTIVES) -> dict[str, str]:
        """`usual`: objectives of requests that bring none, which need not be told of."""
        theirs = {Objectives(request.ttft_slo_s, request.tpot_slo_s, request.e2e_slo_s) for request in requests}
        if self._served or not theirs - {NO_OBJECTIVES, usual}:
            return {}
        if not self._logged:
            self._logged = True
            log.warning(UNSERVED)
        return {WARNING: UNSERVED}
