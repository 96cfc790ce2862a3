import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import regress
from versus.record import Record, keep, read

from tests.bench.made import row

WAS = (row("penstock", 60.0, 0.90), row("penstock", 50.0, 0.80, size=8192), row("rival", 80.0, 0.99))
CHOSEN = SimpleNamespace(model=("m",), formats=("int8",))


def record(rows, **fields):
    told = {"bench": "cpu_decode", "machine": "x", "threads": 2, "date": "2026-01-01"} | fields
    return Record(rows=tuple(rows), **told)


@pytest.fixture
def told(tmp_path, monkeypatch, capsys):
    """Of words: the exit status, what was printed, and the line of JSON. Records are kept in files."""
    def run(*words):
        given = [str(keep(word, tmp_path / str(i))) if isinstance(word, Record) else word for i, word in enumerate(words)]
        monkeypatch.setattr(sys, "argv", ["regress.py", *given])
        status = regress.main()
        lines = capsys.readouterr().out.splitlines()
        return status, lines, json.loads(lines[-1])

    return run


@pytest.fixture
def here(monkeypatch):
    """A machine of two processors with these records, and a run that finds the same again, but for `without`. The calls of it."""
    calls = []

    def having(*records, without=(), failures=None):
        def run(bench, points, chosen, say):
            asked = [(point.name, point.gap_s) for point in points]
            calls.append((bench, chosen.model, chosen.formats, asked, chosen.threads, chosen.ours))
            alike = [each for one in records if one.threads == chosen.threads for each in one.rows if each.ours and each not in without]
            rows = [each for each in alike if each.model in chosen.model and each.format in chosen.formats and each.point in dict(asked)]
            return record(rows, bench=bench, failures=failures or {})

        for name, fake in (("recorded", lambda: [*records]), ("processor_model", lambda: "x"), ("num_cpus", lambda: 2), ("run", run),
                           ("check", lambda chosen: None)):
            monkeypatch.setattr(regress, name, fake)
        return calls

    return having


def test_shares_are_compared_and_speeds_are_not():
    found = regress.changes(WAS, [row("penstock", 30.0, 0.91), row("penstock", 55.0, 0.60, size=8192), row("rival", 10.0, 0.1)])
    assert [round(each.ratio, 3) for each in found] == [1.011, 0.75]
    assert [each.was.size for each in regress.worse(found, 0.08)] == [8192]
    assert not regress.worse(found, 0.3)


def test_another_format_or_point_is_not_compared():
    assert not regress.changes(WAS, [row("penstock", 1.0, 0.1, format="int4"), row("penstock", 1.0, 0.1, size=1)])


@pytest.mark.parametrize(("before", "after", "status"), [("int16", "int8", 1), ("int16", "int16", 0), ("", "int8", 0)])
def test_shares_of_two_types_are_not_compared(told, before, after, status):
    """1,326 tokens/s became 400, which is more of the slower type's limit."""
    was, now = (row("penstock", speed, share, computes=type) for speed, share, type in ((1326.0, 0.34, before), (400.0, 0.79, after)))
    ended, lines, found = told("--against", record([was]), "--fresh", record([now]))
    why = {"m, penstock int8, decode 0": "computes in int8, 400.0 tokens/s; recorded in int16, 1,326.0"} if status else {}
    assert (ended, found["lost"], found["compared"]) == (status, why, 1 - status)
    assert sum(line.startswith("WORSE") for line in lines) == status


@pytest.mark.parametrize(("fields", "why"), [
    ({}, None), ({"size": 4096}, None), ({"size": 8192}, "--deep"), ({"model": "other"}, "--model"), ({"format": "int4"}, "--formats")])
def test_what_is_not_measured_again_has_a_reason(fields, why):
    was = regress.Was(row("penstock", 1.0, **fields), record([]))
    said = regress.why_not(was, CHOSEN, False, 2)
    assert said is None if why is None else why in said
    assert regress.why_not(was, CHOSEN, True, 2) is None or "--deep" not in said
    assert regress.why_not(regress.Was(WAS[0], record([])), CHOSEN, True, 3) == "recorded with 2 threads, and there are 3 processors"


def test_each_row_is_that_of_the_last_record_that_tells_it():
    narrow = record([row("penstock", 1.0, 0.7, size=8192)], date="2026-01-02")
    found = regress.latest([narrow, record(WAS)])
    told = {(was.row.size, was.row.share, was.record.date) for was in found.values()}
    assert told == {(0, 0.90, "2026-01-01"), (8192, 0.7, "2026-01-02")}


def test_what_was_recorded_anew_without_rivals_is_compared_with(told, tmp_path):
    was, now = (row("penstock", speed, computes=type) for speed, type in ((1326.0, "int16"), (400.0, "int8")))
    keep(record([was, row("rival", 900.0)]), tmp_path)
    both = read(keep(record([now]), tmp_path).read_text())
    status, _, found = told("--against", both, "--fresh", record([now]))
    assert (status, found["compared"], found["lost"]) == (0, 1, {})


def test_a_narrowed_record_does_not_hide_the_others(told, here):
    deep, other = row("penstock", 1.0, 0.7, size=8192, model="brook"), row("penstock", 1.0, 0.9, model="brook", format="int4")
    calls = here(record([row("penstock", 1.0, 0.9, model="brook"), other], threads=2),
                 record([deep, row("penstock", 1.0, 0.9, model="gone")], date="2026-01-03"),
                 record([replace(other, share=0.1), replace(other, size=64)], threads=3, date="2026-01-02"))
    status, lines, found = told()
    assert status == 0 and found["compared"] == 2
    assert [(model, formats, points) for _, model, formats, points, *_ in calls] == [
        (("brook",), (format,), [("decode 0", 0.0)]) for format in ("int8", "int4")]
    assert found["skipped"].keys() == {
        "brook, penstock int8, decode 8192", "gone, penstock int8, decode 0", "brook, penstock int4, decode 64"}
    assert sum(line.startswith("skip ") for line in lines) == 3
    calls.clear()
    assert told("--deep", "--formats", "int8")[2]["compared"] == 2
    assert [each[3] for each in calls] == [[("decode 0", 0.0), ("decode 8192", 0.0)]]


def test_a_row_that_ours_gives_no_more_is_worse(told, here):
    rows = [row("penstock", 1.0, 0.9, model="brook", size=size) for size in (0, 64)]
    here(record(rows), without=rows[1:])
    status, lines, found = told()
    assert status == 1 and found["lost"] == {"brook, penstock int8, decode 64": regress.NOT_AGAIN}
    assert f"WORSE brook, penstock int8, decode 64: {regress.NOT_AGAIN}" in lines
    failures = {"brook, penstock int8, decode 64": "RuntimeError: lost"}
    here(record(rows), without=rows[1:], failures=failures)
    assert told()[2]["lost"] == failures
    here(record(rows), without=rows, failures={"brook, penstock int8": "no memory"})
    status, _, found = told()
    assert (status, found["compared"], found["lost"]) == (1, 0, {"brook, penstock int8": "no memory"})


def test_a_failure_in_a_later_round_is_worse_though_there_is_a_row(told):
    failures = {"m, penstock int8, decode 0": "RuntimeError: lost", "m, rival int8, decode 0": "why"}
    status, _, found = told("--against", record(WAS[:1]), "--fresh", record(WAS, failures=failures))
    assert status == 1 and found["compared"] == 1 and found["lost"] == {"m, penstock int8, decode 0": "RuntimeError: lost"}


def test_a_record_of_other_ways_is_measured_in_them(told, here):
    calls = here(record([row("penstock", 1.0, 0.9, model="brook", question="mixed", size=32)]))
    told()
    asked = {"threads": 1, "gap_s": 0.5, "ours": {"order": "shortest"}}
    told("--against", record([row("penstock", 1.0, 0.9, model="brook", question="mixed", size=32)], threads=1, asked=asked))
    assert [each[3:] for each in calls] == [([("mixed 32", 0.1)], 2, ()), ([("mixed 32", 0.5)], 1, (("order", "shortest"),))]


def test_what_was_recorded_in_another_way_alone_is_named(told, here):
    ours = [row("penstock", 1.0, 0.9, model="brook", size=size) for size in (0, 64)]
    other = record(ours, threads=1, date="2026-01-02", asked={"threads": 1, "gap_s": 0.5})
    why = f"measured with other --threads, --gap-s: name {other.file_name} in --against"
    calls = here(other)
    status, lines, found = told()
    assert status == 2 and not calls
    assert found["skipped"] == {f"brook, penstock int8, decode {size}": why for size in (0, 64)}
    assert f"skip  brook, penstock int8, decode 0: {why}" in lines
    here(record(ours[:1]), other)
    for words in ([], ["--fresh", record(ours[:1])], ["--fresh", record(ours[:1]), other]):
        status, _, found = told(*words)
        assert (status, found["compared"], found["skipped"]) == (0, 1, {"brook, penstock int8, decode 64": why})
    status, _, found = told("--against", other)
    assert (status, found["compared"], found["skipped"]) == (0, 2, {})


@pytest.mark.parametrize(("share", "status"), [(0.89, 0), (0.70, 1)])
def test_the_exit_status_tells(told, share, status):
    ended, _, found = told("--against", record(WAS[:1]), "--fresh", record([row("penstock", 60.0, share)]))
    assert ended == status and found["compared"] == 1 and len(found["worse"]) == status


def test_nothing_to_compare_is_no_success(told):
    status, _, found = told("--against", record(WAS[:1]), "--fresh", record([]))
    assert status == 2 and found["skipped"] == {"m, penstock int8, decode 0": "not in --fresh"}


def test_arrivals_at_another_pace_are_not_compared(told):
    mixed = [row("penstock", 60.0, 0.9, question="mixed", size=32)]
    status, _, found = told("--against", record(mixed), "--fresh", record(mixed, asked={"gap_s": 0.5}))
    assert status == 2 and found["skipped"] == {"m, penstock int8, mixed 32": "not in --fresh"}


def test_what_has_no_pace_is_compared_at_any(told):
    streams = [row("penstock", 60.0, 0.9, question="streams", size=32)]
    status, _, found = told("--against", record(streams), "--fresh", record(streams, asked={"gap_s": 0.5}))
    assert (status, found["compared"], found["skipped"]) == (0, 1, {})


@pytest.mark.parametrize("way", [{"threads": 1, "asked": {"threads": 1}}, {"asked": {"ours": {"order": "shortest"}}}])
def test_other_threads_and_options_are_not_compared(told, way):
    slow = record([row("penstock", 1.0, 0.1)], **way)
    status, _, found = told("--against", record(WAS[:1]), "--fresh", slow)
    assert status == 2 and found["skipped"] == {"m, penstock int8, decode 0": "not in --fresh"}
    status, _, found = told("--against", record(WAS[:1]), "--fresh", record(WAS[:1]), slow)
    assert (status, found["compared"], found["skipped"]) == (0, 1, {})
    status, _, found = told("--against", slow, "--fresh", slow)
    assert (status, found["compared"]) == (0, 1)


@pytest.mark.parametrize("words", [
    ["--threads", "1"], ["--record"], ["--engines", "ik"], ["--rivals", "."], ["--fresh", "{was}", "--rounds", "3"],
    ["--fresh", "{was}", "--deep"], ["--fresh", "{was}", "--model", "m"], ["--ours", "order=shortest", "--fresh", "{was}"]])
def test_options_that_nothing_would_obey_are_refused(tmp_path, monkeypatch, capsys, words):
    was = keep(record(WAS[:1]), tmp_path)
    monkeypatch.setattr(sys, "argv", ["regress.py", *(word.format(was=was) for word in words)])
    with pytest.raises(SystemExit, match="2"):
        regress.main()
    refused = next(word for word in words if word not in ("--fresh", "{was}"))
    assert refused in capsys.readouterr().err
