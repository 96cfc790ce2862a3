"""The text of /metrics is Prometheus' format."""
import httpx
import pytest

from tests.serve.api.exposition import PARTS, busy, check, families_of


def test_whatever_is_told_is_prometheus_format() -> None:
    found = families_of(busy().render().decode())
    check(found)
    assert all(family.samples for family in found.values())
    assert {family.kind for family in found.values()} == PARTS.keys()


def test_a_servers_answer_is(http: httpx.Client) -> None:
    http.post("/v1/completions", json={"prompt": 'a "b"\n', "max_tokens": 3})
    answer = http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    check(families_of(answer.text))


@pytest.mark.parametrize("wrong", [
    "# HELP a A.\n# TYPE a gauge\na 1\na 2\n", "# HELP a A.\n# TYPE b gauge\nb 1\n", "# HELP a A.\n# TYPE a gauge\nb 1\n",
    "# HELP a A.\n# TYPE a gauge\na{x=1} 1\n", "# HELP a A.\n# TYPE a counter\na 1\n", "# HELP a A.\n# TYPE a gauge\na 1"])
def test_what_is_none_does_not_pass(wrong: str) -> None:
    with pytest.raises(AssertionError):
        check(families_of(wrong))
