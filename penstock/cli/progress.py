"""A bar or a line on stderr for what takes long, and nothing at all for what does not."""
import shutil
import sys
import time
from typing import Any

PATIENCE_S = 0.5
PAUSE_S = 0.1  # between two drawings of a line
CLEAR = "\r\x1b[K"


class LoadingBar:
    """Called with (bytes done, bytes in all). Draws from the first call after half a second on, if stderr is a terminal."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began_s = time.monotonic()
        self._bar: Any = None

    def __call__(self, done: int, total: int) -> None:
        if self._bar is None and done < total and sys.stderr.isatty() and time.monotonic() - self._began_s > PATIENCE_S:
            self._bar = self._draw(total)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done, total=total)
            if done >= total:
                self._stop()

    def say(self, line: str) -> None:
        print(line, file=sys.stderr)

    def __enter__(self) -> "LoadingBar":
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _draw(self, total: int) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn, TransferSpeedColumn

        columns = ("{task.description}", BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
        bar = Progress(*columns, console=Console(stderr=True), transient=True)
        bar.add_task(self._what, total=total)
        bar.start()
        return bar

    def _stop(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


class StatusLine:
    """What is being done and for how long, drawn over itself on stderr from half a second on, if that is a terminal; gone in the end."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._drawn_s: float | None = None

    def say(self, line: str) -> None:
        now = time.monotonic()
        if now - self._began_s <= PATIENCE_S or (self._drawn_s is not None and now - self._drawn_s < PAUSE_S) or not sys.stderr.isatty():
            return
        shown = f"{line}, {now - self._began_s:.0f} s"[: shutil.get_terminal_size().columns - 1]
        print(f"{CLEAR}{shown}", end="", file=sys.stderr, flush=True)
        self._drawn_s = now

    def __enter__(self) -> "StatusLine":
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn_s is not None:
            print(CLEAR, end="", file=sys.stderr, flush=True)
