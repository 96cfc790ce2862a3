"""Engines that serve for objectives: the twin's requests carry them, and it refuses as many."""
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.compute.fitted import Fitted
from penstock.core.config import EngineConfig
from penstock.core.slo import NO_OBJECTIVES, Objectives
from penstock.serve.engine.tally import Tally
from penstock.study.explain import predict, source
from penstock.study.explain.explanation import explain
from penstock.study.explain.observed import Lengths, Observed
from penstock.study.explain.predict import Way
from penstock.study.explain.source import Evidence, case_of
from penstock.study.explain.text import lines
from penstock.study.explain.traffic import Traffic, take_turns, traffic_of
from penstock.study.measure.counters import values_of
from penstock.study.measure.slo import Slo, parse_slo
from penstock.study.plan.simulate.call import Call
from penstock.study.plan.simulate.twin import Pace
from tests.study.explain.planted import Load, Planted, served
from tests.study.explain.test_planted import LEVERS

ASKED = Objectives(ttft_s=0.3, tpot_s=0.05)
OVERLOADED = Load(rate=21.0, seconds=60.0, objectives=ASKED)  # eight seats answer some 14 a second
CALM = replace(OVERLOADED, rate=8.0, seconds=10.0)
SEATS = {"order": "deadline", "max_num_seqs": 8}


def seen(planted: Planted, slo: Slo | None = None, arrivals: str | None = None, sent: Objectives | None = None) -> Evidence:
    kept_share = None if slo is None else sum(planted.kept) / len(planted.kept)
    return Evidence(values_of(planted.scrape()), None, planted.state(), "planted", slo, kept_share, arrivals=arrivals, sent=sent)


@pytest.fixture(autouse=True)
def few_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which of many ways to come by chance is nearest to what was seen is not asked here."""
    monkeypatch.setattr("penstock.study.explain.arrivals.DRAWS", 4)


@pytest.fixture(scope="module")
def overloaded(model: Path) -> Planted:
    return served(model, OVERLOADED, **SEATS)


@pytest.mark.parametrize("arrivals", ["poisson:rate=21", None])
def test_an_engine_that_refuses_is_played_with_all_that_came(model: Path, overloaded: Planted, arrivals: str | None) -> None:
    planted, notes = overloaded, list[str]()
    found = explain(case_of(seen(planted, Slo(ASKED.most_s), arrivals, ASKED), {}, notes), {"larger-batch": LEVERS["larger-batch"]}, notes)
    case, best = found.case, found.recommended[0]
    assert case.seen.refused_share > 0.25 and case.seen.kept_share == 1.0 and found.present.kept_share == pytest.approx(1.0, abs=0.02)
    assert case.traffic.users is None and case.traffic.rate == pytest.approx(21.0, rel=0.05) and found.trust.lost is None
    assert abs(found.trust.errors["output_tokens_per_s"]) < 0.1 and case.traffic.count == round(400 * (1 + case.seen.late_ratio)) > 500
    told = "\n".join(lines(found))
    assert "served for ttft=300ms,tpot=50ms" in told and "of the requests that were not refused kept it" in told
    assert any(note.endswith("all figures are of the others, and the twin refuses some, too") for note in notes)
    moved = served(model, OVERLOADED, **SEATS | {"max_num_seqs": best.change.way.config.max_num_seqs})
    assert all(moved.kept) and moved.tokens / planted.tokens - 1 == pytest.approx(best.gain, rel=0.15) and best.gain > 0.3


@pytest.mark.parametrize(("asked", "told"), [
    ({"is_open": True}, "100% of them without max_tokens"), ({"spare": 64}, "answers 64 tokens below their max_tokens")])
def test_answers_that_end_anywhere_are_forecast_as_on_the_engine(model: Path, asked: dict[str, Any], told: str) -> None:
    """With known lengths the twin has first tokens twice and seven times as late: it lets in who has to wait for one of those to end."""
    load = replace(OVERLOADED, spread=0.9, seconds=30.0, **asked)
    evidence, notes = seen(served(model, load, **SEATS), Slo(ASKED.most_s), "poisson:rate=21", ASKED), list[str]()
    found = explain(case_of(evidence, {}, notes), {}, notes)
    assert found.case.traffic.open_share == (told[0] == "1") and told in "\n".join(lines(found))
    errors = dict(found.trust.errors)
    assert abs(errors.pop("ttft_s")) < 0.5 and max(map(abs, errors.values())) < 0.1


def test_open_answers_carry_no_end_to_end_objective_and_others_have_ended_before(monkeypatch: pytest.MonkeyPatch) -> None:
    traffic = Traffic(Lengths(100, 0.3), Lengths(50, 0.3), rate=4.0, objectives=Objectives(e2e_s=2.0), open_share=0.5, spare=70.0)
    played = list[tuple[Pace, list[Call]]]()
    monkeypatch.setattr(predict, "simulate", lambda config, pace, calls, *rest: played.append((pace, calls)))
    for share in (0.5, 0.0):
        predict.play(Way(EngineConfig(max_model_len=400), Fitted((1,), (1.0,), 0.0, 0.0, 0.0, 0.0)), replace(traffic, open_share=share))
    (pace, calls), (known, _) = played
    assert 0.4 < sum(call.is_open for call in calls) / len(calls) < 0.6
    assert all((call.e2e_slo_s is None) is call.is_open for call in calls)
    spare = {call.spare for call in calls if not call.is_open}
    assert max(spare) == 70 > min(spare) and all(call.num_prompt + call.num_output + call.spare < 400 for call in calls)
    assert not any(call.spare for call in calls if call.is_open)
    assert len(pace.ended) == 256 and 40 < sum(pace.ended) / 256 < 60 and not known.ended


@pytest.mark.parametrize(("slo", "sent", "objectives", "note"), [
    ("ttft=300ms", Objectives(0.2), Objectives(0.2), None),  # judged by others than it was asked for
    ("ttft=200ms,itl=1s", None, Objectives(0.2), ": they are taken to be ttft=200ms, of all"),
    ("itl=1s", None, NO_OBJECTIVES, "the twin serves all as if they had none, unless --slo gives them"),
    (None, None, NO_OBJECTIVES, "the twin serves all as if they had none, unless --slo gives them")])
def test_objectives_are_those_that_were_sent_or_are_given(
    model: Path, slo: str | None, sent: Objectives | None, objectives: Objectives, note: str | None) -> None:
    planted, notes = served(model, CALM, **SEATS), []
    case = case_of(seen(planted, None if slo is None else parse_slo(slo), "poisson", sent), {}, notes)
    carried = [each for each in notes if "100% of the requests carried objectives" in each]
    assert case.traffic.objectives == objectives and len(carried) == (note is not None)
    assert note is None or carried[0].endswith(note)


@pytest.mark.parametrize(("order", "objectives"), [("fcfs", ASKED), ("deadline", NO_OBJECTIVES)])
def test_where_nothing_was_asked_for_or_done_the_twin_does_nothing(model: Path, order: str, objectives: Objectives) -> None:
    planted, notes = served(model, Load(rate=8.0, seconds=10.0, objectives=objectives), order=order), []
    case = case_of(seen(planted), {}, notes)
    assert case.traffic.objectives == NO_OBJECTIVES and not any("objectives" in note for note in notes)


def test_lengths_that_no_engine_would_let_in_are_let_in(model: Path) -> None:
    """Of a spread that is known, but not its bounds."""
    planted, notes = Planted(model, **SEATS), []
    planted.run(Load(rate=4.0, seconds=60.0, prompt=600, spread=0.9, objectives=Objectives(0.045, 0.02)))
    slo = parse_slo("ttft=45ms,tpot=20ms")
    found = explain(case_of(seen(planted, slo, "poisson:rate=4", slo.objectives), {}, notes), {}, notes)
    assert found.case.config.admission == "none" and any("too long to keep the objectives even alone" in note for note in notes)
    assert any(note.endswith("all figures are of the others, and so is the twin's traffic") for note in notes)
    assert found.case.traffic.rate == pytest.approx(found.case.seen.requests_per_s)
    assert (found.present.kept_share or 0.0) > 0.8 and abs(found.trust.errors["output_tokens_per_s"]) < 0.1


def test_arrivals_are_not_taken_for_users_where_the_twin_lets_all_in() -> None:
    """How many are there is steady since others were refused, and nobody told how they come."""
    count = 56
    tally = Tally(
        wall_s=4.0, bound_s={"host": 3.9}, running_s=30.0, queued_s=4.0, num_arrived=count, found=9.0 * count, found_squared=81.8 * count,
        num_placed=count, after_s=0.035 * count, between_s=0.07 * count, num_followed=count, since_s=0.05 * count,
        since_squared=0.005 * count, gap_s=0.07 * count, gap_squared=0.01 * count, num_steps=200)
    told = Observed(
        tally, 14.0, 14.0 * 64, Lengths(600, 0.3), Lengths(64, 0.1), 0.0, 0.2, 0.03, 0.6, refused_share=1 / 3, objectives=ASKED,
        late_ratio=0.5)
    came, notes = traffic_of(told), []
    assert take_turns(tally, 14.0, False) and came.rate == 21.0
    way = Way(EngineConfig(max_num_seqs=8, kv_tokens=16384, order="deadline"), Fitted((1, 64, 512), (0.01, 0.02, 0.1), 0.0, 0.0, 0.0, 0.0))
    way, came = source.who_came(way, came, told, Evidence({}, None, {}, "made up"), notes)
    assert way.config.admission == "none" and "too long to keep the objectives even alone" in notes[0]
    assert came.users is None and came.rate == 14.0 and came.objectives == ASKED and came.count == 70


@pytest.mark.parametrize(("arrivals", "again"), [("poisson:rate=8", False), ("closed:users=8", True)])
def test_only_traffic_that_was_not_played_is_tried(model: Path, monkeypatch: pytest.MonkeyPatch, arrivals: str, again: bool) -> None:
    planted, tried = served(model, CALM, **SEATS), []
    monkeypatch.setattr(source, "play", lambda way, traffic: tried.append(traffic))
    case = case_of(seen(planted, Slo(ASKED.most_s), arrivals, ASKED), {}, [])
    assert tried == ([case.traffic] if again else []) and case.traffic.objectives == ASKED


def test_users_who_ask_again_when_they_were_refused_are_all_let_in(model: Path) -> None:
    planted, notes = served(model, Load(users=24, think_s=0.3, seconds=30.0, objectives=ASKED), **SEATS), []
    found = explain(case_of(seen(planted, Slo(ASKED.most_s), "closed:users=24", ASKED), {}, notes), {}, notes)
    assert found.case.seen.late_ratio > 1.0 and found.case.traffic.users == 24 and found.case.config.admission == "none"
    assert abs(found.trust.errors["output_tokens_per_s"]) < 0.1
    assert any("of users who ask again: the twin refuses none" in note for note in notes)
    assert any(note.endswith("all figures are of the others, and so is the twin's traffic") for note in notes)


def test_a_token_that_stands_for_several_may_take_as_long() -> None:
    traffic = Traffic(Lengths(100, 0), Lengths(40, 0), None, 1.0, objectives=Objectives(0.3, 0.05, 5.0))
    calls = [traffic.calls(EngineConfig(kv_tokens=4096), times)[0] for times in (1.0, 2.0)]
    assert [(call.num_output, call.ttft_slo_s, call.tpot_slo_s, call.e2e_slo_s) for call in calls] == [
        (40, 0.3, 0.05, 5.0), (20, 0.3, 0.1, 5.0)]
