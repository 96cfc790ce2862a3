"""The line that `penstock bench` draws while it measures, and what is said beside it."""
import io

import pytest

from penstock.cli.live import Live, latest
from penstock.study.measure.client.drive import Extent
from penstock.study.measure.samples import Sample


def test_the_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "140")

    class Driver:
        ended = [Sample(0, 0.0, first_s=0.1, end_s=0.5, last_s=0.5, num_output=5), Sample(1, 0.0, error="x"),
                 Sample(2, 0.0, error="y", status=429)]
        samples = [*ended, Sample(3, 0.0)]
        num_answered, num_refused, num_tokens = 1, 1, 50_000  # of a long run, of which the last are shown
        num_sessions = 2

    out = io.StringIO()
    with Live(out) as live:
        live.draw(Driver(), Extent(4), 2.0)
    line = out.getvalue()
    assert "1 answered, 1 in flight, 2 s  1 refused  1 failed" in line and "TTFT p50 100 p99 100 ms" in line and "25,000 tokens/s" in line
    assert line.startswith("\r\x1b[K████████········")
    assert line.endswith("\r\x1b[K")


@pytest.mark.parametrize(("seconds", "told"), [
    (0.00031, "0.3"), (0.0000312, "0.03"), (0.00333, "3.3"), (0.00996, "10"), (0.045, "45"), (1.2345, "1,234"), (0.0, "0.0")])
def test_short_times_are_drawn_with_their_digits(seconds: float, told: str) -> None:
    assert latest("TPOT", [seconds, None]) == f"TPOT p50 {told} p99 {told} ms"


def test_what_is_said_stands_in_place_of_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")

    class Driver:
        ended: list[Sample] = []
        samples = ended
        num_answered = num_refused = num_tokens = num_sessions = 0

    out = io.StringIO()
    with Live(out) as live:
        live.say("trying 1 request/s")
        live.draw(Driver(), Extent(6), 2.0)
        live.say("trying 2 requests/s")
    before, after = out.getvalue().split("\r\x1b[K", 1)
    assert before == "trying 1 request/s\n" and after.endswith("\r\x1b[Ktrying 2 requests/s\n")


def test_nothing_drawn_is_nothing_to_wipe() -> None:
    out = io.StringIO()
    with Live(out):
        pass
    assert out.getvalue() == ""
