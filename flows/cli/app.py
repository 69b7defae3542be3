"""The command `ism-dask`: its subcommands, its exit status and its error messages.

Nothing heavy is imported until a subcommand needs it, so that `--help` answers at once.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.metadata import version
from inspect import getdoc
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from flows.cli import compute, run_file, services, stored
from flows.cli.options import Command, CommandGroup, with_options
from flows.errors import FailureAnswered, FlowError, Interrupted, SettingsError
from flows.progress.interrupts import INTERRUPTED, exit_process, install_signal_handlers
from ism_dask.words import printable

# The base class of Typer's errors for a wrong command line; Typer exports only subclasses of it.
_CommandLineError: Any = typer.BadParameter.__mro__[1]
# Errors defined in these packages have messages for users, printed without the class name ...
_OWN_PACKAGES = ("flows", "storage", "ism_dask")
# ... and so have these built-in ones, which `ism_dask` raises if it needs no class of its own.
_BUILTIN_ERRORS = (ValueError, MemoryError)

app = typer.Typer(
    name="ism-dask",
    cls=CommandGroup,
    pretty_exceptions_enable=False,
    help="Interpretable kernel dimension reduction, on Dask, Prefect and Zarr.",
    epilog="Example: ism-dask crossval wine --kernel gaussian",
)
# The commands by the panels of `--help`, in their order, each with an example.
_COMMANDS: dict[str, tuple[tuple[Callable[..., None], str], ...]] = {
    "Data": (
        (stored.datasets, "ism-dask datasets"),
        (stored.ingest, "ism-dask ingest sales.csv --label churned --drop id"),
    ),
    "Compute a run": (
        (compute.fit, "ism-dask fit wine --kernel gaussian -q 2 --run wine-2d"),
        (compute.crossval, "ism-dask crossval wine --criterion both -q 3"),
        (compute.cluster, "ism-dask cluster face --paradigm alternative --avoid identity -k 4"),
        (compute.resume, "ism-dask resume mnist-gaussian-q10"),
        (compute.cancel, "ism-dask cancel mnist-gaussian-q10"),
    ),
    "Use and manage runs": (
        (stored.runs, "ism-dask runs"),
        (stored.show, "ism-dask show wine-gaussian-q2"),
        (stored.report, "ism-dask report wine-gaussian-q2 -o wine.html --open"),
        (stored.transform, "ism-dask transform wine-gaussian-q2 wine -o wine-2.csv"),
        (stored.check, "ism-dask check mnist wine-gaussian-q2"),
        (stored.remove, "ism-dask remove sales wine-gaussian-q2"),
    ),
    "Run files and refreshes": (
        (run_file.init, "ism-dask init sales.toml --data sales.csv --label churned"),
        (run_file.run, "ism-dask run sales.toml --dry-run"),
        (run_file.schedule, "ism-dask schedule sales.toml --cron '0 2 * * *'"),
        (run_file.history, "ism-dask history sales -o history.html"),
    ),
    "Services": ((services.up, "ism-dask up --workers 4 --memory 4GB"),),
}
for _panel, _commands in _COMMANDS.items():
    for _command, _example in _commands:
        app.command(
            _command.__name__.replace("_", "-"),
            cls=Command,
            help=escape(getdoc(_command) or ""),
            epilog=f"Example: {_example}",
            rich_help_panel=_panel,
        )(with_options(_command))


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"ism-dask {version('ism-dask')}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _common(
    context: typer.Context,
    _version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_show_version,
            is_eager=True,
            help="Print the version.",
            rich_help_panel="Output",
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(SettingsError.status)


def main() -> None:
    """Run the command line and end the process with its exit status."""
    # What is printed to a stream that the caller has closed (`>&-`), which is None, goes nowhere;
    # Python would print errors among the results, and a file that is opened could be the stream.
    for closed in (name for name in ("stdout", "stderr") if getattr(sys, name) is None):
        setattr(sys, closed, Path(os.devnull).open("w"))  # noqa: SIM115 - until the end
    # On SIGTERM a command leaves its Dask cluster and reports the interruption, as on Ctrl-C.
    install_signal_handlers()
    exit_process(_run_command())


def _run_command() -> int:
    """Run the command; return 0, 1 (failed), 2 (wrong usage) or 130 (interrupted)."""
    try:
        _check_arguments()
        status = int(app(prog_name=app.info.name, standalone_mode=False) or 0)
        sys.stdout.flush()  # a reader that has gone is an error here, and not at exit
        # Typer ends silently if the interruption came before the command itself ran.
        return _report_error("interrupted", status) if status == Interrupted.status else status
    except (KeyboardInterrupt, typer.Abort):
        return _report_error("interrupted", Interrupted.status)
    except BrokenPipeError:
        _discard_output()  # its reader has gone
        return FlowError.status
    except _CommandLineError as error:
        cause = error.__cause__  # of pydantic, whose words lack the value
        got = f", got {cause.errors()[0]['input']!r}" if hasattr(cause, "errors") else ""
        message = f"{error.format_message()}{got} (ism-dask --help)"
        return _report_error(message, SettingsError.status)
    except Exception as error:
        if INTERRUPTED.is_set() and not isinstance(error, Interrupted):
            return _report_error("interrupted", Interrupted.status)
        status = getattr(error, "status", FlowError.status)
        return _report_error(_message(error), status, answered=isinstance(error, FailureAnswered))


def _check_arguments() -> None:
    # Python has halves of characters in place of other bytes.
    if odd := [each for each in sys.argv if each.encode(errors="ignore").decode() != each]:
        raise SettingsError(f"the argument {odd[0]!r} is not UTF-8; rename the file or folder")
    if (home := os.environ.get("ISM_DASK_HOME", "")) and Path(home).expanduser().is_file():
        raise SettingsError(f"ISM_DASK_HOME is {home!r}, which is a file; name a folder")


def _message(error: Exception) -> str:
    package = type(error).__module__.split(".")[0]
    if package in _OWN_PACKAGES or (type(error) in _BUILTIN_ERRORS and str(error)):
        return _with_flags(str(error), getattr(error, "settings", None))
    return f"{type(error).__name__}: {error} (--debug shows where)"


def _with_flags(message: str, settings: Sequence[str] | None) -> str:
    """Return a message with options of the command in place of these settings, None for all."""
    commands: dict[str, Any] = vars(typer.main.get_command(app))["commands"]
    command = commands.get(next(iter(sys.argv[1:]), ""))
    params = [] if command is None else command.params
    for each in params:
        if each.param_type_name == "option" and (settings is None or each.name in settings):
            message = message.replace(f"`{each.name}`", f"`{each.opts[0]}`")
    return message


def _report_error(message: str, status: int, *, answered: bool = False) -> int:
    """Print an error on stderr and, with `--json`, as an object unless the command has answered."""
    # The process ends by itself now, also for those who press Ctrl-C several times.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "--debug" in sys.argv:
        traceback.print_exc()
    line = printable(" ".join(message.split()))
    if "--json" in sys.argv and not answered:
        with suppress(OSError):  # the disk of the output may be full, as the error says then
            print(json.dumps({"error": line, "status": status}))
    try:
        sys.stdout.flush()
    except OSError:
        _discard_output()
    print("ism-dask:", line, file=sys.stderr)
    return status


def _discard_output() -> None:
    """Let what waits to be printed go nowhere: Python would write it at exit, and fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
