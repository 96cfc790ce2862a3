"""Requests to /v1/responses, as its tests send them."""
import json
from typing import Any

from tests.serve.api.fakes import Running

PATH = "/v1/responses"
LOOK = {"type": "function", "name": "look", "description": "Look.", "parameters": {"type": "object"}}
CALL = '<tool_call>{"name": "look", "arguments": {"at": "the fox"}}</tool_call>'
LOGPROBS = ["message.output_text.logprobs"]


def ask(server: Running, **body: Any) -> dict[str, Any]:
    response = server.client.post(PATH, json={"input": "tell me", "max_output_tokens": 100, **body})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def stream(server: Running, **body: Any) -> list[dict[str, Any]]:
    """The events, each named as its type says, numbered from 0 on, [DONE] behind them."""
    response = server.client.post(PATH, json={"input": "tell me", "max_output_tokens": 100, **body, "stream": True})
    assert response.status_code == 200, response.text
    *blocks, done, rest = response.text.split("\n\n")
    assert done == "data: [DONE]" and not rest
    events = []
    for block in blocks:
        name, data = block.split("\n")
        events.append(json.loads(data.removeprefix("data: ")))
        assert name == "event: " + events[-1]["type"]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def refused(server: Running, status: int = 400, **body: Any) -> tuple[str, str]:
    """The field at fault, and what is said of it."""
    response = server.client.post(PATH, json={"input": "tell me", "max_output_tokens": 100, **body})
    assert response.status_code == status, response.text
    error = response.json()["error"]
    return error["param"], error["message"]


def prompt_of(server: Running) -> str:
    return server.engine.requests[-1].prompt or ""


def bare(value: Any) -> Any:
    """A response without what differs from one to the next: ids, times, what the prefix cache had."""
    if isinstance(value, list):
        return [bare(item) for item in value]
    if isinstance(value, dict):
        fixed = ("id", "item_id", "call_id", "created_at", "completed_at", "cached_tokens")
        return {name: bare(item) for name, item in value.items() if name not in fixed}
    return value
