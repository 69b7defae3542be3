"""Rerun the paper's tables."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from flows.commands.prefecting import Work
from flows.console import Output
from flows.errors import FlowError
from flows.paper.settings import TablesSettings

EXAMPLE = "Example: ism-dask tables --parts table-4 --data wine,cancer --out wine-cancer"
HIDDEN = False

_WORK = Work(plain="flows.paper.running:tables_plain", flow="flows.tables:run_tables")


def run(
    settings: TablesSettings,
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", help="Folder for tables in Markdown and the page in HTML as well."
        ),
    ] = None,
    plain: Annotated[bool, typer.Option("--plain", help="Run without Prefect.")] = False,
    output: Output,
) -> None:
    """Measure the paper's tables and figures anew, rivals included, beside what was published.

    Each fold is kept as soon as it is measured: the same command goes on where the last one was
    interrupted. Wine, Cancer and Face take some ten minutes, MNIST hours.
    """
    summary = _WORK.carried_out(settings, output, plain=plain)
    _show(summary, output)
    if out is not None:
        from flows.work.runs import write_tables  # noqa: PLC0415

        for path in write_tables(summary["run"], out):
            output.say(str(path))
    output.finish(summary)
    problems = summary["problems"]
    if problems:
        raise FlowError(
            f"{len(problems)} of the cells and lines could not be measured to the end; the first: "
            f"{problems[0]}. The others are kept as {summary['run']}"
        )


def _show(summary: dict[str, Any], output: Output) -> None:
    from flows.reports.paper import tables  # noqa: PLC0415

    for table in tables(summary):
        columns, rows = table.brief()
        output.say(table.title)
        output.table(columns, rows, left=1)
        for line in table.lost:
            output.say(f"lost: {line}")
    output.say(f"kept as {summary['run']}; `ism-dask report {summary['run']}` makes a page of it")
