"""Make the options of the command line from the dataclasses of settings."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Sequence
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


def as_typed(message: str, command: Callable[..., None], typed: Sequence[str]) -> str:
    """Return a message with options in place of the names of settings.

    Parameters
    ----------
    message : str
        It has names of settings such as `n_components` in backquotes.
    command : callable
        The command that failed, a result of `with_options`.
    typed : sequence of str
        The words of the command line: an option that is among them is named as it was typed.
    """
    flags = {
        name: _flags(name, parameter)
        for name, parameter in inspect.signature(command).parameters.items()
    }

    def option(match: re.Match[str]) -> str:
        known = flags.get(match[1], ())
        given = [flag for flag in known if any(_is_given(flag, word) for word in typed)]
        return f"`{next(iter((*given, *known)), match[1])}`"

    return re.sub(r"`(\w+)`", option, message)


def _flags(name: str, parameter: inspect.Parameter) -> tuple[str, ...]:
    """Return the options of the command line that set a parameter; none for an argument."""
    declaration = parameter.annotation.__metadata__[0]
    if isinstance(declaration, ArgumentInfo):
        return ()
    # Typer takes the first one for the default, until it makes the command.
    declared = (declaration.default, *(declaration.param_decls or ()))
    flags = tuple(each for each in declared if isinstance(each, str) and each.startswith("-"))
    return flags or (f"--{name.replace('_', '-')}",)


def _is_given(flag: str, word: str) -> bool:
    is_short = not flag.startswith("--")
    return word.split("=", maxsplit=1)[0] == flag or (is_short and word.startswith(flag))


def _completion(names: Callable[[], Sequence[str]] | None) -> Callable[[str], list[str]] | None:
    """Return what completes the value of an option in a shell, if it is one of some names."""
    if names is None:
        return None

    def completed(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return completed


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
    complete = _completion(names)
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
