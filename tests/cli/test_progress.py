"""The loading bar is there while something loads, and nothing is left of it afterwards."""
import io
import sys

import pytest

from penstock.cli import progress
from penstock.cli.progress import LoadingBar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watched(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """stderr of somebody to whom everything takes long."""
    monkeypatch.setattr(progress, "PATIENCE_S", -1.0)
    monkeypatch.setattr(sys, "stderr", stream := Terminal())
    return stream


def test_a_bar_counts_what_is_told_last_and_ends_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, stdout = watched(monkeypatch), sys.stdout
    with LoadingBar("loading x") as bar:
        bar(1, 3_000_000)
        assert sys.stdout is not stdout and bar._bar.tasks[0].total == 3_000_000
        bar(5, 9_000_000)
        assert (bar._bar.tasks[0].completed, bar._bar.tasks[0].total) == (5, 9_000_000)
        bar(1, 1)
        assert bar._bar is None and sys.stdout is stdout and "loading x" in terminal.getvalue()


def test_what_is_complete_at_once_draws_none(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = watched(monkeypatch)
    with LoadingBar("loading x") as bar:
        bar(1, 1)
    assert not terminal.getvalue()
