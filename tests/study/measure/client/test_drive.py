import asyncio
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from penstock.core.errors import PenstockError, RequestError
from penstock.study.measure.arrivals.closed import Closed, ClosedOptions
from penstock.study.measure.arrivals.renewal import Even, Poisson, RateOptions
from penstock.study.measure.bench import lengths_told
from penstock.study.measure.client.drive import MOST_AWAY_S, UNANSWERED_S, Ahead, Driver, Extent
from penstock.study.measure.client.openai import Wish
from penstock.study.measure.load import Arrivals, Session, Turn
from penstock.study.measure.metrics import Figures, Warmup, figures
from penstock.study.measure.samples import Sample
from penstock.study.measure.slo import parse_slo
from tests.study.measure.client.virtual import Asked, Mock, Reply, answer, plain, run, server

TTFT, ITL, TOKENS = 0.08, 0.012, 9


def endless(num_output: int = TOKENS) -> Iterator[Session]:
    while True:
        yield Session((Turn(tuple(range(40)), num_prompt=40, num_output=num_output),))


def drive(
    mock: Mock, arrivals: Arrivals, extent: Extent, sessions: Callable[[], Iterator[Session]] = endless,
    max_model_len: int | None = None,
) -> list[Sample]:
    async def main() -> list[Sample]:
        target, watch = server(mock, max_model_len=max_model_len)
        driver = Driver(target, watch)
        await driver.run(Ahead(arrivals.schedule(sessions(), "s"), target, extent), arrivals.users, extent)
        assert len(driver.ended) == len(driver.samples) and max(driver.lag.seconds, default=0.0) < 1e-6
        await target.close()
        return driver.samples

    return run(main())


def check(found: Figures) -> None:
    for name, wanted in (("ttft", TTFT), ("tpot", ITL), ("itl", ITL), ("e2e", TTFT + (TOKENS - 1) * ITL), ("publish", TTFT)):
        spread = getattr(found.latencies, name)
        assert [spread.at(percent) for percent in (50, 90, 95, 99)] == pytest.approx([wanted] * 4, rel=0.02), name
        assert spread.mean == pytest.approx(wanted, rel=1e-6), name


@pytest.mark.parametrize("arrivals", [Poisson(RateOptions(40)), Even(RateOptions(3)), Closed(ClosedOptions(5))])
def test_known_latencies_are_found(arrivals: Arrivals) -> None:
    samples = drive(Mock(lambda asked: answer(asked, TTFT, ITL)), arrivals, Extent(60))
    assert len(samples) == 60 and all(sample.ok and (sample.num_prompt, sample.num_output, sample.num_cached) == (40, TOKENS, 3)
                                      for sample in samples)
    check(figures(samples, Warmup(), None))


def test_an_open_loop_does_not_wait_for_answers() -> None:
    mock = Mock(lambda asked: answer(asked, 5.0, ITL))
    samples = drive(mock, Even(RateOptions(10)), Extent(seconds=3.0))
    assert len(samples) == 30 and mock.most_open == 30
    assert [sample.sent_s for sample in samples] == pytest.approx([number / 10 for number in range(30)], abs=1e-6)


def test_a_stall_is_seen_by_all_whom_it_would_have_hit() -> None:
    """A server that stands still from 1 s to 11 s: a client that waited for answers would send one request into the stall and miss the
    other 100 (coordinated omission)."""
    def reply(asked: Asked) -> Reply:
        at_s = asked.at_s - 1000.0
        return answer(asked, TTFT + (11.0 - at_s if 1.0 <= at_s < 11.0 else 0.0), ITL)

    samples = drive(Mock(reply), Even(RateOptions(10)), Extent(200))
    waits = [sample.ttft_s or 0.0 for sample in samples]
    assert sum(wait > TTFT + 0.001 for wait in waits) == pytest.approx(100, abs=1)
    assert figures(samples, Warmup(), None).latencies.ttft.at(50) == pytest.approx(TTFT + 0.05, abs=0.06)
    assert max(waits) == pytest.approx(10 + TTFT, abs=0.11)


def test_latency_counts_from_when_a_request_was_due_though_it_was_sent_late() -> None:
    class Late(Mock):
        async def connect(self, connection: object) -> None:
            await asyncio.sleep(0.5)  # each connection takes half a second
            await super().connect(connection)  # type: ignore[arg-type]

    samples = drive(Late(lambda asked: answer(asked, TTFT, ITL)), Even(RateOptions(4)), Extent(3))
    assert [sample.sent_s for sample in samples] == pytest.approx([0.5, 0.75, 1.0], abs=1e-6)
    assert [sample.send_delay_s for sample in samples] == pytest.approx([0.0] * 3, abs=1e-6), "to connect is not the client's own time"
    assert [sample.ttft_s for sample in samples] == pytest.approx([0.5 + TTFT] * 3, abs=1e-6)


def test_a_closed_loop_keeps_its_users_busy() -> None:
    mock = Mock(lambda asked: answer(asked, TTFT, ITL))
    samples = drive(mock, Closed(ClosedOptions(4)), Extent(seconds=10.0))
    each = TTFT + (TOKENS - 1) * ITL
    found = figures(samples, Warmup(seconds=1.0), None)
    assert mock.most_open == 4 and mock.num_connections == 4
    assert found.rates.mean_concurrency == pytest.approx(4, rel=0.02) and found.rates.peak_concurrency == 4
    assert found.rates.requests_per_s == pytest.approx(4 / each, rel=0.03)
    assert found.rates.output_tokens_per_s == pytest.approx(4 * TOKENS / each, rel=0.03)
    assert found.rates.input_tokens_per_s == pytest.approx(4 * 40 / each, rel=0.03)


def test_users_do_not_storm_a_server_that_is_gone() -> None:
    """What was answered before it went would be a vanishing share of the requests."""
    class Dying(Mock):
        async def connect(self, connection: Any) -> None:
            if len(self.asked) >= 20:
                raise ConnectionRefusedError(111, "Connection refused")
            await super().connect(connection)

    mock = Dying(lambda asked: answer(asked, TTFT, ITL) if len(mock.asked) <= 20 else Reply([], closes=True))
    samples = drive(mock, Closed(ClosedOptions(2)), Extent(1000, 3.0))
    lost = [sample for sample in samples if not sample.ok]
    assert len(samples) - len(lost) == 20 and 10 < len(lost) <= 2 * 3.0 / UNANSWERED_S
    assert {sample.error for sample in lost} == {"Connection refused"}


@pytest.mark.parametrize(("retry_after", "wait_s"), [
    ("2", 2.0), ("0", UNANSWERED_S), ("Fri, 31 Dec 1999 23:59:59 GMT", UNANSWERED_S), ("86400", MOST_AWAY_S)])
def test_users_leave_a_server_alone_that_refuses(retry_after: str, wait_s: float) -> None:
    mock = Mock(lambda asked: Reply([(0.0, plain(429, {"error": {"message": "too many"}}, f"Retry-After: {retry_after}\r\n"))]))
    samples = drive(mock, Closed(ClosedOptions(3)), Extent(seconds=3.5 * wait_s))
    times = sorted({round(asked.at_s, 2) for asked in mock.asked})
    assert all(sample.refused for sample in samples) and len(samples) == 3 * len(times)
    assert [later - sooner for sooner, later in pairwise(times)] == pytest.approx([wait_s] * (len(times) - 1), abs=0.02)


@pytest.mark.parametrize("extent", [Extent(seconds=7.0), Extent(1)])
def test_a_user_does_not_wait_beyond_the_end(extent: Extent) -> None:
    async def main() -> float:
        target, watch = server(Mock(lambda asked: Reply([(0.0, plain(503, "later", "Retry-After: 3600\r\n"))])))
        ahead = Ahead(Closed(ClosedOptions(1)).schedule(endless(), "s"), target, extent)
        await Driver(target, watch).run(ahead, 1, extent)
        return watch()

    assert run(main()) < 0.01


@pytest.mark.parametrize(("extent", "begun"), [(Extent(10), 10), (Extent(seconds=1.0), 10), (Extent(7, 1.0), 7)])
def test_no_more_users_are_there_than_find_something_to_ask(monkeypatch: pytest.MonkeyPatch, extent: Extent, begun: int) -> None:
    made = 0

    async def user(self: Driver, *args: Any) -> None:
        nonlocal made
        made += 1
        await real(self, *args)

    real = Driver._user
    monkeypatch.setattr(Driver, "_user", user)
    sessions = (session for session, _ in zip(endless(), range(10), strict=False))
    samples = drive(Mock(lambda asked: answer(asked, TTFT, ITL)), Closed(ClosedOptions(10**9)), extent, lambda: sessions)
    assert len(samples) == begun == made and all(sample.due_s == 0 for sample in samples)


def test_users_begin_together_or_as_soon_as_their_requests_are_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []  # of the server, when each of 8 sessions is made

    def sessions() -> Iterator[Session]:
        for session in endless():
            taken.append(len(mock.asked))
            yield session

    for depth, asked in ((4096, 0), (4, 4)):
        monkeypatch.setattr("penstock.study.measure.client.drive.DEPTH", depth)
        mock, taken[:] = Mock(lambda asked: answer(asked, TTFT, ITL)), []
        drive(mock, Closed(ClosedOptions(8)), Extent(8), sessions)
        assert len(taken) == 8 and taken[-1] >= asked and (asked or not any(taken))


def test_a_closed_loop_that_ends_by_the_clock_prepares_what_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.study.measure.client.drive.AHEAD_S", 0.0)
    taken: list[int] = []  # of the server, when each session is made

    def sessions() -> Iterator[Session]:
        for session in endless():
            taken.append(len(mock.asked))
            yield session

    for extent in (Extent(seconds=2.0), Extent(500, 2.0), Extent(500)):
        mock, taken[:] = Mock(lambda asked: answer(asked, TTFT, ITL)), []
        samples = drive(mock, Closed(ClosedOptions(4)), extent, sessions)
        by_clock = extent.seconds is not None
        assert taken.count(0) == (4 if by_clock else 500) and len(taken) <= len(samples) + 1
        assert all(sample.due_s == 0 for sample in samples[:4])


def test_a_queue_is_measured_as_queueing_theory_has_it() -> None:
    """M/D/1 at load 0.7: the mean wait is rho / (2 mu (1 - rho))."""
    mock = Mock(lambda asked: answer(asked, 0.0, 0.0), service_s=0.01)
    samples = drive(mock, Poisson(RateOptions(70)), Extent(6000), lambda: endless(1))
    found = figures(samples, Warmup(), None)
    assert (found.latencies.ttft.mean or 0) - 0.01 == pytest.approx(0.7 / (2 * 100 * 0.3), rel=0.15)


def test_goodput_counts_who_kept_the_slo() -> None:
    def reply(asked: Asked) -> Reply:
        return answer(asked, 0.5 if len(mock.asked) % 4 == 0 else 0.1, ITL)

    mock = Mock(reply)
    samples = drive(mock, Even(RateOptions(20)), Extent(400))
    good = figures(samples, Warmup(), parse_slo("ttft=200ms,tpot=50ms")).goodput
    assert good is not None and good.kept.value == 0.75 and (good.kept.low or 0) < 0.75 < (good.kept.high or 0)
    assert good.kept_by == {"ttft": 0.75, "tpot": 1.0} and good.requests_per_s == pytest.approx(15, rel=0.03)
    assert good.output_tokens_per_s == pytest.approx(15 * TOKENS, rel=0.03)


TALK = Session((
    Turn(messages=({"role": "system", "content": "be kind"}, {"role": "user", "content": "one"}), num_output=2, answer="recorded"),
    Turn(messages=({"role": "user", "content": "two"},), num_output=3, wait_s=1.5),
    Turn(messages=({"role": "user", "content": "three"},), num_output=4, wait_s=0.5)))


def test_no_scale_shortens_an_answer_whose_length_is_not_the_traces() -> None:
    async def main(**more: int) -> None:
        target, _ = server(Mock(lambda asked: answer(asked, TTFT, ITL)), Wish("m", more=more), max_model_len=64)
        session = Session((Turn((1,), num_prompt=100, num_output=100),), at_s=0.0)
        Ahead(Closed(ClosedOptions(1)).schedule(iter([session]), "s"), target, Extent(seconds=1.0)).fill_all(1)

    for more, scale in (({}, 0.32), ({"max_tokens": 20}, 0.44)):
        with pytest.raises(RequestError, match=f"scale={scale} in --dataset"):
            run(main(**more))


@pytest.mark.parametrize(("more", "wanted"), [
    ({"max_tokens": 20}, 20), ({"max_tokens": 20, "best_of": 1}, 20),
    ({"max_tokens": 20, "best_of": 4}, None), ({"max_tokens": 20, "self_consistency": {"n": 4}}, None)])
def test_what_is_wanted_is_what_is_asked_for(more: dict[str, Any], wanted: int | None) -> None:
    """Where an answer is chosen from several, servers may count all of them."""
    async def main() -> list[Sample]:
        target, watch = server(Mock(lambda asked: answer(asked, TTFT, ITL)), Wish("m", more=more))
        driver = Driver(target, watch)
        await driver.run(Ahead(Even(RateOptions(1)).schedule(endless(), "s"), target, Extent(2)), None, Extent(2))
        return driver.samples

    samples = run(main())
    assert {(sample.num_output, sample.wanted_output) for sample in samples} == {(20, wanted)} and not lengths_told(samples)


def test_turns_follow_answers_and_carry_the_conversation() -> None:
    mock = Mock(lambda asked: answer(asked, TTFT, ITL, thoughts=1))
    samples = drive(mock, Even(RateOptions(1)), Extent(), lambda: iter([TALK]))
    said = [[message["content"] for message in asked.body["messages"]] for asked in mock.asked]
    assert said == [["be kind", "one"], ["be kind", "one", "recorded", "two"], ["be kind", "one", "recorded", "two", "w1 w2 ", "three"]]
    assert [sample.turn for sample in samples] == [0, 1, 2]
    assert [later.due_s - (sooner.end_s or 0) for sooner, later in zip(samples, samples[1:], strict=False)] == pytest.approx([1.5, 0.5])
    assert [sample.ttft_s for sample in samples] == pytest.approx([TTFT] * 3)


def test_a_conversation_ends_with_a_failure() -> None:
    mock = Mock(lambda asked: Reply([(0.1, plain(500, {"error": {"message": "out of luck"}}))]))
    samples = drive(mock, Even(RateOptions(1)), Extent(), lambda: iter([TALK]))
    assert [sample.error for sample in samples] == ["status 500: out of luck"]


def test_time_to_publish_is_after_the_hidden_reasoning() -> None:
    mock = Mock(lambda asked: answer(asked, TTFT, ITL, thoughts=5))
    talk = Session((Turn(messages=({"role": "user", "content": "think"},), num_output=TOKENS),))
    (sample,) = drive(mock, Even(RateOptions(1)), Extent(1), lambda: iter([talk]))
    assert sample.ttft_s == pytest.approx(TTFT) and sample.publish_s == pytest.approx(TTFT + 5 * ITL)


def broken() -> Iterator[Session]:
    yield from (session for session, _ in zip(endless(), range(600), strict=False))
    raise PenstockError("line 601 is broken")


def test_what_cannot_be_prepared_is_told_before_the_run() -> None:
    mock = Mock(lambda asked: answer(asked, TTFT, ITL))
    with pytest.raises(PenstockError, match="601"):
        drive(mock, Closed(ClosedOptions(2)), Extent(), broken)
    assert not mock.asked


@pytest.mark.parametrize("arrivals", [Closed(ClosedOptions(2)), Even(RateOptions(100.0))])
def test_a_dataset_that_breaks_during_the_run_takes_no_answer_with_it(monkeypatch: pytest.MonkeyPatch, arrivals: Arrivals) -> None:
    monkeypatch.setattr("penstock.study.measure.client.drive.DEPTH", 512)  # so that it comes up while others run
    samples = drive(Mock(lambda asked: answer(asked, TTFT, ITL)), arrivals, Extent(), broken)
    assert len(samples) == 600 and all(sample.ok for sample in samples)


def test_a_request_that_cannot_be_prepared_during_the_run_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.study.measure.client.drive.DEPTH", 4)

    def sessions() -> Iterator[Session]:
        for number in range(10):
            yield Session((Turn((1, 2), num_prompt=999 if number == 7 else 2, num_output=2),))

    samples = drive(Mock(lambda asked: answer(asked, TTFT, ITL)), Even(RateOptions(10.0)), Extent(), sessions, max_model_len=64)
    failed, = [sample for sample in samples if not sample.ok]
    assert len(samples) == 10 and failed.num_prompt == 999 and "context holds 64" in (failed.error or "")


def test_what_follows_the_last_request_may_be_broken() -> None:
    """Whether a recording has more is only asked for a note."""
    async def main() -> None:
        target, _ = server(Mock(lambda asked: answer(asked, TTFT, ITL)))
        ahead = Ahead(Even(RateOptions(100.0)).schedule(broken(), "s"), target, Extent(600))
        ahead.fill_all(None)
        assert not ahead.is_left() and ahead.broken is None

    run(main())


def test_a_driver_counts_what_ended() -> None:
    async def main() -> None:
        mock = Mock(lambda asked: answer(asked, TTFT, ITL) if len(mock.asked) % 2 else Reply([(0.1, plain(429, "no"))]))
        target, watch = server(mock)
        driver = Driver(target, watch)
        await driver.run(Ahead(Even(RateOptions(10)).schedule(endless(), "s"), target, Extent(9)), None, Extent(9))
        assert (driver.num_answered, driver.num_refused, driver.num_tokens, driver.num_sessions) == (5, 4, 5 * TOKENS, 9)
        talk = Driver(server(Mock(lambda asked: answer(asked, TTFT, ITL)))[0], watch)
        await talk.run(Ahead(Even(RateOptions(10)).schedule(iter([TALK]), "s"), talk._target, Extent(9)), None, Extent(9))
        assert (talk.num_answered, talk.num_sessions) == (3, 1)

    run(main())
