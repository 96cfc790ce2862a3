"""GET and DELETE /v1/responses/{id}, GET /v1/responses/{id}/input_items: what is kept of complete responses."""
import json
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from penstock.core.errors import RequestError
from penstock.serve.api.errors import json_response
from penstock.serve.api.parts import Desk
from penstock.serve.api.responses.items import listed
from penstock.serve.api.responses.store import Kept
from penstock.serve.api.values import show

MAX_LISTED, LISTED = 100, 20


async def get(desk: Desk, http: HttpRequest) -> Response:
    check_query(http, ())
    return Response(find(desk, http, http.path_params["name"]).answer, media_type="application/json")


async def delete(desk: Desk, http: HttpRequest) -> Response:
    check_query(http, ())
    name = http.path_params["name"]
    find(desk, http, name)
    desk.store.drop(http.scope["asker"], name)
    return json_response({"id": name, "object": "response", "deleted": True})


async def input_items(desk: Desk, http: HttpRequest) -> Response:
    """All that the response's prompt was made of, earlier responses included, the newest first unless the `order` is asc."""
    query = check_query(http, ("limit", "order", "after"))
    kept = find(desk, http, http.path_params["name"])
    items = await desk.work.run(kept.size, json.loads, kept.items)
    limit, order = query.get("limit", str(LISTED)), query.get("order", "desc")
    if not (limit.isascii() and limit.isdigit() and len(limit) < 4 and 1 <= int(limit) <= MAX_LISTED):
        raise RequestError(f"limit must be an integer from 1 to {MAX_LISTED}, not {show(limit)}", param="limit")
    if order not in ("asc", "desc"):
        raise RequestError(f"order must be asc or desc, not {show(order)}", param="order")
    ordered = items if order == "asc" else items[::-1]
    begin = 0 if "after" not in query else 1 + place_of(query["after"], ordered)
    return await desk.work.run(kept.size, lambda: json_response(page(ordered, begin, begin + int(limit))))


def place_of(name: str, items: list[dict[str, Any]]) -> int:
    found = next((at for at, item in enumerate(items) if item["id"] == name), None)
    if found is None:
        raise RequestError(f"after = {show(name)} is none of the items", param="after")
    return found


def page(items: list[dict[str, Any]], begin: int, end: int) -> dict[str, Any]:
    data = [listed(item) for item in items[begin:end]]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": end < len(items)}


def find(desk: Desk, http: HttpRequest, name: str, param: str = "response_id") -> Kept:
    """Raises RequestError (404) unless the asker has made it and it is still kept."""
    kept = desk.store.get(http.scope["asker"], name)
    if kept is None:
        limits = desk.parts.limits
        lasts = f"responses are kept for {limits.kept_s / 60:g} minutes, the last {limits.kept} of them, unless store is false"
        code = "response_not_found" if param == "response_id" else "previous_response_not_found"
        raise RequestError(f"there is no response {show(name)}: {lasts}", param=param, status=404, code=code)
    return kept


def check_query(http: HttpRequest, known: tuple[str, ...]) -> Mapping[str, str]:
    query = http.query_params
    for name in query:
        if name not in known:
            message = f"the query parameter {show(name)} is not supported" + (f"; there are {', '.join(known)}" if known else "")
            raise RequestError(message, param=name[:80], code="unsupported_parameter")
    return query
