"""The command line as typer has it: which commands there are, and what becomes of their errors."""
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from penstock.cli import COMMANDS
from penstock.cli.foreign import instead
from penstock.cli.plugins import CommandOfPlugins
from penstock.core.errors import FAILED, WRONG_USAGE, PenstockError

WrongUsage: Any = typer.BadParameter.__bases__[0]  # what typer raises for an unknown option or command, wherever it takes it from


def invoke(args: Sequence[str]) -> int:
    """Runs the command line -> its exit status. Raises KeyboardInterrupt."""
    try:
        return build(args)(list(args) or ["--help"], prog_name="penstock", standalone_mode=False) or 0
    except typer.Abort:
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
        return foreign(error) or " ".join(error.format_message().split()) + hint(error), WRONG_USAGE
    if isinstance(error, PenstockError):
        return str(error), error.exit_status
    if isinstance(error, MemoryError):
        return "out of memory: the system gave less than it said was free (see ulimit -v); try a smaller --kv-tokens", FAILED
    return f"unexpected {type(error).__name__}: {error} (PENSTOCK_DEBUG=1 shows where)", FAILED


def foreign(error: Any) -> str | None:
    """The sentence for an option that other engines have; None for any other mistake."""
    name, command = getattr(error, "option_name", None), None if error.ctx is None else error.ctx.command
    if name is None or command is None or "No such option" not in error.format_message():
        return None
    found = instead(name, command.name, {flag for parameter in command.params for flag in parameter.opts + parameter.secondary_opts})
    return found and f"No such option: {name}: {found}"


def hint(error: Any) -> str:
    """What else the user may have meant: text that stands alone is no prompt, and a command that nothing resembles is one of these."""
    if error.format_message().startswith("No such command") and "Did you mean" not in error.format_message():
        return f" Commands: {', '.join(COMMANDS)}"
    command = None if error.ctx is None else error.ctx.command
    flags = [parameter.opts[-1] for parameter in getattr(command, "params", ()) if parameter.name == "prompt"]
    if command is None or not flags or "extra argument" not in error.format_message():
        return ""
    return f": give the prompt with {flags[0]}, as in: penstock {command.name} MODEL {flags[0]} 'Once upon a time'"


def build(args: Sequence[str]) -> typer.Typer:
    """The command that `args` name, or all of them where they name none, as for --help."""
    app = typer.Typer(name="penstock", add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.callback(help="An LLM inference engine that knows its own limits.")(root)
    names = [args[0]] if args and args[0] in COMMANDS else list(COMMANDS)
    for name in names:
        module, _, function = COMMANDS[name].partition(":")
        app.command(name, cls=CommandOfPlugins)(getattr(importlib.import_module(module), function))
    return app


def print_version(wanted: bool) -> None:
    if wanted:
        from penstock import __version__

        print(f"penstock {__version__}")
        raise typer.Exit()


Version = Annotated[bool, typer.Option("--version", help="Print the version.", callback=print_version, is_eager=True)]


def root(version: Version = False) -> None:
    """What stands before the command."""
