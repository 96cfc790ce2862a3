"""`penstock explain` of a really started server, and what it refuses."""
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.cli.explain import parts_of
from tests.started import start, stop

KEY = "secret"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """brook with two seats, which needs a key."""
    server, address = start("--max-num-seqs", "2", "--kv-tokens", "2048", "--api-key", KEY)
    yield address
    stop(server)


def ask(url: str, number: int) -> int:
    body = {"prompt": [number + 5] * 24, "max_tokens": 16, "ignore_eos": True, "temperature": 0}
    return httpx.post(url + "/v1/completions", json=body, headers={"Authorization": f"Bearer {KEY}"}, timeout=60).status_code


def test_a_server_is_explained_from_its_counters(url: str, penstock: Any) -> None:
    with ThreadPoolExecutor(6) as users:
        assert set(users.map(lambda number: ask(url, number), range(36))) == {200}
    status, out, err = penstock(["explain", url, "--duration", "0", "--api-key", KEY, "--hardware", "l4", "--json"])
    assert status == 0, err
    told = json.loads(out.strip().splitlines()[-1])
    assert told["traffic"]["prompt_tokens"] == 24 and told["traffic"]["output_tokens"] == 16 and told["evidence"]["mean_running"] > 0
    assert told["evidence"]["busy_share"] + told["evidence"]["idle_share"] == pytest.approx(1.0, abs=0.05)
    tried, unknown = {each["lever"] for each in told["tried"]}, set(told["unknown"])
    if told["trust"]["lost"] is None:  # else this machine was too busy for so short a time to be understood
        assert tried >= {"larger-batch", "chunk-size", "more-replicas", "other-hardware"} and "speculation" in unknown
    else:
        assert not tried | unknown
    assert "limit " in err and f"{told['verdict']}\n" in err
    assert any(note.startswith("step times: learned from") for note in told["notes"])


def test_where_nobody_asks_it_says_so_and_stops(url: str, penstock: Any) -> None:
    assert ask(url, 0) == 200
    status, out, err = penstock(["explain", url, "--duration", "0.2", "--api-key", KEY])
    assert status == 1 and out == "" and "no traffic to judge by" in err and "tokens/s" not in err


def test_hardware_has_the_short_names_that_plans_take_and_is_named_once() -> None:
    assert list(parts_of("h200,L4,l4")) == ["h200-sxm", "l4"] and parts_of("none") == {}


def test_the_state_needs_the_key(url: str, penstock: Any) -> None:
    assert httpx.get(url + "/v1/penstock/state").status_code == 401
    told = httpx.get(url + "/v1/penstock/state", headers={"Authorization": f"Bearer {KEY}"}).json()
    assert told["config"]["max_num_seqs"] == 2 and "api_key" not in told["config"] and told["model"]["weight_bytes"] > 10**6
    status, _, err = penstock(["explain", url, "--duration", "0"])
    assert status == 1 and "--api-key" in err


def test_wrong_usage_is_one_sentence(penstock: Any, tmp_path: Path) -> None:
    cases = (
        (["explain", str(tmp_path / "none.json")], 2, "cannot read"), (["explain", "--duration", "-1"], 2, "--duration"),
        (["explain", "--hardware", "abacus"], 2, "unknown hardware"),
        (["explain", "--hardware", " ,"], 2, "--hardware names nothing: give none"),
        (["explain", "--slo", "ttft=5"], 2, "--slo"),
        (["explain", "--hardware", "l4,none"], 2, "--hardware none is for no hardware at all"),
        (["explain", "run.json", "--duration", "5"], 2, "--duration is for a running server, and run.json is a report: leave it out"),
        (["explain", "run.json", "--api-key", "x"], 2, "--api-key is for a running server"),
        (["explain", "http://127.0.0.1:9", "--duration", "0"], 1, "cannot be reached"))
    for words, code, said in cases:
        status, out, err = penstock(words)
        assert (status, out) == (code, "") and said in err and len(err.splitlines()) == 1
