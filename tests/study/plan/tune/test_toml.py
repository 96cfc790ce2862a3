from dataclasses import replace
from typing import Any

import pytest

from penstock.cli.options import options_of, read
from penstock.core.config import EngineConfig, ServerConfig
from penstock.core.slo import parse_objectives
from penstock.study.measure.slo import Slo
from penstock.study.plan.tune.budget import Drift
from penstock.study.plan.tune.outcome import Gain, Outcome
from penstock.study.plan.tune.pairs import Pairs
from penstock.study.plan.tune.setting import Setting
from penstock.study.plan.tune.toml import text
from tests.study.plan.tune.fake_bench import score

SLO = Slo({"ttft": 0.3, "itl": 0.1, "e2e": 2.0})
GIVEN = EngineConfig(model='a "quoted\\ folder\x7f/ü')
WORSE = Pairs(((score(10.0), score(12.0)), (score(10.0), score(12.1))))
PAIRS = Pairs(((score(12.0), score(10.0)), (score(12.1), score(10.0))))


def options(content: str, path: Any) -> dict[str, Any]:
    """As `penstock serve --config` reads them."""
    path.write_text(content, encoding="utf-8")
    known = {each.name: each for kind in (ServerConfig, EngineConfig) for each in options_of(kind)}
    return read(str(path), known, "serve")


def loaded(content: str, path: Any) -> EngineConfig:
    found = options(content, path)
    assert ServerConfig(slo_default=found.pop("slo_default")).slo_default == "ttft=300ms,e2e=2000ms"
    return EngineConfig(**found)


@pytest.mark.parametrize("changes", [
    (), (("max_num_seqs", 128), ("prefix_cache", False)),
    (("quant", "int8:activations=int8"), ("propose", "suffix:k=4"), ("draft_control", "patient"), ("kv_tokens", 4096), ("threads", 2)),
])
def test_serve_reads_what_was_written(tmp_path, changes):
    given = replace(GIVEN, dtype="bfloat16")
    outcome = Outcome(Setting(changes), PAIRS, tuple([Gain(name, value, PAIRS) for name, value in changes]))
    content = text(outcome, given, SLO, {"--slo": "ttft=1s\nthreads = 64"})
    assert loaded(content, tmp_path / "tuned.toml") == Setting(changes).apply(given)


def test_each_option_says_what_it_gained():
    outcome = Outcome(Setting((("max_num_seqs", 128),)), PAIRS, (Gain("max_num_seqs", 128, PAIRS),))
    lines = text(outcome, GIVEN, SLO, {"--slo": "ttft=1s", "machine": "a small one"}).splitlines()
    assert "# machine: a small one" in lines and "# --slo: ttft=1s" in lines
    gain = "good requests/s 12 for 10 (100 and 100 came) in a pair near the middle, 1.2"
    assert lines[lines.index("max_num_seqs = 128") - 1].startswith(f"# against the same without it: {gain}")
    assert "# max_num_seqs=128 is confirmed: 1.2 times the defaults' good requests/s (2 pairs of runs, 95 %: 1.14 to 1.27)" in lines


def test_a_weight_format_says_what_it_changes():
    outcome = Outcome(Setting((("quant", "int8"), ("threads", 2))), PAIRS, (Gain("quant", "int8", PAIRS),), drift=Drift(0.01, 0.02, 128))
    lines = text(outcome, GIVEN, SLO, {}).splitlines()
    assert lines[lines.index('quant = "int8"') - 2] == (
        "# quant=int8 changes the answers: kl 0.01 nats, flips 2.0%, at 128 places of a built-in text")
    assert sum("changes the answers" in line for line in lines) == 1


def test_the_defaults_are_written_as_such(tmp_path):
    content = text(Outcome(pairs=WORSE, rejected=Setting((("threads", 2),))), EngineConfig(), SLO, {})
    assert "# the defaults are best: threads=2 gave 0.8" in content
    assert loaded(content, tmp_path / "tuned.toml") == EngineConfig()


def test_what_the_search_was_for_is_what_is_served_for(tmp_path):
    told = options(text(Outcome(), GIVEN, SLO, {}), tmp_path / "tuned.toml")["slo_default"]
    found = parse_objectives(told, "--slo-default")
    assert (found.ttft_s, found.tpot_s, found.e2e_s) == (0.3, None, 2.0)
    assert "slo_default" not in options(text(Outcome(), GIVEN, Slo({"itl": 0.1}), {}), tmp_path / "tuned.toml")
