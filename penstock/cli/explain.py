"""`penstock explain [URL|REPORT]`: which limit binds a server, which lever moves it, and by how much."""
import json as jsonlib
import sys
from dataclasses import dataclass, replace
from typing import Any

from penstock.cli.options import option, takes
from penstock.core.errors import UsageError

HERE = "http://127.0.0.1:8000"
PARTS = "l4,rtx-4090,h100-sxm,b200-sxm"


@dataclass(frozen=True, slots=True)
class ExplainOptions:
    model: str = option(HERE, "A running Penstock server (a URL), or a report of `penstock bench --save`")
    duration: float = option(10.0, "Seconds to watch a server for; 0: everything since it started")
    slo: str | None = option(None, "Objectives, as for penstock bench, to judge levers by goodput; default: those of the report")
    hardware: str = option(PARTS, "Hardware to compare this machine with, separated by commas, or none")
    api_key: str | None = option(None, "Key for the server; default: OPENAI_API_KEY in the environment")
    json: bool = option(False, "Print one JSON object as the last line")


@takes(ExplainOptions)
def explain(options: ExplainOptions) -> None:
    """Show which limit binds, and what would move it."""
    from penstock.study.explain import levers
    from penstock.study.explain.explanation import explain as explained
    from penstock.study.explain.source import case_of
    from penstock.study.explain.text import lines
    from penstock.study.measure.slo import parse_slo

    def say(line: str) -> None:
        print(line, file=sys.stderr)

    if not 0 <= options.duration < float("inf"):
        raise UsageError(f"--duration must be 0 or more seconds, not {options.duration:g}")
    parts = parts_of(options.hardware)
    slo = None if options.slo is None else parse_slo(options.slo)
    notes: list[str] = []
    evidence = told(options, say)
    if slo is not None and slo != evidence.slo:
        evidence = replace(evidence, slo=slo, kept_share=None)
    case = case_of(evidence, parts, notes)
    found = explained(case, {name: levers.TABLE.load(name)() for name in levers.TABLE}, notes)
    for line in lines(found):
        print(line, file=sys.stderr if options.json else sys.stdout)
    if options.json:
        print(jsonlib.dumps(found.as_json()))


def told(options: ExplainOptions, say: Any) -> Any:
    """The counters and the state of a server or of a report."""
    from pathlib import Path

    from penstock.study.explain.source import ask, read_report
    from penstock.study.measure.client.connections import server_named
    from penstock.study.measure.client.server import Access, keys_of

    address = server_named(options.model)
    if address is None:
        check_report(options)
        return read_report(Path(options.model))
    given = () if options.api_key is None else (options.api_key,)
    return ask(Access(address, keys_of(given)), options.duration, say)


def check_report(options: ExplainOptions) -> None:
    """Raises UsageError for what says nothing beside a report."""
    for name in ("duration", "api_key"):
        if getattr(options, name) != getattr(ExplainOptions(), name):
            raise UsageError(f"--{name.replace('_', '-')} is for a running server, and {options.model} is a report: leave it out")


def parts_of(text: str) -> dict[str, Any]:
    """Raises UsageError for a part that the catalogue does not have."""
    from penstock.core.catalogue.read import Catalogue

    names = [name.strip() for name in text.split(",") if name.strip()]
    if names == ["none"]:
        return {}
    if "none" in names:
        raise UsageError(f"--hardware none is for no hardware at all: leave it out of {text}, or name it alone")
    catalogue = Catalogue()
    if not names:
        raise UsageError(f"--hardware names nothing: give none for no hardware, or some of {', '.join(catalogue.names())}")
    return {name: catalogue.part(name) for name in map(catalogue.named, names)}
