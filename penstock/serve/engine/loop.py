"""Runs an engine on a thread of its own and gives its deltas to asyncio: the EngineClient of a server.

A step that fails ends every request with the reason; the loop is then dead, says so in `health`, and refuses what comes.
An engine whose books are found wrong when it is idle is not healthy either.
"""
import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace

from penstock.core.errors import OverloadedError, PenstockError, RequestError
from penstock.serve.engine.engine import Engine
from penstock.serve.engine.mailbox import Item, Mailbox, Queue, hand_over
from penstock.serve.engine.requests import Delta, Gauges, Health, Request
from penstock.serve.engine.watch import Watch

log = logging.getLogger("penstock.engine")
OBEY_S = 0.01  # for commands between two steps
IDLE_S = 0.5  # how often an idle engine shows that it lives
STOP_S = 60.0  # that `stop` waits for the step in flight
CHECKED = 65_536  # KV blocks that are checked at most, some 35 ms, for which a request that comes just then waits
CACHED = 8  # a cached block takes as long to check as so many free ones


class Loop:
    def __init__(self, engine: Engine, max_open: int = 576, wedged_s: float = 60.0) -> None:
        """`max_open`: requests that may run or wait together; `wedged_s`: a step that takes longer makes `health` say so."""
        self.model_name = engine.facts.model_name
        self.max_model_len = engine.facts.max_model_len
        self._engine = engine
        self._max_open = max_open
        self._wedged_s = wedged_s
        self._commands: deque[Callable[[], None]] = deque()
        self._wake = threading.Condition()
        self._stopping = False
        self._ended = False  # commands are no longer obeyed
        self._failure: str | None = None
        self._mailboxes: dict[str, Mailbox] = {}
        self._outgoing: Sequence[tuple[str, Item]] = ()  # of the step before; its readers run while the next one is computed
        self._beat_s = engine.clock.now()
        self._resting = False  # nothing is computed, however long ago the last step was: the process itself may have been stopped
        self._progress_s = engine.clock.now()  # when a step was last planned; in the future, where it is known that none is due before
        self._gauges = engine.gauges()
        self._num_coming = 0  # submitted, not yet seen by the engine
        self._changed_s: float | None = None  # when a step last changed the engine's books; None: they were checked since
        self._thread = threading.Thread(target=self._run, name="penstock-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread after the step in flight; requests that are still open end with an error."""
        with self._wake:
            self._stopping = True
            self._wake.notify()
        if self._thread.is_alive():
            self._thread.join(timeout=STOP_S)

    def submit(self, request: Request, times: deque[float] | None = None) -> AsyncIterator[Delta]:
        """Queues the request, which has arrived now if it does not say when: a step that is under way counts against its objectives. Raises
        RequestError at once: never servable, queue full (429), engine dead (503).

        `times` is given, for each delta, when the engine's thread hands it over, on the engine's clock. Its reader may have to wait for
        the interpreter, some milliseconds, in which a short step ends, and another.
        """
        health = self.health()
        if not health.ok:
            raise RequestError(f"the engine is unhealthy: {health.reason}", status=503, code="engine_unavailable")
        self._engine.check(request)
        num_open = len(self._mailboxes) + self._num_coming
        if num_open >= self._max_open:
            raise OverloadedError(f"{num_open} requests are running or waiting, and at most {self._max_open} may; try again later", 1.0)
        mailbox = Mailbox(asyncio.get_running_loop(), asyncio.Queue(), times, request.patience_s)
        if request.arrival_s is None:
            request = replace(request, arrival_s=self._engine.clock.now())
        with self._wake:
            if self._ended:
                raise RequestError("the engine has ended", status=503, code="engine_unavailable")
            self._num_coming += 1
            self._commands.append(lambda: self._add(request, mailbox))
            self._wake.notify()
        return self._deltas(request.request_id, mailbox)

    def abort(self, request_id: str) -> None:
        self._tell(lambda: self._abort(request_id))

    def watch(self, watch: Watch | None) -> None:
        self._tell(lambda: self._engine.watch(watch))

    def look(self, watch: Watch) -> None:
        self._tell(lambda: self._engine.look(watch))

    def health(self) -> Health:
        if self._failure is not None:
            return Health(False, self._failure)
        if not self._thread.is_alive():
            return Health(False, "the engine's thread is not running")
        now = self._engine.clock.now()
        if not self._resting and now - self._beat_s > self._wedged_s:
            return Health(False, f"no step has ended for {now - self._beat_s:.0f} s")
        if self._engine.num_requests() and now - self._progress_s > self._wedged_s:
            return Health(False, f"requests wait, but no step could be planned for {now - self._progress_s:.0f} s")
        return Health(True)

    def gauges(self) -> Gauges:
        return self._gauges

    def under_way_s(self) -> float | None:
        """When the step that is computed at this moment began, on the engine's clock; None: there is none."""
        return self._engine.under_way_s

    async def _deltas(self, request_id: str, mailbox: Mailbox) -> AsyncIterator[Delta]:
        done = False
        try:
            while not done:
                item = await mailbox.queue.get()
                if isinstance(item, PenstockError):
                    done = True
                    raise item
                done = item.done
                yield item
        finally:
            if not done:
                self._tell(lambda: self._leave(request_id, mailbox))

    def _tell(self, command: Callable[[], None]) -> None:
        """Runs it on the engine's thread, between two steps; does nothing after the thread has ended."""
        with self._wake:
            if not self._ended:
                self._commands.append(command)
                self._wake.notify()

    def _add(self, request: Request, mailbox: Mailbox) -> None:
        with self._wake:
            self._num_coming -= 1
        if self._mailboxes.setdefault(request.request_id, mailbox) is not mailbox:
            in_use = RequestError(f"request id {request.request_id!r} is in use", "request_id")
            hand_over(mailbox.loop, [(mailbox.queue, in_use)])
            return
        try:
            self._engine.add(request)
        except PenstockError as error:
            self._deliver([(request.request_id, error)])

    def _leave(self, request_id: str, mailbox: Mailbox) -> None:
        """Nobody reads the mailbox any more. Another request may have had the id all the time."""
        if self._mailboxes.get(request_id) is mailbox:
            self._abort(request_id)

    def _abort(self, request_id: str) -> None:
        self._send_out()  # what it has said comes before, and not to another request that has its id after it
        self._deliver([(request_id, RequestError("the request was aborted", status=503, code="aborted"))])
        self._engine.abort(request_id)
        self._gauges = self._engine.gauges()

    def _run(self) -> None:
        try:
            while not self._stopping:
                if not self._engine.num_requests():
                    self._progress_s = self._engine.clock.now()
                self._obey()
                deltas = self._engine.step(self._send_out) if self._engine.has_work() else None
                self._beat_s = self._engine.clock.now()
                self._gauges = self._engine.gauges()
                refused = self._engine.take_refused()
                if deltas is not None:
                    self._progress_s = self._changed_s = self._beat_s
                    self._outgoing = [*deltas, *refused] if refused else deltas
                    continue
                self._send_out()
                self._deliver(refused)
                self._rest()
            self._end_all("the server is stopping")
        except BaseException as error:  # a panic of native code is no Exception
            log.exception("the engine failed")
            self._failure = f"a step failed: {type(error).__name__}: {error}"
            self._end_all(self._failure)

    def _obey(self) -> None:
        """Takes the next commands; of a burst, no more than running answers can wait for."""
        until_s = self._engine.clock.now() + OBEY_S
        while self._commands:
            self._commands.popleft()()
            if self._engine.clock.now() > until_s and self._engine.has_work():
                return

    def _rest(self) -> None:
        with self._wake:
            if self._commands or self._stopping:
                return
            seconds = IDLE_S
            if self._engine.has_work():
                due_s, now = self._engine.wake_s(), self._engine.clock.now()
                seconds = min(IDLE_S, max(0.0005, due_s - now))
                if due_s > now:
                    self._progress_s = due_s
            self._resting = True
            self._wake.wait(seconds)
            self._beat_s, self._resting = self._engine.clock.now(), False
        if self._changed_s is None or self._num_coming or self._engine.num_requests():
            return
        if self._beat_s - self._changed_s >= IDLE_S:  # however often somebody looked meanwhile
            self._check()

    def _check(self) -> None:
        """Once after requests have come and gone; not where it would take long."""
        self._changed_s = None
        if self._gauges.kv_blocks_total + (CACHED - 1) * self._gauges.kv_blocks_cached > CHECKED:
            return
        try:
            self._engine.check_integrity()
        except Exception as error:  # whatever wrong books lead to
            log.exception("the engine's books are wrong")
            reason = f"{type(error).__name__}: {error}"[:200]  # it may name many blocks
            self._failure = f"the engine's books of sequences and KV blocks are wrong: {reason}"

    def _send_out(self) -> None:
        if self._outgoing:
            self._deliver(self._outgoing)
            self._outgoing = ()

    def _deliver(self, items: Sequence[tuple[str, Item]]) -> None:
        """Makes one call into each event loop, however many requests there are."""
        parcels: dict[asyncio.AbstractEventLoop, list[tuple[Queue, Item]]] = {}
        now_s = self._engine.clock.now()
        for request_id, item in items:
            mailbox = self._mailboxes.get(request_id)
            if mailbox is None:
                continue
            for ready in mailbox.ready(item, now_s):
                parcel = parcels.get(mailbox.loop)
                if parcel is None:
                    parcel = parcels[mailbox.loop] = []
                parcel.append((mailbox.queue, ready))
                if mailbox.times is not None:
                    mailbox.times.append(now_s)
            if isinstance(item, PenstockError) or item.done:
                del self._mailboxes[request_id]
        for loop, parcel in parcels.items():
            hand_over(loop, parcel)

    def _end_all(self, reason: str) -> None:
        with self._wake:
            self._ended = True
        self._send_out()
        self._obey_late()
        self._deliver([(request_id, RequestError(reason, status=503, code="engine_unavailable")) for request_id in self._mailboxes])
        try:
            self._engine.clear()
        except BaseException:
            log.exception("what the requests held could not be freed")
        self._gauges = self._engine.gauges()

    def _obey_late(self) -> None:
        """Commands that came too late still need an answer."""
        while self._commands:
            try:
                self._commands.popleft()()
            except BaseException:
                log.exception("a command could not be obeyed after the end")
