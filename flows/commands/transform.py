"""Project rows with a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from flows.console import Output

EXAMPLE = "Example: ism-dask transform wine-gaussian-q2 wine -o wine-2.csv"
HIDDEN = False


def run(
    model: Annotated[
        str, typer.Argument(metavar="RUN", help="A run of `ism-dask fit` or `ism-dask cluster`.")
    ],
    source: Annotated[str, typer.Argument(help="A data set, or a .csv or .npy file.")],
    *,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The .csv or .npy file to create or replace.")
    ],
    split: Annotated[str | None, typer.Option(help="Part of the data set.")] = None,
    output: Output,
) -> None:
    """Write the new features that a run has learned of a data set or a file.

    Columns of a .csv file with a header are taken by name.
    """
    from flows.work.transforming import transform  # noqa: PLC0415

    with output.watched():
        summary = transform(model, source, out, split)
    output.say(f"{out}: {summary['rows']:,} rows, {summary['n_components']} new features")
    output.finish(summary)
