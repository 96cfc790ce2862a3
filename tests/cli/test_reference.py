"""The docs' tables of plug-ins are the code's."""
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.cli.reference import PLACE, needs_of, render, updated
from penstock.compute.decoding import propose
from penstock.core.needs import Needs
from penstock.core.registry import Table

PAGES = [page for page in (Path(__file__).parents[2] / "docs").glob("*.md") if PLACE.search(page.read_text("utf-8"))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_say_what_the_tables_say(page: Path) -> None:
    """Else: python -m penstock.cli.reference docs/<page>"""
    text = page.read_text("utf-8")
    assert updated(text) == text


def test_a_plugin_that_joins_its_table_is_on_the_page() -> None:
    """A page that lacks it, or tells defaults that are no more, is found out."""
    assert "speculation.md" in [page.name for page in PAGES]
    rendered = render(propose.TABLE)
    assert [line.split("`")[1].partition(":")[0] for line in rendered.splitlines()[2:]] == list(propose.TABLE)
    assert "`ngram:n=4,least=2,k=8`" in rendered and "the buffer `hidden`, tree masks" in rendered
    fewer = render(Table("proposer", {"ngram": propose.TABLE["ngram"]}))
    begin = "<!-- plug-ins of penstock.compute.decoding.propose -->\n"
    assert updated(f"a\n{begin}{fewer}<!-- end -->\nz") == f"a\n{begin}{rendered}<!-- end -->\nz"


def test_whatever_a_plugin_needs_is_told() -> None:
    every = Needs(("hidden", "attention_mass"), **{each.name: True for each in fields(Needs) if each.name != "buffers"})
    told = needs_of(SimpleNamespace(needs=every))
    assert told.startswith("the buffer `hidden`, the buffer `attention_mass`, ") and told.count(", ") == len(fields(Needs))
    assert needs_of(object()) == ""
