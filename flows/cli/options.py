"""Make the options of the command line from the dataclasses of settings."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeAlias, get_args, get_type_hints

import typer
from rich.markup import escape
from typer.core import TyperCommand, TyperGroup

from flows.errors import Interrupted, SettingsError
from flows.settings.fields import Checked, flags_of, in_groups

# Parameters that several commands have.
Plain: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--plain",
        help="Run without Prefect, the default without `ism-dask up` and PREFECT_API_URL.",
        rich_help_panel="Run",
    ),
]
Replace: TypeAlias = Annotated[
    bool, typer.Option("--force", help="Replace the file to write, if there is one.")
]
RunName: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN", help="Its name; `ism-dask runs` lists them.")
]


def check_free(*outs: Path | None, force: bool) -> None:
    """Raise SettingsError if a file that a command is to write exists, unless it may replace it.

    None stands for a file of the home, which is ours.
    """
    for out in filter(None, outs):
        with suppress(OSError):  # a name that cannot be is an error when the file is written
            if out.exists() and not out.is_file():
                raise SettingsError(f"{out} is a folder, pipe or device that exists; name another")
            if not out.parent.is_dir():
                raise SettingsError(f"{out}: there is no folder {out.parent}; make it first")
            if out.exists() and not force:
                raise SettingsError(
                    f"{out} exists already; replace it with --force, or name another"
                )


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


def with_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter of `command` that is a dataclass by options for its fields.

    The function returned has these options as parameters. It builds the dataclass objects from
    them and calls `command`.
    """
    own = inspect.signature(command, eval_str=True).parameters
    types: dict[str, Any] = {name: parameter.annotation for name, parameter in own.items()}
    bundles: dict[str, Any] = {n: kind for n, kind in types.items() if is_dataclass(kind)}

    def called(**given: Any) -> None:
        try:
            # Inside `try`: checking the settings imports the registries, which takes a second, in
            # which the user may press Ctrl-C.
            for name, kind in bundles.items():
                values = {each.name: given.pop(each.name) for each in dataclasses.fields(kind)}
                given[name] = kind.parse(values) if issubclass(kind, Checked) else kind(**values)
            command(**given)
        except KeyboardInterrupt as interrupt:
            # Typer would turn a KeyboardInterrupt into an Abort and print an empty line.
            raise Interrupted("interrupted") from interrupt

    shown = [q for n, p in own.items() for q in (_options(bundles[n]) if n in bundles else [p])]
    keyword_only = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in shown]
    called.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    called.__annotations__ = {p.name: p.annotation for p in shown}
    return called


def _options(kind: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(kind)
    return [_option(field, hints[field.name]) for field in in_groups(kind)]


def _option(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    # Typer reads help as markup, in which [data] is a style.
    about = escape(field.metadata["description"])
    names = field.metadata["names"]

    def completed(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    complete = None if names is None else completed
    # The settings themselves make a number of a text where they take both.
    read_as = str | None if str in get_args(hint) else hint
    declaration: Any = typer.Argument(help=about, autocompletion=complete)
    if field.default is not dataclasses.MISSING or field.metadata["flags"]:
        declaration = typer.Option(
            *flags_of(field),
            help=about,
            rich_help_panel=field.metadata["panel"],
            autocompletion=complete,
        )
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
        annotation=Annotated[read_as, declaration],
    )
