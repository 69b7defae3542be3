"""Cross-validate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import typer

from flows.commands.prefecting import with_prefect
from flows.console import Output
from flows.settings import CrossvalSettings

EXAMPLE = "Example: ism-dask crossval wine --kernel gaussian -q 3 --plain"
HIDDEN = False

_Work = Callable[[CrossvalSettings], dict[str, Any]]


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
    work = _plain() if plain else _flow(output)
    with output.watched():
        summary = work(settings)
    output.say(
        f"{settings.title}: {summary['rows']:,} rows, {summary['columns']:,} columns, "
        f"q = {summary['n_components']}"
    )
    _show(summary, output)
    output.finish(summary)


def _plain() -> _Work:
    from flows.folds import crossval_plain  # noqa: PLC0415

    return crossval_plain


def _flow(output: Output) -> _Work:
    with_prefect(output)
    from flows.crossval import run_crossval  # noqa: PLC0415

    return run_crossval


def _show(summary: dict[str, Any], output: Output) -> None:
    results = summary["results"]
    folds = [[str(result["fold"]), *_cells(result)] for result in results]
    ends = [[kind, *_cells(summary[kind])] for kind in ("mean", "sd")]
    output.table(("fold", "accuracy", "cost", "seconds", "iterations"), folds, ends, left=1)
    unsettled = [str(result["fold"]) for result in results if not result["converged"]]
    if unsettled:
        output.say(
            f"not settled after {summary['settings']['max_iter']} iterations: fold "
            f"{', '.join(unsettled)}; the best W so far was kept. Raise --max-iter or --tol"
        )


def _cells(values: dict[str, Any]) -> list[str]:
    return [
        f"{values['accuracy']:.4f}",
        f"{values['cost']:,.4f}",
        f"{values['seconds']:.3f}",
        f"{values['iterations']:g}",
    ]
