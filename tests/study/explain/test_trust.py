"""When nothing is promised, because the twin does something else than what was measured."""
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from penstock.core.types import SamplingParams
from penstock.study.explain.explanation import explain
from penstock.study.explain.figures import Figures
from penstock.study.explain.observed import observed
from penstock.study.explain.source import Evidence, case_of
from penstock.study.explain.text import lines
from penstock.study.explain.trust import LOST, Trust, at_once, trust_of
from penstock.study.measure.counters import growth, values_of
from tests.study.explain import planted as module
from tests.study.explain.planted import Load, Planted
from tests.study.explain.test_planted import LEVERS, PLANTED, explained


def test_traffic_of_several_kinds_gets_no_promise(model: Path) -> None:
    """All since the start, in which many came at once, and then few: on average neither."""
    planted = Planted(model)
    planted.run(Load(users=32, prompt=600, output=100, seconds=20))
    planted.finish()
    planted.run(Load(rate=0.5, prompt=16, output=16, seconds=120))
    found = explain(case_of(Evidence(values_of(planted.scrape()), None, planted.state(), "planted"), {}, []), LEVERS)
    now, twin = found.case.seen, found.present
    assert now.e2e_s is not None and now.e2e_s > LOST * twin.e2e_s and found.measure == "e2e_s"
    assert f"the twin predicts {twin.e2e_s * 1e3:,.0f} ms of end-to-end time, but {now.e2e_s * 1e3:,.0f} were" in found.verdict
    assert not found.recommended and not found.elsewhere and not found.at_the_limit
    told = list(lines(found))
    assert f"verdict    {found.verdict}" in told and not any("--max-num-seqs" in line or "would" in line for line in told)
    assert found.as_json()["trust"]["lost"] == found.verdict and found.as_json()["levers"] == []


@pytest.mark.parametrize(("measure", "times", "lost"), [
    ("ttft_s", {"ttft_s": 2.0}, True), ("tpot_s", {"ttft_s": 2.0}, False), ("ttft_s", {"ttft_s": 1.4}, False),
    ("tpot_s", {"output_tokens_per_s": 0.6}, True), ("good_tokens_per_s", {"good_tokens_per_s": 0.5}, True)])
def test_the_figure_that_counts_decides(model: Path, measure: str, times: dict[str, float], lost: bool) -> None:
    load, options = PLANTED["queueing"]
    _, found = explained(model, load, only="speculation", **options)
    seen = replace(found.case.seen, kept_share=0.5)
    present = Figures(seen.output_tokens_per_s, 1.0, seen.ttft_s or 0.0, 1.0, seen.tpot_s or 0.0, seen.e2e_s or 0.0, 0, 0.5,
                      seen.good_tokens_per_s or 0.0)
    assert trust_of(seen, present, False, measure).lost is None
    off = replace(present, **{name: factor * getattr(present, name) for name, factor in times.items()})
    assert (trust_of(seen, off, False, measure).lost is not None) is lost


@pytest.mark.parametrize(("aims", "lost"), [(["ttft_s"], True), (["tpot_s", "itl_s"], False), ([], False)])
def test_of_goodput_that_was_not_measured_the_times_of_the_objectives_decide(model: Path, aims: list[str], lost: bool) -> None:
    load, options = PLANTED["queueing"]
    _, found = explained(model, load, only="speculation", **options)
    seen = found.case.seen
    off = replace(found.present, ttft_s=2.0 * (seen.ttft_s or 0.0))
    told = trust_of(seen, off, False, "good_tokens_per_s", aims).lost
    assert seen.kept_share is None and (told is not None) is lost and (told is None or "ms of TTFT" in told)
    kept = replace(seen, kept_share=found.present.good_tokens_per_s / seen.output_tokens_per_s)
    assert trust_of(kept, off, False, "good_tokens_per_s", aims).lost is None


def test_a_long_time_is_told_in_whole_seconds() -> None:
    assert Trust(552, 1895, 1054.2, {}, ()).told.startswith("552 requests and 1,895 steps in 1,054 s;")
    assert Trust(1, 2, 3.024, {}, ()).told.startswith("1 request and 2 steps in 3.02 s;")


def test_a_queue_that_grows_and_is_worked_off_is_not_taken_for_several_answers(model: Path) -> None:
    """While it grows who ends has waited for less long than who begins, and longer when nobody comes any more."""
    planted = Planted(model, max_num_seqs=8)
    told = [dict[str, float]()]
    for rate, seconds in (300.0, 0.5), (300.0, 0.5), (1e-4, 3.2), (1e-4, 10.0):
        planted.run(Load(rate=rate, prompt=16, output=16, seconds=seconds))
        told.append(values_of(planted.scrape()))
    start, first, grown, nearly, last = told
    for since, until in (first, grown), (grown, nearly), (start, nearly), (first, last), (start, last):
        assert at_once(observed(growth(since, until)).tally) == pytest.approx(1.0)


@pytest.mark.parametrize(("num", "load", "seats"), [
    (1, Load(users=2, prompt=16, output=8, seconds=4.0), 64), (2, Load(users=2, prompt=16, output=8, seconds=4.0), 64),
    (4, Load(users=2, prompt=16, output=8, seconds=4.0), 64), (4, Load(users=200, prompt=16, output=16, seconds=4.0), 8),
    (1, Load(users=200, prompt=16, output=16, seconds=2.0), 8)])
def test_requests_for_several_answers_are_not_judged(
        model: Path, monkeypatch: pytest.MonkeyPatch, num: int, load: Load, seats: int) -> None:
    """Their sequences look like so many users, also where most of them wait, and where all tokens come at the end, as of chosen answers."""
    monkeypatch.setattr(module, "SamplingParams", partial(SamplingParams, n=num))
    planted = Planted(model, max_num_seqs=seats)
    planted.run(load)
    case = case_of(Evidence(values_of(planted.scrape()), None, planted.state(), "planted"), {}, [])
    found = explain(case, {"larger-batch": LEVERS["larger-batch"]})
    lost, seen = found.trust.lost or "", case.seen
    assert at_once(seen.tally) == pytest.approx(num, rel=0.2 if num > 1 else 1e-6)
    assert (f"{at_once(seen.tally):.2g} sequences of each request run at once" in lost) == (num > 1)
    if num > 1:
        assert found.verdict == lost and f"verdict    {lost}" in list(lines(found)) and not found.tried
    few = replace(seen, tally=replace(seen.tally, num_requests=10))
    assert "sequences" not in (trust_of(few, found.present, True, "e2e_s").lost or "")
    older = trust_of(replace(seen, tally=replace(seen.tally, served_s=0.0)), found.present, True, "e2e_s")
    assert "sequences" not in (older.lost or "") and "do not tell how many sequences" in older.doubts[-1]
    assert not any("how many sequences" in doubt for doubt in found.trust.doubts)
    chosen = trust_of(replace(seen, ttft_s=seen.e2e_s, tpot_s=None), found.present, True, "e2e_s")
    assert ("sequences of each request" in (chosen.lost or "")) == (num > 1)
