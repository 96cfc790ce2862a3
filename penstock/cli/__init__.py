"""The `penstock` command: one file per command, each of which parses, calls one function and prints.

Only the command that was asked for is imported, and it imports what it runs when it runs: a cold start is part of the first token's time.
Exit status: 0 done, 1 failed, 2 wrong usage, 130 interrupted. An error is one sentence on stderr; PENSTOCK_DEBUG=1 adds the traceback.
"""
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, NoReturn

import typer

from penstock.core.errors import PenstockError, UsageError

COMMANDS = {  # name -> "module:function", in the order of the help
    "serve": "penstock.cli.serve:serve",
    "chat": "penstock.cli.chat:chat",
    "generate": "penstock.cli.generate:generate",
    "info": "penstock.cli.info:info",
    "limits": "penstock.cli.limits:limits",
    "plan": "penstock.cli.plan:plan",
    "tune": "penstock.cli.tune:tune",
    "doctor": "penstock.cli.doctor:doctor",
    "bench": "penstock.cli.bench:bench",
    "explain": "penstock.cli.explain:explain",
    "train-heads": "penstock.cli.train_heads:train_heads",
}
WrongUsage = typer.BadParameter.__bases__[0]  # what typer raises for an unknown option or command, wherever it takes it from


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and ends the process."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")  # a terminal that lacks a character is no reason to stop
    sys.exit(run(sys.argv[1:] if args is None else args))


def run(args: Sequence[str]) -> int:
    """Runs the command line -> its exit status."""
    try:
        return build(args)(list(args) or ["--help"], prog_name="penstock", standalone_mode=False) or 0
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except Exception as error:
        if os.environ.get("PENSTOCK_DEBUG") == "1":
            raise
        message, status = sentence(error)
        print(f"error: {message}", file=sys.stderr)
        return status


def sentence(error: Exception) -> tuple[str, int]:
    """An exception as a sentence and an exit status."""
    if isinstance(error, WrongUsage):
        return " ".join(error.format_message().split()), 2
    if isinstance(error, UsageError):
        return str(error), 2
    if isinstance(error, PenstockError):
        return str(error), 1
    return f"unexpected {type(error).__name__}: {error} (PENSTOCK_DEBUG=1 shows where)", 1


def build(args: Sequence[str]) -> typer.Typer:
    """The command that `args` name, or all of them where they name none, as for --help."""
    app = typer.Typer(name="penstock", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback(help="An LLM inference engine that knows its own limits.")(root)
    names = [args[0]] if args and args[0] in COMMANDS else list(COMMANDS)
    for name in names:
        module, _, function = COMMANDS[name].partition(":")
        app.command(name)(getattr(importlib.import_module(module), function))
    return app


def print_version(wanted: bool) -> None:
    if wanted:
        from penstock import __version__

        print(f"penstock {__version__}")
        raise typer.Exit()


Version = Annotated[bool, typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True)]


def root(version: Version = False) -> None:
    """What stands before the command."""
