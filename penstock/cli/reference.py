"""The docs' tables of plug-ins, written from the tables in the code: `python -m penstock.cli.reference docs/speculation.md`.

A page says where such a table stands and of what: `<!-- plug-ins of penstock.compute.decoding.propose -->` ... `<!-- end -->`.
"""
import dataclasses
import importlib
import inspect
import re
import sys
from pathlib import Path
from typing import Any

from penstock.core.needs import Needs
from penstock.core.registry import Table

PLACE = re.compile(r"(<!-- plug-ins of (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def updated(text: str) -> str:
    """A page with its tables of plug-ins as the code has them."""
    return PLACE.sub(lambda place: place[1] + render(importlib.import_module(place[2]).TABLE) + place[3], text)


def render(table: Table) -> str:
    """In Markdown, a row for each plug-in: its options as they are when nothing is said, the first paragraph of its file, its needs."""
    rows = [f"| {table.kind} | what it does | needs |", "|---|---|---|"]
    for name in table:
        plugin = table.load(name)
        does = " ".join((inspect.getdoc(inspect.getmodule(plugin)) or "").partition("\n\n")[0].split())
        rows.append(f"| `{with_options(name, plugin)}` | {linked(does)} | {needs_of(plugin)} |")
    return "\n".join(rows) + "\n"


def with_options(name: str, plugin: Any) -> str:
    """As it is written on the command line."""
    shown = options_of(plugin)
    return f"{name}:{','.join(shown)}" if shown else name


def options_of(plugin: Any) -> list[str]:
    """Each as it is when nothing is said; of one that must be said what it is."""
    kind = getattr(plugin, "Options", None)
    return [] if kind is None else [f"{each.name}={default(each)}" for each in dataclasses.fields(kind)]


def default(option: dataclasses.Field[Any]) -> str:
    value = option.default
    if value in (dataclasses.MISSING, ""):
        return "..."
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def linked(text: str) -> str:
    return re.sub(r"arXiv:(\d+\.\d+)", r"[arXiv:\1](https://arxiv.org/abs/\1)", text)


def needs_of(plugin: Any) -> str:
    """What it asks of the backend."""
    needs = getattr(plugin, "needs", Needs())
    words = [f"the buffer `{name}`" for name in needs.buffers]
    words += [each.name.replace("_", " ") for each in dataclasses.fields(needs) if getattr(needs, each.name) is True]
    return ", ".join(words)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        path = Path(name)
        path.write_text(updated(path.read_text("utf-8")), "utf-8")
