"""Every error leaves in OpenAI's shape: {"error": {"message", "type", "param", "code"}} with the status that fits."""
import math
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from penstock.core.errors import OverloadedError, PenstockError, RequestError
from penstock.serve.api.encoding import encoded

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
INTERNAL = "the server failed at this request; its log says why"


def error_type(status: int) -> str:
    """OpenAI's word for a class of errors."""
    return "server_error" if status >= 500 else TYPES.get(status, "invalid_request_error")


def error_object(error: Exception) -> dict[str, Any]:
    """The `{"error": ...}` object of a body or of a stream's last event. Only a PenstockError's own words are shown."""
    status = status_of(error)
    message = str(error) if isinstance(error, PenstockError) else INTERNAL
    param, code = (error.param, error.code) if isinstance(error, RequestError) else (None, None)
    return {"error": {"message": message, "type": error_type(status), "param": param, "code": code}}


def status_of(error: Exception) -> int:
    return error.status if isinstance(error, RequestError) else 500


def error_response(error: Exception, headers: dict[str, str] | None = None) -> Response:
    headers = dict(headers or {})
    if isinstance(error, OverloadedError):
        headers["Retry-After"] = str(max(1, math.ceil(error.retry_after_s)))
        headers["Retry-After-Ms"] = str(math.ceil(error.retry_after_s * 1000))  # what OpenAI's clients prefer
    if status_of(error) == 401:
        headers["WWW-Authenticate"] = "Bearer"
    if status_of(error) == 408:
        headers["Connection"] = "close"
    return json_response(error_object(error), status_of(error), headers)


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON without spaces, in UTF-8. NaN and infinity are errors here: they are not JSON."""
    return Response(encoded(content), status, headers, "application/json")


async def on_http_exception(request: Request, error: Exception) -> Response:
    """Starlette's 404 and 405."""
    assert isinstance(error, HTTPException)
    messages = {
        404: f"there is nothing at {request.url.path[:200]}{meant(request)}",
        405: f"{request.method} is not possible at {request.url.path[:200]}; allowed: {(error.headers or {}).get('Allow', 'nothing')}",
    }
    refused = RequestError(messages.get(error.status_code, str(error.detail)), status=error.status_code)
    return error_response(refused, dict(error.headers or {}))


def meant(request: Request) -> str:
    """What a client may have wanted whose base URL has no /v1, or one too many: a path that ends as the one asked for does."""
    asked = "/" + request.url.path.strip("/")
    paths = [route.path for route in request.app.routes if len(route.path) > 1]
    found = next((path for path in paths if len(asked) > 1 and (path.endswith(asked) or asked.endswith(path))), None)
    return "" if found is None else f"; did you mean {found}?"


async def on_failure(request: Request, error: Exception) -> Response:
    """A bug outside of every handler. Starlette raises it again, so that the log has the traceback."""
    return error_response(error)
