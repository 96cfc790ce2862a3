"""The live data over HTTP: whose it is, what comes, that it is bounded, and that nobody holds up the engine or the server's end."""
import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.core.clock import MonotonicClock, VirtualClock
from penstock.core.errors import OverloadedError
from penstock.core.types import Status
from penstock.serve.api.dashboard import events
from penstock.serve.api.dashboard.feed import MAX_UNREAD, MAX_WATCHERS, Feed, Picture, Subject, Watcher, oldest_s
from penstock.serve.api.dashboard.figures import History
from penstock.serve.api.limits import Limits
from penstock.serve.engine.requests import Gauges, Health
from penstock.serve.engine.watch import Look, Watch
from tests.decide.builders import make_seq
from tests.serve.api.dashboard.conftest import KEY, Served, serve
from tests.serve.api.fakes import logged_by_uvicorn, silent, wait_for
from tests.serve.api.fakes import serve as serve_invented

BODY = {"messages": [{"role": "user", "content": "tell me about the fox"}], "max_tokens": 40, "ignore_eos": True}


def updates(client: httpx.Client) -> Iterator[dict[str, Any]]:
    with client.stream("GET", "/dashboard/events") as response:
        assert response.status_code == 200 and response.headers["content-type"].startswith("text/event-stream")
        for line in response.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def watched(served: Served) -> bool:
    return served.loop._engine._watch is not None


def test_the_page_is_public_and_its_data_is_not(served: Served) -> None:
    with httpx.Client(base_url=served.url, verify=False) as nobody:
        page = nobody.get("/")
        assert page.status_code == 200 and page.headers["content-type"] == "text/html; charset=utf-8"
        assert "tiny" not in page.text and KEY not in page.text
        assert nobody.get("/dashboard/events").status_code == 401
        assert nobody.get("/dashboard/events", headers={"Authorization": "Bearer wrong"}).status_code == 401
        assert nobody.get("/dashboard").status_code == 401 and nobody.head("/").status_code == 200


def test_a_head_is_answered_and_nobody_watches(served: Served) -> None:
    with served.client() as client:
        found = client.head("/dashboard/events")
        assert found.status_code == 200 and found.headers["content-type"].startswith("text/event-stream")
        assert not served.feed._watchers and client.get("/health").status_code == 200


def test_a_greeting_then_updates_that_show_a_request(served: Served) -> None:
    with served.client() as client, served.client() as other:
        stream = updates(client)
        hello = next(stream)
        assert hello["type"] == "hello" and hello["about"]["model"] == "tiny" and hello["roof"]["name"] == "a test's machine"
        assert hello["block_size"] == 16 and all(len(point) == 6 for point in hello["history"])
        idle = next(stream)
        assert idle["type"] == "update" and idle["limit"]["sentence"].startswith("Idle") and idle["now"]["kv_total"] == 64
        worker = threading.Thread(target=lambda: other.post("/v1/chat/completions", json=BODY).raise_for_status())
        worker.start()
        seen, tokens, numbers = {}, 0, []
        for update in stream:
            timeline = update["timeline"]
            numbers.append(update["n"])
            tokens += sum(cell[2] for column in timeline["columns"] for cell in column[3])
            seen |= {row[1]: row for row in timeline["requests"] + timeline["ended"]}
            if timeline["ended"]:
                break
        worker.join()
        (row,) = seen.values()
        assert row[0] == 0 and row[2] == "ended" and row[9] == 40 and tokens == 39
        assert numbers == sorted(numbers) and update["latency"]["ttft"]["n"] == 1 and update["cache"]["hit_rate"] == 0.0
        assert not update["limit"]["sentence"].startswith("Idle") and update["points"]
        stream.close()
    wait_for(lambda: not watched(served))


def test_who_comes_while_requests_run_is_never_told_that_the_engine_idles(served: Served) -> None:
    with served.client() as client, served.running():
        wait_for(lambda: served.loop.gauges().num_running == 1)
        stream = updates(client)
        assert next(stream)["type"] == "hello"
        first = next(stream)
        assert (first["now"]["running"], first["points"]) == (1, {}), "not one step has been seen"
        assert first["limit"]["kind"] == "unmeasured" and "no step has ended" in first["limit"]["sentence"]
        kinds = [next(update["limit"]["kind"] for update in stream if update["points"]) for _ in range(3)]
        assert "arrival_limited" not in kinds
        stream.close()
    wait_for(lambda: not watched(served))


def test_nobody_watches_no_thread_and_no_watch(served: Served) -> None:
    wait_for(lambda: not watched(served))
    assert "penstock-dashboard" not in {thread.name for thread in threading.enumerate()}
    with served.client() as client, served.client() as second:
        first, other = updates(client), updates(second)
        assert next(first)["type"] == next(other)["type"] == "hello"
        wait_for(lambda: watched(served))
        assert sum(thread.name == "penstock-dashboard" for thread in threading.enumerate()) == 1
        assert next(first)["n"] and next(other)["n"]
        first.close()
        assert next(other)["type"] == "update"
        other.close()
    wait_for(lambda: not watched(served))
    wait_for(lambda: "penstock-dashboard" not in {thread.name for thread in threading.enumerate()})


def test_a_server_that_stops_ends_the_streams_first(folder: Path) -> None:
    running = serve(folder)
    with running.client() as client:
        stream = updates(client)
        next(stream)
        running.server.drain.begin()
        assert [update["type"] for update in stream][-1] == "bye"
        running.thread.join(10)
        assert not running.thread.is_alive()
    running.loop.stop()


def test_an_engine_that_cannot_be_watched_says_so() -> None:
    running = serve_invented()
    try:
        assert running.client.get("/").status_code == 200
        refused = running.client.get("/dashboard/events")
        assert refused.status_code == 404 and refused.json()["error"]["code"] == "no_dashboard"
    finally:
        running.stop()


class Still:
    """An engine that never ends its step, with a cache of `num_blocks`."""

    def __init__(self, num_blocks: int) -> None:
        self.watched: list[bool] = []
        self.num_looks = 0
        self._holders = [0] * num_blocks
        self._seqs = (make_seq(0, range(8), status=Status.RUNNING),)  # so that every update is sent

    def watch(self, watch: Watch | None) -> None:
        self.watched.append(watch is not None)

    def look(self, watch: Watch) -> None:
        watch.look = Look(0.0, self._seqs, ((),), self._holders, 0, (), 0, 0)
        watch.looked.set()
        self.num_looks += 1

    def gauges(self) -> Gauges:
        return Gauges(kv_blocks_total=len(self._holders))

    def health(self) -> Health:
        return Health(True)

    def under_way_s(self) -> float | None:
        return None


def feed_of(engine: Any) -> Feed:
    return Feed(Subject(engine, MonotonicClock(), None, "fp32", 16))


def test_a_watcher_who_does_not_read_holds_a_few_updates_and_no_more() -> None:
    async def go() -> None:
        engine = Still(100_000)
        feed = feed_of(engine)
        watcher = feed.join()
        first = await asyncio.wait_for(watcher.updates.get(), 20)
        assert first is not None and json.loads(first)["type"] == "hello"
        texts: list[str] = []
        while len(texts) < MAX_UNREAD + 1:
            text = await asyncio.wait_for(watcher.updates.get(), 20)
            texts.append(text or "")
        assert max(map(len, texts)) < 21_000  # a map of 100,000 blocks included
        seen = engine.num_looks
        while engine.num_looks <= seen + MAX_UNREAD + 2:
            await asyncio.sleep(0.01)
        assert watcher.updates.qsize() == MAX_UNREAD
        numbers = [json.loads(watcher.updates.get_nowait() or "")["n"] for _ in range(MAX_UNREAD)]
        assert numbers == list(range(numbers[0], numbers[0] + MAX_UNREAD)) and numbers[0] > json.loads(texts[-1])["n"] + 1
        feed.leave(watcher)

    asyncio.run(go())


def test_how_long_the_oldest_has_waited_is_told_of_those_who_had_no_step() -> None:
    begun, waiting, running = (make_seq(number, range(8), arrival_s=arrival_s) for number, arrival_s in enumerate((1.0, 3.0, 2.0)))
    begun.first_scheduled_s, running.status = 1.5, Status.RUNNING
    assert oldest_s([running, waiting, begun], 10.0) == 7.0 and oldest_s([begun], 10.0) is None


def test_who_comes_during_a_long_step_hears_that_the_server_is_there(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "LOOK_S", 0.01)
    monkeypatch.setattr(served.loop, "look", lambda watch: None)  # the step does not end
    with served.client() as client, client.stream("GET", "/dashboard/events") as response:
        lines = (line for line in response.iter_lines() if line)
        assert [next(lines), next(lines)] == [":", ":"]
    wait_for(lambda: not served.feed._watchers)


def test_who_waits_for_an_engine_that_turns_out_not_to_be_well_may_come_again(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their stream ends, and not because the server stops."""
    monkeypatch.setattr(events, "LOOK_S", 0.01)
    monkeypatch.setattr(served.loop, "look", lambda watch: None)
    with served.client() as client, client.stream("GET", "/dashboard/events") as response:
        lines = (line for line in response.iter_lines() if line)
        assert next(lines) == ":"
        monkeypatch.setattr(served.loop, "_failure", "a step failed: planted")
        assert set(islice(lines, 5)) <= {":"} and next(lines, None) is None
    wait_for(lambda: not served.feed._watchers)


def test_a_page_that_is_loaded_again_has_its_history() -> None:
    """Nobody watches for a moment."""
    async def go() -> list[Any]:
        feed, told = feed_of(Still(8)), []
        for _ in range(2):
            watcher = feed.join()
            told += [json.loads(await asyncio.wait_for(watcher.updates.get(), 20) or "")["history"] for _ in range(2)]
            feed.leave(watcher)
            wait_for(lambda: feed._thread is None)
        return told

    hello, update, hello_again, _ = asyncio.run(go())
    assert hello == [] and update is not None and hello_again[0] == update


def test_those_who_could_not_be_served_in_time_are_told_of() -> None:
    class Refusing(Still):
        num_refused = 3

        def gauges(self) -> Gauges:
            return Gauges(num_refused=self.num_refused, num_deferred=1)

    engine, look = Refusing(8), Look(0.0, (), (), [0] * 8, 0, (), 0, 0)
    picture = Picture(Subject(engine, MonotonicClock(), None, "fp32", 16), History())
    first = picture.update([], 0, look)
    assert first["late"] == {"refused": 0, "deferred": 0} and first["now"]["under_way_s"] is None
    engine.num_refused = 5
    assert picture.update([], 0, look)["late"] == {"refused": 2, "deferred": 0}


def test_how_long_the_step_in_flight_has_taken_is_told() -> None:
    class Slow(Still):
        def under_way_s(self) -> float | None:
            return 3.0

    clock, look = VirtualClock(), Look(0.0, (), (), [0] * 8, 0, (), 0, 0)
    clock.advance(12.5)
    assert Picture(Subject(Slow(8), clock, None, "fp32", 16), History()).update([], 0, look)["now"]["under_way_s"] == 9.5


def test_too_many_watchers_are_refused() -> None:
    async def go() -> None:
        feed = feed_of(Still(8))
        watchers = [feed.join() for _ in range(MAX_WATCHERS)]
        with pytest.raises(OverloadedError, match=f"{MAX_WATCHERS} dashboards are open"):
            feed.join()
        for watcher in watchers:
            feed.leave(watcher)

    asyncio.run(go())


def test_a_feed_that_fails_dismisses_its_watchers_and_starts_anew() -> None:
    class Broken(Still):
        def gauges(self) -> Gauges:
            raise RuntimeError("planted")

    async def go() -> None:
        engine = Broken(8)
        feed = feed_of(engine)
        watcher = feed.join()
        assert await asyncio.wait_for(watcher.updates.get(), 20) is None
        again = feed.join()
        assert await asyncio.wait_for(again.updates.get(), 20) is None
        wait_for(lambda: engine.watched == [True, False, True, False])

    asyncio.run(go())


def test_a_feed_that_cannot_begin_is_begun_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def go() -> None:
        feed = feed_of(Still(8))
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(RuntimeError, match="new thread"):
                feed.join()
        assert not feed._watchers
        watcher = feed.join()
        assert await asyncio.wait_for(watcher.updates.get(), 20) is not None
        feed.leave(watcher)

    asyncio.run(go())


def test_a_feed_ends_before_another_begins() -> None:
    """Else the one that ends would take the watch of the one that has begun."""
    async def go() -> None:
        began: list[bool] = []

        class Late(Still):
            def watch(self, watch: Watch | None) -> None:
                super().watch(watch)
                began.append(feed._thread is threading.current_thread())

        engine = Late(8)
        feed = feed_of(engine)
        for _ in range(3):
            feed.leave(feed.join())
        wait_for(lambda: feed._thread is None)
        assert engine.watched == [True, False] * (len(engine.watched) // 2) and all(began)

    asyncio.run(go())


def test_an_engine_that_is_not_well_is_not_watched_but_said(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.loop, "_failure", "a step failed: planted")
    with served.client() as client:
        refused = client.get("/dashboard/events")
    assert refused.status_code == 503 and refused.json()["error"]["message"] == "a step failed: planted" and not served.feed._watchers


def test_a_client_that_never_reads_is_let_go(served: Served) -> None:
    """It fills its socket and hangs up: the feed forgets it."""
    host, port = served.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port))) as client:
        client.sendall(f"GET /dashboard/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
        wait_for(lambda: watched(served))
    wait_for(lambda: not watched(served))
    with served.client() as other:
        assert other.post("/v1/chat/completions", json=BODY | {"max_tokens": 2}).status_code == 200


def test_a_client_that_reads_no_more_is_cut_off(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    running = serve(folder, limits=Limits(write_s=0.1))
    host, port = running.url.removeprefix("http://").split(":")
    try:
        with silent(running.server, host, int(port)) as client, logged_by_uvicorn(caplog):
            client.sendall(f"GET /dashboard/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n".encode())
            wait_for(lambda: bool(running.feed._watchers))
            (watcher,) = running.feed._watchers
            for _ in range(2):
                watcher.loop.call_soon_threadsafe(watcher.put, "x" * 1_000_000)
            wait_for(lambda: not running.server.server_state.connections and not running.server.server_state.tasks)
        assert not running.feed._watchers and not caplog.messages
    finally:
        running.stop()


def test_the_oldest_is_dropped() -> None:
    async def go() -> list[str | None]:
        watcher = Watcher(asyncio.get_running_loop())
        for i in range(MAX_UNREAD + 3):
            watcher.put(str(i))
        return [watcher.updates.get_nowait() for _ in range(watcher.updates.qsize())]

    assert asyncio.run(go()) == [str(i) for i in range(3, MAX_UNREAD + 3)]
