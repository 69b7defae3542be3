"""Cross-validate."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from flows import wording
from flows.commands.prefecting import Work
from flows.console import Output
from flows.settings import CrossvalSettings

EXAMPLE = "Example: ism-dask crossval wine --kernel gaussian -q 3 --plain"
HIDDEN = False

_WORK = Work(plain="flows.work.folds:crossval_plain", flow="flows.crossval:run_crossval")


def run(
    settings: CrossvalSettings,
    *,
    plain: Annotated[bool, typer.Option("--plain", help="Run without Prefect.")] = False,
    output: Output,
) -> None:
    """Cross-validate W: how well an RBF support vector machine tells the classes by X W.

    W is fitted to the training rows of each fold alone.

    The last rows of the table are mean and population standard deviation.
    """
    answer(settings, output, plain=plain)


def answer(settings: CrossvalSettings, output: Output, *, plain: bool) -> None:
    """Do what is asked for, and show what came of it."""
    summary = _WORK.carried_out(settings, output, plain=plain)
    output.say(
        f"{settings.title}: {summary['rows']:,} rows, {summary['columns']:,} columns, "
        f"q = {summary['n_components']}"
    )
    _show(summary, output)
    output.finish(summary)


def _show(summary: dict[str, Any], output: Output) -> None:
    from flows.reports.facts import FOLD_COLUMNS, fold_rows  # noqa: PLC0415

    results, rows = summary["results"], fold_rows(summary)
    output.table(FOLD_COLUMNS, rows[:-2], rows[-2:], left=1)
    unsettled = [result for result in results if not result["converged"]]
    for status in dict.fromkeys(result["status"] for result in unsettled):
        alike = [str(result["fold"]) for result in unsettled if result["status"] == status]
        output.say(f"not converged: fold {', '.join(alike)} {wording.ending(status)}")
    if noted := wording.notes(results):
        output.say(noted)
    output.say(f"kept as {summary['run']}; `ism-dask report {summary['run']}` makes a page of it")
