"""Where a server is, and which connections to it are kept."""
import asyncio
import re
from typing import Any

import pytest

from penstock.core.errors import UsageError
from penstock.study.measure.client.connections import address_of
from penstock.study.measure.samples import Sample
from tests.study.measure.client.test_server import ASK, WISH, send
from tests.study.measure.client.virtual import Mock, Reply, answer, run, server


@pytest.mark.parametrize(("url", "base", "root", "host"), [
    ("http://127.0.0.1:8000", "/v1", "", "127.0.0.1:8000"),
    ("https://api.example.org/openai/v1/", "/openai/v1", "/openai", "api.example.org"),
    ("http://[::1]:81/v1/chat/completions", "/v1", "", "[::1]:81"), ("http://box/v1/completions", "/v1", "", "box"),
    ("http://b\u00fccher.example/v1", "/v1", "", "xn--bcher-kva.example"),
])
def test_addresses(url: str, base: str, root: str, host: str) -> None:
    found = address_of(url)
    assert (found.base, found.root, found.host_header) == (base, root, host)


@pytest.mark.parametrize("url", [
    "ftp://x", "http://", "http://x:port", "x", "http://[::1", "http://[zz]:80", "http://a..b",
    "http://x:0", "http://x/\u00fc", "http://x/a b"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(UsageError):
        address_of(url)


@pytest.mark.parametrize(("url", "told"), [
    ("http://x/v1?key=1", "leave ? and what follows"), ("http://x/#top", "leave # and what follows"), ("http://u:secret@x", "--api-key")])
def test_nothing_of_an_address_is_left_out_in_silence(url: str, told: str) -> None:
    with pytest.raises(UsageError, match=re.escape(told)) as refused:
        address_of(url)
    assert "secret" not in str(refused.value)


def test_a_kept_connection_that_the_server_has_closed_is_replaced() -> None:
    mock = Mock(lambda asked: Reply([], closes=True) if len(mock.asked) == 2 else answer(asked, 0.1, 0.1))
    samples = send(mock, times=3)
    assert all(sample.ok for sample in samples) and len(mock.asked) == 4 and mock.num_connections == 2


def test_time_that_a_kept_connection_took_with_it_is_not_the_clients() -> None:
    """The server stood still for two seconds, and closed it then."""
    mock = Mock(lambda asked: Reply([(2.0, b"")], closes=True) if len(mock.asked) == 2 else answer(asked, 0.1, 0.1))
    _, again = send(mock, times=2)
    assert again.ok and again.ttft_s == pytest.approx(2.1) and again.send_delay_s == pytest.approx(0.0, abs=1e-6)


def test_a_request_is_sent_once_more_however_many_connections_were_kept() -> None:
    mock = Mock(lambda asked: Reply([], closes=True) if len(mock.asked) > 3 else answer(asked, 0.1, 0.1))

    async def sent_again() -> str | None:
        target, watch = server(mock, WISH)
        await asyncio.gather(*(target.send(target.prepare(ASK), Sample(number, watch())) for number in range(3)))
        last = Sample(3, watch())
        await target.send(target.prepare(ASK), last)
        return last.error

    assert run(sent_again()) == "the server closed the connection without an answer" and len(mock.asked) == 3 + 2


async def apart(mock: Mock, times: int, every_s: float, ahead: bool) -> list[Sample]:
    """Requests that come by the clock."""
    target, watch = server(mock, ahead=ahead)
    samples, tasks = [Sample(number, number * every_s) for number in range(times)], []
    for sample in samples:
        await asyncio.sleep(sample.due_s - watch())
        tasks.append(asyncio.ensure_future(target.send(target.prepare(ASK), sample)))
    await asyncio.gather(*tasks)
    await target.close()
    return samples


def test_connections_are_opened_before_they_are_needed() -> None:
    """Answers take so long that each request needs one of its own."""
    mocks = [Mock(lambda asked: answer(asked, 9.0, 0.1), connect_s=0.03) for _ in range(2)]
    without, ahead = (run(apart(mock, 20, 0.1, asked)) for mock, asked in zip(mocks, (False, True), strict=True))
    assert all(sample.connect_s == pytest.approx(0.03) for sample in without) and mocks[0].num_connections == 20
    assert ahead[0].connect_s == pytest.approx(0.03) and all(sample.connect_s == pytest.approx(0.0, abs=1e-6) for sample in ahead[1:])
    assert all(sample.send_delay_s == pytest.approx(0.0, abs=1e-6) for sample in (*without, *ahead)), "which is not the client's own time"
    assert 20 < mocks[1].num_connections <= 25, "a quarter more than are in use"


def test_a_connection_opened_ahead_that_the_server_has_closed_is_replaced() -> None:
    mock = Mock(lambda asked: Reply([], closes=True) if len(mock.asked) == 2 else answer(asked, 0.5, 0.1))
    samples = run(apart(mock, 3, 0.1, ahead=True))
    assert all(sample.ok for sample in samples) and len(mock.asked) == 4


def test_a_server_that_takes_no_more_connections_fails_only_those_who_need_one() -> None:
    class Full(Mock):
        async def connect(self, connection: Any) -> None:
            if self.num_connections >= 2:
                raise ConnectionRefusedError(111, "Connection refused")
            await super().connect(connection)

    samples = run(apart(Full(lambda asked: answer(asked, 9.0, 0.1)), 3, 0.1, ahead=True))
    assert [sample.error for sample in samples] == [None, None, "Connection refused"]


def test_what_was_sent_again_is_told() -> None:
    mock = Mock(lambda asked: Reply([], closes=True) if len(mock.asked) == 2 else answer(asked, 0.1, 0.1))

    async def notes() -> list[str]:
        target, watch = server(mock, WISH)
        for number in range(3):
            await target.send(target.prepare(ASK), Sample(number, watch()))
        return target.notes()

    assert run(notes()) == ["requests were sent again once: the server closed a connection that it had kept, without an answer"]


def test_what_is_not_measured_is_no_request_that_was_sent_again() -> None:
    """As the server's metrics, for which it had closed a connection while prompts were written."""
    class Closing(Mock):
        closed = False

        def take(self, pipe: Any, request: bytes) -> None:
            if request.startswith(b"GET /metrics") and not self.closed:
                self.closed = True
                pipe.reply(Reply([], closes=True), 0.0)
            else:
                super().take(pipe, request)

    async def told(mock: Closing) -> tuple[str | None, list[str]]:
        target, _ = server(mock, WISH)
        await target.state()
        return await target.metrics(), target.notes()

    mock = Closing(lambda asked: answer(asked, 0.1, 0.1), metrics="a_total 1\n")
    assert run(told(mock)) == ("a_total 1\n", []) and mock.closed and mock.num_connections == 2
