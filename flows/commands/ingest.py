"""Store a data set."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.console import Output

EXAMPLE = "Example: ism-dask ingest mnist --split train"
HIDDEN = False


def run(
    name: Annotated[
        str, typer.Argument(help="Name of a data set; `ism-dask datasets` lists them.")
    ],
    *,
    split: Annotated[
        str | None, typer.Option(help="Part of the data set. Default: its first.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace what is stored.")] = False,
    output: Output,
) -> None:
    """Read a data set's raw files, check them, and store the rows."""
    from flows.known import check_name  # noqa: PLC0415
    from flows.work.data import ensure_stored  # noqa: PLC0415

    check_name(name, split)
    with output.watched():
        data = ensure_stored(name, split, force=force, weight=1.0)
        # Who asks for it by name wants to know that it is whole, not only that it is there.
        data.X.verify()
    rows, columns = data.X.shape
    output.say(f"{data.name} ({data.split}): {rows:,} rows, {columns:,} columns, at {data.path}")
    output.finish(
        {
            "command": "ingest",
            "dataset": data.name,
            "split": data.split,
            "rows": rows,
            "columns": columns,
            "labels": {label: len(names) for label, names in data.class_names.items()},
            "data_hash": data.data_hash,
            "path": str(data.path),
        }
    )
