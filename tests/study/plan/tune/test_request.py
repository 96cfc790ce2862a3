"""What a search refuses before it begins, how it goes on, and what it tells."""
import re
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.tune import TuneOptions, make_request
from penstock.core.config import EngineConfig
from penstock.core.errors import UsageError
from penstock.study.plan.tune import request as module
from penstock.study.plan.tune.engines import Watchers
from penstock.study.plan.tune.outcome import Outcome
from penstock.study.plan.tune.request import Tuned, tune
from tests.tiny import write_model


def test_levers_that_are_all_given_leave_nothing_to_search(tmp_path) -> None:
    output = tmp_path / "tuned.toml"
    request = make_request(TuneOptions(slo="ttft=1s", rate=1.0, levers="threads", output=str(output)), EngineConfig(threads=1))
    with pytest.raises(UsageError, match="--levers threads leaves nothing to search: threads: it was set to 1"):
        tune(request, Watchers(lambda line: None))
    assert not list(tmp_path.iterdir())


def test_a_search_goes_on_with_the_cache_that_it_began_with(tmp_path, monkeypatch) -> None:
    """However much memory is free then: its settings are known by their values."""
    def cut_short(levers, terms, engines, journal, say):
        tried.append(levers.of("kv_tokens"))
        journal.recall("a", dict)
        raise KeyboardInterrupt

    def search(tokens: int, restart: bool = False) -> None:
        monkeypatch.setattr(module.Engines, "resolved", lambda self, setting: replace(resolved(self, setting), kv_tokens=tokens))
        options = TuneOptions(slo="ttft=1s", rate=1.0, output=str(tmp_path / "tuned.toml"), restart=restart)
        with pytest.raises(KeyboardInterrupt):
            tune(make_request(options, EngineConfig(str(tmp_path / "model"), max_model_len=64)), Watchers(said.append))

    resolved, tried, said = module.Engines.resolved, [], []
    monkeypatch.setattr(module, "Search", cut_short)
    write_model(tmp_path / "model")
    search(480)
    search(240)
    search(100_000)
    search(496)
    search(464)
    search(240, restart=True)
    assert tried == [(640,)] * 5 + [(320,)]
    assert [line for line in said if "when the search began" in line] == [
        f"the engine's own KV cache holds {now} tokens in the memory that is free now, and held 480 when the search began"
        for now in ("240", "100,000")]


def test_another_trace_or_checkpoint_of_the_same_name_or_build_is_another_search(tmp_path, monkeypatch) -> None:
    def cut_short(levers, terms, engines, journal, say):
        journal.recall("a", dict)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "Search", cut_short)
    model, trace = tmp_path / "model", tmp_path / "trace.csv"

    def search() -> None:
        options = TuneOptions(slo="ttft=1s", traffic=str(trace), output=str(tmp_path / "tuned.toml"))
        tune(make_request(options, EngineConfig(str(model))), Watchers(lambda line: None))

    def asked(*prompts: int) -> str:
        rows = [f"2023-11-16 18:17:{second:02}.0,{tokens},4\n" for second, tokens in enumerate(prompts)]
        return "".join(["TIMESTAMP,ContextTokens,GeneratedTokens\n", *rows])

    write_model(model)
    trace.write_text(asked(20, 21))
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            search()
    trace.write_text(asked(20, 22))
    with pytest.raises(UsageError, match=r"was begun with requests \(digest\) [0-9a-f]{12}, not [0-9a-f]{12}: give another --output"):
        search()
    trace.write_text(asked(20, 21))
    with monkeypatch.context() as changed:
        changed.setattr(module, "native_build", lambda: "another")
        with pytest.raises(UsageError, match=r"was begun with kernels \(digest\) [0-9a-f]{12}, not another"):
            search()
    with monkeypatch.context() as changed:
        changed.setattr("penstock.__version__", "99.0")
        with pytest.raises(UsageError, match="was begun with version .*, not 99.0"):
            search()
    (model / "model.safetensors").touch()
    with pytest.raises(UsageError, match=r"was begun with weights \(digest\) [0-9a-f]{12}, not [0-9a-f]{12}"):
        search()


def test_the_page_names_every_field_of_the_answer() -> None:
    page = (Path(__file__).parents[4] / "docs" / "tune.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"`--json` prints the answer.*?^$", page, re.MULTILINE | re.DOTALL)
    told = Tuned(Outcome(), {"asked": {}, "model": "", "output": ""}).as_json()
    assert set(told) <= set(re.findall(r"[a-z_]+", listed))
