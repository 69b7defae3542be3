"""Show a run on a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from flows.console import Output

if TYPE_CHECKING:
    from flows.reports.facts import Fact
    from flows.reports.view import View

EXAMPLE = "Example: ism-dask show wine-gaussian-q2"
HIDDEN = False
# Weights that are shown of each new feature.
_WEIGHTS = 6


def run(
    name: Annotated[
        str, typer.Argument(metavar="RUN", help="Its name; `ism-dask runs` lists them.")
    ],
    *,
    output: Output,
) -> None:
    """Show what is kept of a run: figures, how far to trust them, weights, configuration."""
    from flows.reports.facts import configuration, glance, subject, trust  # noqa: PLC0415
    from flows.reports.listing import whole  # noqa: PLC0415
    from flows.work.runs import view_of  # noqa: PLC0415

    view = view_of(name)
    told = subject(view.run)
    output.say(f"{name} ({view.run.kind}, kept {view.run.created:%Y-%m-%d %H:%M} UTC)")
    output.say(told)
    output.table(("figure", "value"), _rows(glance(view.run)), left=2)
    meant = [[fact.name, fact.value, fact.meaning] for fact in trust(view.run)]
    output.table(("how far to trust it", "", ""), meant, left=3)
    _clusters(view, output)
    _components(view, output)
    _folds(view, output)
    versions = " ".join(f"{name} {version}," for name, version in view.run.versions.items())
    output.table(("setting", "value"), _rows(configuration(view.run)), left=2)
    output.say(f"computed with {versions.rstrip(',')}")
    output.say(f"kept at {view.run.path}")
    output.finish({"command": "show", **whole(view)})


def _rows(facts: list[Fact]) -> list[list[str]]:
    return [[fact.name, fact.value] for fact in facts]


def _clusters(view: View, output: Output) -> None:
    sizes = view.metrics.get("sizes", [])
    if sizes:
        rows = [[str(number), f"{size:,}"] for number, size in enumerate(sizes)]
        output.table(("cluster", "rows"), rows, left=1)


def _components(view: View, output: Output) -> None:
    if view.model is None:
        return
    rows = [
        [
            f"feature_{number}",
            ", ".join(f"{name} {weight:+.2f}" for name, weight in view.ranked(number, _WEIGHTS)),
            f"{value:.4g}",
        ]
        for number, value in enumerate(view.model.eigenvalues)
    ]
    output.table(("feature", "largest weights (standardised)", "eigenvalue"), rows, left=2)


def _folds(view: View, output: Output) -> None:
    from flows.reports.facts import FOLD_COLUMNS, fold_rows  # noqa: PLC0415

    if view.run.kind == "crossval":
        rows = fold_rows(view.metrics)
        output.table(FOLD_COLUMNS, rows[:-2], rows[-2:], left=1)
