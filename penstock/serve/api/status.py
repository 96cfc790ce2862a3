"""What the server says of itself: models, health, version, metrics."""
from typing import Any

from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

import penstock
from penstock.core.errors import RequestError
from penstock.serve.api.errors import error_response, json_response
from penstock.serve.api.parts import Desk
from penstock.serve.api.values import show


def model_object(desk: Desk) -> dict[str, Any]:
    """`root`: what the server was told to load; clients of vLLM's take the tokenizer from it where they are given none."""
    engine = desk.parts.engine
    return {"id": desk.model, "object": "model", "created": desk.began, "owned_by": "penstock", "root": engine.model_name, "parent": None,
            "max_model_len": engine.max_model_len}


async def models(desk: Desk, http: HttpRequest) -> Response:
    return json_response({"object": "list", "data": [model_object(desk)]})


async def model(desk: Desk, http: HttpRequest) -> Response:
    name = http.path_params["name"]
    if name != desk.model:
        message = f"the model {show(name)} is not served here; {desk.model!r} is"
        raise RequestError(message, param="model", status=404, code="model_not_found")
    return json_response(model_object(desk))


async def health(desk: Desk, http: HttpRequest) -> Response:
    """200 only when the engine is well and new requests are taken."""
    state = desk.parts.engine.health()
    reason = "the server is stopping" if desk.drain.draining else state.reason or "the engine does not answer"
    if state.ok and not desk.drain.draining:
        return json_response({"status": "ok"})
    return error_response(RequestError(reason, status=503, code="unhealthy"), {"Retry-After": "1"})


async def version(desk: Desk, http: HttpRequest) -> Response:
    return json_response({"version": penstock.__version__})


async def metrics(desk: Desk, http: HttpRequest) -> Response:
    return Response(desk.parts.metrics.render(), media_type=CONTENT_TYPE_PLAIN_0_0_4)
