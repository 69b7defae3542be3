"""Make the options of the command line from the dataclasses of settings."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import wraps
from typing import Annotated, Any, TypeAlias, get_type_hints

import typer

from flows.errors import Interrupted

# Parameters that several commands have.
Plain: TypeAlias = Annotated[bool, typer.Option("--plain", help="Run without Prefect.")]
RunName: TypeAlias = Annotated[
    str, typer.Argument(metavar="RUN", help="Its name; `ism-dask runs` lists them.")
]


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
                given[name] = kind(**{f.name: _parsed(f, given) for f in dataclasses.fields(kind)})
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
    return [_option(field, hints[field.name]) for field in dataclasses.fields(kind)]


def _option(field: dataclasses.Field[Any], hint: Any) -> inspect.Parameter:
    about, flags = field.metadata["description"], field.metadata["flags"]
    required = field.default is dataclasses.MISSING
    declaration = typer.Argument(help=about) if required else typer.Option(*flags, help=about)
    read_as = field.metadata["cli_type"] or hint
    return inspect.Parameter(
        field.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=inspect.Parameter.empty if required else field.default,
        annotation=Annotated[read_as, declaration],
    )
