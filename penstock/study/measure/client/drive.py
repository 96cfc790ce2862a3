"""Puts load on a target: open loop by the clock, closed loop by its answers. What can be done before a request is due, is."""
import asyncio
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from penstock.core.errors import PenstockError, RequestError
from penstock.study.digits import rounded_down
from penstock.study.measure.client.openai import TOO_LONG, Ask, Wish
from penstock.study.measure.client.target import Stopwatch, Target
from penstock.study.measure.load import Session, Turn, num_tokens
from penstock.study.measure.samples import Sample

DEPTH = 4096  # requests that are prepared ahead
AHEAD_S = 5.0  # for which they are before the load begins, where nobody knows how many it takes
SPARE_S = 0.004  # before a request is due, in which another may be prepared
TICK_S = 0.005
UNANSWERED_S, MOST_AWAY_S = 0.1, 60.0  # at least and at most, until a user of a closed loop whose request failed asks again
LOOK_S = 1.0  # after which such a user looks whether anything is left to ask
SHORTER = ("of a trace, a smaller scale=... in --dataset makes prompts and answers shorter, max_input=TOKENS and max_output=TOKENS leave "
           "out those that are longer")


def shorter(session: Session, most: int | None, answer: int | None) -> str:
    """What makes a trace's request fit into so many tokens: the scale, rounded down to two digits. `answer`: tokens of it that are asked
    for; where these are not those of the trace, no scale changes them."""
    turn = session.turns[0]
    fixed = 0 if answer == turn.num_output else answer or 0
    needed, left = num_tokens(turn.num_prompt, answer), (most or 0) - fixed
    if most is None or needed <= most or left <= 0:
        return SHORTER
    scale = rounded_down(session.scale * left / (needed - fixed), 2)
    return SHORTER.replace("a smaller scale=...", f"scale={scale:.2g}").replace("shorter", "so short that this one fits")


@dataclass(frozen=True, slots=True)
class Extent:
    """How much: sessions that begin, seconds in which they may begin; None is no limit, and one of them is set."""

    num_sessions: int | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    at_s: float
    session: Session
    prepared: Any  # the first turn, or the RequestError of one that cannot be


class Ahead:
    """Sessions in their order, the next ones already prepared. `is_recorded`: whether they are of a trace. `too_late_s`: when the first one
    is due that the extent has no time for. `broken`: why there are no more, where that was found out while load was put on."""

    def __init__(self, schedule: Iterator[tuple[float, Session]], target: Target, extent: Extent) -> None:
        self._schedule, self._target, self._extent = schedule, target, extent
        self._ready: deque[Ready] = deque()
        self._num_taken = 0
        self.is_recorded = False
        self.too_late_s: float | None = None
        self.broken: PenstockError | None = None
        self._begun = False
        self._ended = False
        self._dry = False  # the schedule had no more
        self._until_s: float | None = None  # until when more are prepared than are known to be needed

    def begin(self) -> None:
        """Load is put on from here on: what is wrong with a session that is prepared later does not take the others with it."""
        self._begun = True

    def fill(self) -> bool:
        """Prepares one more; False when there are enough, or no more. Raises PenstockError before load is put on."""
        if self._ended or len(self._ready) >= DEPTH:
            return False
        try:
            return self._fill()
        except PenstockError as error:
            if not self._begun:
                raise
            self._ended, self.broken = True, error
            return False

    def _fill(self) -> bool:
        most, seconds = self._extent.num_sessions, self._extent.seconds
        wanted = most is None or self._num_taken < most
        found = next(self._schedule, None) if wanted else None
        if found is None or (seconds is not None and found[0] >= seconds):
            self._ended = True
            self._dry = wanted and found is None
            self.too_late_s = None if found is None else found[0]
            return False
        self._num_taken += 1
        self.is_recorded = found[1].at_s is not None
        self._ready.append(Ready(found[0], found[1], self._prepared(found[1])))
        return True

    def _prepared(self, session: Session) -> Any:
        """Before load is put on, raises RequestError as the target does; of a trace's request that is too long, with what makes it
        shorter. From then on such a request fails alone."""
        try:
            return self._target.prepare(first_ask(session))
        except RequestError as error:
            if self._begun:
                return error
            if error.code != TOO_LONG or session.at_s is None:
                raise
            told = shorter(session, self._target.max_model_len, output_of(self._target.wish, session.turns[0]))
            raise RequestError(f"{error}; {told}", error.param, error.status, error.code) from None

    def fill_all(self, users: int | None) -> None:
        """Before the load begins. `users`: of a closed loop. One that ends by the clock takes at least a request of each, and nobody knows
        how many more."""
        if self._until_s is None:
            self._until_s = time.perf_counter() + AHEAD_S
        known = users is None or self._extent.seconds is None
        while (known or len(self._ready) < (users or 0) or time.perf_counter() < self._until_s) and self.fill():
            pass

    def is_left(self) -> bool:
        """Whether a recording has more sessions than were asked for by number. Takes one of them."""
        most = self._extent.num_sessions
        try:
            found = next(self._schedule, None) if most is not None and self._num_taken >= most else None
        except PenstockError:
            return False  # what was not asked for may be broken
        return found is not None and found[1].at_s is not None

    def lacked(self) -> int | None:
        """How many sessions there were, where all were taken and more were wanted."""
        return self._num_taken if self._dry and not self._ready else None

    @property
    def is_behind(self) -> bool:
        """Whether the next one is not prepared."""
        return not self._ready

    def peek(self) -> Ready | None:
        if not self._ready:
            self.fill()
        return self._ready[0] if self._ready else None

    def take(self) -> Ready | None:
        found = self.peek()
        if found is not None:
            self._ready.popleft()
        return found


def first_ask(session: Session) -> Ask:
    turn = session.turns[0]
    return Ask(turn.prompt, turn.messages, turn.num_prompt, turn.num_output)


def output_of(wish: Wish, turn: Turn) -> int | None:
    """Tokens that are asked for; None where the model ends the answer."""
    return wish.output_of(turn.num_output, chat=turn.prompt is None)


class Lag:
    """How late the event loop comes to what is due: what every time that this client takes may be too large by."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._handle = loop.call_at(loop.time() + TICK_S, self._tick, loop, loop.time() + TICK_S)

    def _tick(self, loop: asyncio.AbstractEventLoop, due_s: float) -> None:
        now = loop.time()
        self.seconds.append(now - due_s)
        self._handle = loop.call_at(now + TICK_S, self._tick, loop, now + TICK_S)

    def stop(self) -> None:
        if self._handle is not None:
            self._handle.cancel()


class Driver:
    """`samples` grows while `run` runs, by each request that is sent; `ended` by those that were answered or failed, in that order, which
    are counted beside it."""

    def __init__(self, target: Target, watch: Stopwatch) -> None:
        self.samples: list[Sample] = []
        self.ended: list[Sample] = []
        self.num_answered = self.num_refused = self.num_tokens = 0
        self.num_sessions = 0  # that ended
        self.lag = Lag()
        self._target, self._watch = target, watch

    async def run(self, ahead: Ahead, users: int | None, extent: Extent) -> None:
        """Until every session that began has ended. Raises PenstockError for a request that cannot be prepared before the first is due."""
        ahead.fill_all(users)
        ahead.begin()
        self._watch.start()
        self.lag.start()
        try:
            async with asyncio.TaskGroup() as group:
                if users is None:
                    await self._open(ahead, group)
                else:
                    await self._closed(ahead, users, extent, group)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self.lag.stop()

    async def _open(self, ahead: Ahead, group: asyncio.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while (ready := ahead.peek()) is not None:
            while ready.at_s - self._watch() > SPARE_S and ahead.fill():
                await asyncio.sleep(0)
            ahead.take()
            begun = loop.create_future()
            timer = loop.call_later(ready.at_s - self._watch(), self._begin, ready, group, begun)
            try:
                await begun
            finally:
                timer.cancel()

    def _begin(self, ready: Ready, group: asyncio.TaskGroup, begun: "asyncio.Future[None]") -> None:
        """The session first: it goes out in the loop's next round, before whoever waits for the next one is woken."""
        group.create_task(self._session(ready, ready.at_s))
        if not begun.done():
            begun.set_result(None)

    async def _closed(self, ahead: Ahead, users: int, extent: Extent, group: asyncio.TaskGroup) -> None:
        """As many users as find something to ask, all at once as far as their requests are prepared."""
        for _ in range(users):
            ready = self._next(ahead, extent)
            if ready is None:
                return
            group.create_task(self._user(ready, ahead, extent))
            if ahead.is_behind:
                await asyncio.sleep(0)

    async def _user(self, first: Ready, ahead: Ahead, extent: Extent) -> None:
        ready: Ready | None = first
        while ready is not None:
            last = await self._session(ready, self._watch())
            if not last.ok:
                wait_s = min(max(UNANSWERED_S, last.retry_after_s), MOST_AWAY_S)
                if extent.seconds is not None and self._watch() + wait_s >= extent.seconds:
                    return
                await self._away(wait_s, ahead)
            ready = self._next(ahead, extent)

    async def _away(self, wait_s: float, ahead: Ahead) -> None:
        """Back sooner where others have taken all that was left."""
        until_s = self._watch() + wait_s
        while ahead.peek() is not None and (left_s := until_s - self._watch()) > 0:
            await asyncio.sleep(min(left_s, LOOK_S))

    def _next(self, ahead: Ahead, extent: Extent) -> Ready | None:
        """For a user; None where all sessions were begun, or the time in which they may begin is over."""
        return ahead.take() if extent.seconds is None or self._watch() < extent.seconds else None

    async def _session(self, ready: Ready, due_s: float) -> Sample:
        """The last of its samples."""
        prepared, history = ready.prepared, list(ready.session.turns[0].messages)
        for number, turn in enumerate(ready.session.turns):
            if number:
                history += turn.messages
                due_s = self._watch() + turn.wait_s
                prepared = self._prepared(Ask(None, tuple(history), None, turn.num_output))
                await asyncio.sleep(max(0.0, due_s - self._watch()))
            wanted = None if self._target.wish.chooses else output_of(self._target.wish, turn)
            sample = Sample(len(self.samples), due_s, number, num_prompt=turn.num_prompt, wanted_output=wanted)
            self.samples.append(sample)
            goes_on = number + 1 < len(ready.session.turns)
            text = ""
            if isinstance(prepared, RequestError):
                sample.fail(str(prepared), self._watch())
            else:
                text = await self._target.send(prepared, sample, keep_text=goes_on and turn.answer is None)
            self._count(sample)
            if not sample.ok:
                break
            history.append({"role": "assistant", "content": text if turn.answer is None else turn.answer})
        self.num_sessions += 1
        return sample

    def _count(self, sample: Sample) -> None:
        self.ended.append(sample)
        self.num_answered += sample.ok
        self.num_refused += sample.refused
        self.num_tokens += sample.num_output or 0

    def _prepared(self, ask: Ask) -> Any:
        """Of a later turn: a conversation may outgrow the context, and fails alone then."""
        try:
            return self._target.prepare(ask)
        except RequestError as error:
            return error
