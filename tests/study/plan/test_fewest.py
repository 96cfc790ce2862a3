"""The walk to the fewest replicas that do, against a judge whose answer is known; and rows of a plan that take it."""
import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.compute.fitted import Fitted
from penstock.core.config import EngineConfig
from penstock.core.hardware import Hardware
from penstock.study.plan import here, request
from penstock.study.plan import rehearsal as module
from penstock.study.plan.calibrate import Calibration
from penstock.study.plan.configuration import Configuration
from penstock.study.plan.fewest import TRIALS, Fewest
from penstock.study.plan.load import Load, read_trace
from penstock.study.plan.refine import GROWING, answered_per_s, growth
from penstock.study.plan.rehearsal import Rehearsal, Traffic
from penstock.study.plan.simulate.twin import Pace
from tests.study.plan.test_rehearsal import LAYOUT, PACE, rehearsal
from tests.study.plan.timed import calibrated


def walk(needed: int, most: int | None = None, affordable: Any = lambda: True, in_vain: str = "") -> Fewest:
    def tried(count: int) -> Configuration:
        good = count >= needed
        return Configuration(
            "part", count, 1, 1, "none", "auto", True, replicas=count, meets_slo=good, reason="" if good else f"{count} do not")

    return Fewest(tried, affordable, lambda: in_vain, most)


@pytest.mark.parametrize(("asked", "needed"), [
    *itertools.product((1, 2, 3, 7), range(1, 30)), (16, 21), (16, 12), (16, 127), (100, 99), (100, 150), (100, 201)])
def test_the_fewest_are_found(asked: int, needed: int) -> None:
    judge = walk(needed)
    found = judge.search(asked)
    assert len(judge.found) <= TRIALS
    assert found.replicas == needed and found.meets_slo
    assert ("arithmetic asks for" in judge.told(asked)) is (needed != asked)
    assert (f"{needed - 1} do not" in judge.told(asked)) is (needed > 1)


def test_why_there_are_no_more_is_told() -> None:
    capped = walk(30, most=22)
    assert not capped.search(16).meets_slo and sorted(capped.found) == [16, 20, 22]
    assert capped.told(16) == "arithmetic asks for 16; there are devices for no more than 22"
    single = walk(2, most=1)
    assert not single.search(1).meets_slo and single.told(1) == "arithmetic asks for 1; there are devices for no more than 1"
    hopeless = walk(1000, in_vain="more do not help")
    assert hopeless.search(16).replicas == 16 and hopeless.told(16) == "arithmetic asks for 16; more do not help"
    dear = walk(1000, affordable=lambda: len(dear.found) < 5)
    assert dear.search(16).replicas == 64 and dear.told(16) == "arithmetic asks for 16; more than 64 were not tried"
    assert walk(8, most=8).search(7).meets_slo, "the most that there may be is tried as well"


def test_trials_are_bounded_and_what_was_not_tried_is_told() -> None:
    judge = walk(1, affordable=lambda: False)
    assert judge.search(9).replicas == 9 and judge.told(9) == ""
    judge = walk(7, affordable=lambda: len(judge.found) < 4)
    assert judge.search(16).replicas == 12 and judge.told(16) == "arithmetic asks for 16; 1 to 11 were not tried"


def test_requests_that_are_not_answered_as_fast_as_they_come_are_more_and_more() -> None:
    enough, few = (growth(rehearsal(rate).play(2).samples) for rate in (8.0, 40.0))
    assert enough == 0.0 and few > 10 * GROWING


def test_they_are_more_and_more_where_all_of_them_run() -> None:
    """With seats for all, and steps that take as many times as long as they have rows, nobody waits: all decode slower and slower."""
    shared = Pace(Fitted((1, 4096), (0.001, 4.096), 0.0, 0.0, 0.0, 0.0))
    config = EngineConfig(max_num_seqs=4096, max_num_batched_tokens=4096, kv_tokens=1 << 20)
    found = {rate: Rehearsal(config, shared, Traffic(Load(50, 50, rate=rate), None), 8.0).play(1) for rate in (8.0, 12.0)}
    assert growth(found[8.0].samples) == 0.0 and growth(found[12.0].samples) > GROWING
    one, three = (answered_per_s(found[12.0], Load(50, 50, rate=12.0), replicas) for replicas in (1, 3))
    assert 8.0 < one < 10.1 and three == 3 * one, "1,000 rows a second, 600 of them of prompts"


def test_more_than_have_seats_are_a_queue_even_if_chance_could_do_as_much() -> None:
    served = rehearsal(30.0).play(2).samples[:60]
    grown = growth(served, seats=0.0)
    assert growth(served) == 0.0 < grown


@pytest.mark.parametrize("rate", [20.0, 22.0])
def test_replicas_that_are_fewer_than_arithmetic_asks_for_are_played_for_as_long_as_it_takes(ask: Any, rate: float) -> None:
    row = ask("llama-3-8b", "l4", rate=rate, quant=("fp8",), kv_dtype=("fp8",), tensor_parallel="1", pipeline_parallel="1", chunk="8192",
              prefill_split=False)[0]
    assert row.replicas == 3 and "pile up with 2 replicas" in row.replicas_told


@pytest.mark.usefixtures("few_requests")
def test_measured_steps_that_do_not_keep_up_are_told(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Calibration(Fitted((1, 4096), (0.02, 2.0), 0.0, 0.0, 0.0, 0.0), 0.0, 100, 0.0, 0.0)

    machine = Hardware("a machine", {1 << 20: 2e11, 1 << 30: 1e11}, {"fp32": 4e13, "bf16": 4e13, "int8": 4e13})
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: machine)
    calibrated(monkeypatch, lambda config: found)
    monkeypatch.setattr(request, "has_weights", lambda name: True)
    asked = {"input": 20, "output": 200, "quant": ("none",), "chunk": "512"}
    slow = ask("llama-3.2-1b", "here", rate=12.0, **asked)[0]
    assert slow.steps == "measured" and not slow.meets_slo, "although there is no SLO"
    assert "requests pile up with 1 replica" in slow.reason and "of 12 a second are answered" in slow.reason
    assert slow.requests_per_s < 10 and slow.output_tokens_per_s == pytest.approx(200 * slow.requests_per_s)
    good = ask("llama-3.2-1b", "here", rate=1.0, **asked)[0]
    assert good.steps == "measured" and good.meets_slo and good.requests_per_s == 1.0


def test_shared_prefixes_take_fewer_replicas_than_means_do(ask: Any, tmp_path: Path) -> None:
    def asked(name: str, ids: Any, **options: Any) -> Any:
        trace = tmp_path / name
        trace.write_text("".join(json.dumps(
            {"timestamp": 500 * at, "input_length": 2048, "output_length": 8, "hash_ids": ids(at)}) + "\n" for at in range(400)))
        return ask("llama-2-7b", "l4", traffic=str(trace), chunk="2048", **LAYOUT, **options)[0]

    alike = range(3)
    row = asked("shared", lambda at: [*alike, 1000 + at], slo="ttft=2s")
    plain = asked("shared", lambda at: [*alike, 1000 + at], slo="ttft=2s", simulate=False)
    assert row.meets_slo and row.replicas < plain.replicas and f"arithmetic asks for {plain.replicas}" in row.replicas_told
    assert row.devices == row.replicas and row.usd_per_hour < plain.usd_per_hour and row.utilization < plain.utilization
    apart = asked("apart", lambda at: [4 * at + each for each in range(4)])  # without an SLO: what keeps up
    assert apart.replicas > 1 and "pile up" in apart.replicas_told


def test_one_replica_that_stands_for_all_makes_no_fewer_look_crowded(ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REQUESTS", 300)
    monkeypatch.setattr(module, "LEAST_REQUESTS", 300)
    monkeypatch.setattr(module, "LEAST_EACH", 30)
    trace = tmp_path / "trace"
    trace.write_text("".join(json.dumps(
        {"timestamp": 500 * at, "input_length": 2048, "output_length": 8, "hash_ids": [0, 1, 2, 1000 + at]}) + "\n" for at in range(350)))
    asked = {"traffic": str(trace), "rate": 12.0, "slo": "ttft=2s", "chunk": "2048", **LAYOUT}
    together = ask("llama-2-7b", "l4", **asked)[0]
    many = ask("llama-2-7b", "l4", simulate=False, **asked)[0].replicas
    rehearsed = Rehearsal(EngineConfig(), PACE, Traffic(Load(2048, 8, rate=12.0), read_trace(str(trace))), together.running)
    assert not rehearsed.alone(many)
    monkeypatch.setattr(module, "LEAST_EACH", module.REQUESTS // many + 1)  # so many are not played together, one less are
    assert rehearsed.alone(many)
    alone = ask("llama-2-7b", "l4", **asked)[0]
    assert 1 < together.replicas == alone.replicas < many - 1
    number = re.compile(r"[0-9]+(?:[.][0-9]+)?")
    assert number.sub("N", alone.replicas_told) == number.sub("N", together.replicas_told)
    told, others = ([float(each) for each in number.findall(row.replicas_told)] for row in (alone, together))
    assert told == pytest.approx(others, rel=0.03)  # of a play that piles up, which is broken off at another crowd: 9.21 and 9.40 a second
