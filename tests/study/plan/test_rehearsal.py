"""A row's replicas played together behind a router, or one of them where they are many."""
import json
import re
from pathlib import Path
from typing import Any

import pytest

from penstock.compute.fitted import Fitted
from penstock.core.config import EngineConfig
from penstock.study.measure.datasets.traces import Row
from penstock.study.plan import rehearsal as module
from penstock.study.plan.load import Load
from penstock.study.plan.refine import peak, peak_of_all, placed
from penstock.study.plan.rehearsal import IN_TURN, LEAST_REQUESTS, Rehearsal, Traffic
from penstock.study.plan.simulate.twin import Pace

PACE = Pace(Fitted((1, 64, 512), (0.010, 0.020, 0.100), 0.0, 0.0, 0.0, 0.0))
CONFIG = EngineConfig(max_num_seqs=16, max_num_batched_tokens=512, kv_tokens=8192)
LAYOUT = {"quant": ("none",), "kv_dtype": ("auto",), "tensor_parallel": "1", "pipeline_parallel": "1", "prefill_split": False}


def rehearsal(rate: float, routing: str = "auto", prefixes: int = 0, running: float = 4.0) -> Rehearsal:
    rows = [Row(at / rate, 560, 12, (at % prefixes, 1000 + at) if prefixes else (at,), 512) for at in range(LEAST_REQUESTS)]
    return Rehearsal(CONFIG, PACE, Traffic(Load(560, 12, rate=rate), rows, routing), running)


def test_replicas_are_played_together_with_the_requests_of_all() -> None:
    play = rehearsal(12.0).play(3)
    assert len(play.samples) == LEAST_REQUESTS and {len(own) > 100 for own in placed(play)} == {True} and len(placed(play)) == 3
    assert play.samples[-1].due_s == pytest.approx(LEAST_REQUESTS / 12, rel=0.01)
    single = rehearsal(12.0).play(1)
    assert single.samples[-1].due_s == play.samples[-1].due_s and len(placed(single)) == 1


def test_prompts_that_begin_alike_go_where_their_beginnings_are() -> None:
    name, told = rehearsal(4.0, prefixes=31).routing(3)  # 512 tokens each: one cache holds half of them
    apart, gain = rehearsal(12.0).routing(3)
    assert (name, apart) == ("prefix", "least_loaded") and "TTFT p99" in gain
    numbers = re.search(r"^([\d,]+) prompt tokens .* in turn ([\d,]+) and", told)
    assert numbers is not None
    computed, in_turn = (int(number.replace(",", "")) for number in numbers.groups())
    assert computed < 0.7 * in_turn


def test_what_was_asked_for_is_played() -> None:
    given = rehearsal(4.0, "least_loaded", prefixes=31)
    assert given.routing(3)[0] == "least_loaded" and rehearsal(12.0).routing(1) == (None, "")
    name, told = rehearsal(12.0, IN_TURN).routing(3)
    assert name == IN_TURN and "in turn" not in told and "TTFT p99" in told
    assert given.routing(1) == (None, "one replica, so --routing least_loaded has nothing to choose from")
    assert given.play(3).census.prefill_tokens > 1.2 * rehearsal(4.0, "prefix", prefixes=31).play(3).census.prefill_tokens


def test_of_more_replicas_than_can_be_played_one_is_dealt_its_share() -> None:
    found = Rehearsal(CONFIG, PACE, Traffic(Load(56, 12, rate=600.0), None), 4.0)
    assert not found.alone(20) and found.alone(21)
    name, told = found.routing(50)
    assert name == IN_TURN and "one of 50 replicas" in told and "takes 5,000 requests, more than 2,000, which 20 replicas would do" in told
    assert "--routing" in told
    dealt = Rehearsal(CONFIG, PACE, Traffic(Load(56, 12, rate=600.0), None, IN_TURN), 4.0)
    assert dealt.alone(50) and dealt.routing(50) == (name, told)
    played = found.play(50)
    assert len(placed(played)) == 1 and played.samples[-1].due_s == pytest.approx(2000 * 50 / 600, rel=0.05)


def test_a_named_policy_is_played_with_as_many_requests_as_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    named = Rehearsal(CONFIG, PACE, Traffic(Load(56, 12, rate=300.0), None, "prefix"), 4.0, lambda *far: told.append(far))
    assert not named.alone(25) and named.routing(25)[0] == "prefix"
    assert len(named.play(25).samples) == 2500 and len(placed(named.play(25))) == 25
    assert told[:5] == [(0, 2500), (500, 2500), (1000, 2500), (1500, 2500), (2000, 2500)]
    monkeypatch.setattr(module, "NAMED_EFFORT", 40_000.0)
    name, said = named.routing(30)
    assert name == IN_TURN and said.startswith("not prefix: one of 30 replicas")
    assert "takes 3,000 requests, more than 2,200, which 23" in said


def test_requests_that_have_a_replica_to_themselves_wait_for_nobody() -> None:
    """And find what any replica could have kept: of 31 prefixes one cache holds half."""
    found = rehearsal(40.0).unloaded()
    assert len(found.samples) == LEAST_REQUESTS and peak(found.samples) == 1
    assert [sample.ttft_s for sample in found.samples] == pytest.approx([0.110 + 0.010 * 47 / 63] * LEAST_REQUESTS), "512 rows, then 48"
    shared = rehearsal(40.0, prefixes=31).unloaded()
    assert [sample.num_cached for sample in shared.samples] == [0] * 31 + [512] * (LEAST_REQUESTS - 31)


def test_a_short_trace_is_played_by_all_replicas() -> None:
    """One of them would be dealt hardly any of its requests."""
    found = rehearsal(120.0)
    assert not found.alone(30) and len(found.play(30).samples) == LEAST_REQUESTS and len(placed(found.play(30))) == 30


def test_a_play_in_which_requests_pile_up_is_given_up() -> None:
    whole, given_up = (rehearsal(40.0).play(2, most) for most in (None, 20))
    assert not whole.overrun and len(whole.samples) == LEAST_REQUESTS
    assert given_up.overrun and len(given_up.samples) < 100 and peak(given_up.samples) == 21 and all(each.ok for each in given_up.samples)


def test_the_most_at_once_is_of_all_replicas_also_where_one_stands_for_them() -> None:
    found = Rehearsal(CONFIG, PACE, Traffic(Load(56, 12, rate=250.0), None), 4.0)
    one, together = found.play(21), found.play(20)
    assert (one.num_engines, together.num_engines) == (1, 20)
    crowd = peak_of_all(one, 21)
    assert crowd / 2 < peak_of_all(together, 20) == peak(together.samples) < crowd * 2
    assert not found.play(21, crowd * 4).overrun and found.play(21, crowd // 4).overrun


def test_a_replica_that_nobody_was_sent_to_counts() -> None:
    play = rehearsal(0.1, "least_loaded").play(3)
    assert [len(own) for own in placed(play)] == [LEAST_REQUESTS, 0, 0] and list(map(peak, placed(play))) == [1, 0, 0]


@pytest.mark.usefixtures("few_requests")
def test_a_policy_that_is_asked_for_is_obeyed_by_every_row_that_is_played(ask: Any) -> None:
    rows = ask("llama-2-7b", "l4", rate=8.0, input=200, output=50, routing="prefix", quant=("none",), kv_dtype=("auto",))
    assert {row.predicted_by for row in rows} == {"twin", "arithmetic"}
    for row in rows:
        assert row.replicas == 1 or not row.fits or (
            row.routing == "prefix" if row.predicted_by == "twin" else "--routing prefix" in row.routing_told)
    plain = ask("llama-2-7b", "l4", rate=8.0, input=200, output=50, simulate=False)
    assert not any(row.routing_told for row in plain)


@pytest.mark.usefixtures("few_requests")
def test_rows_tell_how_requests_were_routed(ask: Any, tmp_path: Path) -> None:
    trace = tmp_path / "shared.jsonl"
    trace.write_text("".join(json.dumps(
        {"timestamp": 250 * at, "input_length": 1024, "output_length": 40, "hash_ids": [at % 7, 1000 + at]}) + "\n" for at in range(500)))
    row = ask("llama-2-7b", "l4", traffic=str(trace), slo="ttft=2s", **LAYOUT)[0]
    assert row.predicted_by == "twin" and row.replicas > 1 and row.routing == "prefix" and f"over {row.replicas} replicas" in row.batch_told
    given = ask("llama-2-7b", "l4", traffic=str(trace), slo="ttft=2s", routing="least_loaded", **LAYOUT)[0]
    assert given.routing == "least_loaded" and "in turn" in given.routing_told
    alone = ask("llama-2-7b", "h200-sxm", rate=1.0, input=100, output=20, slo="ttft=2s", **LAYOUT)[0]
    assert alone.predicted_by == "twin" and (alone.replicas, alone.routing, alone.routing_told) == (1, None, "")
