"""`penstock doctor`: what this machine and install can do, what is wrong, how to fix it. Exit status 1 when something is."""
import json as jsonlib
import sys
from dataclasses import dataclass

from penstock.cli.options import option, takes

COLOURS = {"PASS": "green", "WARN": "yellow", "ERROR": "bold red"}
INDENT = 25  # of what is found


@dataclass(frozen=True, slots=True)
class DoctorOptions:
    json: bool = option(False, "Print one JSON object")


@takes(DoctorOptions)
def doctor(options: DoctorOptions) -> None:
    """Check what works here, what is wrong, and how to fix it."""
    import typer

    from penstock.study.doctor import examine

    checks = examine.examine(examine.this_host())
    told = examine.as_json(checks)
    if options.json:
        print(jsonlib.dumps(told))
    else:
        show(told)
    if not told["ok"]:
        raise typer.Exit(1)


def show(told: dict[str, object]) -> None:
    """A line for each check, and its hint below."""
    from rich.console import Console
    from rich.text import Text

    from penstock.cli.terminal import columns
    from penstock.study.wrapping import wrapped

    width = columns(sys.stdout)
    console = Console(highlight=False, soft_wrap=True)
    for check in told["checks"]:  # type: ignore[attr-defined]
        line = Text(wrapped(f"{check['status']:6}{check['name']:19}{check['found']}", width, INDENT))
        line.stylize(COLOURS[check["status"]], 0, len(check["status"]))
        console.print(line)
        if check["hint"]:
            console.print(Text(wrapped(f"{'':{INDENT}}-> {check['hint']}", width, INDENT + 3), style="dim"))
    counts = told["counts"]
    console.print(", ".join(f"{counts[status]} {status}" for status in COLOURS))  # type: ignore[index]
