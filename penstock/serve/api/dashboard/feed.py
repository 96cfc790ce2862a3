"""Looks at the engine while somebody watches, on a thread of its own, and hands each watcher an update at most four times a second.

Nobody watches: no thread, and the engine pays one test of an attribute a step. An update is encoded once for all watchers. A watcher that
does not read has the oldest of its few waiting updates replaced: it holds up nobody and holds no more memory than those.
"""
import asyncio
import contextlib
import json
import logging
import threading
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from penstock.core.clock import Clock
from penstock.core.errors import OverloadedError
from penstock.core.hardware import Hardware
from penstock.core.types import Seq, Status
from penstock.serve.api.dashboard.blocks import BlockMap
from penstock.serve.api.dashboard.figures import Figures, History, Stretch
from penstock.serve.api.dashboard.lanes import Lanes
from penstock.serve.api.dashboard.limit import Binding, points, roof
from penstock.serve.engine.requests import Gauges, Health
from penstock.serve.engine.watch import Look, Seen, Watch, Watchable

log = logging.getLogger(__name__)
UPDATE_S = 0.25
IDLE_UPDATES = 4  # of which one is sent while nothing happens
MAX_WATCHERS = 32
MAX_UNREAD = 4
ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))


class Observed(Watchable, Protocol):
    """The engine's loop, as far as the feed goes."""

    def gauges(self) -> Gauges: ...

    def health(self) -> Health: ...

    def under_way_s(self) -> float | None: ...


@dataclass(frozen=True, slots=True)
class Subject:
    """What is looked at. `about`: what does not change, as the page shows it."""

    engine: Observed
    clock: Clock
    hardware: Hardware | None
    compute_type: str
    block_size: int
    about: dict[str, Any] = field(default_factory=dict)


class Watcher:
    """One who watches: a few updates that wait to be sent. None is the end."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.is_new = True  # has not been greeted
        self.updates: asyncio.Queue[str | None] = asyncio.Queue(MAX_UNREAD)

    def put(self, update: str | None) -> None:
        """On the event loop."""
        if self.updates.full():
            self.updates.get_nowait()
        self.updates.put_nowait(update)


class Picture:
    """What the page shows, kept from update to update. One thread."""

    def __init__(self, subject: Subject, history: History) -> None:
        self._subject = subject
        self._history = history
        self._binding: Binding | None = None  # from the first look on: of the step that was under way before nothing is heard
        self._figures = Figures(subject.hardware, subject.compute_type)
        self._lanes = Lanes()
        self._blocks = BlockMap()
        self._number = 0

    def greeting(self, update_s: float) -> dict[str, Any]:
        """What a new watcher is told once, before the update of that time."""
        subject = self._subject
        return {
            "type": "hello", "about": subject.about, "block_size": subject.block_size,
            "roof": roof(subject.hardware, subject.compute_type), "history": self._history.before(update_s)}

    def update(self, steps: list[Seen], num_missed: int, look: Look) -> dict[str, Any]:
        """The next one. `look` is as old as the step in flight is long."""
        subject, figures, lanes, now = self._subject, self._figures, self._lanes, round(self._subject.clock.now(), 4)
        binding = self._binding = self._binding or Binding(
            subject.hardware, subject.compute_type, subject.clock, subject.engine.under_way_s)
        for seen in steps:
            lanes.step(seen)
        lanes.look(look.seqs, now)
        under_way_s = subject.engine.under_way_s()
        figures.add(steps, now, under_way_s)
        gauges, health = subject.engine.gauges(), subject.engine.health()
        recent = figures.recent()
        per_s = rates(recent)
        limit = binding.limit((seen.record for seen in steps), bool(look.seqs))
        num_running, num_waiting = lanes.counts()
        kv_share = gauges.kv_blocks_used / max(1, gauges.kv_blocks_total)
        self._number += 1
        return {
            "type": "update", "n": self._number, "t": now, "steps_missed": num_missed,
            "health": {"ok": health.ok, "reason": health.reason},
            "now": {"running": num_running, "waiting": num_waiting, "kv_used": gauges.kv_blocks_used,
                    "kv_cached": gauges.kv_blocks_cached, "kv_total": gauges.kv_blocks_total,
                    "oldest_s": oldest_s(look.seqs, now), "under_way_s": None if under_way_s is None else max(0.0, now - under_way_s)},
            "rates": per_s, "cache": figures.cache(look),
            "latency": figures.requests(lanes.entries(), lanes.ended, now), "late": figures.late(gauges, now),
            "limit": {"kind": limit.name, "sentence": limit.sentence, "share": limit.share, "reached": limit.reached},
            "points": points(recent),
            "history": self._history.add(now, per_s["output"], per_s["prefill"], num_running, num_waiting, kv_share),
            "map": self._blocks.draw(look, lanes.lane_of), "timeline": lanes.tell(),
        }


def oldest_s(seqs: Iterable[Seq], now: float) -> float | None:
    """How long the oldest of those that have had no step yet has waited; None where there is none."""
    arrived = [seq.arrival_s for seq in seqs if seq.status is Status.WAITING and seq.first_scheduled_s is None]
    return now - min(arrived) if arrived else None


def rates(stretch: Stretch) -> dict[str, Any]:
    """Per second of the last seconds; a step's mean length in seconds, and the share of time that steps take."""
    window = stretch.window_s or 1.0
    num_steps = stretch.prefill.num_steps + stretch.decode.num_steps
    return {
        "output": stretch.num_output / window, "prefill": stretch.num_prefilled / window, "steps": num_steps / window,
        "step_s": stretch.busy_s / num_steps if num_steps else None, "busy": min(1.0, stretch.busy_s / window),
        "drafted": stretch.num_drafted / window, "accepted": stretch.num_accepted / window}


class Feed:
    """`join` and `leave` are called on an event loop; everything else happens on the feed's thread."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self._history = History()
        self._watchers: set[Watcher] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def join(self) -> Watcher:
        """Somebody watches. Raises OverloadedError where too many do."""
        watcher = Watcher(asyncio.get_running_loop())
        with self._changed:
            if len(self._watchers) >= MAX_WATCHERS:
                raise OverloadedError(f"{MAX_WATCHERS} dashboards are open, which is the most allowed; close one", retry_after_s=5.0)
            if self._thread is None:
                self._start()
            self._watchers.add(watcher)
            self._changed.notify()
        return watcher

    def leave(self, watcher: Watcher) -> None:
        with self._changed:
            self._watchers.discard(watcher)
            self._changed.notify()

    def _start(self) -> None:
        """Called with the lock. Raises RuntimeError where the system has no thread left; then the next who joins tries again."""
        self._thread = threading.Thread(target=self._run, name="penstock-dashboard", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:
            self._thread = None
            raise

    def _run(self) -> None:
        watch, engine, picture = Watch(), self._subject.engine, Picture(self._subject, self._history)
        engine.watch(watch)
        try:
            num_quiet = 0
            while watchers := self._watching():
                update = self._next(watch, picture)
                if update is not None:
                    num_quiet = 0 if stirs(update) else num_quiet + 1
                    self._send(picture, update, watchers, num_quiet % IDLE_UPDATES == 0)
                self._rest()
        except Exception:
            log.exception("the dashboard's feed failed")
            self._dismiss()

    def _next(self, watch: Watch, picture: Picture) -> dict[str, Any] | None:
        """None before the engine has been looked at: a long step may be in flight."""
        watch.looked.clear()
        self._subject.engine.look(watch)
        watch.looked.wait(UPDATE_S)
        look = watch.look
        if look is None:
            return None
        steps, num_missed = watch.take()
        return picture.update(steps, num_missed, look)

    def _send(self, picture: Picture, update: dict[str, Any], watchers: list[Watcher], to_all: bool) -> None:
        text = ENCODER.encode(update)
        for watcher in watchers:
            texts = [text] if to_all or watcher.is_new else []
            if watcher.is_new:
                watcher.is_new = False
                texts.insert(0, ENCODER.encode(picture.greeting(update["t"])))
            for each in texts:
                post(watcher, each)

    def _watching(self) -> list[Watcher]:
        """Those who watch; the thread ends with the last."""
        with self._changed:
            if not self._watchers:
                self._end()
            return list(self._watchers)

    def _rest(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: not self._watchers or any(watcher.is_new for watcher in self._watchers), UPDATE_S)

    def _dismiss(self) -> None:
        with self._changed:
            for watcher in self._watchers:
                post(watcher, None)
            self._watchers.clear()
            self._end()

    def _end(self) -> None:
        """Called with the lock, so that the thread of whoever joins next begins to watch only after this one has stopped."""
        self._subject.engine.watch(None)
        self._thread = None


def post(watcher: Watcher, text: str | None) -> None:
    with contextlib.suppress(RuntimeError):  # its event loop is closed
        watcher.loop.call_soon_threadsafe(watcher.put, text)


def stirs(update: dict[str, Any]) -> bool:
    """Whether anything happens."""
    now = update["now"]
    return bool(update["rates"]["steps"] or now["running"] or now["waiting"] or update["history"] or update["timeline"]["ended"])
