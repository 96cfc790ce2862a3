"""GGUF files that ours and its rivals both open."""
from dataclasses import replace
from types import SimpleNamespace

import compared
import pytest
import regress
from versus import bench, ours
from versus.contest import Entry
from versus.options import check, options, parser
from versus.place import Place
from versus.points import Point
from versus.record import Record, after
from versus.rows import rows_of, verdicts
from versus.table import report

from penstock.core.errors import PenstockError
from tests.bench.made import row, sample

SHAPE = SimpleNamespace(model="m", path="folder", limit=lambda point, bits, computes, roof: 100.0, kv_bytes_per_token=4,
                        spec=SimpleNamespace(vocab_size=8))
PREFILL = Point("prefill", 64)
MINE, ITS = Entry("penstock", "Q4_0", "", 4, "int16", ours=True), Entry("llama.cpp", "Q4_0", "fa", 4, "int8")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Of a model that is there as Q8_0, with a rival of formats of its own and one that reads such files."""
    def rival(place, bits):
        return [SimpleNamespace(entry=Entry("other", format, "", bits, "int8")) for format in {8: ("q8", "Q8_0"), 4: ("Q4_0",)}[bits]]

    (tmp_path / "m.llamacpp-Q8_0").touch()
    monkeypatch.setattr(bench.rivals, "ROSTER", {"openvino": rival})
    monkeypatch.setattr(ours, "computed_in", lambda task: "int16")
    return Place(SHAPE, (PREFILL,), 2, tmp_path / "logs", tmp_path, tmp_path)


def test_a_file_is_a_contest_of_its_own_and_one_that_is_not_there_is_left_out(place):
    said: list[str] = []
    found = bench.contests(place, ("int8", "int8a8", "Q8_0", "Q4_0", "bf16"), said.append)
    assert found == [(16, ""), (8, ""), (8, "Q8_0")] and said == ["m is not there as Q4_0, so without"]


@pytest.mark.parametrize(("file", "entries"), [
    ("", [("penstock", "int8"), ("other", "q8"), ("other", "Q8_0")]), ("Q8_0", [("penstock", "Q8_0"), ("other", "Q8_0")])])
def test_whoever_reads_the_file_takes_part(place, file, entries):
    chosen = SimpleNamespace(engines=("penstock", "openvino"), formats=("int8", "Q8_0", "Q4_0", "int4"))
    field = bench.field(place, 8, file, chosen)
    assert [(one.entry.engine, one.entry.format) for one in field] == entries
    model = field[0]._recipe.task.model
    assert model == (str(place.models / "m.llamacpp-Q8_0") if file else "folder")


def test_the_rival_is_one_with_the_same_file():
    rows = [*rows_of([sample(MINE, 60, point=PREFILL), sample(ITS, 40, point=PREFILL)], SHAPE, "Q4_0"),
            row("other", 90.0, question="prefill", size=64, bits=4), row("penstock", 80.0, question="prefill", size=64, bits=4)]
    assert [(each.ours.format, each.rival.engine, each.ratio) for each in verdicts(rows)] == [
        ("Q4_0", "llama.cpp", 1.5), ("int8", "other", 80 / 90)]
    assert any("m prefill 64, Q4_0 file | penstock Q4_0" in line for line in report(rows, {}))
    page = compared.tables([Record("cpu_prefill", "box", 2, "2026-01-01", tuple(rows))])
    assert "| 4 | other" in page and "| 4 Q4_0 | llama.cpp Q4_0 fa |" in page


def test_a_days_later_run_of_a_file_leaves_the_earlier_ones_alone():
    earlier = Record("cpu_prefill", "box", 2, "2026-01-01", (row("penstock", 80.0, bits=4), row("other", 90.0, bits=4)))
    both = after(earlier, replace(earlier, rows=(row("penstock", 60.0, bits=4, format="Q4_0", file="Q4_0"),)))
    assert len(both.rows) == 3


def test_what_is_recorded_of_a_file_that_is_not_there_is_skipped(tmp_path):
    of_file = row("penstock", 60.0, format="Q8_0", file="Q8_0")
    was = regress.Was(of_file, Record("cpu_decode", "x", 2, "2026-01-01", (of_file,)))
    chosen = SimpleNamespace(model=("m",), formats=(), models=tmp_path)
    assert regress.why_not(was, chosen, False, 2) == "m is not among --models as Q8_0"
    (tmp_path / "m.llamacpp-Q8_0").touch()
    chosen.formats = ("Q8_0",)
    assert regress.why_not(was, chosen, False, 2) is None


def test_a_file_is_opened_before_anything_is_measured(tmp_path):
    words = ("--models", str(tmp_path), "--model", "brook", "--formats", "Q8_0")
    for given in (words, words[2:]):
        with pytest.raises(PenstockError, match="--models has no brook.llamacpp-Q8_0"):
            check(options(parser("").parse_args(given)))
    (tmp_path / "brook.llamacpp-Q8_0").write_bytes(b"GGUF")
    with pytest.raises(PenstockError, match="brook.llamacpp-Q8_0"):
        check(options(parser("").parse_args(words)))
