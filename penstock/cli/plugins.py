"""What --help says behind the options of a command: the options of the plug-ins that they name."""
import importlib
from typing import Any

from typer.core import TyperCommand

from penstock.cli.fields import TABLES
from penstock.cli.reference import options_of


class CommandOfPlugins(TyperCommand):
    """A command whose plug-ins are loaded where help is asked for."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        super().format_options(ctx, formatter)
        for parameter in self.params:
            if parameter.name in TABLES and (rows := described(TABLES[parameter.name])):
                with formatter.section(f"{parameter.opts[0]} options, as name:key=value,... (shown with their defaults)"):
                    formatter.write_dl(rows)


def described(folder: str) -> list[tuple[str, str]]:
    """The plug-ins of a folder's TABLE that have options, and these; without those that need what is not installed."""
    table, rows = importlib.import_module(folder).TABLE, []
    for name in table:
        try:
            shown = options_of(table.load(name))
        except ImportError:
            continue
        if shown:
            rows.append((name, ", ".join(shown)))
    return rows
