"""The planner's best rows, played through by the twin; and this machine as hardware."""
import itertools
import json
import statistics
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from penstock.compute.fitted import Fitted
from penstock.core.catalogue.read import Catalogue
from penstock.core.errors import RequestError, UsageError
from penstock.core.hardware import Hardware
from penstock.study.measure.datasets.traces import Row
from penstock.study.measure.samples import Sample
from penstock.study.plan import here, refine, rehearsal, request
from penstock.study.plan.calibrate import Calibration
from penstock.study.plan.evaluate import rank
from penstock.study.plan.load import Load
from penstock.study.plan.search import frontier
from penstock.study.plan.simulate.census import Census
from penstock.study.plan.simulate.twin import Played
from penstock.study.plan.text import cells, parts
from tests.study.plan.timed import calibrated
from tests.study.plan.traces import in_bursts, some_long

MACHINE = Hardware("a machine", {1 << 20: 2e11, 1 << 30: 3e10}, {"fp32": 2e11, "bf16": 4e11, "int8": 9e11})


@pytest.fixture
def this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: MACHINE)
    calibrated(monkeypatch, lambda config: None)


@pytest.mark.usefixtures("few_requests")
def test_at_a_rate_the_best_rows_are_played_through(ask: Any) -> None:
    rows = ask("llama-2-7b", "l4", rate=1.0, input=200, output=50, slo="ttft=2s,tpot=100ms")
    twin = [row for row in rows if row.predicted_by == "twin"]
    assert twin and rows[0] in twin and all(row.kept_share >= 0.9 for row in twin if row.meets_slo)
    plain = ask("llama-2-7b", "l4", rate=1.0, input=200, output=50, slo="ttft=2s,tpot=100ms", simulate=False)
    assert {row.predicted_by for row in plain} == {"arithmetic"}
    same = next(row for row in plain if (row.quant, row.kv_dtype, row.chunk) == (rows[0].quant, rows[0].kv_dtype, rows[0].chunk))
    assert rows[0].tpot_s == pytest.approx(same.tpot_s, rel=0.25) and rows[0].ttft_s == pytest.approx(same.ttft_s, rel=0.5)


def test_a_steady_load_stays_arithmetic(ask: Any) -> None:
    assert {row.predicted_by for row in ask("llama-2-7b", "l4", batch=4)} == {"arithmetic"}


def test_bursts_take_more_replicas_than_means_do(ask: Any, tmp_path: Path) -> None:
    trace = in_bursts(tmp_path / "bursts.jsonl")
    asked = {"quant": ("none",), "kv_dtype": ("auto",), "tensor_parallel": "1", "pipeline_parallel": "1", "prefill_split": False}
    means = ask("llama-2-7b", "l4", traffic=trace, slo="ttft=3s", simulate=False, **asked)[0]
    played = ask("llama-2-7b", "l4", traffic=trace, slo="ttft=3s", **asked)[0]
    assert means.meets_slo and played.meets_slo
    assert played.replicas > 2 * means.replicas, "forty at once are more than twice of what one every one and a half seconds takes"
    assert played.replicas_told.startswith("arithmetic asks for 1; the SLO is kept for ")
    assert f"with {played.replicas - 1} replicas" in played.replicas_told
    few = ask("llama-2-7b", "l4", traffic=trace, slo="ttft=3s", max_devices=2, **asked)[0]
    assert not few.meets_slo and few.replicas == 2 and "kept for" in few.reason and few.kept_share < 0.9
    assert few.replicas_told == "arithmetic asks for 1; there are devices for no more than 2"


def test_what_no_number_of_replicas_keeps_is_told(ask: Any, tmp_path: Path) -> None:
    """A fifth of the prompts takes longer than it may, however idle the replica is."""
    trace = some_long(tmp_path / "long.jsonl")
    asked = {"quant": ("none",), "kv_dtype": ("auto",), "tensor_parallel": "1", "pipeline_parallel": "1", "prefill_split": False}
    row = ask("llama-2-7b", "l4", traffic=trace, slo="ttft=600ms", **asked)[0]
    assert not row.meets_slo and row.predicted_by == "twin" and row.replicas == 1
    assert row.replicas_told == ("arithmetic asks for 1; more do not help: of requests that each have a replica to themselves "
                                 "80% keep the SLO")


def test_shared_prefixes_of_a_trace_are_found_by_the_twin(ask: Any, tmp_path: Path) -> None:
    def asked(name: str, ids: Any) -> float:
        trace = tmp_path / name
        trace.write_text("".join(json.dumps(
            {"timestamp": 2000 * at, "input_length": 1024, "output_length": 4, "hash_ids": ids(at)}) + "\n" for at in range(50)))
        options = {"quant": ("none",), "kv_dtype": ("auto",), "tensor_parallel": "1", "pipeline_parallel": "1", "prefill_split": False}
        return ask("llama-2-7b", "l4", traffic=str(trace), **options)[0].ttft_s

    assert asked("shared", lambda at: [0, 1000 + at]) < 0.8 * asked("apart", lambda at: [2 * at, 2 * at + 1])


@pytest.mark.usefixtures("this_machine", "few_requests")
def test_this_machine_is_one_and_has_the_formats_of_the_engine(ask: Any) -> None:
    rows = ask("llama-2-7b", "here", rate=0.01, input=100, output=20)
    assert {row.devices for row in rows} == {1} and {row.quant for row in rows} == {"none", "int8", "int4"}
    assert {row.kv_dtype for row in rows} == {"auto"} and rows[0].hardware == "here"
    best = next(row for row in rows if row.quant == "none" and row.fits)
    assert best.tpot_s > best.weight_bytes / MACHINE.memory_bandwidth()


@pytest.mark.usefixtures("this_machine")
def test_without_a_price_rows_go_by_what_a_device_does(ask: Any) -> None:
    rows = [row for row in ask("llama-3.2-1b", "here", input=100, output=20, quant=("none", "int8")) if row.fits]
    assert {(row.watts, row.usd_per_hour, row.goodput_per_usd) for row in rows} == {(None, None, None)}
    assert rows[0].output_tokens_per_s >= 0.99 * rows[1].output_tokens_per_s
    assert "the most goodput per device of what fits" in rows[0].reason
    mixed = [row for row in ask("llama-3.2-1b", "here,l4", input=100, output=20, quant=("none",), max_devices=1) if row.fits]
    assert [row.hardware for row in mixed] == ["l4", "here"] and all(row.pareto for row in mixed)
    assert "its price is not given" in mixed[1].reason
    priced = ask("llama-3.2-1b", "here,l4", input=100, output=20, quant=("none",), max_devices=1, price="here=1e-6")
    assert priced[0].hardware == "here" and "the cheapest" in priced[0].reason


@pytest.mark.usefixtures("few_requests")
def test_a_model_without_weights_has_no_measured_steps(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: MACHINE)
    calibrated(monkeypatch, lambda config: pytest.fail("the hub was asked"))
    assert "twin" in {row.predicted_by for row in ask("llama-2-7b", "here", rate=0.01, input=100, output=20)}


@pytest.mark.usefixtures("this_machine", "few_requests")
def test_steps_that_were_measured_here_are_taken_before_the_roofline(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = Calibration(Fitted((1, 512), (0.5, 1.0), 0.0, 0.0, 0.0, 0.0), 0.0, 100, 0.0, 0.0)

    calibrated(monkeypatch, lambda config: found if config.quant == "int8" else None)
    monkeypatch.setattr(request, "has_weights", lambda name: True)
    rows = ask("llama-2-7b", "here", rate=0.01, input=100, output=20, chunk="512")
    by = {row.quant: row for row in rows if row.fits}
    assert by["int8"].steps == "measured" and by["int8"].tpot_s == pytest.approx(0.5, rel=0.1)
    assert by["int4"].predicted_by == by["int8"].predicted_by == "twin" and by["int4"].steps == "roofline"
    assert by["int4"].tpot_s < 0.5 and rows.index(by["int8"]) == 0 < rows.index(by["int4"]), "a roofline does not outrank what was measured"
    assert by["int8"].pareto and not by["int8"].unmeasured and by["int4"].unmeasured and "steps were not measured" in by["int4"].reason
    assert by["int8"].times_roofline["tpot"] > 1 and not by["int4"].times_roofline


@pytest.mark.usefixtures("this_machine", "few_requests")
def test_measured_steps_decide_where_the_roofline_rejects_by_little(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that misses an objective, and one that cannot keep up; where it misses by far nothing is played."""
    def quick(config: Any) -> Calibration | None:
        return Calibration(Fitted((1, 512), (0.01, 0.02), 0.0, 0.0, 0.0, 0.0), 0.0, 100, 0.0, 0.0)

    calibrated(monkeypatch, lambda config: None)
    monkeypatch.setattr(request, "has_weights", lambda name: True)
    asked = {"rate": 0.01, "input": 100, "output": 20, "chunk": "512", "quant": ("none",)}
    alone = ask("llama-2-7b", "here", **asked)[0].tpot_s
    tight, far = (f"tpot={share * alone:.4f}s" for share in (0.7, 0.4))
    plain = request.plan(request.Request("llama-2-7b", "here", slo=tight, **asked))
    assert plain.configurations[0].predicted_by == "arithmetic" and not plain.configurations[0].meets_slo
    assert plain.calibrate == "penstock plan llama-2-7b --calibrate --quant none"
    rate = 1.5 * ask("llama-2-7b", "here", **asked | {"rate": 100.0})[0].most_per_s
    calibrated(monkeypatch, quick)
    missed = ask("llama-2-7b", "here", slo=tight, **asked)[0]
    assert missed.meets_slo and missed.predicted_by == "twin" and missed.steps == "measured" and missed.tpot_s < 0.7 * alone
    assert missed.replicas_told.startswith("by the roofline it is not enough: tpot is ")
    behind = ask("llama-2-7b", "here", **asked | {"rate": rate})[0]
    assert behind.meets_slo and behind.most_per_s is None and behind.requests_per_s == rate == behind.goodput_per_s
    assert behind.output_tokens_per_s == 20 * rate and "cannot keep up" in behind.replicas_told
    assert ask("llama-2-7b", "here", slo=far, **asked)[0].predicted_by == "arithmetic"


@pytest.mark.usefixtures("few_requests")
def test_a_request_that_nearly_fills_the_cache_is_played(ask: Any) -> None:
    """Large blocks would leave it no room."""
    asked = {"rate": 0.001, "output": 10, "quant": ("none",), "kv_dtype": ("auto",), "tensor_parallel": "1", "pipeline_parallel": "1",
             "prefill_split": False, "chunk": "2048", "max_devices": 1}
    whole = ask("llama-3.1-8b", "l4", input=1000, simulate=False, **asked)[0].kv_tokens
    assert whole % 128
    row = ask("llama-3.1-8b", "l4", input=whole - 10, **asked)[0]
    assert row.predicted_by == "twin" and row.meets_slo


@pytest.mark.usefixtures("few_requests")
def test_what_an_engine_refuses_to_serve_is_why_a_row_loses(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusing(*asked: Any, **more: Any) -> Played:
        raise RequestError("the objectives cannot be met even on an idle machine: they ask for much", "slo")

    monkeypatch.setattr(rehearsal, "simulate", refusing)
    rows = [row for row in ask("llama-2-7b", "l4", rate=1.0, input=200, output=50, slo="ttft=2s", quant=("none",)) if row.fits]
    lost = [row for row in rows if "even on an idle machine" in row.reason]
    assert lost and all(not row.meets_slo and row.goodput_per_s == row.kept_share == 0 for row in lost)
    assert max(map(rows.index, lost)) > max((at for at, row in enumerate(rows) if row.meets_slo), default=-1)


@pytest.mark.usefixtures("few_requests")
def test_only_what_calibrate_times_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Calibration(Fitted((1, 512), (0.5, 1.0), 0.0, 0.0, 0.0, 0.0), 0.0, 100, 0.0, 0.0)

    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: MACHINE)
    calibrated(monkeypatch, lambda config: found if config.quant == "int8" else None)
    monkeypatch.setattr(request, "has_weights", lambda name: True)
    asked = request.Request("llama-2-7b", "here", rate=0.01, input=100, output=20, chunk="512")
    found = request.plan(asked)
    assert found.calibrate == "penstock plan llama-2-7b --calibrate --quant int4 --quant none"
    changed = request.plan(replace(asked, what_if="memory_bandwidth=1e12"))
    assert {row.steps for row in changed.configurations} == {"roofline"} and changed.calibrate == ""
    steady = request.plan(replace(asked, rate=None, quant=("all",)))
    assert {row.steps for row in steady.configurations} == {"roofline"} and steady.timed_where_played
    unplayed = request.plan(replace(asked, simulate=False))
    assert not unplayed.timed_where_played and unplayed.calibrate == ""


@pytest.mark.usefixtures("this_machine")
def test_this_machine_is_not_planned_with_what_this_engine_does_not_serve(ask: Any) -> None:
    asked = request.Request("llama-3.2-1b", "here", batch=1, quant=("int8", "fp8"), kv_dtype=("auto", "int4"))
    found = request.plan(asked)
    assert {(row.quant, row.kv_dtype) for row in found.configurations} == {("int8", "auto")}
    assert "fp8 weights, int4 keys and values" in found.left_out
    with pytest.raises(UsageError, match="left out with fp8 weights.*serves none, int8, int4"):
        ask("llama-3.2-1b", "here", batch=1, quant=("fp8",))
    mixed = request.plan(replace(asked, hardware="here,l4", max_devices=1))
    assert {row.hardware for row in mixed.configurations if row.unserved} == {"l4"}
    assert {row.unserved[:-1] for row in mixed.configurations if row.quant == "fp8"} == {
        ("fp8 weights",), ("fp8 weights", "int4 keys and values")}
    assert request.plan(replace(asked, hardware="l4")).left_out == ""


def test_without_limits_this_machine_is_not_known(ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(here, "measured_limits", lambda device, threads=None: None)
    with pytest.raises(UsageError, match="penstock limits"):
        ask("llama-2-7b", "here", batch=1)


def test_the_trace_is_taken_at_the_rate_that_is_asked_for() -> None:
    trace = [Row(5.0 + at, 10, 2) for at in range(11)]
    assert [call.at_s for call in rehearsal.calls_of(Load(10, 2, rate=2.0), trace, 3)] == [0.0, 0.5, 1.0]
    assert [call.at_s for call in rehearsal.calls_of(Load(10, 2, rate=2.0), trace, 3, replicas=4)] == [0.0, 2.0, 4.0]
    drawn = rehearsal.calls_of(Load(10, 2, rate=2.0), None, 4000)
    assert drawn[-1].at_s == pytest.approx(2000, rel=0.05) and {call.num_prompt for call in drawn} == {10}


def test_a_replica_of_many_gets_its_share_however_many_there_are() -> None:
    one, many = (rehearsal.calls_of(Load(10, 2, rate=100.0), None, 2000, replicas) for replicas in (1, 500))
    assert len(one) == len(many) == 2000 and many[-1].at_s == pytest.approx(2000 * 500 / 100, rel=0.02)
    gaps = [[later.at_s - earlier.at_s for earlier, later in itertools.pairwise(calls)] for calls in (one, many)]
    shares = [statistics.stdev(each) / statistics.fmean(each) for each in gaps]
    assert shares[0] == pytest.approx(1, abs=0.1) and shares[1] == pytest.approx(500**-0.5, rel=0.1)  # dealt in turn, they come evenly


@pytest.mark.usefixtures("few_requests")
def test_a_row_at_the_edge_of_its_slo_says_so(ask: Any) -> None:
    """One whose steps may not take a tenth longer than they are said to."""
    asked = {"rate": 1.0, "input": 200, "output": 50, "quant": ("none",), "kv_dtype": ("auto",), "max_devices": 1, "chunk": "512"}
    (row,) = [row for row in ask("llama-2-7b", "l4", slo="tpot=1s", **asked) if row.predicted_by == "twin"]
    assert row.meets_slo and row.edge_told == ""
    near = next(found for times in (1.0, 1.1, 1.2, 1.3, 1.5)
                if (found := ask("llama-2-7b", "l4", slo=f"tpot={times * row.tpot_s * 1e3:.1f}ms", **asked)[0]).meets_slo)
    said = f"the SLO is kept for {near.kept_share:.0%} of the requests; with steps 10% longer it is "
    assert near.kept_share >= 0.9 and near.edge_told.startswith(said)
    assert f"edge: {near.edge_told}" in parts(near, {})


@pytest.mark.parametrize(("num_rows", "most"), [(3, 6), (2, 2)])  # two: all of l4
def test_rows_that_come_first_when_others_fall_behind_are_played(
        ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_rows: int, most: int) -> None:
    """Bursts of which arithmetic knows nothing: what is cheapest by means takes replicas that make others cheaper."""
    monkeypatch.setattr(refine, "ROWS", num_rows)
    monkeypatch.setattr(refine, "MOST_ROWS", most)
    monkeypatch.setattr(refine, "LAST_ROWS", 6)
    trace = in_bursts(tmp_path / "bursts.jsonl")
    asked = {"traffic": trace, "slo": "ttft=3s", "kv_dtype": ("auto",), "prefill_split": False, "pipeline_parallel": "1",
             "tensor_parallel": "1"}
    means = ask("llama-2-7b", "l4,a100-80gb-sxm", simulate=False, **asked)
    assert {row.hardware for row in means[:refine.ROWS]} == {"l4"}
    rows = ask("llama-2-7b", "l4,a100-80gb-sxm", **asked)
    played = [row for row in rows if row.predicted_by == "twin"]
    assert rows[0] in played and rows[0].hardware == "a100-80gb-sxm" and refine.ROWS < len(played) <= refine.LAST_ROWS


@pytest.mark.parametrize(("kept_share", "told"), [(None, "its means"), (0.95, "its mean steps under the trace's arrivals")])
def test_the_best_says_if_others_were_played_and_it_was_not(ask: Any, kept_share: float | None, told: str) -> None:
    row = replace(ask("llama-2-7b", "l4", batch=1)[0], kept_share=kept_share)
    assert frontier(row, row, "meets the SLO", True).startswith(f"the cheapest that meets the SLO, by {told}: it was not played; ")


def test_where_nothing_is_answered_a_token_has_no_cost(ask: Any) -> None:
    row, load = ask("llama-2-7b", "l4", batch=1, input=16, output=16)[0], Load(16, 16, rate=1.0)
    played = Played([Sample(0, 0.0), Sample(1, 10.0)], Census(), (0, 0))
    none = refine.behind(row, played, load, Catalogue().part("l4"))
    assert (none.output_tokens_per_s, none.usd_per_million_output_tokens) == (0, None) and none.usd_per_hour == row.usd_per_hour
    assert sorted([none, row], key=rank) == [row, none] and cells(1, none)["$/M out"] == "-"
    json.dumps(asdict(none), allow_nan=False)


@pytest.mark.parametrize(("tokens", "block"), [(500, 16), (4095, 16), (4096, 32), (12_000, 64), (131_072, 1024)])
def test_long_requests_are_played_in_larger_blocks(ask: Any, tokens: int, block: int) -> None:
    row = ask("llama-2-7b", "l4", batch=1, input=16, output=16)[0]
    config = refine.config_of(row, Load(input=tokens - 100, output=100))
    assert config.block_size == block and (config.kv_tokens or 0) % block == 0 and 0 <= row.kv_tokens - (config.kv_tokens or 0) < block
