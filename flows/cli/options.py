"""Make the options of the command line from the dataclasses of settings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup
from typer.models import ArgumentInfo

from flows.errors import Interrupted
from flows.settings.fields import Checked, flags_of, in_groups

# Parameters that several commands have.
Plain: TypeAlias = Annotated[
    bool, typer.Option("--plain", help="Run without Prefect.", rich_help_panel="Run")
]
RunName: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN", help="Its name; `ism-dask runs` lists them.")
]


class QuietFlags:
    """Shows flags in `--help` without a type, and `--help` itself among the options of output."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters of the command."""
        params: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in params:
            if getattr(each, "is_flag", False):
                each.metavar = ""
            if each.name == "help":
                each.rich_help_panel = "Output"
        return params


class Command(QuietFlags, TyperCommand):
    """A command."""


class CommandGroup(QuietFlags, TyperGroup):
    """The command `ism-dask`, which has the others."""


def with_flags(message: str, command: Callable[..., None]) -> str:
    """Return a message with options in place of names of settings, such as `n_components`.

    `command` is the one that failed, a result of `with_options`.
    """
    parameters = inspect.signature(command).parameters

    def flag(match: re.Match[str]) -> str:
        name = match[1]
        return f"`{_flag(name, parameters[name]) if name in parameters else name}`"

    return re.sub(r"`(\w+)`", flag, message)


def _flag(name: str, parameter: inspect.Parameter) -> str:
    """Return the option of the command line that sets a parameter; its name for an argument."""
    declaration = parameter.annotation.__metadata__[0]
    if isinstance(declaration, ArgumentInfo):
        return name
    # Typer takes the first one for the default, until it makes the command.
    declared = (declaration.default, *(declaration.param_decls or ()))
    flags = (each for each in declared if isinstance(each, str) and each.startswith("-"))
    return next(flags, f"--{name.replace('_', '-')}")


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of `command` that is a dataclass by options for its fields.

    The function returned has these options as parameters. It builds the dataclass objects from
    them and calls `command`.
    """
    own = inspect.signature(command, eval_str=True).parameters
    types: dict[str, Any] = {name: parameter.annotation for name, parameter in own.items()}
    bundles: dict[str, Any] = {n: kind for n, kind in types.items() if is_dataclass(kind)}

    @wraps(command)
    def called(**given: Any) -> None:
        try:
            # Inside `try`: checking the settings imports the registries, which takes a second, in
            # which the user may press Ctrl-C.
            for name, kind in bundles.items():
                values = {f.name: _parsed(f, given) for f in dataclasses.fields(kind)}
                given[name] = kind.parse(values) if issubclass(kind, Checked) else kind(**values)
            command(**given)
        except KeyboardInterrupt as interrupt:
            # Typer would turn a KeyboardInterrupt into an Abort and print an empty line.
            raise Interrupted("interrupted") from interrupt

    shown = [q for n, p in own.items() for q in (_options(bundles[n]) if n in bundles else [p])]
    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shown]
    called.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in shown}
    # Otherwise Typer would follow it and read the annotations of the original function.
    del called.__dict__["__wrapped__"]
    return called


def _parsed(field: dataclasses.Field[Any], given: dict[str, Any]) -> Any:
    """Take the value of a field out of what the command line has read."""
    value, parse = given.pop(field.name), field.metadata["cli_parse"]
    return value if parse is None else parse(value)


def _options(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind)
    return [_option(field, hints[field.name]) for field in in_groups(kind)]


def _option(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    # Typer reads help as markup, in which [data] is a style.
    about = escape(field.metadata["description"])
    required = field.default is dataclasses.MISSING
    panel, names = field.metadata["panel"], field.metadata["names"]

    def completed(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    complete = None if names is None else completed
    declaration = (
        typer.Argument(help=about, autocompletion=complete)
        if required
        else typer.Option(
            *flags_of(field), help=about, rich_help_panel=panel, autocompletion=complete
        )
    )
    read_as = field.metadata["cli_type"] or hint
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else field.default,
        annotation=Annotated[read_as, declaration],
    )
