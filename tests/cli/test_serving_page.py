"""What docs/serving.md says to type works as it stands there, and what it says of defaults is so."""
import json
import re
from pathlib import Path

import httpx
import pytest

from penstock.cli.foreign import NAMES, SENTENCES
from penstock.cli.options import options_of
from penstock.core.config import EngineConfig, ServerConfig
from penstock.serve.engine.resolve import KV_SHARE
from tests.started import start, stop

PAGE = (Path(__file__).parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
TOML = re.findall(r"^```toml\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
KEY, BODY = re.findall(r"^curl \S+ -H '(Authorization: Bearer [^']+)' .*? -d '(.*?)'$", PAGE, re.MULTILINE | re.DOTALL)[0]
OPTIONS = {flag: each for kind in (EngineConfig, ServerConfig) for each in options_of(kind) for flag in each.flags[0].split("/")}


def test_the_file_of_options_is_served_as_its_request_expects(tmp_path: Path) -> None:
    (file := tmp_path / "serve.toml").write_text(TOML[0], encoding="utf-8")
    name, _, key = KEY.partition(": ")
    server, url = start("--config", str(file))
    try:
        answer = httpx.post(url + "/v1/chat/completions", json=json.loads(BODY), headers={name: key}, timeout=60)
        refused = httpx.post(url + "/v1/chat/completions", json=json.loads(BODY), timeout=60)
    finally:
        stop(server)
    assert answer.status_code == 200 and answer.json()["model"] == "storyteller" and refused.status_code == 401


@pytest.mark.parametrize("option", sorted({*re.findall(r"`(--[a-z-]+)[^`]*`", PAGE)} - {"--config", *NAMES, *SENTENCES}))
def test_options_are_ours(option: str) -> None:
    assert option in OPTIONS


@pytest.mark.parametrize(("option", "told"), re.findall(r"^\| `(--[a-z-]+) N` \| (\d+) \|", PAGE, re.MULTILINE))
def test_defaults_are_ours(option: str, told: str) -> None:
    assert OPTIONS[option].default == int(told)


def test_shares_and_times_are_ours() -> None:
    said = " ".join(PAGE.split())
    assert f"gets {KV_SHARE * 100:g} % of the memory" in said and f"`--drain-s` seconds ({ServerConfig().drain_s:g})" in said
