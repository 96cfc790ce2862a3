from dataclasses import replace
from typing import Any

import compared
import pytest
from versus.record import Record
from versus.rows import Row, Verdict

OURS = Row("m", "prefill", 512, "penstock", "int8", "", 8, True, 3, 90.0, 1.0, 0.45, 1e9)
RIVAL = replace(OURS, engine="other", format="q8", ours=False, tokens_per_s=100.0, share=0.5)


def test_the_page_says_what_was_recorded() -> None:
    """Else: python bench/compared.py"""
    page = compared.PAGE.read_text(encoding="utf-8")
    assert compared.updated(page) == page


def test_runs_with_other_options_are_not_on_the_page(monkeypatch) -> None:
    usual = Record("cpu_prefill", "box", 2, "2026-01-01", (OURS, RIVAL))
    other = replace(usual, threads=1, date="2026-01-02", rows=(replace(OURS, tokens_per_s=150.0), RIVAL), asked={"threads": 1})
    monkeypatch.setattr(compared, "recorded", lambda: [usual, other])
    page = compared.updated(compared.BEGIN + compared.END)
    assert "**0.90**" in page and "1.50" not in page


def test_losses_are_bold_the_last_record_of_a_point_counts_and_rounded_rows_stand_apart() -> None:
    faster = replace(OURS, format="int8a8", tokens_per_s=150.0, share=0.75)
    before = Record("cpu_prefill", "box", 2, "2026-01-01T00:00:00Z", (replace(OURS, tokens_per_s=50.0), RIVAL))
    after = Record("cpu_prefill", "box", 2, "2026-01-02T00:00:00Z", (OURS, faster, RIVAL))
    row = compared.tables([before, after]).splitlines()[-1]
    assert row == "| m, a prompt of 512 tokens | 8 | other q8 | 50% | *45%* | **0.90** | 75% | 1.50 |"


def test_a_record_of_ours_alone_has_no_table() -> None:
    alone = Record("cpu_prefill", "box", 2, "2026-01-01", (OURS,))
    assert compared.tables([alone]) == "" and compared.tables([alone, replace(alone, rows=(OURS, RIVAL))]).startswith("### box")


@pytest.mark.parametrize(("day", "rival"), [("2026-01-02", {}), ("2026-01-01", {"name": "third"})])
def test_what_was_measured_beside_something_else_has_a_line_of_its_own(day: str, rival: dict[str, str]) -> None:
    """Another day's run, or another rival of the same: a share of one rival says nothing beside the ratio to the other."""
    rounded = replace(OURS, format="int8a8", tokens_per_s=150.0, share=0.75)
    exact = Record("cpu_prefill", "box", 2, "2026-01-01", (OURS, RIVAL))
    if rival:
        third = replace(RIVAL, engine="third", tokens_per_s=60.0, share=0.3, turns=((60.0, 1e9),))
        mine = (replace(OURS, turns=((90.0, 9e9),)), replace(rounded, turns=((30.0, 1e9), (150.0, 9e9))))
        records = [replace(exact, rows=(*mine, replace(RIVAL, turns=((100.0, 9e9),)), third))]
    else:
        records = [exact, Record("cpu_prefill", "box", 2, day, (rounded, replace(RIVAL, share=0.3)))]
    first, second = compared.tables(records).splitlines()[-2:]
    assert first == "| m, a prompt of 512 tokens | 8 | other q8 | 50% | *45%* | **0.90** |  |  |"
    name = "third" if rival else "other"
    assert second == f"| m, a prompt of 512 tokens | 8 | {name} q8 | 30% |  |  | 75% | {'**0.50**' if rival else '1.50'} |"


def test_the_server_speaks_for_us_where_requests_are_served() -> None:
    served = replace(OURS, engine="penstock serve", tokens_per_s=120.0)
    rows = tuple(replace(row, question="streams", size=8) for row in (OURS, served, RIVAL))
    assert "| 1.20 |" in compared.tables([Record("cpu_serving", "box", 2, "2026-01-01", rows)])


DECODE, PREFILL, MIXED = ({"question": question, "size": size} for question, size in (("decode", 0), ("prefill", 512), ("mixed", 32)))


@pytest.mark.parametrize(("fields", "machine", "cells"), [
    (DECODE | {"share": 0.9, "tokens_per_s": 120.0}, "box", "90% | 1.20"),
    (DECODE | {"share": 0.89, "tokens_per_s": 119.0}, "box", "*89%* | *1.19*"),
    (DECODE | {"share": 0.85, "bits": 4}, "box", "85%"), (DECODE | {"share": 0.5, "figures": {"decode_bytes": 3e7}}, "box", "50%"),
    (DECODE | {"share": 0.8, "size": 8192, "tokens_per_s": 199.0}, "box", "80% | *1.99*"),
    (PREFILL | {"share": 0.64, "bits": 16, "tokens_per_s": 299.0}, "box (AMX)", "*64%* | *2.99*"),
    (PREFILL | {"share": 0.84, "bits": 16, "tokens_per_s": 150.0}, "box", "*84%* | 1.50"),
    (MIXED | {"share": 0.2, "tokens_per_s": 129.0, "engine": "penstock serve"}, "box", "20% | *1.29*")])
def test_what_misses_its_goal_is_in_italics(fields: dict[str, Any], machine: str, cells: str) -> None:
    mine = replace(OURS, **fields)
    rival = replace(RIVAL, question=mine.question, size=mine.size, bits=mine.bits)
    assert f"| 50% | {cells}" in compared.tables([Record("b", machine, 2, "2026-01-01", (mine, rival))])


def test_goals_hang_on_the_rival() -> None:
    rival, slow = replace(RIVAL, share=0.86), replace(OURS, tokens_per_s=101.0)
    assert compared.cells(Verdict(slow, rival), False)[1] == "1.01"
    assert compared.cells(Verdict(replace(slow, question="decode"), rival), False)[1] == "1.01"
    served = replace(OURS, question="streams", size=32, tokens_per_s=199.0)
    assert compared.cells(Verdict(served, rival), False)[1] == "1.99"
    assert compared.cells(Verdict(served, replace(rival, engine="llama.cpp")), False)[1] == "*1.99*"
