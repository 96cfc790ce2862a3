"""Options are fields of dataclasses: `@takes(EngineConfig, ...)` gives a command one option for each of their fields, and --config.

A value is a flag's, else the TOML file's, else the dataclass's default. `none` leaves out a plug-in that may be left out, whatever the file
says. An unknown key in the file is an error, and so is one that another command takes. The field `model` is the positional argument.
"""
import dataclasses
import functools
import importlib
import inspect
import os
import tomllib
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer

from penstock.cli.fields import HELP, MAY_BE_LEFT_OUT, TABLES
from penstock.core.config import check_threads
from penstock.core.errors import UsageError
from penstock.core.registry import plain, typed

THREAD_VARIABLES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
Command = Callable[..., None]


@dataclasses.dataclass(frozen=True, slots=True)
class Option:
    """One field of a configuration. `type` is without None, which means "not given" everywhere on the command line."""

    name: str
    type: Any
    default: Any
    help: str
    flags: tuple[str, ...]

    def parameter(self) -> inspect.Parameter:
        """The option as a parameter that typer understands."""
        kind = list[str] if self.type == tuple[str, ...] else self.type
        if self.name == "model":
            said: Any = typer.Argument(help=self.help, show_default=False)
        else:
            each = "<str>" if kind == list[str] else None  # one of those that may be given several times
            said = typer.Option(*self.flags, help=self.help, show_default=False, metavar=each)
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, said])

    def check(self, value: Any, owner: str) -> Any:
        """A TOML value as the field's. Raises UsageError when it is of another type."""
        return typed(value, self.type, f"{owner}: {self.name}")

    def leaves_out(self, value: Any) -> bool:
        return self.name in MAY_BE_LEFT_OUT and value == "none"


def option(default: Any, help: str, *flags: str, choices: tuple[str, ...] = ()) -> Any:
    """A field of a command's own dataclass; without `flags` the option is called after the field, and without `choices` it has those of
    the field's table."""
    return dataclasses.field(default=default, metadata={"help": help, "flags": flags, "choices": choices})


def options_of(kind: type) -> list[Option]:
    """The options of a dataclass. Raises KeyError on a field without help: none goes undocumented."""
    hints = {name: plain(hint) for name, hint in typing.get_type_hints(kind).items()}
    return [
        Option(field.name, hints[field.name], field.default, describe(kind, field), field.metadata.get("flags") or flags_of(field))
        for field in dataclasses.fields(kind)
    ]


def describe(kind: type, field: dataclasses.Field[Any]) -> str:
    """A field's line in --help: what it is, what it can be, what it is when not given."""
    text: str = field.metadata["help"] if "help" in field.metadata else HELP[kind][field.name]
    choices = field.metadata.get("choices") or (importlib.import_module(TABLES[field.name]).TABLE if field.name in TABLES else ())
    if choices:
        text += f": {', '.join(choices)}"
    default = ("on" if field.default else "off") if isinstance(field.default, bool) else field.default
    return f"{text}." if default in (None, ()) else f"{text}; default: {default}."


def flags_of(field: dataclasses.Field[Any]) -> tuple[str, ...]:
    """Of one that is on or off there is a flag for both: a file may have said the other."""
    name = field.name.replace("_", "-")
    if not isinstance(field.default, bool):
        return (f"--{name}",)
    other = name.removeprefix("no-") if name.startswith("no-") else f"no-{name}"
    return (f"--{name}/--{other}",)


def takes(*kinds: type) -> Callable[[Command], Command]:
    """Makes a command of a function whose parameters are these dataclasses, in this order. Two of them may not share a field."""

    def decorate(function: Command) -> Command:
        owned = {kind: options_of(kind) for kind in kinds}
        known = {each.name: each for options in owned.values() for each in options}
        if len(known) != sum(map(len, owned.values())):
            raise ValueError(f"{function.__name__}: a field appears in two of {', '.join(kind.__name__ for kind in kinds)}")

        @functools.wraps(function)
        def command(config: str | None = None, **given: Any) -> None:
            values = {} if config is None else read(config, known, function.__name__.replace("_", "-"))
            values |= {name: tuple(value) if isinstance(value, list) else value for name, value in given.items() if value not in (None, [])}
            values = {name: value for name, value in values.items() if not known[name].leaves_out(value)}
            limit_threads(values.get("threads"))
            function(*(kind(**{o.name: values[o.name] for o in owned[kind] if o.name in values}) for kind in kinds))

        parameters = [each.parameter() for each in known.values()]
        file = typer.Option("--config", help="A TOML file of options; flags override it.", metavar="FILE")
        parameters.append(inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[str | None, file]))
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in parameters}
        return command

    return decorate


def read(path: str, known: Mapping[str, Option], command: str) -> dict[str, Any]:
    """A TOML file's options, with _ or - in their names. Raises UsageError on a file or a key that cannot be obeyed."""
    if not path:
        raise UsageError("--config needs the name of a file, and is empty")
    try:
        with open(path, "rb") as file:
            told = tomllib.load(file)
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from None
    values: dict[str, Any] = {}
    for key, value in told.items():
        name = key.replace("-", "_")
        if name not in known:
            raise UsageError(f"{path}: {key!r} is not an option of penstock {command}; it has: {', '.join(sorted(known))}")
        if name in values:
            raise UsageError(f"{path}: {name} is given twice, with - and with _ in its name: leave one out")
        values[name] = known[name].check(value, path)
    return values


def limit_threads(count: int | None) -> None:
    """Tells the numeric libraries, which look once, when they are imported. Raises UsageError as `check_threads`."""
    check_threads(count)
    if count is None:
        return
    for name in THREAD_VARIABLES:
        os.environ[name] = str(count)
