"""The benchmark of goodput asks for what it says it asks for."""
import asyncio
import json
import sys
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import goodput
import pytest

from penstock.core.config import EngineConfig
from penstock.core.work import StepWork
from penstock.study.measure.slo import Slo
from penstock.study.plan.simulate.twin import Pace

ASKED = SimpleNamespace(orders=["fcfs", "deadline"], ttft_times=10.0, tpot_times=30.0, loads=[0.5], rounds=2, seconds=2.0, seed=1)


class Timer:
    """10 ms a step and 0.1 ms a row."""

    def seconds(self, work: StepWork) -> float:
        return 0.01 + 0.0001 * work.num_tokens


@pytest.fixture
def runner() -> Any:
    with asyncio.Runner() as made:
        yield made


def twin(order: str, **more: Any) -> goodput.Twin:
    config = EngineConfig(model="brook", kv_tokens=65536, block_size=16, max_num_seqs=32, max_num_batched_tokens=512, **more)
    return goodput.Twin(goodput.config_of(config, order), Pace(Timer()))


@pytest.mark.parametrize("order", ["priority", "deadline", "shortest+slo"])
def test_the_twin_is_told_objectives_and_priorities(order: str, runner: asyncio.Runner) -> None:
    slos = {kind.name: Slo({"ttft": 0.5, "tpot": 0.1}) for kind in goodput.KINDS}
    asked = goodput.poisson(20.0, 2.0, "a")
    samples = twin(order).play(asked, slos, runner)
    assert len(samples) == len(asked) > 20 and all(sample.ok for sample in samples)
    assert goodput.row_of(asked, samples, slos)["asked"] == len(asked)


def test_answers_that_are_open_are_forecast(runner: asyncio.Runner) -> None:
    """Four seats, at which most have to wait for the first to end."""
    slos = {kind.name: Slo({"ttft": 0.3, "tpot": 0.1}) for kind in goodput.KINDS}
    asked = goodput.poisson(12.0, 8.0, "a")
    config = EngineConfig(kv_tokens=65536, max_num_seqs=4, max_num_batched_tokens=512, max_model_len=4096, order="deadline")
    known, forecast = (goodput.Twin(config, Pace(Timer()), is_open).play(asked, slos, runner) for is_open in (False, True))
    kept = [goodput.row_of(asked, samples, slos)["kept"] for samples in (known, forecast)]
    assert 0.5 * kept[0] < kept[1] < 0.95 * kept[0], kept
    assert {sample.finish_reason for sample in forecast if sample.ok} == {"stop"}


def test_on_the_engine_no_length_is_known_beforehand(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["goodput.py", "--open"])
    with pytest.raises(SystemExit, match="2"):
        goodput.main()
    assert "--open needs --twin" in capsys.readouterr().err


def test_a_lone_request_takes_what_its_own_prompt_takes_whoever_was_measured_before(runner: asyncio.Runner) -> None:
    cached = twin("fcfs", prefix_cache=True)
    cached.play = lambda asked, *rest, made=cached.play: [remembered.append(asked[0]) or made(asked, *rest)[0]]  # type: ignore[method-assign]
    remembered: list[goodput.Ask] = []
    for kind in goodput.KINDS:
        goodput.alone(cached, kind, runner)
    begins = [ask.tokens(4096)[:16] for ask in remembered]
    assert len(set(begins)) == len(begins) == 6 * len(goodput.KINDS)


def test_loads_and_rounds_ask_for_other_requests() -> None:
    asked = [goodput.poisson(50.0, 1.0, seed) for seed in ("1/0.5/0", "1/0.5/1", "1/1.0/0", "1/0.5/0")]
    assert asked[0] == asked[3] and len({ask.seed for each in asked[:3] for ask in each}) == sum(map(len, asked[:3]))
    assert goodput.turned(["a", "b", "c"], 4) == ["b", "c", "a"]


def test_rounds_are_summed(runner: asyncio.Runner, capsys: pytest.CaptureFixture[str]) -> None:
    found = goodput.sweep({"fcfs": twin("fcfs"), "deadline": twin("deadline")}, ASKED, runner)  # type: ignore[arg-type]
    for row in found["rows"]:
        assert row["kept"] == sum(row["kept_by_round"]) == pytest.approx(row["goodput_per_s"] * 4) and len(row["kept_by_round"]) == 2
    assert found["rows"][0]["asked"] == found["rows"][1]["asked"]


def test_none_kept_is_said_and_a_ratio_counts_one(runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = iter((0, 3, 5, 0))  # of fcfs, of deadline, and the other way round
    rest = {"asked": 5, "answered": 5, "late_ttft": 0, "late_tpot": 0}
    monkeypatch.setattr(goodput, "row_of", lambda asked, samples, slos: Counter({"kept": next(kept), **rest}))
    found = goodput.sweep({"fcfs": twin("fcfs"), "deadline": twin("deadline")}, ASKED, runner)  # type: ignore[arg-type]
    assert [(row["kept"], row["late_ttft"]) for row in found["rows"]] == [(0, 0), (8, 0)]
    assert found["deadline_over_fcfs"] == {"0.5": 8.0}


class Played:
    """Writes down by what it is asked."""

    def __init__(self, name: str, seen: list[str]) -> None:
        self.name, self.seen = name, seen

    def warm(self, runner: asyncio.Runner) -> None:
        self.seen.append(f"warm {self.name}")

    def play(self, asked: Any, slos: Any, runner: Any, patience_s: float = 0.0) -> list[Any]:
        self.seen.append(f"play {self.name}")
        return []


def test_capacity_and_objectives_are_those_of_fcfs_whoever_is_asked_for(runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    monkeypatch.setattr(goodput, "alone", lambda engine, kind, runner: seen.append(f"alone {engine.name}") or (0.01, 0.001))
    monkeypatch.setattr(goodput, "capacity", lambda engine, runner: seen.append(f"capacity {engine.name}") or 20.0)
    monkeypatch.setattr(goodput, "row_of", lambda asked, samples, slos: Counter(kept=1, asked=1, answered=1, late_ttft=0, late_tpot=0))
    monkeypatch.setattr(goodput, "Engine", lambda config: Played(config.order, seen))
    args = SimpleNamespace(**{**vars(ASKED), "orders": ["deadline", "shortest"], "rounds": 1, "twin": False})
    found = goodput.sweep(goodput.engines(EngineConfig(), args), args, runner)  # type: ignore[arg-type]
    assert seen == ["warm fcfs", "warm deadline", "warm shortest", *["alone fcfs"] * 3, "capacity fcfs", "play deadline", "play shortest"]
    assert [row["order"] for row in found["rows"]] == ["deadline", "shortest"]


def test_prompts_that_warm_an_engine_are_not_those_of_its_capacity() -> None:
    crowds = [goodput.crowd(seed) for seed in range(3)]
    assert len({ask.seed for crowd in crowds for ask in crowd}) == 3 * goodput.FULL


def test_a_short_run_and_one_of_another_model_are_kept_beside_a_whole_one(
        tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(goodput, "engines", lambda config, args: {})
    monkeypatch.setattr(goodput, "sweep", lambda made, args, runner: {"rows": []})
    monkeypatch.setattr(goodput, "check_engine", lambda config: None)
    monkeypatch.setattr(goodput, "RESULTS", tmp_path)
    for words in ([], ["--orders", "fcfs", "--loads", "1", "--seconds", "3"], ["--model", "a/brook"], []):
        monkeypatch.setattr(sys, "argv", ["goodput.py", "--record", *words])
        goodput.main()
    told = {path.name.partition("-goodput-")[2]: json.loads(path.read_text())["model"] for path in tmp_path.iterdir()}
    assert told == {"brook.json": "brook", "brook-orders-fcfs-loads-1-0-seconds-3-0.json": "brook", "brook-model-a-brook.json": "a/brook"}
