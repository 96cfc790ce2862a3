"""What others took is what the processors did beside this process; only those count that it may use."""
import os
from pathlib import Path

import pytest

from penstock.study.measure.neighbours import Moment, busy_ticks, look, others_share, sign

STAT = """cpu  30 0 30 100 10 0 0 3 0 0
cpu0 10 1 5 80 10 1 1 2 7 0
cpu11 20 0 25 20 0 0 0 1 0 0
intr 5
"""


def test_time_is_busy_that_is_neither_idle_nor_waiting() -> None:
    assert list(busy_ticks(STAT)) == [(0, 20), (11, 46)]


def test_what_others_took_is_a_share_of_all_processors(tmp_path: Path) -> None:
    before, after = Moment(10.0, 2.0, 100.0), Moment(20.0, 17.0, 118.0)
    assert others_share(before, after, 2) == pytest.approx(3 / 20)
    assert sign(before, after, 2) == ("other programs took 15% of the processors' time meanwhile",)
    assert sign(before, after, 8) == sign(None, after, 2) == sign(before, None, 2) == ()
    assert others_share(before, Moment(20.0, 25.0, 118.0), 2) == 0.0, "ticks are coarse"
    assert look(tmp_path / "nowhere") is None


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="the system does not tell")
def test_only_processors_that_may_be_used_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stat").write_text(STAT)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {11, 12})
    found = look(tmp_path / "stat")
    assert found is not None and found.busy_s == 46 / os.sysconf("SC_CLK_TCK")
