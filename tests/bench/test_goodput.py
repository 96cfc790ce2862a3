"""The benchmark of goodput asks for what it says it asks for."""
import asyncio
from collections import Counter
from types import SimpleNamespace
from typing import Any

import goodput
import pytest

from penstock.core.config import EngineConfig
from penstock.core.work import StepWork
from penstock.study.measure.slo import Slo
from penstock.study.plan.simulate.twin import Pace


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
    args = SimpleNamespace(ttft_times=10.0, tpot_times=30.0, loads=[0.5], rounds=2, seconds=2.0, seed=1)
    found = goodput.sweep({"fcfs": twin("fcfs"), "deadline": twin("deadline")}, args, runner)  # type: ignore[arg-type]
    for row in found["rows"]:
        assert row["kept"] == sum(row["kept_by_round"]) == pytest.approx(row["goodput_per_s"] * 4) and len(row["kept_by_round"]) == 2
    assert found["rows"][0]["asked"] == found["rows"][1]["asked"]


def test_none_kept_is_said_and_a_ratio_counts_one(runner: asyncio.Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    args = SimpleNamespace(ttft_times=10.0, tpot_times=30.0, loads=[0.5], rounds=2, seconds=2.0, seed=1)
    kept = iter((0, 3, 5, 0))  # of fcfs, of deadline, and the other way round
    rest = {"asked": 5, "answered": 5, "late_ttft": 0, "late_tpot": 0}
    monkeypatch.setattr(goodput, "row_of", lambda asked, samples, slos: Counter({"kept": next(kept), **rest}))
    found = goodput.sweep({"fcfs": twin("fcfs"), "deadline": twin("deadline")}, args, runner)  # type: ignore[arg-type]
    assert [(row["kept"], row["late_ttft"]) for row in found["rows"]] == [(0, 0), (8, 0)]
    assert found["deadline_over_fcfs"] == {"0.5": 8.0}
