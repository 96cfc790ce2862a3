import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.core.errors import UsageError
from penstock.study.measure.arrivals.renewal import Poisson, RateOptions
from penstock.study.measure.bench import NO_ENERGY, Load, Terms, measure
from penstock.study.measure.client.drive import Extent
from penstock.study.measure.goodput import TOLERANCE, Found, find, in_doubt, too_few, too_short
from penstock.study.measure.load import Session, Turn
from penstock.study.measure.metrics import Warmup
from penstock.study.measure.result import Probe, Result
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import parse_slo
from penstock.study.measure.statistics import enough, wilson
from tests.study.measure.client.virtual import END, STREAM, Mock, Reply, answer, event, plain, run, server

SERVICE_S = 0.02


class Ones:
    """Requests for one token."""

    def sessions(self) -> Iterator[Session]:
        while True:
            yield Session((Turn((1, 2), num_prompt=2, num_output=1),))

    def notes(self) -> list[str]:
        return ["of ones"]


async def attempt(rate: float, number: int) -> Result:
    target, watch = server(Mock(lambda asked: answer(asked, 0.0, 0.0), service_s=SERVICE_S))
    load = Load(Poisson(RateOptions(rate)), lambda seed: Ones(), Extent(1200), Warmup(share=0.1), f"7/{number}")
    return await measure(target, load, Terms(parse_slo("ttft=100ms")), watch)


def search(start: float) -> Found:
    return run(find(attempt, start, 0.9))


@pytest.mark.parametrize("start", [25.0, 100.0])
def test_the_highest_rate_is_that_of_queueing_theory(start: float) -> None:
    """M/D/1 with 50 a second: 90 % wait at most 80 ms for their turn up to a load of 0.76, which Lindley's recursion tells."""
    found = search(start)
    assert found.best is not None and found.best.kept >= 0.9
    assert found.best.rate * SERVICE_S == pytest.approx(0.76, abs=0.1)
    broken = min(probe.rate for probe in found.probes if probe.kept < 0.9)
    assert broken <= found.best.rate * (1 + TOLERANCE) * 1.001


def test_an_slo_that_cannot_be_kept() -> None:
    async def hopeless(rate: float, number: int) -> Result:
        target, watch = server(Mock(lambda asked: answer(asked, 0.5, 0.0)))
        load = Load(Poisson(RateOptions(rate)), lambda seed: Ones(), Extent(20), seed=str(number))
        return await measure(target, load, Terms(parse_slo("ttft=100ms")), watch)

    found = run(find(hopeless, 800.0, 0.9))
    assert found.best is None and min(probe.rate for probe in found.probes) < 100 and len(found.probes) < 12


def probe(kept: int, count: int, rate: float = 1.0, seconds: float = 30.0) -> Probe:
    figures = SimpleNamespace(
        goodput=SimpleNamespace(kept=wilson(kept, count)), counts=SimpleNamespace(measured=count), window=SimpleNamespace(seconds=seconds))
    return Probe(rate, cast(Result, SimpleNamespace(figures=figures, sent_share=1.0, came_per_s=rate)))


def test_few_requests_at_low_rates_put_no_higher_one_in_doubt() -> None:
    low, high, broken, unsure = probe(4, 4, 1.0), probe(40, 40, 8.0), probe(0, 9, 16.0), probe(7, 9, 12.0)
    assert in_doubt(Found(high, (low, high, broken)), 0.9) is None
    assert (in_doubt(Found(low, (low, broken)), 0.9) or "").startswith("the rate is in doubt: at 1 requests/s 4 measured requests")
    assert "at 12 requests/s 9 measured" in (in_doubt(Found(high, (low, high, broken, unsure)), 0.9) or "")
    assert "at 1 requests/s" in (in_doubt(Found(None, (low,)), 0.9) or "")


def test_probes_that_are_too_short_to_judge_by_are_told() -> None:
    """35 that all keep it show 90 % with 95 % confidence; 34 do not, nor do nine of ten, but none of ten shows that it is not kept."""
    assert wilson(35, 35).low > 0.9 > wilson(34, 34).low and enough(0.9) == 35 and enough(1.0) is None
    assert "10 measured requests are too few to tell whether 90% keep the SLO: that takes 35" in (too_few(probe(10, 10), 0.9) or "")
    assert "whether 99.5% keep" in (too_few(probe(10, 10), 0.995) or "")
    assert "3.5 times as long" in (too_few(probe(9, 10), 0.9) or "")
    assert [too_few(probe(*each), 0.9) for each in ((0, 10), (35, 35), (30, 36))] == [None] * 3 and too_few(probe(5, 5), 1.0) is None


def test_a_rate_that_kept_it_for_a_moment_is_told() -> None:
    short, broken = probe(100, 100, 40.0, 3.0), probe(2, 100, 80.0, 3.0)
    assert too_few(short, 0.9) is None and too_short(broken, 0.9) is None and too_short(probe(100, 100), 0.9) is None
    doubt = in_doubt(Found(short, (short, broken)), 0.9) or ""
    assert doubt.startswith("the rate is in doubt: at 40 requests/s 3.0 measured seconds are too short to see whether a queue grows")


def test_what_cannot_be_searched_for() -> None:
    with pytest.raises(UsageError, match="at most 1"):
        asyncio.run(find(attempt, 1.0, 1.5))


def test_a_result_says_what_it_is_of() -> None:
    result = run(attempt(40.0, 0))
    told = result.as_json()
    assert told["notes"] == [NO_ENERGY, "of ones"] and told["requests"]["sent"] == 1200
    assert told["client"]["loop_lag_s"]["p99"]["value"] < 1e-6
    assert told["goodput"]["slo"] == {"ttft_s": 0.1} and told["server"] is None and told["energy"] is None
    assert told["ttft_s"]["p50"]["low"] <= told["ttft_s"]["p50"]["value"] <= told["ttft_s"]["p50"]["high"]


def test_of_rates_that_keep_it_the_one_counts_at_which_most_came() -> None:
    """Chance had fewer come where more were asked for."""
    came = {10: 10.0, 20: 20.5, 40: 41.0, 30: 31.0, 35: 26.0, 37.5: 30.0, 38.75: 29.0}

    async def lucky(rate: float, number: int) -> Any:
        goodput = SimpleNamespace(kept=SimpleNamespace(value=1.0 if rate < 39 else 0.5))
        found = SimpleNamespace(goodput=goodput, counts=SimpleNamespace(measured=9))
        return SimpleNamespace(ended_early=False, came_per_s=came[rate], sent_share=1.0, figures=found)

    found = asyncio.run(find(lucky, 10, 0.9))
    assert found.best is not None and (found.best.rate, found.best.came) == (30, 31.0) and len(found.probes) == len(came)


def test_a_rate_at_which_nothing_came_breaks_nothing() -> None:
    """All rates up to 30 are good, and chance has nobody come at one of them."""
    async def attempt(rate: float, number: int) -> Any:
        came = 0 if rate == 15 else 9
        goodput = SimpleNamespace(kept=SimpleNamespace(value=1.0 if rate <= 30 else 0.5)) if came else None
        return SimpleNamespace(ended_early=False, came_per_s=rate, sent_share=1.0, figures=SimpleNamespace(
            goodput=goodput, counts=SimpleNamespace(sent=came, measured=came)))

    found = asyncio.run(find(attempt, 7.5, 0.9))
    assert found.best is not None and found.best.rate == 30 and 15 not in [probe.rate for probe in found.probes]


def test_a_rate_at_which_nothing_came_is_not_taken_for_one_that_was_kept() -> None:
    """All rates up to 15 are good, and chance has nobody come at 15 the first time."""
    tried: list[float] = []

    async def attempt(rate: float, number: int) -> Any:
        tried.append(rate)
        came = 0 if rate == 15 and tried.count(rate) == 1 else 9
        goodput = SimpleNamespace(kept=SimpleNamespace(value=1.0 if rate <= 15 else 0.5)) if came else None
        return SimpleNamespace(ended_early=False, came_per_s=rate, sent_share=1.0, figures=SimpleNamespace(
            goodput=goodput, counts=SimpleNamespace(sent=came, measured=came)))

    found = asyncio.run(find(attempt, 10, 0.9))
    assert found.best is not None and found.best.rate == 15 and tried[:4] == [10, 20, 15, 15]
    assert min(probe.rate for probe in found.probes if probe.kept < 0.9) <= 15 * (1 + TOLERANCE)


@pytest.mark.parametrize(("broken", "best", "stopped"), [
    (99, 20, "the search ended at 40 requests/s: none of 200 requests was due after the warm-up"), (20, 18.75, None)])
def test_a_search_ends_where_all_requests_come_within_the_warm_up(broken: float, best: float, stopped: str | None) -> None:
    """Of as many as are asked for, at 40 a second; it goes on where that was chance, as at 15 where 20 were measured already."""
    async def attempt(rate: float, number: int) -> Any:
        measured = 0 if rate in (15, 40) else 9
        goodput = SimpleNamespace(kept=SimpleNamespace(value=1.0 if rate < broken else 0.5)) if measured else None
        figures = SimpleNamespace(goodput=goodput, counts=SimpleNamespace(sent=200, measured=measured))
        return SimpleNamespace(ended_early=False, came_per_s=rate, sent_share=1.0, figures=figures)

    found = asyncio.run(find(attempt, 10, 0.9))
    assert found.best is not None and found.best.rate >= best and (found.stopped or "").startswith(stopped or "")
    assert (found.stopped is None) is (stopped is None) and (len(found.probes) == 2) is (stopped is not None)


def test_a_rate_that_the_client_cannot_send_is_not_one_that_was_kept() -> None:
    """It sends 30 a second at most, and what it sends keeps the SLO."""
    async def attempt(rate: float, number: int) -> Any:
        goodput = SimpleNamespace(kept=SimpleNamespace(value=1.0))
        figures = SimpleNamespace(goodput=goodput, counts=SimpleNamespace(measured=99), window=SimpleNamespace(seconds=30.0))
        return SimpleNamespace(ended_early=False, came_per_s=rate, sent_share=min(1.0, 30 / rate), figures=figures)

    found = asyncio.run(find(attempt, 10, 0.9))
    assert found.best is not None and 28 < found.best.rate < 32 and max(probe.rate for probe in found.probes) == 40
    assert "only 30 of 32.5 requests/s could be sent in time" in (in_doubt(found, 0.9) or "")


def test_the_share_of_the_rate_at_which_requests_were_sent() -> None:
    result = run(attempt(40.0, 0))
    due_s = result.figures.window.begin_s
    late = [Sample(at, due_s + at, sent_s=due_s + 2 * at) for at in range(3)]
    late += [Sample(3, due_s + 2.5), Sample(4, due_s + 3.0, turn=1, sent_s=due_s + 50.0)]  # not sent; of a conversation that goes on
    assert result.sent_share == pytest.approx(1.0)
    assert replace(result, samples=tuple(late)).sent_share == pytest.approx(0.5) and replace(result, samples=(late[0],)).sent_share == 1.0


def whole(slo: str, streamed: bool = False) -> Result:
    """Of a server that answers with one JSON body, whatever it was asked for, or with one event."""
    told = {"choices": [{"text": "abc", "finish_reason": "length"}], "usage": {"prompt_tokens": 2, "completion_tokens": 4}}
    reply = STREAM + event(told) + event(b"[DONE]") + END if streamed else plain(200, told)

    async def measured() -> Result:
        target, watch = server(Mock(lambda asked: Reply([(0.5, reply)])))
        return await measure(target, Load(Poisson(RateOptions(20.0)), lambda seed: Ones(), Extent(20)), Terms(parse_slo(slo)), watch)

    return run(measured())


@pytest.mark.parametrize("slo", ["tpot=1us,itl=1us", "ttft=1s", "publish=1s,e2e=9s"])
def test_what_was_never_streamed_is_not_judged_by_when_its_tokens_came(slo: str) -> None:
    result = whole(slo)
    assert result.figures.goodput is None and result.figures.counts.completed == result.figures.counts.unstreamed == 20
    assert any(note.startswith("20 of 20 answers were not streamed") and note.endswith("--slo is not judged") for note in result.notes)


def test_what_was_never_streamed_has_an_end() -> None:
    result = whole("e2e=1s")
    assert result.figures.goodput is not None and result.figures.goodput.kept.value == 1.0
    assert any(note.endswith("or time to publish") for note in result.notes)


@pytest.mark.parametrize(("slo", "kept", "told"), [
    ("tpot=1us,itl=1us", None, "; --slo is not judged"), ("ttft=1s", 1.0, ""), ("ttft=1s,tpot=1us", 1.0, ", and keep any tpot of --slo"),
    ("ttft=400ms,itl=1us,tpot=1us", 0.0, ", and keep any tpot and itl of --slo")])
def test_what_came_at_once_has_no_time_between_its_tokens(slo: str, kept: float | None, told: str) -> None:
    """As of answers that are chosen at their end: a TPOT of 0 would be the best of all."""
    result = whole(slo, streamed=True)
    found, goodput = result.figures, result.figures.goodput
    assert (found.latencies.ttft.count, found.latencies.tpot.count, found.latencies.itl.count) == (20, 0, 0)
    assert (found.counts.at_once, found.counts.unstreamed) == (20, 0)
    assert (None if goodput is None else goodput.kept.value) == kept
    assert f"the tokens of 20 of 20 answers came all at once: they have no TPOT or ITL{told}" in result.notes
