"""The commands for what is stored: data sets, runs, the files of both, and reports."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.compute import run_flow
from flows.cli.options import Plain, Replace, RunName, check_free
from flows.cli.output import Output, print_summary
from flows.errors import SettingsError
from flows.settings.base import IngestSettings, TransformSettings
from ism_dask.words import byte_size, count_noun

if TYPE_CHECKING:
    from flows.results.runs import IngestResult


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Show this one, with the schema of its table."),
    ] = None,
    *,
    output: Output,
) -> None:
    """List all data sets and whether they are stored, or show one."""
    from flows.builtin.catalogue import DATASETS  # noqa: PLC0415
    from flows.runs.inventory import list_entries  # noqa: PLC0415
    from storage import open_dataset  # noqa: PLC0415

    entries = list_entries(name)
    columns = ("name", "split", "labels (classes)", "rows", "columns", "stored")
    output.table(columns, map(_cells, entries), left=3)
    answer: dict[str, Any] = {"datasets": entries}
    table = None if name is None or name in DATASETS else open_dataset(name).info.table
    if name is not None:
        output.say(entries[0]["title"])
    if table is not None:
        _show_schema(table["schema"], output, described=True)
        files = [file["path"] for file in table["files"]]
        if files:
            output.say(f"made from {files[0]}" + (f" and {len(files) - 1} more" * (len(files) > 1)))
        answer["table"] = dict(table)
    output.finish({"command": "datasets", **answer})


def _cells(entry: Mapping[str, Any]) -> list[str]:
    """Return the row of a data set in the table of all."""
    labels = [name if k is None else f"{name} ({k})" for name, k in entry["labels"].items()]
    numbers = ["?" if entry[key] is None else f"{entry[key]:,}" for key in ("rows", "columns")]
    size = byte_size(entry["bytes"]) if entry["stored"] else "no"
    where = "damaged" if entry["problem"] else size
    return [entry["name"], entry["split"], ", ".join(labels) or "none", *numbers, where]


def remove(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME...", help="Data sets and runs; data:NAME or run:NAME if both have it."
        ),
    ],
    *,
    force: Annotated[
        bool,
        typer.Option("--force", help="Remove it even if a refresh or a published run uses it."),
    ] = False,
    output: Output,
) -> None:
    """Remove data sets and runs, also interrupted ones. Removing a data set leaves its runs."""
    from flows.runs.inventory import remove_stored  # noqa: PLC0415

    paths = remove_stored(names, force=force)
    for path in paths:
        output.say(f"removed {path}")
    output.finish({"command": "remove", "names": names, "paths": list(map(str, paths))})


def ingest(settings: IngestSettings, *, plain: Plain = False, output: Output) -> None:
    """Store a data set: a built-in one by its name, or a table of yours by its path."""
    result = ingested(settings, output, plain=plain)
    output.say(result.line)
    output.finish(result.to_json())


def ingested(settings: IngestSettings, output: Output, *, plain: bool) -> IngestResult:
    """Store a data set, print how the columns of a table are read, and return the result."""
    # A dry run stores nothing, so there is nothing for Prefect to record.
    plain = plain or settings.dry_run
    result: IngestResult = run_flow("ingest", settings, output, plain=plain)
    if result.schema is not None:
        _show_schema(result.schema, output)
    return result


def _show_schema(record: Mapping[str, Any], output: Output, *, described: bool = False) -> None:
    """Print how the columns of a table are read."""
    from flows.runs import columns_read  # noqa: PLC0415
    from storage.tables.schema import TableSchema  # noqa: PLC0415

    schema = TableSchema.from_json(record)
    output.table(columns_read.SCHEMA_COLUMNS, columns_read.schema_cells(schema), left=3)
    if described:
        output.say(columns_read.describe_schema(schema))


def transform(
    model: Annotated[
        str, typer.Argument(metavar="RUN", help="A run of `ism-dask fit` or `cluster`.")
    ],
    settings: TransformSettings,
    *,
    force: Replace = False,
    output: Output,
) -> None:
    """Write the new features of the rows of a data set or a table, by the W of a run.

    The columns of a table are read by name, in any order.
    """
    from flows.runs.transform import transform_rows  # noqa: PLC0415

    check_free(settings.out, force=force)
    with output.watched():
        summary = transform_rows(model, settings)
    show_projected(summary, output)
    output.finish(summary)


def show_projected(summary: Mapping[str, Any], output: Output) -> None:
    """Print what `transform_rows` has written, and how far the rows are from those of the fit."""
    left_out = summary["rows_left_out"]
    without = f", {left_out:,} left out, which lack a value" if left_out else ""
    new = count_noun(summary["n_components"], "new feature")
    output.say(f"{summary['out']}: {count_noun(summary['rows'], 'row')}, {new}{without}")
    if summary["ignored"]:
        output.say(f"ignored: {', '.join(summary['ignored'])} (labels, or left out of the fit)")
    columns = ("new feature", "outside the range of the fit", "shift of the mean")
    rows = [
        [each["name"], f"{each['share_outside']:.1%}", f"{each['mean_shift']:+.2f} deviations"]
        for each in summary["drift"]
    ]
    if rows:
        output.table(columns, rows, left=1)


def check(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Data sets and runs. Default: all of them."),
    ] = None,
    *,
    output: Output,
) -> None:
    """Read every stored file and name those that are damaged."""
    from flows.runs.inventory import check_files  # noqa: PLC0415

    with output.watched():
        checked = check_files(names or [])
    rows = [
        [
            each.item.name,
            each.item.kind,
            "damaged" if each.problems else "whole",
            str(each.files),
            byte_size(each.bytes),
        ]
        for each in checked
    ]
    if rows:
        output.table(("name", "kind", "files are", "files", "size"), rows, left=3)
    else:
        output.say("nothing is stored yet; try `ism-dask ingest wine` or `ism-dask fit wine`")
    problems = [problem for each in checked for problem in each.problems]
    for problem in problems:
        output.say(str(problem))
    answer = {"command": "check", "checked": [each.to_json() for each in checked]}
    if problems:
        damaged = [each.item.name for each in checked if each.problems]
        output.fail(
            answer,
            f"{count_noun(len(problems), 'file')} of {', '.join(damaged)} "
            f"{'is' if len(problems) == 1 else 'are'} damaged, the first {problems[0]}; ingest a "
            "data set again with --force, compute a run again",
        )
    output.finish(answer)


def runs(*, output: Output) -> None:
    """List the saved runs, newest first, and the interrupted ones.

    For a damaged run it says what is wrong.
    """
    from flows.reports.summary import COLUMNS, run_cells, run_record  # noqa: PLC0415
    from flows.services.leases import describe_unfinished, list_leases  # noqa: PLC0415
    from storage import list_runs  # noqa: PLC0415

    runs = list_runs()
    if runs:
        output.table(COLUMNS, [run_cells(each, COLUMNS) for each in runs], left=4)
    else:
        output.say("no runs yet; try `ism-dask fit wine` or `ism-dask crossval wine`")
    for each in runs:
        if each.problem:
            output.say(each.problem)
    unfinished = [describe_unfinished(lease) for lease in list_leases()]
    for entry in unfinished:
        output.say(f"{entry['name']}: {entry['description']}")
    answer = {"runs": [run_record(each) for each in runs], "unfinished": unfinished}
    output.finish({"command": "runs", **answer})


def show(
    name: RunName,
    *,
    row: Annotated[
        int | None,
        typer.Option(help="Show why this row of its data set, from 0, has its new features."),
    ] = None,
    output: Output,
) -> None:
    """Show a saved run: figures, how far to trust them, weights, configuration.

    Or one row: what each column adds to its new features.
    """
    from flows.reports.summary import View, full_json, summary_of  # noqa: PLC0415

    if row is not None:
        from flows.reports.fits import row_table  # noqa: PLC0415
        from flows.runs.transform import explain_row  # noqa: PLC0415

        explained = explain_row(name, row)
        output.say(f"what each column of row {row} adds to its new features in the run {name}")
        output.show(row_table(explained, ""))
        output.finish({"command": "show", "run": name, **explained.to_json()})
        return
    view = View.of(name)
    summary = summary_of(view)
    output.say(f"{name} ({view.run.kind}, saved {view.run.created:%Y-%m-%d %H:%M} UTC)")
    print_summary(summary, output)
    output.say(f"saved at {view.run.path}")
    output.finish({"command": "show", **full_json(view)})


def report(
    name: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Its name; `ism-dask runs` lists them.")
    ] = None,
    *,
    every: Annotated[
        bool, typer.Option("--all", help="Write the reports of all runs, and an index of them.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            help="The .html, .md or .json file; of --all the folder. Default: in the folder "
            "`reports` of the home.",
        ),
    ] = None,
    card: Annotated[
        bool,
        typer.Option("--card", help="Write a model card: Markdown, with a header for model hubs."),
    ] = False,
    force: Replace = False,
    show: Annotated[bool, typer.Option("--open", help="Open it in a browser.")] = False,
    output: Output,
) -> None:
    """Write the report of a run: one HTML page with its figures, without other files.

    Or the same as Markdown or JSON, by the name of the file.
    """
    from flows.reports.pages import write_all_reports, write_card, write_report  # noqa: PLC0415
    from storage import reports_folder  # noqa: PLC0415

    if every:
        if name is not None:
            raise SettingsError(f"--all and the run {name!r} exclude each other; give one of them")
        if card:
            raise SettingsError("--all and --card exclude each other; name the run of the card")
        if out and out.is_file():
            raise SettingsError(f"{out} is a file; --all writes a folder: name another")
        check_free(out / "index.html" if out and out.is_dir() else None, force=force)
        with output.watched():
            path = write_all_reports(out or reports_folder())
    elif name is None:
        raise SettingsError("which report? Give the name of a run, or --all")
    else:
        check_free(out, force=force)
        path = write_card(name, out) if card else write_report(name, out)
    output.say(str(path))
    if show:
        import webbrowser  # noqa: PLC0415

        if not webbrowser.open(path.resolve().as_uri()):
            output.say("no browser was found; open the file above in one")
    output.finish({"command": "report", "run": name, "path": str(path)})
