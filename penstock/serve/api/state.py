"""GET /v1/penstock/state: what the engine says of itself beside its counters."""
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from penstock.core.errors import RequestError
from penstock.serve.api.errors import json_response
from penstock.serve.api.parts import Desk


async def state(desk: Desk, http: HttpRequest) -> Response:
    told = desk.parts.state
    if told is None:
        raise RequestError("this engine does not report its state", status=404, code="not_found")
    return json_response(await run_in_threadpool(told))
