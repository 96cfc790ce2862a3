"""One HTTP request's way through the engine: its prompts' deltas merged, timed, counted, and given up when nobody waits any more."""
import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

from starlette.requests import Request as HttpRequest

from penstock.core.errors import OverloadedError, PenstockError, RequestError
from penstock.core.slo import Objectives
from penstock.decide.kv.manager import looks_up
from penstock.serve.api.drain import stopped
from penstock.serve.api.limits import ClientGone, hung_up
from penstock.serve.api.parts import Desk
from penstock.serve.engine.requests import Delta, Request, Usage, given_up


@dataclass(slots=True)
class Progress:
    """One prompt's answer so far. `last_s`: when each choice's last token came, by choice."""

    request: Request
    first_s: float | None = None
    last_s: dict[int, float] = field(default_factory=dict)
    done: bool = False

    def kept(self, arrived_s: float, now: float, num_tokens: int) -> bool:
        """Whether an answer of so many tokens, which is complete now, kept all of its objectives. With several choices, their mean does."""
        request, first_s = self.request, now if self.first_s is None else self.first_s
        num_steps = num_tokens / max(1, len(self.last_s)) - 1
        return (
            (request.ttft_slo_s is None or first_s - arrived_s <= request.ttft_slo_s)
            and (request.tpot_slo_s is None or now - first_s <= request.tpot_slo_s * num_steps or num_steps <= 0)
            and (request.e2e_slo_s is None or now - arrived_s <= request.e2e_slo_s))


class Call:
    """Engine requests, one per prompt, that live and die together.

    `start` queues them, or raises RequestError with none of them left in the engine. `deltas` yields (prompt number, delta). It raises
    ClientGone when the client hangs up and RequestError when the server stops. `close`, always called at the end, frees what has not ended.
    """

    def __init__(self, desk: Desk, http: HttpRequest, requests: Sequence[Request], arrived_s: float) -> None:
        self._desk = desk
        self.requests = tuple(requests)
        self._receive = http.receive
        self._usual: Objectives = http.scope["asker"].objectives
        self._arrived_s = [arrived_s] * len(self.requests)
        self._progress = [Progress(request) for request in requests]
        self._queue: asyncio.Queue[tuple[int, Delta] | Exception] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._num_submitted = 0
        self._ended = asyncio.Semaphore(0)  # a release for each request that has

    @property
    def headers(self) -> dict[str, str]:
        """What the client is told beside the answer."""
        return self._desk.unserved.headers(self.requests, self._usual)

    def start(self, at_once: int | None = None, patience_s: float = 0.0) -> None:
        """`at_once`: no more than so many are in the engine together; what is left follows as there is room, and has arrived then.
        `patience_s`: as the requests'."""
        self.requests = tuple([replace(request, patience_s=patience_s) for request in self.requests])
        first = self.requests[:at_once]
        streams: list[AsyncIterator[Delta]] = []
        try:
            for request in first:
                streams.append(self._desk.parts.engine.submit(request))
        except Exception as error:
            for request in first[: len(streams)]:
                self._desk.parts.engine.abort(request.request_id)
            if isinstance(error, OverloadedError):
                self._desk.parts.metrics.on_request("refused", Usage(), None)
            raise
        self._num_submitted = len(first)
        self._tasks = [asyncio.create_task(self._pump(number, stream)) for number, stream in enumerate(streams)]
        self._tasks.append(asyncio.create_task(self._watch()))
        if len(first) < len(self.requests):
            self._tasks.append(asyncio.create_task(self._submit_others()))
        self._desk.drain.enter(self._stop)

    async def _submit_others(self) -> None:
        try:
            for number in range(self._num_submitted, len(self.requests)):
                await self._ended.acquire()
                stream = await self._submitted(number)
                self._num_submitted += 1
                self._tasks.append(asyncio.create_task(self._pump(number, stream)))
        except Exception as error:  # whoever reads the deltas decides what it means
            self._queue.put_nowait(error)

    async def _submitted(self, number: int) -> AsyncIterator[Delta]:
        """Waits while others leave it no room."""
        while True:
            self._arrived_s[number] = now = self._desk.clock.now()
            try:
                return self._desk.parts.engine.submit(replace(self.requests[number], arrival_s=now))
            except OverloadedError as error:
                await asyncio.sleep(error.retry_after_s)

    async def deltas(self) -> AsyncIterator[tuple[int, Delta]]:
        running = len(self.requests)
        while running:
            item = await self._queue.get()
            if isinstance(item, Exception):
                try:
                    raise item
                finally:
                    del item  # the error holds what raised it
            running -= item[1].done
            yield item

    def close(self) -> None:
        self._desk.drain.leave(self._stop)
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()  # each holds the call by what cancels it: whatever the answer took would wait for the garbage collector
        self._abort()

    async def _pump(self, number: int, stream: AsyncIterator[Delta]) -> None:
        progress = self._progress[number]
        try:
            async for delta in stream:
                self._observe(number, delta)
                if delta.finish_reason == "abort":
                    self._queue.put_nowait(given_up(progress.request))
                    return
                self._queue.put_nowait((number, delta))
                if delta.done:
                    return
            raise PenstockError("the engine stopped before the answer was complete")
        except Exception as error:  # whoever reads the deltas decides what it means
            if isinstance(error, RequestError) and error.status < 500 and not progress.done:
                progress.done = True
                self._desk.parts.metrics.on_request("refused", Usage(), None)
            self._queue.put_nowait(error)
        finally:
            self._ended.release()

    async def _watch(self) -> None:
        """Waits for the client to hang up, and frees what it held at once, even while a send is blocked."""
        await hung_up(self._receive)
        self._abort()
        self._queue.put_nowait(ClientGone())

    def _stop(self) -> None:
        self._abort()
        self._queue.put_nowait(stopped())

    def _abort(self) -> None:
        for progress in self._progress[: self._num_submitted]:
            if not progress.done:
                progress.done = True
                self._desk.parts.engine.abort(progress.request.request_id)
                self._desk.parts.metrics.on_request("abort", Usage(), None)

    def _observe(self, number: int, delta: Delta) -> None:
        progress, arrived_s = self._progress[number], self._arrived_s[number]
        if progress.done:
            return
        metrics, now = self._desk.parts.metrics, self._desk.clock.now()
        if delta.token_ids:
            if progress.first_s is None:
                progress.first_s = now
                metrics.on_first_token(now - arrived_s)
            elif delta.index in progress.last_s:
                metrics.on_tokens(now - progress.last_s[delta.index], len(delta.token_ids))
            progress.last_s[delta.index] = now
        if delta.done:
            progress.done = True
            usage = delta.usage or Usage()
            metrics.on_request(delta.finish_reason or "stop", usage, now - arrived_s, looks_up(progress.request.params))
            metrics.on_length(progress.request, usage.completion_tokens)
            if progress.request.has_objectives:
                metrics.on_objectives(progress.kept(arrived_s, now, usage.completion_tokens))
