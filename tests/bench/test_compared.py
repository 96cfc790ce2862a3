from dataclasses import replace

import compared
from versus.record import Record
from versus.rows import Row

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
    assert row == "| m, a prompt of 512 tokens | 8 | other q8 | 50% | 45% | **0.90** | 75% | 1.50 |"


def test_the_server_speaks_for_us_where_requests_are_served() -> None:
    served = replace(OURS, engine="penstock serve", tokens_per_s=120.0)
    rows = tuple(replace(row, question="streams", size=8) for row in (OURS, served, RIVAL))
    assert "| 1.20 |" in compared.tables([Record("cpu_serving", "box", 2, "2026-01-01", rows)])
