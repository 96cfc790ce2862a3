"""Planted bottlenecks: for each limit an engine that is bound by it, seen through nothing but its counters."""
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from penstock.core.catalogue.read import Catalogue
from penstock.core.types import SamplingParams, StepPlan, StepResult
from penstock.serve.engine.binding import LIMITS, evidence, idle_share
from penstock.serve.engine.requests import Request
from penstock.serve.engine.tally import UNMEASURED
from penstock.study.explain import levers
from penstock.study.explain.explanation import LEAST_GAIN, Explanation, explain, twin_error
from penstock.study.explain.levers.speculation import Speculation
from penstock.study.explain.observed import Drafted
from penstock.study.explain.source import Evidence, case_of
from penstock.study.explain.text import lines
from penstock.study.explain.trust import LEAST_REQUESTS
from penstock.study.measure.counters import growth, values_of
from penstock.study.measure.slo import parse_slo
from tests.study.explain.planted import Load, Planted, served

LEVERS = {name: levers.TABLE.load(name)() for name in levers.TABLE}
PLANTED: Mapping[str, tuple[Load, dict[str, Any]]] = {
    "prefill_compute": (Load(users=4, prompt=1500, output=4), {}),
    "decode_compute": (Load(users=64, prompt=16, output=128, seconds=20), {"max_num_seqs": 64, "ridge": 5.0}),
    "weight_bandwidth": (Load(users=3, prompt=32, output=200), {}),
    "kv_bandwidth": (Load(users=24, prompt=600, output=300, seconds=40), {}),
    "kv_capacity": (Load(users=16, prompt=200, output=200), {"kv_tokens": 2048}),
    "queueing": (Load(users=24, prompt=64, output=64), {"max_num_seqs": 4}),
    "host_overhead": (Load(users=4, prompt=64, output=64, seconds=60), {"host_s": 0.05}),
    "arrival_limited": (Load(rate=2, prompt=64, output=16, seconds=60), {}),
}
OTHERWISE: Mapping[str, tuple[str, Load, dict[str, Any]]] = {
    "static batches": ("queueing", Load(rate=4, output=64), {"batching": "static:size=8"}),
    "a queue in which more seats would not pay": ("prefill_compute", Load(users=12, prompt=1500, output=2), {"max_num_seqs": 2}),
    "open, and more than it can do": ("weight_bandwidth", Load(rate=20, prompt=32, output=100, seconds=12), {"max_num_seqs": 256}),
    "open and busy": ("weight_bandwidth", Load(rate=3, prompt=32, output=200), {}),
    "few tokens a step": ("queueing", Load(users=24, prompt=64, output=64), {"max_num_batched_tokens": 4, "max_num_seqs": 4}),
}


@cache
def explained(
    model: Path, load: Load, hardware: tuple[str, ...] = (), only: str = "", slo: str = "", **options: Any
) -> tuple[Planted, Explanation]:
    """`only`: the lever that is tried; all of them if not given."""
    planted = served(model, load, **options)
    notes: list[str] = []
    parts = {name: Catalogue().part(name) for name in hardware}
    evidence = Evidence(values_of(planted.scrape()), None, planted.state(), "planted", parse_slo(slo) if slo else None)
    case = case_of(evidence, parts, notes)
    return planted, explain(case, {only: LEVERS[only]} if only else LEVERS, notes)


def limit(model: Path, load: Load, options: dict[str, Any]) -> str:
    planted = served(model, load, **options)
    return case_of(Evidence(values_of(planted.scrape()), None, planted.state(), "planted"), {}, []).limit.name


@pytest.mark.parametrize("name", PLANTED)
def test_every_limit_is_named(model: Path, name: str) -> None:
    load, options = PLANTED[name]
    assert name in LIMITS and limit(model, load, options) == name


@pytest.mark.parametrize("what", OTHERWISE)
def test_what_looks_like_another_limit_is_not_taken_for_it(model: Path, what: str) -> None:
    name, load, options = OTHERWISE[what]
    assert limit(model, load, options) == name


@pytest.mark.parametrize("seats", [2, 8])
def test_more_sequences_of_a_mixture_read_more_experts(mixture: Path, seats: int) -> None:
    load = Load(users=32, prompt=32, output=64, seconds=20)
    few, many = (served(mixture, load, max_num_seqs=count) for count in (seats, 2 * seats))
    found = case_of(Evidence(values_of(few.scrape()), None, few.state(), "planted"), {}, [])
    assert evidence(found.seen.tally)["twice_the_batch"] == pytest.approx(many.tokens / few.tokens, rel=0.1)
    assert many.tokens / few.tokens < 1.6 and found.limit.name == "queueing"


@pytest.mark.parametrize(("load", "options"), [
    (PLANTED["queueing"][0], PLANTED["queueing"][1]), (Load(users=8, prompt=1500, output=4), {}), (Load(rate=4, prompt=200), {}),
    (Load(rate=4, output=64), {"batching": "static:size=8"}), (Load(rate=2), {"batching": "dynamic:size=8,window_ms=400"}),
])
def test_the_number_that_wait_adds_up_to_the_times_in_the_queue(model: Path, load: Load, options: dict[str, Any]) -> None:
    """Little's law, without remainder."""
    planted = Planted(model, **options)
    planted.run(load)
    planted.finish()
    grown = values_of(planted.scrape())
    queued_s = grown["penstock_request_queue_time_seconds_sum"]
    assert queued_s > 0 and grown['penstock_request_seconds_total{state="waiting"}'] == pytest.approx(queued_s)
    assert grown["penstock_requests_arrived_total"] == grown["penstock_request_queue_time_seconds_count"]


def test_who_is_preempted_waits_again(model: Path) -> None:
    load, options = PLANTED["kv_capacity"]
    planted = Planted(model, **options)
    planted.run(load)
    planted.finish()
    grown = values_of(planted.scrape())
    assert grown["penstock_preemptions_total"] > 0
    assert grown['penstock_request_seconds_total{state="waiting"}'] > 1.01 * grown["penstock_request_queue_time_seconds_sum"]


def test_batches_that_wait_for_company_while_nobody_runs_are_held(model: Path) -> None:
    planted = Planted(model, batching="dynamic:size=8,window_ms=400")
    planted.run(Load(rate=0.25, output=8, spread=0.0, seconds=100.0))
    planted.finish()
    found, grown = planted.ledger.tally(), values_of(planted.scrape())
    assert found.num_arrived > 15 and found.held_s == pytest.approx(0.4 * found.num_arrived, rel=0.1)
    assert grown["penstock_held_seconds_total"] == found.held_s == found.waiting_s["batching"]
    assert idle_share(found) == pytest.approx(1 - (found.busy_s + found.held_s) / found.wall_s) and idle_share(found) > 0.8


def test_who_waits_for_company_in_vain_was_held(model: Path) -> None:
    planted = Planted(model, batching="dynamic:size=8,window_ms=5000")
    engine, asked = planted.engine, SamplingParams(max_tokens=2, ignore_eos=True)
    engine.add(Request("left", (1, 2, 3), asked))
    assert engine.step() is None
    planted.clock.advance(3.0)
    engine.abort("left")
    planted.clock.advance(100.0)
    engine.add(Request("next", (1, 2, 3), asked))
    planted.finish()
    assert planted.ledger.tally().held_s == pytest.approx(3.0 + 5.0)


def test_who_leaves_before_a_step_has_waited_until_then(model: Path) -> None:
    planted = Planted(model)
    engine, asked = planted.engine, SamplingParams(max_tokens=2, ignore_eos=True)
    engine.add(Request("left", (1, 2, 3), asked, arrival_s=0.0))
    planted.clock.advance(3.0)
    engine.abort("left")
    planted.clock.advance(100.0)
    engine.add(Request("next", (1, 2, 3), asked))
    planted.finish()
    found = planted.ledger.tally()
    assert found.queued_s == pytest.approx(3.0) and found.num_arrived == 2


def test_an_engine_that_drafts_is_explained(model: Path) -> None:
    load, _ = PLANTED["weight_bandwidth"]
    (_, plain), (_, drafting) = explained(model, load), explained(model, load, propose="ngram:k=4", draft_control="always")
    assert drafting.case.limit.name == "weight_bandwidth" and drafting.present == plain.present
    drafted = replace(drafting.case, seen=replace(drafting.case.seen, drafted=Drafted(rows=4.0, tokens=2.0)))
    (change,) = Speculation().changes(drafted)
    assert change.way.config == plain.case.config


@pytest.mark.parametrize(("name", "lever", "option"), [
    ("kv_capacity", "larger-kv-cache", "kv_tokens"), ("queueing", "larger-batch", "max_num_seqs"),
])
def test_the_gain_that_is_promised_is_the_gain_that_comes(model: Path, name: str, lever: str, option: str) -> None:
    """The lever is moved on the planted engine itself."""
    load, options = PLANTED[name]
    planted, found = explained(model, load, only=lever, **options)
    best = found.recommended[0]
    assert best.lever == lever and best.gain > LEAST_GAIN and abs(twin_error(found) or 0.0) < 0.05
    moved = served(model, load, **options | {option: getattr(best.change.way.config, option)})
    assert moved.tokens / planted.tokens - 1 == pytest.approx(best.gain, rel=0.15)


def test_levers_are_judged_by_objectives_where_there_are_any(model: Path) -> None:
    load, options = PLANTED["queueing"]
    _, found = explained(model, load, only="larger-batch", slo="ttft=100ms,tpot=20ms", **options)
    best, told = found.recommended[0], list(lines(found))
    assert found.present.kept_share == 0 and best.figures.kept_share == 1 and best.gain > 100
    assert best.figures.good_tokens_per_s == pytest.approx(best.figures.output_tokens_per_s, rel=0.1)
    assert f"verdict    {best.change.option} would let 100% of the requests keep the objectives; now none does" in told
    assert "objective  ttft=100ms,tpot=20ms" in told and any(line.startswith("  from none  --max-num-seqs") for line in told)
    json = found.as_json()
    assert json["slo"] == {"ttft_s": 0.1, "tpot_s": 0.02} and json["twin"][json["measure"]] == 0
    assert (json["measure"], json["measure_called"]) == ("good_tokens_per_s", "goodput in output tokens/s")


def test_a_lever_that_costs_objectives_is_not_recommended(model: Path) -> None:
    """More seats give more tokens, each of which takes longer."""
    load, options = PLANTED["queueing"]
    _, plain = explained(model, load, only="larger-batch", **options)
    _, found = explained(model, load, only="larger-batch", slo="tpot=9ms", **options)
    assert found.present.kept_share == 1 and plain.recommended[0].figures.tpot_s > 0.009
    assert not found.recommended or found.recommended[0].figures.tpot_s < 0.009


def test_goodput_that_was_measured_is_compared_with_the_twins(model: Path) -> None:
    load, options = PLANTED["queueing"]
    _, found = explained(model, load, only="speculation", slo="tpot=9ms", **options)
    far = replace(found, case=replace(found.case, seen=replace(found.case.seen, kept_share=0.5)))
    assert found.trust.doubts == () and "100% of the requests keep the objectives, but 50% did" in far.trust.doubts[0]


def test_times_of_users_who_take_turns_are_judged_too(model: Path) -> None:
    load, options = PLANTED["queueing"]
    _, found = explained(model, load, only="speculation", **options)
    assert found.trust.errors.keys() == {"output_tokens_per_s", "ttft_s", "tpot_s", "e2e_s"} and found.trust.doubts == ()
    off = replace(found, present=replace(found.present, ttft_s=(found.case.seen.ttft_s or 0.0) / 3))
    assert "1/3.0 of the TTFT" in off.trust.beside[0] and "users who take turns" in off.trust.beside[0] and not off.trust.doubts
    told = list(lines(off))  # levers are judged by tokens/s, which stand
    assert told[1] == f"beside     {off.trust.beside[0]}" and not any("doubtful" in line for line in told)
    assert replace(off, measure="good_tokens_per_s").trust.doubts and not found.trust.beside
    worse = replace(found, present=replace(found.present, output_tokens_per_s=found.present.output_tokens_per_s / 3))
    assert "even with nothing changed" in worse.trust.doubts[0]


def test_static_batches_are_told_to_go(model: Path) -> None:
    _, load, options = OTHERWISE["static batches"]
    planted, found = explained(model, load, only="batching-mode", **options)
    best = found.recommended[0]
    assert best.lever == "batching-mode" and best.change.option == "--batching continuous" and found.measure == "ttft_s"
    moved = served(model, load)
    before, after = (mean(each, "time_to_first_token") for each in (planted, moved))
    assert before / after - 1 == pytest.approx(best.gain, rel=0.15)


@pytest.mark.parametrize("rate", [7.2, 8.5, 12.0])
def test_more_than_come_are_never_promised(model: Path, rate: float) -> None:
    """Four seats answer 7.7 a second: they wait, whoever could answer more gets no more than come, and he gets them at once."""
    load = Load(rate=rate, seconds=60.0)
    planted, found = explained(model, load, only="larger-batch", max_num_seqs=4)
    traffic, told, best = found.case.traffic, "\n".join(lines(found)), found.recommended[0]
    came = planted.ledger.tally().num_arrived / 60
    assert traffic.users is None and traffic.rate == pytest.approx(came, rel=0.02) and found.measure == "ttft_s"
    assert (", of which 7." in told) is (rate > 8) and not found.trust.doubts
    assert found.present.ttft_s == pytest.approx(mean(planted, "time_to_first_token"), rel=0.15)
    seats = int(best.change.option.removeprefix("--max-num-seqs "))
    moved = served(model, load, max_num_seqs=seats)
    assert best.figures.output_tokens_per_s == pytest.approx(moved.tokens / 60, rel=0.1)
    assert best.figures.ttft_s == pytest.approx(mean(moved, "time_to_first_token"), rel=0.15)
    assert "would shorten mean TTFT to 1/" in found.verdict


def test_a_long_queue_of_users_is_no_crowd(model: Path) -> None:
    _, found = explained(model, Load(users=200, seconds=120.0), only="speculation", max_num_seqs=4)
    assert found.case.traffic.users == 200 and found.measure == "output_tokens_per_s"
    planted = Planted(model, max_num_seqs=4)
    begun = planted.run(Load(rate=12.0, seconds=110.0), look_s=100.0)
    grown = growth(values_of(begun), values_of(planted.scrape()))  # five hundred wait, and some more each second
    traffic = case_of(Evidence(grown, None, planted.state(), "planted"), {}, []).traffic
    assert traffic.users is None and traffic.crowd is not None and traffic.crowd.waiting > 300


def test_a_prefix_cache_is_missed_where_prompts_begin_alike(model: Path) -> None:
    load = Load(users=4, prompt=800, output=8, shared=640, spread=0.1)
    planted, found = explained(model, load, only="prefix-caching", prefix_cache=False)
    best = found.recommended[0]
    assert best.change.option == "without --no-prefix-cache" and found.case.traffic.shared == pytest.approx(0.8, abs=0.03)
    moved = served(model, load)
    assert moved.tokens / planted.tokens - 1 == pytest.approx(best.gain, rel=0.15) and best.gain > 1
    _, alone = explained(model, replace(load, shared=0), only="prefix-caching", prefix_cache=False)
    assert not alone.recommended and "began alike" in alone.unknown["prefix-caching"]


def mean(planted: Planted, name: str) -> float:
    """Seconds, of one of the latencies."""
    values = values_of(planted.scrape())
    return values[f"penstock_{name}_seconds_sum"] / values[f"penstock_{name}_seconds_count"]


def test_who_is_answered_as_he_comes_may_be_answered_sooner(model: Path) -> None:
    """Tokens a second are what is asked for, whatever is moved."""
    load = Load(rate=2, prompt=800, output=8, shared=640, spread=0.1)
    planted, found = explained(model, load, only="prefix-caching", prefix_cache=False)
    best = found.recommended[0]
    assert found.case.limit.name == "arrival_limited" and found.measure == "e2e_s" and found.at_the_limit
    assert found.verdict == ("nothing: you are at the limit of demand; more requests would be answered as they come, and without "
                             f"--no-prefix-cache would shorten mean end-to-end time by {1 - 1 / (1 + best.gain):.0%}")
    moved = served(model, load)
    before, after = (mean(each, "e2e_request_latency") for each in (planted, moved))
    assert before / after - 1 == pytest.approx(best.gain, rel=0.15) and best.gain > 0.3


@pytest.mark.parametrize(("name", "verdict"), [
    ("weight_bandwidth", "nothing: you are at the limit of this machine"),
    ("arrival_limited", "nothing: you are at the limit of demand; more requests would be answered as they come"),
])
def test_at_the_limit_it_says_so(model: Path, name: str, verdict: str) -> None:
    load, options = PLANTED[name]
    _, found = explained(model, load, **options)
    assert found.at_the_limit and found.verdict == verdict and f"verdict    {verdict}" in list(lines(found))
    assert found.as_json()["at_the_limit"] is True and not found.as_json()["levers"]


def test_a_machine_whose_limits_were_not_measured_is_not_said_to_be_at_one(model: Path) -> None:
    load, options = PLANTED["weight_bandwidth"]
    _, found = explained(model, load, **options)
    unmeasured = replace(found, case=replace(found.case, limit=replace(found.case.limit, name=UNMEASURED)))
    assert unmeasured.verdict == "nothing that was tried helps; whether the machine could do more is not known: run `penstock limits` there"


def test_another_machine_helps_where_this_one_is_at_its_limit(model: Path) -> None:
    load, options = PLANTED["weight_bandwidth"]
    _, found = explained(model, load, ("h100-sxm", "epyc-9654"), **options)
    assert found.at_the_limit and found.elsewhere[0].change.option == "h100-sxm" and found.elsewhere[0].gain > 1
    assert "dollars an hour" in found.elsewhere[0].costs[0] and not found.elsewhere[0].change.here


@pytest.mark.parametrize("name", PLANTED)
def test_what_is_planted_is_believed_where_enough_is_seen_of_it(model: Path, name: str) -> None:
    load, options = PLANTED[name]
    _, found = explained(model, load, only="speculation", **options)
    many, users = found.trust.requests >= LEAST_REQUESTS, found.case.traffic.users or 0
    began_together = found.trust.requests < 3 * users  # the first turn of all is a large part of what was seen
    doubts = found.trust.doubts
    assert began_together or not found.trust.beside
    assert [doubt for doubt in doubts if many or "too little" not in doubt] == [] and bool(doubts) != many


def test_a_short_window_is_doubted_in_the_first_lines(model: Path) -> None:
    load, options = PLANTED["queueing"]
    _, found = explained(model, replace(load, seconds=3.0), only="larger-batch", **options)
    told = list(lines(found))
    count = found.case.seen.tally.num_requests
    assert 0 < count < LEAST_REQUESTS and told[0].startswith(f"basis      {count} requests and ") and "the twin" in told[0]
    assert told[1].startswith(f"doubtful   {count} requests are too few: with so many, chance alone puts the mean")
    assert f"takes {LEAST_REQUESTS} requests" in told[1]
    best = found.recommended[0]
    assert f"verdict    doubtful, see above: {best.change.option} would give" in "\n".join(told)
    assert found.as_json()["trust"]["doubts"] == list(found.trust.doubts)


def test_a_twin_that_is_far_off_is_not_believed(model: Path) -> None:
    """Steps of a state that is not that of the counters."""
    load, options = PLANTED["weight_bandwidth"]
    planted = served(model, load, **options)
    state = planted.state()
    slow = [[*each[:-2], 4 * each[-2], each[-1]] for each in state["steps"]]
    case = case_of(Evidence(values_of(planted.scrape()), None, state | {"steps": slow}, "planted"), {}, [])
    told = list(lines(explain(case, {})))
    assert "has 1/4.0 of the tokens/s" in told[0] and any(
        line.startswith("doubtful   the twin is more than 15% off even with nothing changed (1/4.0 of the tokens/s,") for line in told[:3])


def test_without_measured_limits_it_says_what_is_missing(model: Path) -> None:
    _, found = explained(model, replace(PLANTED["weight_bandwidth"][0], seconds=10), hardware=(), measured=False)
    told = "\n".join(lines(found))
    assert found.case.limit.name == "unmeasured" and "penstock limits" in told and "quantize-weights" in found.unknown


def test_what_is_told_is_whole(model: Path) -> None:
    load, options = PLANTED["queueing"]
    _, found = explained(model, load, ("l4",), **options)
    told = found.as_json()
    assert told["limit"] == "queueing" and told["called"] == "queueing or admission" and told["evidence"]["mean_waiting"] > 10
    assert told["traffic"]["users"] == 24 and told["measure"] == "output_tokens_per_s" and abs(told["twin_error"]) < 0.05
    assert {each["lever"] for each in told["tried"]} >= {"larger-batch", "larger-kv-cache", "chunk-size", "more-replicas"}
    best = told["levers"][0]
    assert best["option"].startswith("--max-num-seqs") and best["gain"] > 1 and any("mean TPOT +" in cost for cost in best["costs"])
    assert best["predicted"][told["measure"]] / told["twin"][told["measure"]] == pytest.approx(1 + best["gain"])
    text = "\n".join(lines(found))
    assert "the twin's output tokens/s for this traffic" in text and told["measure_called"] == "output tokens/s"
    assert told["trust"]["doubts"] == [] and told["trust"]["requests"] > 200 and abs(told["trust"]["errors"]["output_tokens_per_s"]) < 0.05
    for words in ("basis      ", "limit      queueing or admission", "24 users who take turns", "--max-num-seqs", "not known  speculation",
                  "note"):
        assert words in text, words


def test_time_after_an_aborted_request_is_idle(model: Path) -> None:
    planted = Planted(model)
    engine = planted.engine
    engine.add(Request("left", (1, 2, 3), SamplingParams(max_tokens=100)))
    engine.step()
    engine.abort("left")
    planted.clock.advance(100.0)
    engine.add(Request("next", (1, 2, 3), SamplingParams(max_tokens=2, ignore_eos=True)))
    planted.finish()
    found = planted.ledger.tally()
    assert found.wall_s > 100 and found.busy_s < 1 and found.running_s < 1


def test_a_scrape_in_the_middle_of_a_step_makes_nobody_busier_than_the_clock(model: Path) -> None:
    planted = Planted(model)
    seen, execute = [], planted.machine.execute

    def execute_and_look(plan: StepPlan) -> StepResult:
        result = execute(plan)  # the clock has moved on, the step is not recorded
        seen.append(planted.ledger.tally())
        return result

    planted.machine.execute = execute_and_look  # type: ignore[method-assign]
    planted.run(Load(users=3, prompt=500, output=20, seconds=5))
    first, last = seen[0], seen[-1]
    assert len(seen) > 20 and last.busy_s - first.busy_s <= (last.wall_s - first.wall_s) * (1 + 1e-9)
    assert last.busy_s - first.busy_s == pytest.approx(last.wall_s - first.wall_s, rel=0.01)
