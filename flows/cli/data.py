"""The commands for data: datasets, ingest, transform and check."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.launch import INGEST
from flows.cli.options import Plain
from flows.cli.output import Output
from flows.settings.base import IngestSettings
from flows.text import count_noun

if TYPE_CHECKING:
    from flows.results.base import IngestResult


def datasets(
    name: Annotated[
        str | None,
        typer.Argument(metavar="[NAME]", help="Show this one, with the schema of its table."),
    ] = None,
    *,
    output: Output,
) -> None:
    """List all data sets and whether they are stored, or show one."""
    from flows.runs.inventory import find_entries, list_entries  # noqa: PLC0415

    entries = list_entries() if name is None else find_entries(name)
    columns = ("name", "split", "labels (classes)", "title", "rows", "columns", "stored")
    output.table(columns, [entry.cells() for entry in entries], left=4)
    answer: dict[str, Any] = {"datasets": [entry.to_json() for entry in entries]}
    if name is not None and (table := _stored_table(name)):
        from flows.interface.columns_read import describe_schema  # noqa: PLC0415
        from storage.tables.schema import TableSchema  # noqa: PLC0415

        show_schema(table["schema"], output)
        output.say(describe_schema(TableSchema.from_json(table["schema"])))
        files = [file["path"] for file in table["files"]]
        if files:
            output.say(f"made from {files[0]}" + (f" and {len(files) - 1} more" * (len(files) > 1)))
        answer["table"] = table
    output.finish({"command": "datasets", **answer})


def _stored_table(name: str) -> dict[str, Any] | None:
    """Return the record of the table that a stored data set was made from, if it was one."""
    from flows.builtin.catalogue import DATASETS  # noqa: PLC0415
    from storage import open_dataset  # noqa: PLC0415

    table = None if name in DATASETS else open_dataset(name).info.table
    return None if table is None else dict(table)


def remove(
    name: Annotated[str, typer.Argument(help="A stored data set.")],
    *,
    force: Annotated[
        bool, typer.Option("--force", help="Remove it even if a refresh reads it.")
    ] = False,
    output: Output,
) -> None:
    """Remove a stored data set; runs computed from it stay. `ism-dask rm` removes a run."""
    from flows.runs.inventory import remove_stored  # noqa: PLC0415

    path = remove_stored(name, force=force)
    output.say(f"removed {path}")
    output.finish({"command": "remove", "dataset": name, "path": str(path)})


def ingest(
    settings: IngestSettings,
    *,
    plain: Plain = False,
    output: Output,
) -> None:
    """Store a data set: a built-in one by its name, or a table of yours by its path."""
    # A dry run stores nothing, so there is nothing for Prefect to record.
    result: IngestResult = INGEST.run(settings, output, plain=plain or settings.dry_run)
    if result.schema is not None:
        show_schema(result.schema, output)
    where = f"at {result.path}" if result.path else "not stored: a dry run"
    output.say(
        f"{result.dataset} ({result.split}): {result.rows:,} rows, {result.columns:,} columns, "
        f"{where}"
    )
    output.finish(result.to_json())


def show_schema(record: Mapping[str, Any], output: Output) -> None:
    """Print how the columns of a table are read."""
    from flows.interface.columns_read import SCHEMA_COLUMNS, schema_cells  # noqa: PLC0415
    from storage.tables.schema import TableSchema  # noqa: PLC0415

    output.table(SCHEMA_COLUMNS, schema_cells(TableSchema.from_json(record)), left=3)


def transform(
    model: Annotated[
        str, typer.Argument(metavar="RUN", help="A run of `ism-dask fit`, `cluster` or `unfold`.")
    ],
    source: Annotated[str, typer.Argument(help="A data set, or the path of a table.")],
    *,
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "-o",
            help="File to write: .csv, .parquet, .feather, .arrow, .npy or .zarr; or a new folder "
            "for a part of each file.",
        ),
    ],
    split: Annotated[str | None, typer.Option(help="Part of the data set.")] = None,
    unseen: Annotated[
        str,
        typer.Option(help="Levels that the run has not seen: refuse them, or ignore them."),
    ] = "refuse",
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            "--cluster",
            help="Where to compute: an address, `up` or a cluster file, as for fit. Default: here.",
        ),
    ] = None,
    output: Output,
) -> None:
    """Write the new features that a run has learned, of the rows of a data set or a table.

    A run of `ism-dask unfold` places the rows in its picture.

    The columns of a table are read by name, in any order.
    """
    from flows.runs.transform import transform_rows  # noqa: PLC0415

    with output.watched():
        summary = transform_rows(model, source, out, split, unseen=unseen, scheduler=scheduler)
    show_projected(summary, output)
    output.finish(summary)


def show_projected(summary: Mapping[str, Any], output: Output) -> None:
    """Print what was written of rows, and how far they are from those of the fit.

    `summary` is what `transform_rows` returns.
    """
    left_out = summary.get("rows_left_out")
    without = f", {left_out:,} left out, which lack a value" if left_out else ""
    new = count_noun(summary["n_components"], "new feature")
    output.say(f"{summary['out']}: {summary['rows']:,} rows, {new}{without}")
    if summary["ignored"]:
        output.say(f"ignored: {', '.join(summary['ignored'])} (labels, or left out of the fit)")
    rows = [
        [
            each["name"],
            f"{each['share_outside']:.1%}",
            f"{each['mean_shift']:+.2f} deviations",
        ]
        for each in summary["drift"]
    ]
    if rows:
        output.table(
            ("new feature", "outside the range of the fit", "shift of the mean"), rows, left=1
        )


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
    from flows.text import byte_size  # noqa: PLC0415

    with output.watched():
        checked = check_files(names or [])
    rows = [
        [each.item.name, each.item.kind, each.verdict, str(each.files), byte_size(each.bytes)]
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
