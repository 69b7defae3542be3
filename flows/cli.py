"""The command `ism-dask`.

Nothing heavy is imported until a command needs it: `--help` answers at once.
"""

from __future__ import annotations

import os
import sys
import traceback
from importlib.metadata import version
from typing import Annotated, Any

import typer

from flows.commands import (
    check,
    check_cluster,
    cluster,
    crossval,
    datasets,
    fit,
    ingest,
    report,
    resume,
    runs,
    show,
    tables,
    transform,
    up,
)
from flows.errors import FlowError, Interrupted, SettingsError
from flows.exits import leave
from flows.interrupts import asked_to_end, end_when_asked, interrupts_insist
from flows.options import expanded
from flows.wording import printable

_DEBUG = "ISM_DASK_DEBUG"
# What Typer raises for a wrong command line; it exports but one of the kinds.
_CommandLineError: Any = typer.BadParameter.__mro__[1]
_OWN = ("flows", "storage", "ism_dask")
# What the library raises, in words of its own, where no class of its own is called for.
_TOLD = (ValueError, MemoryError)

app = typer.Typer(
    name="ism-dask",
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Interpretable kernel dimension reduction, on Dask, Prefect and Zarr.",
    epilog="Example: ism-dask crossval wine --kernel gaussian",
)
for _module in (
    datasets,
    ingest,
    crossval,
    fit,
    cluster,
    tables,
    resume,
    transform,
    check,
    check_cluster,
    runs,
    show,
    report,
    up,
):
    _name = _module.__name__.rpartition(".")[2].replace("_", "-")
    app.command(_name, epilog=_module.EXAMPLE, hidden=_module.HIDDEN)(expanded(_module.run))


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(f"ism-dask {version('ism-dask')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _common(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(SettingsError.status)


def main() -> None:
    """Run the command line and end the process with its exit status."""
    if "--debug" in sys.argv:
        os.environ[_DEBUG] = "1"
    # Told to end, a command lets go of its cluster and says so, as on Ctrl-C.
    end_when_asked()
    leave(_status())


def _status() -> int:
    """Run the command; return 0, 1 (failed), 2 (wrong usage) or 130 (interrupted)."""
    try:
        with interrupts_insist():
            status = int(app(standalone_mode=False) or 0)
        # What is interrupted before the command itself runs Typer ends without a word.
        return _failed("interrupted", status) if status == Interrupted.status else status
    except (KeyboardInterrupt, typer.Abort):
        return _failed("interrupted", Interrupted.status)
    except BrokenPipeError:
        # Whoever read our output has gone; writing more to it would fail once more at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FlowError.status
    except _CommandLineError as error:
        return _failed(f"{error.format_message()} (ism-dask --help)", SettingsError.status)
    except Exception as error:
        if asked_to_end() and not isinstance(error, Interrupted):
            return _failed("interrupted", Interrupted.status)
        return _failed(_message(error), getattr(error, "status", FlowError.status))


def _message(error: Exception) -> str:
    package = type(error).__module__.split(".")[0]
    if package in _OWN or (type(error) in _TOLD and str(error)):
        return str(error)
    return f"{type(error).__name__}: {error} (--debug shows where)"


def _failed(message: str, status: int) -> int:
    if os.environ.get(_DEBUG):
        traceback.print_exc()
    print("ism-dask:", printable(" ".join(message.split())), file=sys.stderr)
    return status


if __name__ == "__main__":
    main()
