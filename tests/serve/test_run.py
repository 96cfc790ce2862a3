"""How a server starts: what is looked at before it serves, and what it is made of then."""
from dataclasses import fields
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from penstock.core.config import EngineConfig, ServerConfig
from penstock.core.errors import UsageError
from penstock.serve import run
from penstock.serve.api.parts import Parts
from penstock.serve.api.requestlog import RequestLog
from tests.started import has_ipv6
from tests.tiny import write_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def started(folder: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Parts, list[str]]:
    """The server, which ends as soon as it serves, and what it says."""
    seen: list[Parts] = []
    lines: list[str] = []
    monkeypatch.setattr(run, "run", lambda app, *others: seen.append(app.state.desk.parts))
    monkeypatch.setattr(run.gc, "unfreeze", lambda: None)  # what other tests left stays set aside
    run.serve(EngineConfig(model=str(folder)), ServerConfig(port=0, **options), lines.append)
    return seen[0], lines


@pytest.mark.parametrize(("host", "shown"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("[::1]", "[::1]")])
def test_the_url_that_is_told_is_where_the_server_listens(
        host: str, shown: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if ":" in host and not has_ipv6():
        pytest.skip("this machine has no IPv6")
    parts, lines = started(folder, monkeypatch, host=host, log_requests=str(tmp_path))
    url = f"http://{shown}:{parts.config.port}"
    logged = RequestLog(parts.config).write("/tokenize", {}).read_text("utf-8")
    assert parts.config.port > 0 and f" at {url}, " in lines[-2] and f"{url}/tokenize" in logged
    assert f"curl {quote(f'{url}/v1/chat/completions')} " in lines[-1]
    assert any("--port 0" in line for line in lines)


def test_chat_templates_are_compiled_before_anybody_asks(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    parts, lines = started(folder, monkeypatch)
    assert "compiled" in vars(parts.chat_template) and not any("template" in line for line in lines)
    (tmp_path / "given.jinja").write_text("{{ bos_token }}given")
    parts, _ = started(folder, monkeypatch, chat_template=str(tmp_path / "given.jinja"))
    assert "compiled" in vars(parts.chat_template) and parts.chat_template.render([]) == "<|begin|>given"


@pytest.mark.parametrize("option", sorted(each.name for each in fields(ServerConfig) if "str" in str(each.type)))
def test_an_empty_value_is_refused_before_the_model_is_loaded(
        option: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "build", None)
    with pytest.raises(UsageError, match=f"^--{option.replace('_', '-')} is empty: give it a value, or leave it out$"):
        started(folder, monkeypatch, **{option: ("",) if option == "scorer_url" else ""})


@pytest.mark.parametrize(("source", "says"), [("a\n{% if %}", "is not jinja at line 2"), (None, "cannot be read: No such file")])
def test_a_given_template_that_cannot_be_used_ends_the_start_before_the_model_is_loaded(
        source: str | None, says: str, folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "bad.jinja"
    if source is not None:
        path.write_text(source)
    monkeypatch.setattr(run, "build", None)
    with pytest.raises(UsageError, match=f"--chat-template .*bad.jinja cannot be used: .*{says}"):
        started(folder, monkeypatch, chat_template=str(path))


def test_a_model_whose_own_template_is_broken_is_served_without_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = write_model(tmp_path)
    (folder / "chat_template.jinja").write_text("{{ messages")
    parts, lines = started(folder, monkeypatch)
    assert not parts.chat_template.sources
    (said,) = [line for line in lines if "template" in line]
    assert "is not jinja at line 1" in said and "chats are refused" in said and "--chat-template FILE" in said


def test_the_engine_is_given_the_time_that_its_steps_need(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "patience_s", lambda built: 123.0)
    parts, _ = started(folder, monkeypatch)
    assert parts.engine._engine._wedged_s == 123.0  # type: ignore[attr-defined]
