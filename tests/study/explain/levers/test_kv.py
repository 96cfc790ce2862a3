from dataclasses import replace
from pathlib import Path

from penstock.study.explain.case import Case
from penstock.study.explain.levers.kv import KV
from tests.study.explain.planted import Load
from tests.study.explain.test_planted import explained


def options(case: Case) -> dict[str, str]:
    """Of formats with codes: what changes of a token's bytes."""
    changes = [change for change in KV().changes(case) if change.option.startswith("--kv-dtype")]
    assert not any(change.here for change in changes) and all("this engine does not support it yet" in change.costs for change in changes)
    return {change.option.removeprefix("--kv-dtype "): change.costs[0] for change in changes}


def test_formats_of_fewer_bytes_a_token_are_tried(model: Path) -> None:
    """Their scales are of a head, whose 64 values they are divided among."""
    _, found = explained(model, Load(users=3, prompt=32, output=50, seconds=5), only="speculation")
    case = found.case
    told = {"fp8": "8.19 kB a token", "int8": "8.45 kB a token", "int4": "4.35 kB a token"}
    assert options(case) == {name: f"32.8 kB -> {after}" for name, after in told.items()}
    halves = case.with_config(kv_dtype="bfloat16")
    assert options(replace(case, way=halves, kv_bytes_per_token=case.kv_bytes_per_token / 2)) == {
        name: f"16.4 kB -> {after}" for name, after in told.items()}
    bytes_each = case.with_config(kv_dtype="int8")
    assert options(replace(case, way=bytes_each, kv_bytes_per_token=8_448.0)).keys() == {"fp8", "int4"}


def test_what_an_engine_pads_it_pads_in_other_formats_too(model: Path) -> None:
    """As heads of 8 are kept as 16: a format of a quarter of the bytes is of a quarter still."""
    _, found = explained(model, Load(users=3, prompt=32, output=50, seconds=5), only="speculation")
    case = replace(found.case, kv_bytes_per_token=2 * found.case.kv_bytes_per_token)
    changes = {change.option: change for change in KV().changes(case)}
    assert changes["--kv-dtype fp8"].costs[0] == "65.5 kB -> 16.4 kB a token"
    assert changes["--kv-dtype fp8"].way.config.kv_tokens == 4 * (case.config.kv_tokens or 0)
