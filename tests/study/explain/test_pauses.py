"""Users who pause between an answer and their next request, seen in the middle of the traffic through nothing but an engine's counters."""
from pathlib import Path
from typing import Any

import pytest

from penstock.study.explain import levers
from penstock.study.explain.case import Case
from penstock.study.explain.explanation import explain
from penstock.study.explain.observed import Lengths
from penstock.study.explain.source import Evidence, case_of
from penstock.study.explain.text import lines
from penstock.study.explain.traffic import Traffic
from penstock.study.measure.counters import growth, values_of
from tests.study.explain.planted import Load, Planted

BATCH = levers.TABLE.load("larger-batch")()
PAUSING = Load(users=24, think_s=1.0, seconds=90.0)  # 8 seats are busy, 3 wait on average


def middle(model: Path, load: Load, **options: Any) -> tuple[dict[str, float], Planted]:
    """What the counters gain after the first third."""
    planted = Planted(model, **options)
    begun = planted.run(load, look_s=load.seconds / 3)
    return growth(values_of(begun), values_of(planted.scrape())), planted


@pytest.fixture(scope="module")
def pausing(model: Path) -> tuple[dict[str, float], Planted]:
    return middle(model, PAUSING, max_num_seqs=8)


def seen(grown: dict[str, float], planted: Planted, arrivals: str | None = None) -> Case:
    return case_of(Evidence(grown, None, planted.state(), "planted", arrivals=arrivals), {}, [])


def mean(grown: dict[str, float], name: str) -> float:
    return grown[f"penstock_{name}_seconds_sum"] / grown[f"penstock_{name}_seconds_count"]


def test_users_who_pause_are_told_from_requests_that_come_on_their_own(model: Path, pausing: tuple[dict[str, float], Planted]) -> None:
    grown, planted = pausing
    found = explain(seen(grown, planted), {"larger-batch": BATCH})
    traffic, errors, best = found.case.traffic, found.trust.errors, found.recommended[0]
    assert traffic.users == pytest.approx(24, rel=0.2) and traffic.think_s == pytest.approx(1.0, rel=0.4)
    assert f"{traffic.users} users who take turns, each {traffic.think_s:.2g} s after an answer" in "\n".join(lines(found))
    assert max(abs(error) for error in errors.values()) < 0.1 and found.measure == "output_tokens_per_s"
    moved, _ = middle(model, PAUSING, max_num_seqs=int(best.change.option.removeprefix("--max-num-seqs ")))
    tokens = "penstock_generation_tokens_total"
    assert moved[tokens] / grown[tokens] == pytest.approx(1 + best.gain, rel=0.08)
    promised = found.present.e2e_s / best.figures.e2e_s
    assert mean(grown, "e2e_request_latency") / mean(moved, "e2e_request_latency") == pytest.approx(promised, rel=0.08)


def test_whose_turns_are_mostly_pauses_is_served_sooner_not_more(model: Path) -> None:
    grown, planted = middle(model, Load(users=12, think_s=1.0, seconds=180.0), max_num_seqs=4)
    found = explain(seen(grown, planted), {})
    assert found.case.traffic.users == pytest.approx(12, rel=0.2) and found.case.traffic.thinking and found.measure == "ttft_s"
    assert found.trust.doubts == () and abs(found.trust.errors["e2e_s"]) < 0.1


@pytest.mark.parametrize("rate", [7.0, 13.0])
def test_who_comes_on_his_own_is_not_taken_for_them(model: Path, rate: float) -> None:
    grown, planted = middle(model, Load(rate=rate, seconds=90.0), max_num_seqs=8)
    assert seen(grown, planted).traffic.users is None


def test_a_bench_that_sent_them_on_their_own_is_believed(pausing: tuple[dict[str, float], Planted]) -> None:
    assert seen(*pausing, "poisson:rate=14").traffic.users is None


def test_as_many_users_as_there_were_where_others_come_in_place_of_those_refused(model: Path) -> None:
    grown, planted = middle(model, Load(rate=12.0, seconds=60.0), max_num_seqs=4)
    found = seen(grown | {'penstock_requests_total{finish_reason="refused"}': 1.0}, planted)
    assert found.traffic.users == round(found.seen.tally.mean_inside) > 50


def test_pauses_are_told() -> None:
    lengths = Lengths(10.0, 0.0)
    told = [Traffic(lengths, lengths, users, think_s=think_s).told() for users, think_s in ((1, 0.5), (3, 1.25), (3, 0.01))]
    assert [each.split(", 10 tokens")[0] for each in told] == [
        "1 user who asks again once answered, 0.5 s later", "3 users who take turns, each 1.2 s after an answer", "3 users who take turns"]
