"""The commands for saved runs: runs, show and report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.options import RunName
from flows.cli.output import Output

if TYPE_CHECKING:
    from flows.reports.summary import Fact
    from flows.reports.view import View


def runs(*, output: Output) -> None:
    """List the saved runs, newest first, and the interrupted ones.

    Damaged ones say what is wrong with them.
    """
    from flows.reports.listing import COLUMNS, run_cells, run_record  # noqa: PLC0415
    from flows.runs.lease import describe_unfinished, list_leases  # noqa: PLC0415
    from storage import list_runs  # noqa: PLC0415

    runs = list_runs()
    if runs:
        output.table(COLUMNS, [run_cells(each) for each in runs], left=4)
    else:
        output.say("no runs yet; try `ism-dask fit wine` or `ism-dask crossval wine`")
    for each in runs:
        if each.problem:
            output.say(each.problem)
    unfinished = [describe_unfinished(lease) for lease in list_leases()]
    for entry in unfinished:
        output.say(f"{entry['name']}: {entry['told']}")
    answer = {"runs": [run_record(each) for each in runs], "unfinished": unfinished}
    output.finish({"command": "runs", **answer})


# `show` lists this many weights of each new feature.
_TOP_WEIGHTS = 6


def show(
    name: RunName,
    *,
    output: Output,
) -> None:
    """Show a saved run: figures, how far to trust them, weights, configuration."""
    from flows.reports.files import view_of  # noqa: PLC0415
    from flows.reports.listing import full_record  # noqa: PLC0415
    from flows.reports.summary import key_figures, run_settings, run_subject, trust_figures  # noqa: PLC0415

    view = view_of(name)
    subject = run_subject(view.run)
    output.say(f"{name} ({view.run.kind}, saved {view.run.created:%Y-%m-%d %H:%M} UTC)")
    output.say(subject)
    output.table(("figure", "value"), _fact_rows(key_figures(view.run)), left=2)
    trust = [[fact.name, fact.value, fact.meaning] for fact in trust_figures(view.run)]
    output.table(("how far to trust it", "", ""), trust, left=3)
    _show_cluster_sizes(view, output)
    _show_components(view, output)
    _show_folds(view, output)
    versions = " ".join(f"{name} {version}," for name, version in view.run.versions.items())
    output.table(("setting", "value"), _fact_rows(run_settings(view.run)), left=2)
    output.say(f"computed with {versions.rstrip(',')}")
    output.say(f"saved at {view.run.path}")
    output.finish({"command": "show", **full_record(view)})


def _fact_rows(facts: list[Fact]) -> list[list[str]]:
    return [[fact.name, fact.value] for fact in facts]


def _show_cluster_sizes(view: View, output: Output) -> None:
    sizes = view.metrics.get("sizes", [])
    if sizes:
        rows = [[str(number), f"{size:,}"] for number, size in enumerate(sizes)]
        output.table(("cluster", "rows"), rows, left=1)


def _show_components(view: View, output: Output) -> None:
    if view.model is None:
        return
    rows = [
        [
            f"feature_{number}",
            ", ".join(
                f"{name} {weight:+.2f}" for name, weight in view.ranked(number, _TOP_WEIGHTS)
            ),
            f"{value:.4g}",
        ]
        for number, value in enumerate(view.model.eigenvalues)
    ]
    output.table(("feature", "largest weights (standardised)", "eigenvalue"), rows, left=2)


def _show_folds(view: View, output: Output) -> None:
    from flows.reports.summary import FOLD_COLUMNS, fold_rows  # noqa: PLC0415

    if view.run.kind == "crossval":
        rows = fold_rows(view.metrics)
        output.table(FOLD_COLUMNS, rows[:-2], rows[-2:], left=1)


def report(
    name: RunName,
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="The .html file. Default: in the folder of the run."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    output: Output,
) -> None:
    """Write the report of a run: one HTML page with its figures, without other files."""
    from flows.reports.files import write_report  # noqa: PLC0415

    path = write_report(name, out)
    output.say(str(path))
    if show:
        import webbrowser  # noqa: PLC0415

        if not webbrowser.open(path.resolve().as_uri()):
            output.say("no browser was found; open the file above in one")
    output.finish({"command": "report", "run": name, "path": str(path)})
