"""A line that tells how a run goes: how far it is, how much is in flight, the latest latencies. Drawn over itself, on terminals alone."""
import shutil
from collections.abc import Sequence
from typing import Any, TextIO

RECENT = 500  # requests that the percentiles are of
BAR = 16


class Live:
    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._drawn = False

    def draw(self, driver: Any, extent: Any, now_s: float) -> None:
        """A `View` of study/measure/bench.py."""
        ended, sent = driver.ended, len(driver.samples)
        shares = [driver.num_sessions / extent.num_sessions] if extent.num_sessions else []
        shares += [now_s / extent.seconds] if extent.seconds else []
        full = round(BAR * min(1.0, max(shares, default=0.0)))
        recent = ended[-RECENT:]
        answered, refused = driver.num_answered, driver.num_refused
        failed = len(ended) - answered - refused
        parts = [
            f"{'█' * full}{'·' * (BAR - full)} {answered} answered, {sent - len(ended)} in flight, {now_s:.0f} s",
            f"{refused} refused" if refused else "", f"{failed} failed" if failed else "",
            latest("TTFT", [sample.ttft_s for sample in recent]), latest("TPOT", [sample.tpot_s for sample in recent]),
            f"{driver.num_tokens / now_s:,.0f} tokens/s" if now_s > 0 else "",
        ]
        width = shutil.get_terminal_size().columns - 1
        self._out.write(f"\r\x1b[K{'  '.join(filter(None, parts))[:width]}")
        self._out.flush()
        self._drawn = True

    def say(self, line: str) -> None:
        """In place of what is drawn."""
        self._wipe()
        print(line, file=self._out, flush=True)

    def __enter__(self) -> "Live":
        return self

    def __exit__(self, *_: object) -> None:
        self._wipe()

    def _wipe(self) -> None:
        if self._drawn:
            self._out.write("\r\x1b[K")
            self._out.flush()
            self._drawn = False


def latest(name: str, values: Sequence[float | None]) -> str:
    """p50 and p99 in milliseconds; nothing where there are none."""
    known = sorted(value for value in values if value is not None)
    if not known:
        return ""
    p50, p99 = (known[min(len(known) - 1, int(share * len(known)))] * 1000 for share in (0.5, 0.99))
    return f"{name} p50 {ms(p50)} p99 {ms(p99)} ms"


def ms(value: float) -> str:
    """45, 3.3, 0.03."""
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.1f}" if value >= 0.095 or not value else f"{value:.1g}"
