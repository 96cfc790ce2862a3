"""What `penstock bench` and `penstock explain` send beside a request."""
from typing import Any

import pytest

from penstock.cli.bench import BenchOptions, access_of
from penstock.cli.explain import ExplainOptions, told
from penstock.core.config import EngineConfig
from penstock.study.explain import source

URL = EngineConfig(model="http://box")


@pytest.mark.parametrize(("options", "keys"), [
    (BenchOptions(), ("theirs",)), (BenchOptions(api_key=("mine",)), ("mine",)), (BenchOptions(header=("X-Team: a",)), ("theirs",)),
    (BenchOptions(header=("authorization: Basic mine",)), ())])
def test_the_environments_key_is_taken_where_no_other_is_given(
    monkeypatch: pytest.MonkeyPatch, options: BenchOptions, keys: tuple[str, ...]
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "theirs")
    found = access_of(options, URL)
    assert found.keys == keys and list(found.headers) == [line.partition(":")[0] for line in options.header]


def keys_of(monkeypatch: pytest.MonkeyPatch, given: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """Those that the two commands send."""
    monkeypatch.setattr(source, "ask", lambda access, *_: access)
    explained: Any = told(ExplainOptions("http://box", api_key=given[0] if given else None), print)
    return [access_of(BenchOptions(api_key=given), URL).keys, explained.keys]


@pytest.mark.parametrize(("theirs", "keys"), [("theirs", ("theirs",)), ("", ()), (" ", ())])
def test_an_empty_variable_is_no_key(monkeypatch: pytest.MonkeyPatch, theirs: str, keys: tuple[str, ...]) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", theirs)
    assert keys_of(monkeypatch) == [keys, keys] and keys_of(monkeypatch, ("mine",)) == [("mine",)] * 2


@pytest.mark.parametrize("command", ["bench", "explain"])
def test_an_empty_key_is_refused(penstock: Any, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "theirs")
    assert penstock([command, "http://127.0.0.1:9", "--api-key", ""]) == (
        2, "", "error: --api-key is empty: give a key, or leave it out\n")
