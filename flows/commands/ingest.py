"""Store a data set."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.commands.prefecting import Work
from flows.console import Output
from flows.settings import IngestSettings

EXAMPLE = "Example: ism-dask ingest mnist --split train"
HIDDEN = False

_WORK = Work(plain="flows.work.storing:store", flow="flows.ingest:run_ingest")


def run(
    settings: IngestSettings,
    *,
    plain: Annotated[bool, typer.Option("--plain", help="Run without Prefect.")] = False,
    output: Output,
) -> None:
    """Read a data set's raw files, check them, and store the rows."""
    summary = _WORK.carried_out(settings, output, plain=plain)
    output.say(
        f"{summary['dataset']} ({summary['split']}): {summary['rows']:,} rows, "
        f"{summary['columns']:,} columns, at {summary['path']}"
    )
    output.finish(summary)
