import json
import sys

import pytest
import regress
from versus.points import Point
from versus.record import Record, keep

from tests.bench.made import row

WAS = (row("penstock", 60.0, 0.90), row("penstock", 50.0, 0.80, size=8192), row("rival", 80.0, 0.99))


def record(rows, **fields):
    told = {"bench": "cpu_decode", "machine": "x", "threads": 2, "date": "2026-01-01"} | fields
    return Record(rows=tuple(rows), **told)


def test_shares_are_compared_and_speeds_are_not():
    found = regress.changes(WAS, [row("penstock", 30.0, 0.91), row("penstock", 55.0, 0.60, size=8192), row("rival", 10.0, 0.1)])
    assert [round(each.ratio, 3) for each in found] == [1.011, 0.75]
    assert [each.was.size for each in regress.worse(found, 0.08)] == [8192]
    assert not regress.worse(found, 0.3)


def test_another_format_or_point_is_not_compared():
    assert not regress.changes(WAS, [row("penstock", 1.0, 0.1, format="int4"), row("penstock", 1.0, 0.1, size=1)])


def test_points_are_those_recorded_of_ours_without_the_deep_ones():
    class Chosen:
        model, formats = ("m",), ("int8",)

    rows = (*WAS, row("penstock", 1.0, model="other", size=5), row("rival", 1.0, size=7))
    assert regress.points_of(record(rows), Chosen, deep=False) == [Point("decode", 0)]
    assert regress.points_of(record(rows), Chosen, deep=True) == [Point("decode", 0), Point("decode", 8192)]


@pytest.mark.parametrize(("share", "status"), [(0.89, 0), (0.70, 1)])
def test_the_exit_status_tells(tmp_path, monkeypatch, capsys, share, status):
    was = keep(record(WAS[:1]), tmp_path / "was")
    now = keep(record([row("penstock", 60.0, share)]), tmp_path / "now")
    monkeypatch.setattr(sys, "argv", ["regress.py", "--against", str(was), "--fresh", str(now)])
    assert regress.main() == status
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert told["compared"] == 1 and len(told["worse"]) == status


def test_nothing_to_compare_is_no_success(tmp_path, monkeypatch):
    was, now = keep(record(WAS[:1]), tmp_path / "was"), keep(record([]), tmp_path / "now")
    monkeypatch.setattr(sys, "argv", ["regress.py", "--against", str(was), "--fresh", str(now)])
    assert regress.main() == 2
