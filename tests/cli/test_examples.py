"""What docs/structured.md says to type works as it stands there, with the model that comes along."""
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.started import start, stop

PAGE = (Path(__file__).parents[2] / "docs" / "structured.md").read_text(encoding="utf-8")
ASKED = [json.loads(body) for body in re.findall(r"^curl \S+/v1/chat/completions .*? -d '(.*?)'$", PAGE, re.MULTILINE | re.DOTALL)]
TEMPLATES = re.findall(r"^```jinja\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Yields the URL."""
    server, url = start("--kv-tokens", "2048", *options)
    try:
        yield url
    finally:
        stop(server)


def choice(url: str, asked: dict[str, Any]) -> Any:
    answer = httpx.post(url + "/v1/chat/completions", json=asked, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


def test_the_record_is_complete() -> None:
    with serving() as url:
        found = choice(url, ASKED[0])
    record = json.loads(found["message"]["content"])
    assert found["finish_reason"] == "stop" and list(record) == ["name", "kind", "age"]
    assert record["kind"] in ("fox", "king", "river") and 0 <= record["age"] <= 99


def test_brook_calls_the_tool(tmp_path: Path) -> None:
    (template := tmp_path / "tools.jinja").write_text(TEMPLATES[0], encoding="utf-8")
    with serving("--chat-template", str(template)) as url:
        found = choice(url, ASKED[1])
    (call,) = found["message"]["tool_calls"]
    arguments = json.loads(call["function"]["arguments"])
    assert found["finish_reason"] == "tool_calls" and call["function"]["name"] == "weather"
    assert arguments["town"] in ("London", "Paris", "Rome") and 1 <= arguments["days"] <= 7
