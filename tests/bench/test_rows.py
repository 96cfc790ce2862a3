import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from versus import bench
from versus.contest import Roof
from versus.points import GAP_S, Point
from versus.record import Record, keep, read, recorded, slug
from versus.rows import rows_of, verdicts
from versus.table import losses, report, table

from tests.bench.made import FAST, OURS, SLOW, row, sample

SHAPE = SimpleNamespace(model="m", limit=lambda point, bits, computes, roof: 100.0)


def test_medians_over_rounds_and_shares_of_the_limit():
    samples = [sample(OURS, speed, n, decode_bytes=2e9, decode_step_s=0.1) for n, speed in enumerate((80, 60, 75))]
    (found,) = rows_of(samples, SHAPE)
    assert (found.tokens_per_s, found.share, found.rounds, found.spread) == (75, 0.75, 3, 80 / 60)
    assert found.figures["mbu"] == pytest.approx(2e9 / 40e9 / 0.1)
    assert found.ours and found.best and found.computes == "bf16"


def test_the_rival_of_a_verdict_is_the_best_at_the_same_bits():
    rows = rows_of([sample(OURS, 60), sample(SLOW, 30), sample(FAST, 80)], SHAPE)
    assert [each.best for each in rows] == [True, False, True]
    (verdict,) = verdicts(rows)
    assert verdict.rival.setting == "repacked" and verdict.ratio == 0.75
    assert not verdicts([row("penstock", 1.0), row("rival", 9.0, bits=4)])


def test_a_ratio_is_of_turns_at_one_pace():
    """Ours had the slow pace in two turns of three, and is faster at either."""
    ours = row("penstock", 30.0, turns=((40.0, 60e9), (30.0, 38e9), (29.0, 37e9)))
    rival = row("rival", 32.0, turns=((32.0, 58e9), (25.0, 38e9), (33.0, 61e9), (90.0, 49e9)))
    (verdict,) = verdicts([ours, rival])
    assert verdict.ratio == (30 / 25 + 40 / 33) / 2
    assert table([ours, rival])[-1].endswith("| 1.21 |") and not losses([ours, rival])
    apart = row("rival", 32.0, turns=((32.0, 90e9),))
    assert verdicts([ours, apart])[0].ratio == 30 / 32


def test_the_rival_of_a_verdict_is_that_of_the_lowest_ratio():
    ours = row("penstock", 30.0, turns=((40.0, 60e9), (30.0, 38e9)))
    fortunate, better = row("rival", 36.0, turns=((36.0, 60e9),)), row("other", 28.0, turns=((28.0, 38e9),))
    assert verdicts([ours, fortunate, better])[0].rival.engine == "other"


def test_the_best_way_is_that_of_the_highest_median():
    near = [sample(SLOW, speed, n) for n, speed in enumerate((30, 44, 44))]
    rows = rows_of(near + [sample(FAST, speed, n) for n, speed in enumerate((36, 36, 36))], SHAPE)
    assert [(each.setting, each.best) for each in rows] == [("plain", True), ("repacked", False)]


def test_a_share_that_no_machine_gives_is_named():
    rows = rows_of([sample(OURS, 110), sample(SLOW, 104)], SHAPE)
    named = [line for line in report(rows, {}) if line.startswith("ABOVE")]
    assert named == ["ABOVE THE LIMIT: m decode 2048, penstock int8 at 110% of it"]


def test_losses_are_named_and_wins_are_not():
    rows = [row("penstock", 60.0), row("rival", 80.0), row("penstock", 90.0, size=2048), row("rival", 30.0, size=2048)]
    (lost,) = losses(rows)
    assert "LOST: m decode 0" in lost and "(0.75 times)" in lost
    assert "no loss" in report(rows[2:], {}) and "no loss" not in report(rows[2:3], {})
    assert report(rows, {"x": "why"})[-1] == "FAILED: x: why"


def test_the_table_has_a_line_for_the_best_of_each_engine():
    lines = table([row("penstock", 60.0, 0.9), row("rival", 80.0), row("rival", 20.0, setting="worse", best=False)])
    assert len(lines) == 4
    assert lines[2] == "| m decode 0, 8 bits | penstock int8 | 60.0 | 1.00 | 90.0% | 40.0 |  |"
    assert lines[3].endswith("| 0.75 |")


def test_a_record_comes_back_from_its_file(tmp_path):
    rows = (row("penstock", 60.0, figures={"mbu": 0.5}, turns=((60.0, 40e9), (61.5, 41e9))),)
    record = Record("cpu_decode", "AMD EPYC (model 17)", 2, "2026-01-02T03:04:05Z", rows, {"a": "1"})
    path = keep(record, tmp_path)
    assert path.name == "2026-01-02-amd-epyc-model-17-cpu_decode.json"
    assert read(path.read_text()) == record and recorded(tmp_path) == [record]
    told = record.as_json()
    del told["asked"]  # as earlier records
    assert read(json.dumps(told)) == record
    with pytest.raises(ValueError, match="no record of format 1"):
        read('{"format": 0}')


def test_a_day_keeps_what_its_narrowed_runs_found(tmp_path):
    def found(rows, **more):
        return Record("b", "x", 2, "2026-01-02T03:04:05Z", tuple(rows), **more)

    four = [row("penstock", 90.0, bits=4), row("rival", 45.0, bits=4)]
    keep(found([row("penstock", 60.0), row("rival", 80.0), *four], versions={"rival": "1"}, failures={"other": "why"}), tmp_path)
    path = keep(found([row("penstock", 70.0), row("rival", 75.0)], versions={"penstock": "2"}), tmp_path)
    told = read(path.read_text())
    kept = [(each.engine, each.bits, each.tokens_per_s) for each in told.rows]
    assert kept == [("penstock", 4, 90.0), ("rival", 4, 45.0), ("penstock", 8, 70.0), ("rival", 8, 75.0)]
    assert (told.versions, told.failures) == ({"rival": "1", "penstock": "2"}, {"other": "why"})
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("alone", ["penstock", "rival"])
def test_a_run_beside_rivals_is_not_replaced_by_one_without(tmp_path, alone):
    lost, deep = (row("penstock", 60.0), row("rival", 80.0)), row("penstock", 5.0, size=64)
    first = Record("b", "x", 2, "2026-01-02", (*lost, deep))
    said: list[str] = []
    keep(first, tmp_path, said.append)
    later = (row(alone, 90.0), row("penstock", 6.0, size=64))
    path = keep(replace(first, rows=later), tmp_path, said.append)
    assert said == ["m decode 0, 8 bits: kept apart, since the day's earlier record is beside rivals"]
    other = row(alone, 91.0, format="int8a8")  # of the same contest
    keep(replace(first, rows=(other,)), tmp_path)
    keep(replace(first, rows=(other,)), tmp_path)
    told = read(path.read_text())
    assert told.rows == (*lost, replace(later[0], alone=True), later[1], replace(other, alone=True))
    assert verdicts(told.rows) == verdicts(lost)
    keep(replace(first, rows=(row("penstock", 90.0), row("rival", 80.0))), tmp_path, said.append)
    assert [each.tokens_per_s for each in read(path.read_text()).rows] == [6.0, 90.0, 80.0] and len(said) == 1


def test_what_failed_and_ran_later_that_day_failed_no_more(tmp_path):
    ran = row("rival", 80.0)
    name = f"{ran.model}, {ran.engine} {ran.format}"
    failures = {f"{name} flag, {ran.point}": "status -11", f"{name} flag, decode 8192": "too long"}
    keep(Record("b", "x", 2, "2026-01-02", (), failures=failures), tmp_path)
    told = read(keep(Record("b", "x", 2, "2026-01-02", (ran,)), tmp_path).read_text())
    assert told.failures == {f"{name} flag, decode 8192": "too long"}


def test_runs_that_were_measured_in_other_ways_stand_apart(tmp_path):
    asked = {"gap_s": 0.5, "ours": {"order": "shortest"}}
    names = [keep(Record("cpu_serving", "x", 2, date, (), asked=how), tmp_path).name
             for date, how in (("2026-02-01", {}), ("2026-01-31", {}), ("2026-02-01", asked))]
    assert names == ["2026-02-01-x-cpu_serving.json", "2026-01-31-x-cpu_serving.json",
                     "2026-02-01-x-cpu_serving-gap-s-0-5-ours-order-shortest.json"]
    assert read((tmp_path / names[2]).read_text()).asked == asked
    found = sorted((each.date, len(each.asked)) for each in recorded(tmp_path))
    assert found == [("2026-01-31", 0), ("2026-02-01", 0), ("2026-02-01", 2)]


def test_runs_with_other_threads_are_not_merged(tmp_path):
    for threads, size in ((2, 0), (4, 64), (4, 128)):
        path = keep(Record("cpu_decode", "x", threads, "2026-01-02", (row("penstock", 1.0, size=size),)), tmp_path)
    assert [each.size for each in read(path.read_text()).rows] == [64, 128]


def test_a_record_says_what_was_asked_of_it(monkeypatch):
    monkeypatch.setattr(bench, "num_cpus", lambda: 2)
    usual = SimpleNamespace(threads=2, ours=())
    assert bench.asked([Point("decode", 0), Point("mixed", 32, GAP_S)], usual) == {}
    other = SimpleNamespace(threads=1, ours=(("prefix_cache", False),))
    assert bench.asked([Point("mixed", 32, 0.0)], other) == {"threads": 1, "gap_s": 0.0, "ours": {"prefix_cache": False}}


def test_limits_are_the_mean_of_before_and_after():
    assert Roof(10.0, {"bf16": 1.0}).between(Roof(20.0, {"bf16": 3.0})) == Roof(15.0, {"bf16": 2.0})
    assert slug("Intel(R) Xeon(R) @ 2.1 GHz") == "intel-r-xeon-r-2-1-ghz"
