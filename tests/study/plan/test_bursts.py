"""Rows that the twin does not play, under the arrivals of a trace."""
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.compute.steptime import Split
from penstock.core.catalogue.read import Catalogue
from penstock.serve.engine import build
from penstock.study.plan import refine
from penstock.study.plan.bursts import Bursts, _Trial, fewest, handed
from penstock.study.plan.configuration import Configuration
from penstock.study.plan.evaluate import Goal
from penstock.study.plan.line import Server
from penstock.study.plan.load import Load
from penstock.study.plan.model import weight_format
from penstock.study.plan.reached import Replica
from penstock.study.plan.request import model_of
from penstock.study.plan.simulate.call import Call
from tests.study.plan.traces import in_bursts, some_long

PLAIN = {"quant": ("none",), "kv_dtype": ("auto",), "tensor_parallel": "1", "slo": "ttft=3s", "chunk": "2048"}


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return in_bursts(tmp_path / "bursts.jsonl")


def test_prompts_on_replicas_of_their_own_line_up_there(ask: Any, trace: str) -> None:
    def apart(**options: Any) -> Configuration:
        rows = ask("llama-2-7b", "l4", **PLAIN, pipeline_parallel="1", **options)
        return next(row for row in rows if row.prefill_replicas)

    means, judged = apart(traffic=trace, simulate=False), apart(traffic=trace)
    assert means.meets_slo and (means.prefill_replicas, means.replicas) == (1, 2) and means.kept_share is None
    few = apart(traffic=trace, max_devices=2)
    assert not few.meets_slo and few.predicted_by == "arithmetic" and few.kept_share < 0.5
    own_s, through_s = (ask("llama-2-7b", "l4", **PLAIN, pipeline_parallel="1", rate=0.001, input=1000, output=60, simulate=False,
                            prefill_split=split)[-1].ttft_s for split in (False, True))
    assert few.ttft_s == pytest.approx(through_s + 20 * own_s, rel=0.05), "two are computed at a time, of forty"
    assert f"kept for {few.kept_share:.0%} of the trace's requests" in few.reason
    assert judged.meets_slo and judged.kept_share >= 0.9 and judged.prefill_replicas > 3 and judged.devices == judged.replicas
    assert judged.replicas_told.startswith("arithmetic asks for 2; ") and judged.ttft_p99_s < 4


def test_stages_line_up_too(ask: Any, trace: str) -> None:
    asked = PLAIN | {"pipeline_parallel": "2", "prefill_split": False, "traffic": trace}
    (means,), (judged,), (few,) = (
        ask("llama-2-7b", "l4", **asked, **options) for options in ({"simulate": False}, {}, {"max_devices": 2}))
    assert means.meets_slo and means.replicas == 1 and judged.meets_slo and judged.replicas > 1
    assert not few.meets_slo and few.ttft_p99_s > 2 * means.ttft_p99_s


def test_what_no_number_of_replicas_keeps_stays_as_it_is(ask: Any, tmp_path: Path) -> None:
    file = some_long(tmp_path / "long.jsonl")
    asked = PLAIN | {"pipeline_parallel": "2", "prefill_split": False, "traffic": file, "slo": "ttft=400ms"}
    (row,) = ask("llama-2-7b", "l4", **asked)
    assert not row.meets_slo and row.replicas == 1 and row.kept_share == pytest.approx(0.8)


def test_a_line_does_as_the_twin_does(ask: Any, trace: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[Configuration, Configuration]] = []
    played = refine.Twins._refined

    def both(self: refine.Twins, row: Configuration, watch: Any) -> Configuration:
        found = played(self, row, watch)
        sized = replace(row, replicas=found.replicas, devices=found.devices)
        bursts = Bursts(self.model, self.formats, self.parts, replace(self.goal, most_s={}), self.traffic)
        seen.append((found, bursts.judged(sized)))
        return found

    monkeypatch.setattr(refine.Twins, "_refined", both)
    ask("llama-2-7b", "l4", **PLAIN, traffic=trace, pipeline_parallel="1", prefill_split=False)
    for twin, line in seen:
        assert line.ttft_s == pytest.approx(twin.ttft_s, rel=0.1) and line.ttft_p99_s == pytest.approx(twin.ttft_p99_s, rel=0.1)
        assert line.tpot_s == pytest.approx(twin.tpot_s, rel=0.1) and line.e2e_s == pytest.approx(twin.e2e_s, rel=0.1)
    assert seen


@pytest.mark.parametrize(("most", "found"), [(None, (4, 3)), (7, (4, 3)), (6, (4, 2))])
def test_of_replicas_that_are_enough_no_more_are_taken(monkeypatch: pytest.MonkeyPatch, most: int | None, found: tuple[int, int]) -> None:
    """Four for prompts are enough where three decode."""
    def enough(self: Any, row: Configuration) -> float:
        return float(row.prefill_replicas >= 4 and row.replicas - row.prefill_replicas >= 3)

    monkeypatch.setattr(_Trial, "_kept", enough)
    stored, part = model_of("llama-2-7b").stored(weight_format("none", build.parse_quant), "auto"), Catalogue().part("l4")
    row = Configuration("l4", 6, 1, 1, "none", "auto", True, replicas=6, prefill_replicas=4)
    calls = [Call(0.0, (range(9),), 9)] * 100
    server = Server(lambda *step: (1.0, 1.0), 1, 512, 9)
    sized = _Trial(row, Replica(stored, part, Split()), server, Goal(Load(), {}, max_devices=most), calls).enough()
    assert (sized.prefill_replicas, sized.replicas - sized.prefill_replicas) == found and sized.devices == sum(found)


def test_links_hand_over_one_at_a_time() -> None:
    """Two seconds each. From one sender to two receivers, from two to one, and from each to another."""
    alike = [(0, 1.0, 2.0), (0, 1.0, 2.0), (0, 9.0, 2.0)]
    assert handed(alike, 2) == [3.0, 5.0, 11.0]
    others = [(0, 1.0, 2.0), (1, 1.0, 2.0), (0, 9.0, 2.0)]
    assert handed(others, 1) == [3.0, 5.0, 11.0] and handed(others, 2) == [3.0, 3.0, 11.0]


@pytest.mark.parametrize(("least", "most", "enough", "found"), [
    (1, 100, 1, 1), (4, 100, 3, 4), (1, 100, 2, 2), (1, 100, 37, 37), (3, 100, 100, 100), (1, 100, 101, None), (5, 5, 6, None),
    (7, 5, 8, None)])
def test_the_fewest_that_do(least: int, most: int, enough: int, found: int | None) -> None:
    assert fewest(least, most, lambda count: count >= enough) == found
