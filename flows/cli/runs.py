"""The commands for saved runs: runs, compare, rm, show and report."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import RunName
from flows.cli.output import Output
from flows.cli.summary import print_summary


def runs(*, output: Output) -> None:
    """List the saved runs, newest first, and the interrupted ones.

    Damaged ones say what is wrong with them.
    """
    from flows.reports.run_listing import COLUMNS, run_cells, run_record  # noqa: PLC0415
    from flows.services.leases import describe_unfinished, list_leases  # noqa: PLC0415
    from storage import list_runs  # noqa: PLC0415

    runs = list_runs()
    if runs:
        output.table(COLUMNS, [run_cells(each) for each in runs], left=4)
    else:
        output.say("no runs yet; try `ism-dask fit wine` or `ism-dask crossval wine`")
    for each in runs:
        if each.problem or each.copy_of:
            output.say(each.problem or f"{each.name} is a copy of {each.copy_of}")
    unfinished = [describe_unfinished(lease) for lease in list_leases()]
    for entry in unfinished:
        output.say(f"{entry['name']}: {entry['description']}")
    answer = {"runs": [run_record(each) for each in runs], "unfinished": unfinished}
    output.finish({"command": "runs", **answer})


def compare(
    first: RunName,
    second: RunName,
    *,
    output: Output,
) -> None:
    """Compare two runs: settings, figures, the angles between their W, weights that moved most."""
    from flows.refreshes.run_comparison import compare_runs  # noqa: PLC0415

    comparison, new_names = compare_runs(first, second)
    print_summary(comparison.summary(new_names), output)
    output.finish({"command": "compare", **comparison.to_json()})


def rm(
    name: RunName,
    *,
    yes: Annotated[
        bool, typer.Option("--yes", help="Do not ask, whatever the run is used for.")
    ] = False,
    output: Output,
) -> None:
    """Remove a run, finished or interrupted. `ism-dask remove` removes a data set.

    It asks first if the run is published or belongs to a refresh.
    """
    from flows.runs.inventory import remove_saved_run  # noqa: PLC0415

    def confirm(reason: str) -> bool:
        may_ask = sys.stdin.isatty() and not output.silent
        return yes or (may_ask and typer.confirm(f"{reason}. Remove it?", err=True))

    path = remove_saved_run(name, confirm=confirm)
    output.say(f"removed {path}")
    output.finish({"command": "rm", "run": name, "path": str(path)})


def show(
    name: RunName,
    *,
    output: Output,
) -> None:
    """Show a saved run: figures, how far to trust them, weights, configuration."""
    from flows.reports.files import view_of  # noqa: PLC0415
    from flows.reports.run_listing import full_json  # noqa: PLC0415
    from flows.reports.summary import summary_of  # noqa: PLC0415

    view = view_of(name)
    summary = summary_of(view)
    output.say(f"{name} ({view.run.kind}, saved {view.run.created:%Y-%m-%d %H:%M} UTC)")
    print_summary(summary, output)
    output.say(f"saved at {view.run.path}")
    output.finish({"command": "show", **full_json(view)})


def report(
    name: RunName,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The .html, .md or .json file. Default: .html, in the folder of the run.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    output: Output,
) -> None:
    """Write the report of a run: one HTML page with its figures, without other files.

    Or the same as Markdown or JSON, by the name of the file.
    """
    from flows.reports.files import write_report  # noqa: PLC0415

    path = write_report(name, out)
    output.say(str(path))
    if show:
        import webbrowser  # noqa: PLC0415

        if not webbrowser.open(path.resolve().as_uri()):
            output.say("no browser was found; open the file above in one")
    output.finish({"command": "report", "run": name, "path": str(path)})
